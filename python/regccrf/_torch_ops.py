"""The operators behind `regccrf.torch`: tensors in, tensors out, gradients in closed form.

There is one way to a loss, `loss_of`: an autograd function over three operators (`loss`, its gradients, and their change in a direction, so
that losses differentiate twice), each computed where its tensors are (`_torch_cpu`, `_torch_cuda`). On PyTorch 2.4 and later an operator is
registered as a custom one, with a fake implementation, which is what `torch.compile` sees.

Arguments that recur: h emissions [T, B, K] (or [B, T, K] with batch_first), g transitions [K, K], s start and e end [K] or empty,
mask uint8 or bool [T, B] or empty, gold tags [T, B] or sets of labels [T, B, K] or empty, `handle` the number of a constraint
(`_torch_handles`), weights [B], or [] of a reduced loss. Empty stands for absent.

No `from __future__ import annotations` here: operator schemas are read from the annotations.
"""

import inspect
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from . import _torch_cpu as cpu
from . import _torch_cuda as cuda
from ._torch_graph import applied, compiling, empty, exporting, transformed
from ._torch_handles import alive, keeps_rules, packed, unpack

TWICE = ("nll", "log_z")
ONCE = "{} can be differentiated once; log_prob and log_partition can twice"


class LossRequest(NamedTuple):
    """A loss that is wanted, in types that operators take. Words are those of the core's enums, except for `outside`."""
    operation: str            # log_z, nll, partial_nll, entropy, language_mass; on a device the third and the last are parts of a difference
    handle: int
    batch_first: bool
    sign: int = 1
    reduction: str = "none"
    outside: str = "raise"    # gold outside the language: raise, skip, inf
    errors: str = "all"       # what is an error: none, bad_scores, all
    exact: bool = False       # on a device: float64, for differences
    want_h: bool = False      # gradients of h, s and e are wanted
    want_g: bool = False      # … and of g


def _operator(fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The function itself when run eagerly; a custom operator while a graph is being captured, where PyTorch has those. The operator has one
    argument more, the constraint's bytes, which are there in exported programs alone: elsewhere they would be a tensor on the CPU beside those
    on a device, which CUDA graphs do not take."""
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if not hasattr(torch.library, "custom_op"):
            return function
        handle = list(inspect.signature(function).parameters).index("handle")
        with_bytes = torch.library.custom_op(f"regccrf::{function.__name__}", _with_bytes(function, handle), mutates_args=())
        with_bytes.register_fake(lambda *args: fake(*args[:-1]))

        def call(*args: Any) -> Any:
            if not compiling():
                return function(*args)
            return with_bytes(*args, _bytes_of(args[handle]) if exporting() else None)
        return call
    return decorate


def _bytes_of(handle: int) -> Tensor:
    return packed(handle)


if hasattr(torch, "compiler"):
    _bytes_of = torch.compiler.assume_constant_result(_bytes_of)  # a constant of the program, and no input of it


def _with_bytes(function: Callable[..., Any], handle: int) -> Callable[..., Any]:
    """The function with the bytes of a constraint for its last argument. handle: the place of that one."""
    def run(*args: Any) -> Any:
        held = unpack(args[handle], args[-1])
        result = function(*args[:-1])
        del held  # until here
        return result
    signature = inspect.signature(function)
    last = inspect.Parameter("packed", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Optional[Tensor])
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), last])  # type: ignore[attr-defined]
    return run


# --- operators ---------------------------------------------------------------------------------------------------------------


def _backend(h: Tensor, handle: int, whole: bool = False) -> Any:
    """Where it is computed. Rules that are kept beside a base are obeyed on the CPU; `whole`: what a device computes as a difference alone."""
    return cuda if cuda.on_device(h) and not whole and not keeps_rules(handle) else cpu


def _backend_of(h: Tensor, request: "LossRequest") -> Any:
    return _backend(h, request.handle, request.operation in ("partial_nll", "language_mass") and not request.exact)


def _fresh(needed: Sequence[bool], *tensors: Tensor) -> List[Tensor]:
    return [x.new_empty(x.shape if need else (0,)) for x, need in zip(tensors, needed)]


def _fake_loss(h, g, s, e, mask, gold, *fields):  # type: ignore[no-untyped-def]
    request = LossRequest(*fields)
    if _backend_of(h, request) is cuda:
        layout = cuda.SavedLayout.of(h.shape, g.element_size(), request.batch_first, request.want_h, request.want_g)
        return cuda.out_like(h, g, request), [g.new_empty(layout.end, dtype=torch.uint8)]
    B = h.shape[0 if request.batch_first else 1]
    out = h.new_empty((B,) if request.reduction == "none" else ())
    scale = torch.empty(1 + B, dtype=torch.float64)
    if request.operation == "log_z" or not (request.want_h or request.want_g):
        return out, [] if request.reduction == "none" else [scale]
    return out, [scale, *_fresh((request.want_h, request.want_g, request.want_h, request.want_h), h, g, s, e)]


@_operator(_fake_loss)
def loss(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, gold: Tensor, operation: str, handle: int, batch_first: bool, sign: int,
         reduction: str, outside: str, errors: str, exact: bool, want_h: bool, want_g: bool) -> Tuple[Tensor, List[Tensor]]:
    """sign · loss, [B] or reduced, and what is saved for its gradients."""
    request = LossRequest(operation, handle, batch_first, sign, reduction, outside, errors, exact, want_h, want_g)
    return _backend_of(h, request).loss(h, g, s, e, mask, gold, request)  # type: ignore[no-any-return]


@_operator(lambda weights, saved, h, g, s, e, mask, gold, need_h, need_g, need_s, need_e, *request:
           _fresh((need_h, need_g, need_s, need_e), h, g, s, e))
def loss_gradients(weights: Tensor, saved: List[Tensor], h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, gold: Tensor, need_h: bool,
                   need_g: bool, need_s: bool, need_e: bool, operation: str, handle: int, batch_first: bool, sign: int, reduction: str,
                   outside: str, errors: str, exact: bool, want_h: bool, want_g: bool) -> List[Tensor]:
    """The gradients of Σ weights · loss for h, g, s, e; empty where not needed."""
    request = LossRequest(operation, handle, batch_first, sign, reduction, outside, errors, exact, want_h, want_g)
    return _gradients(weights, saved, (h, g, s, e, mask, gold), (need_h, need_g, need_s, need_e), request, in_place=False)


def _gradients(weights: Tensor, saved: Sequence[Tensor], tensors: Sequence[Tensor], needed: Sequence[bool], request: LossRequest,
               in_place: bool) -> List[Tensor]:
    """in_place: `saved` is not needed any more."""
    if _backend_of(tensors[0], request) is cuda:
        return cuda.loss_gradients(weights, saved, *tensors, request, needed)  # type: ignore[no-any-return, call-arg]
    gradients = cpu.loss_gradients(weights, saved, *tensors, request, in_place)  # type: ignore[call-arg]
    return [x if need else x.new_empty(0) for x, need in zip(gradients, needed)]


@_operator(lambda vh, vg, vs, ve, weights, saved, h, g, s, e, mask, gold, *request:
           [weights.new_empty(weights.shape), *_fresh((True,) * 4, h, g, s, e)])
def loss_curvature(vh: Tensor, vg: Tensor, vs: Tensor, ve: Tensor, weights: Tensor, saved: List[Tensor], h: Tensor, g: Tensor, s: Tensor,
                   e: Tensor, mask: Tensor, gold: Tensor, operation: str, handle: int, batch_first: bool, sign: int, reduction: str,
                   outside: str, errors: str, exact: bool, want_h: bool, want_g: bool) -> List[Tensor]:
    """Along a direction v: how each loss changes, shaped as the weights, which is the gradient of v · `loss_gradients` for them; and how the
    gradients of Σ weights · loss for h, g, s, e change."""
    request = LossRequest(operation, handle, batch_first, sign, reduction, outside, errors, exact, want_h, want_g)
    return _backend_of(h, request).curvature((vh, vg, vs, ve), weights, saved, h, g, s, e, mask, gold, request)  # type: ignore[no-any-return]


@_operator(lambda h, g, s, e, mask, batch_first, handle, fill: h.new_empty(h.shape[:2], dtype=torch.int64))
def viterbi(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int, fill: int) -> Tensor:
    """The best labels, `fill` at absent positions: int64, shaped as the emissions without K."""
    return _backend(h, handle).viterbi(h, g, s, e, mask, batch_first, handle, fill)  # type: ignore[no-any-return]


# --- autograd ----------------------------------------------------------------------------------------------------------------

TENSORS, REQUEST = 6, len(LossRequest._fields)


class Loss(Function):
    """(h, g, s, e, mask, gold, request) → the loss. On the CPU its gradients are made with it, and the first backward pass gives them away;
    others compute them again."""

    @staticmethod
    def forward(ctx, *args):  # type: ignore[no-untyped-def]
        *tensors, request = args
        ctx.request, ctx.alive = request, alive(request.handle)
        if compiling():
            out, saved = loss(*tensors, *request)
            ctx.save_for_backward(*tensors, *saved)
            return out
        backend = _backend_of(tensors[0], request)
        out, saved = backend.loss(*tensors, request)
        if backend is cpu:
            ctx.to_give_away, saved = saved, ()
        ctx.save_for_backward(*tensors, *saved)
        return out

    @staticmethod
    def backward(ctx, weights):  # type: ignore[no-untyped-def]
        unpacked = ctx.saved_tensors  # once: a checkpoint allows no more
        tensors, saved = unpacked[:TENSORS], list(unpacked[TENSORS:])
        request, needed = ctx.request, ctx.needs_input_grad[:4]
        if compiling():
            found = loss_gradients(weights, saved, *tensors, *needed, *request)
            return (*(x if need else None for x, need in zip(found, needed)), None, None, None)
        if not saved:
            saved = ctx.__dict__.pop("to_give_away", None)
        if saved is None:
            _, saved = loss(*tensors, *request)
        if not torch.is_grad_enabled():
            found = _gradients(weights, saved, tensors, needed, request, in_place=True)
        elif request.operation in TWICE:
            found = LossGradients.apply(weights, *tensors, *needed, *request, *saved)
        else:
            raise RuntimeError(ONCE.format(request.operation))
        return (*(x if need else None for x, need in zip(found, needed)), None, None, None)


class LossGradients(Function):
    """(weights, h, g, s, e, mask, gold, which of h, g, s, e are needed, *request, *saved) → their gradients, None where not needed."""

    @staticmethod
    def forward(ctx, weights, *args):  # type: ignore[no-untyped-def]
        tensors, needed, rest = args[:TENSORS], args[TENSORS:TENSORS + 4], args[TENSORS + 4:]
        request, saved = LossRequest(*rest[:REQUEST]), list(rest[REQUEST:])
        ctx.save_for_backward(weights, *tensors, *saved[:1])
        ctx.request, ctx.alive, ctx.arguments = request, alive(request.handle), 1 + len(args)
        found = loss_gradients(weights, saved, *tensors, *needed, *request)
        return tuple(x if need else None for x, need in zip(found, needed))

    @staticmethod
    @once_differentiable
    def backward(ctx, *direction):  # type: ignore[no-untyped-def]
        weights, *tensors = ctx.saved_tensors
        tensors, saved, needed = tensors[:TENSORS], tensors[TENSORS:], ctx.needs_input_grad[:5]
        along = [torch.zeros_like(x) if v is None else v for x, v in zip(tensors, direction)]
        found = loss_curvature(*along, weights, saved, *tensors, *ctx.request)
        return (*(x if need else None for x, need in zip(found, needed)), *[None] * (ctx.arguments - 5))


_apply_loss = applied(Loss)


def loss_of(tensors: Sequence[Tensor], request: LossRequest) -> Tensor:
    """The loss of h, g, s, e, mask and gold. Differentiable, nll and log_z twice."""
    answer: Tensor
    if transformed(*tensors):
        from . import _torch_func as func
        answer = func.Loss.apply(*tensors, *request._replace(want_h=True, want_g=True))[0]
        return answer
    answer = _apply_loss(*tensors, request)
    return answer


def label_marginals(tensors: Sequence[Tensor], request: LossRequest, on_device: bool) -> Tensor:
    """P(y_t = a), shaped as h: the gradient of log_z. Differentiable."""
    h = tensors[0]
    weights = h.new_ones(h.shape[0 if request.batch_first else 1], dtype=tensors[1].dtype)
    request, needed = request._replace(want_h=True), (True, False, False, False)
    answer: Tensor
    if transformed(*tensors):
        from . import _torch_func as func
        answer = func.LossGradients.apply(weights, *tensors, *(True,) * 4, *request)[0]
        return answer
    saved = loss(*(x.detach() for x in tensors), *request)[1] if on_device else []
    answer = LossGradients.apply(weights, *tensors, *needed, *request, *saved)[0]
    return answer


def reduce(values: Tensor, left_out: Optional[Tensor], mask: Optional[Tensor], batch_first: bool, length: int, reduction: str) -> Tensor:
    """Values [B] of several losses as one number. left_out: bool [B], or None: those count for nothing. mask: bool, or None."""
    if reduction in ("none", "sum"):
        return values if reduction == "none" else values.sum()
    present = mask.sum(1 if batch_first else 0) if mask is not None else torch.full_like(values, length, dtype=torch.int64)
    parts = present if reduction == "token_mean" else torch.ones_like(present)
    if left_out is not None:
        parts = parts.masked_fill(left_out, 0)
    return values.sum() / parts.sum().clamp(min=1).to(values.dtype)


def no_gold(h: Tensor) -> Tensor:
    return empty(h.device, torch.int64)
