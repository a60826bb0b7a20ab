"""The operators behind `regccrf.torch`: tensors in, tensors out, gradients in closed form.

Plain functions call the compiled core on the tensors' memory. On PyTorch 2.4 and later each is also registered as a custom
operator with a fake implementation, which is what `torch.compile` sees. On top stand autograd functions: `LogPartition`, its gradient
`Expectation` (whose own gradient is exact too, so log_partition differentiates twice), and `Loss`; on a device `DeviceLoss` and its
gradient, `DeviceGradient`, likewise.

Arguments that recur: h emissions [T, B, K] (or [B, T, K] with batch_first), g transitions [K, K], s start and e end [K] or empty,
mask uint8 or bool [T, B] or empty, `handle` the number of a live constraint (or `Several`). Empty stands for absent.

No `from __future__ import annotations` here: operator schemas are read from the annotations.
"""

import math
import warnings
from typing import List, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from . import _core
from . import _torch_cuda as cuda
from ._torch_graph import (
    alive,
    applied,
    batch_size,
    certified,
    choice_of,
    compiling,
    constraint_of,
    keeps_rules,
    note_gaps,
    nothing,
    operator,
)


class Memory:
    """Scores as contiguous CPU tensors, and the view of them that the core takes."""

    def __init__(self, h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int,
                 allow: bool = False) -> None:
        if h.is_cuda and not cuda.BUILT:
            warnings.warn("this build of regccrf has no CUDA in it, so tensors are copied to the CPU: build it where nvcc is, with REGCCRF_CUDA=ON")
        self.h, self.g, self.s, self.e, self.mask = (on_cpu(x) for x in (h, g, s, e, mask))
        self.device, self.dtype = h.device, h.dtype
        self.B, T = h.shape[:2] if batch_first else (h.shape[1], h.shape[0])
        self.T, self.batch_first = T, batch_first
        first = [i * T for i in range(self.B)] if batch_first else list(range(self.B))
        self.batch = _core.Batch(h.dtype == torch.float64, h.shape[2], h.shape[0] * h.shape[1], self.h.data_ptr(), self.g.data_ptr(),
                                 self.s.data_ptr(), self.e.data_ptr(), first, [T] * self.B, 1 if batch_first else max(self.B, 1),
                                 self.mask.data_ptr())
        self.choice = choice_of(handle)
        max_gap, bound = certified(handle)
        self.gaps = torch.zeros(self.B if keeps_rules(handle) else 0, dtype=torch.float64)
        note_gaps(handle, self.gaps)
        self.settings = _core.Settings(torch.get_num_threads(), allow, max_gap, bound, self.gaps.data_ptr())

    def gradients(self) -> List[Tensor]:
        """Memory for the gradients of h, g, s, e."""
        return [torch.empty_like(x) for x in (self.h, self.g, self.s, self.e)]

    def divisor(self, left_out: Sequence[bool], reduction: int) -> float:
        """What the sum of the batch's losses is divided by. left_out: none, or [B]."""
        skipped = torch.tensor(left_out, dtype=torch.bool)
        return _core.divisor(reduction, self.B, self.T, self.batch_first, skipped.data_ptr(), self.mask.data_ptr())

    def back(self, tensors: Sequence[Tensor]) -> List[Tensor]:
        return list(tensors) if self.h.device == self.device else [x.to(self.device) for x in tensors]

    def numbers(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=self.dtype, device=self.device)


def on_cpu(x: Tensor) -> Tensor:
    at_hand = x.is_cpu and x.is_contiguous()  # type: ignore[attr-defined]  # PyTorch 1.13 has is_cpu, and does not declare it
    return x if at_hand else x.detach().cpu().contiguous()


def _fresh(*tensors: Tensor) -> List[Tensor]:
    return [x.new_empty(x.shape) for x in tensors]


@operator(lambda h, g, s, e, mask, batch_first, handle: h.new_empty(batch_size(h, batch_first)))
def log_partition(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int) -> Tensor:
    """log_z: [B]; −inf where the language has no sequence."""
    memory = Memory(h, g, s, e, mask, batch_first, handle)
    return memory.numbers(_core.log_z(memory.choice, memory.batch, memory.settings))


@operator(lambda weights, h, g, s, e, mask, batch_first, handle, allow: tuple(_fresh(h, g, s, e)))
def expectation(weights: Tensor, h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int,
                allow: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of Σ weights[i] · log_z[i]: expected counts."""
    memory, w = Memory(h, g, s, e, mask, batch_first, handle, allow), on_cpu(weights).to(h.dtype)
    out = memory.gradients()
    _core.log_z_gradients(memory.choice, memory.batch, _core.Wanted(*map(Tensor.data_ptr, [*out, w])), memory.settings)
    dh, dg, ds, de = memory.back(out)
    return dh, dg, ds, de


@operator(lambda vh, vg, vs, ve, weights, h, g, s, e, mask, batch_first, handle:
          (h.new_empty(batch_size(h, batch_first)), *_fresh(h, g, s, e)))
def curvature(vh: Tensor, vg: Tensor, vs: Tensor, ve: Tensor, weights: Tensor, h: Tensor, g: Tensor, s: Tensor, e: Tensor,
              mask: Tensor, batch_first: bool, handle: int) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Along a direction v: the slope of each log_z, and the change of the gradients of Σ weights[i] · log_z[i]."""
    memory, w = Memory(h, g, s, e, mask, batch_first, handle, allow=True), on_cpu(weights).to(h.dtype)
    direction = [on_cpu(v).to(h.dtype) for v in (vh, vg, vs, ve)]
    out = memory.gradients()
    slopes = _core.curvature(memory.choice, memory.batch, _core.Wanted(*map(Tensor.data_ptr, direction)),
                             _core.Wanted(*map(Tensor.data_ptr, [*out, w])), memory.settings)
    dh, dg, ds, de = memory.back(out)
    return memory.numbers(slopes), dh, dg, ds, de


def _compute(kind: str, memory: Memory, gold: Tensor, wanted: _core.Wanted) -> Tuple[List[float], List[bool]]:
    """Values of a loss and which sequences were left out; gradients into `wanted`."""
    gold = on_cpu(gold)
    if kind == "nll":
        return _core.nll(memory.choice, memory.batch, gold.data_ptr(), wanted, memory.settings)
    if kind == "partial_nll":
        return _core.partial_nll(memory.choice, memory.batch, gold.data_ptr(), wanted, memory.settings)
    values = getattr(_core, kind)(memory.choice, memory.batch, wanted, memory.settings)
    return values, [False] * len(values)


def _fake_loss(kind, h, g, s, e, mask, gold, batch_first, handle, allow, differentiate):  # type: ignore[no-untyped-def]
    gradients = _fresh(h, g, s, e) if differentiate else [h.new_empty(0) for _ in range(4)]
    B = batch_size(h, batch_first)
    return (h.new_empty(B), h.new_empty(B, dtype=torch.bool), *gradients)


@operator(_fake_loss)
def loss(kind: str, h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, gold: Tensor, batch_first: bool, handle: int,
         allow: bool, differentiate: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Values [B], which sequences were left out [B], and, when wanted, the gradients of the values' sum."""
    memory = Memory(h, g, s, e, mask, batch_first, handle, allow)
    out = memory.gradients() if differentiate else [memory.h.new_empty(0) for _ in range(4)]
    values, left_out = _compute(kind, memory, gold, _core.Wanted(*map(Tensor.data_ptr, out)))
    dh, dg, ds, de = memory.back(out)
    return memory.numbers(values), torch.tensor(left_out, dtype=torch.bool, device=h.device), dh, dg, ds, de


@operator(lambda kind, weights, dh, dg, ds, de, h, g, s, e, mask, gold, batch_first, handle, allow: tuple(_fresh(h, g, s, e)))
def loss_gradients(kind: str, weights: Tensor, dh: Tensor, dg: Tensor, ds: Tensor, de: Tensor, h: Tensor, g: Tensor, s: Tensor,
                   e: Tensor, mask: Tensor, gold: Tensor, batch_first: bool, handle: int,
                   allow: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of Σ weights[i] · value[i]. Those of the plain sum (dh … de) are at hand: equal weights scale them."""
    distinct = set(weights.tolist())
    if len(distinct) <= 1:
        weight = distinct.pop() if distinct else 1.0
        return dh * weight, dg * weight, ds * weight, de * weight
    memory, w = Memory(h, g, s, e, mask, batch_first, handle, allow), on_cpu(weights).to(h.dtype)
    out = memory.gradients()
    _compute(kind, memory, gold, _core.Wanted(*map(Tensor.data_ptr, [*out, w])))
    dh, dg, ds, de = memory.back(out)
    return dh, dg, ds, de


@operator(lambda h, g, s, e, mask, batch_first, handle, fill: h.new_empty(h.shape[:2], dtype=torch.int64))
def viterbi(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int, fill: int) -> Tensor:
    """The best labels, `fill` at absent positions: int64, shaped as the emissions without K."""
    if cuda.on_device(h) and constraint_of(handle).rules == 0:  # kept rules are obeyed on the CPU
        return cuda.viterbi_tensor(h, g, s, e, mask, batch_first, handle, fill)
    memory = Memory(h, g, s, e, mask, batch_first, handle)
    flat = torch.tensor([a for labels, _ in _core.viterbi(memory.choice, memory.batch, memory.settings) for a in labels], dtype=torch.int64)
    B, T = h.shape[:2] if batch_first else (h.shape[1], h.shape[0])
    out = torch.full((B, T), fill, dtype=torch.int64)
    present = memory.mask.bool() if memory.mask.numel() else torch.ones(h.shape[:2], dtype=torch.bool)
    out[present if batch_first else present.t()] = flat
    return (out if batch_first else out.t().contiguous()).to(h.device)


@operator(lambda left_out, mask, size, length, batch_first, reduction: left_out.new_empty((), dtype=torch.float64))
def divisor(left_out: Tensor, mask: Tensor, size: int, length: int, batch_first: bool, reduction: int) -> Tensor:
    """What the sum of a batch's losses is divided by: float64. left_out: bool [B], or empty for none."""
    if cuda.on_device(left_out):
        return cuda.divisor(left_out, mask, size, length, batch_first, reduction)
    skipped, present = on_cpu(left_out), on_cpu(mask)
    by = _core.divisor(reduction, size, length, batch_first, skipped.data_ptr(), present.data_ptr())
    return torch.tensor(by, dtype=torch.float64, device=left_out.device)


class LogPartition(Function):
    """(h, g, s, e, mask, batch_first, handle) → log_z [B]. Differentiable twice."""

    @staticmethod
    def forward(ctx, h, g, s, e, mask, batch_first, handle):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(h, g, s, e, mask)
        ctx.layout, ctx.alive = (batch_first, handle), alive(handle)
        return log_partition(h, g, s, e, mask, batch_first, handle)

    @staticmethod
    def backward(ctx, weights):  # type: ignore[no-untyped-def]
        return (*Expectation.apply(weights, *ctx.saved_tensors, *ctx.layout, True), None, None, None)


class Expectation(Function):
    """(weights, h, g, s, e, mask, batch_first, handle, allow) → expected counts, shaped as h, g, s, e."""

    @staticmethod
    def forward(ctx, weights, h, g, s, e, mask, batch_first, handle, allow):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(weights, h, g, s, e, mask)
        ctx.layout, ctx.alive = (batch_first, handle), alive(handle)
        return expectation(weights, h, g, s, e, mask, batch_first, handle, allow)

    @staticmethod
    @once_differentiable
    def backward(ctx, vh, vg, vs, ve):  # type: ignore[no-untyped-def]
        return (*curvature(vh, vg, vs, ve, *ctx.saved_tensors, *ctx.layout), None, None, None, None)


def gold_score(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, gold: Tensor, batch_first: bool) -> Tensor:
    """score(gold): [B], in differentiable tensor operations."""
    if not batch_first:
        h, gold, mask = h.transpose(0, 1), gold.transpose(0, 1), mask.transpose(0, 1) if mask.numel() else mask
    present = mask.bool() if mask.numel() else torch.ones_like(gold, dtype=torch.bool)
    sequence = torch.arange(h.shape[0], device=h.device).unsqueeze(1).expand_as(present)[present]
    y = gold[present].long()
    score = h.new_zeros(h.shape[0]).index_add(0, sequence, h[present].gather(1, y.unsqueeze(1)).squeeze(1))
    same = sequence[1:] == sequence[:-1]
    score = score.index_add(0, sequence[1:][same], g[y[:-1][same], y[1:][same]])
    edge = same.new_ones(min(1, len(y)))
    if s.numel():
        begins = torch.cat([edge, ~same])
        score = score.index_add(0, sequence[begins], s[y[begins]])
    if e.numel():
        ends = torch.cat([~same, edge])
        score = score.index_add(0, sequence[ends], e[y[ends]])
    return score


class Loss(Function):
    """(kind, h, g, s, e, mask, gold, batch_first, handle, allow, differentiate) → values [B], left out [B]."""

    @staticmethod
    def forward(ctx, kind, h, g, s, e, mask, gold, batch_first, handle, allow, differentiate):  # type: ignore[no-untyped-def]
        values, left_out, *gradients = loss(kind, h, g, s, e, mask, gold, batch_first, handle, allow, differentiate)
        ctx.save_for_backward(h, g, s, e, mask, gold, left_out, *gradients)
        ctx.kind, ctx.layout, ctx.alive = kind, (batch_first, handle, allow), alive(handle)
        ctx.mark_non_differentiable(left_out)
        return values, left_out

    @staticmethod
    def backward(ctx, weights, _):  # type: ignore[no-untyped-def]
        h, g, s, e, mask, gold, left_out, *gradients = ctx.saved_tensors
        if torch.is_grad_enabled() and not compiling():
            weights, (batch_first, handle, _) = weights.masked_fill(left_out, 0), ctx.layout
            return (None, *_twice(ctx.kind, weights, h, g, s, e, mask, gold, batch_first, handle), *[None] * 6)
        return (None, *loss_gradients(ctx.kind, weights, *gradients, h, g, s, e, mask, gold, *ctx.layout), *[None] * 6)


class ReducedLoss(Function):
    """Outside of graphs and transforms: (h, g, s, e, mask, gold, kind, batch_first, handle, outside, sign, reduction, differentiate) → `Loss`,
    reduced, in one node. The first backward pass gives its gradients away; others compute them again."""

    @staticmethod
    def forward(ctx, h, g, s, e, mask, gold, kind, batch_first, handle, outside, sign, reduction, differentiate):  # type: ignore[no-untyped-def]
        memory = Memory(h, g, s, e, mask, batch_first, handle, outside != "raise")
        out = memory.gradients() if differentiate else []
        values, left_out = _compute(kind, memory, gold, _core.Wanted(*map(Tensor.data_ptr, out)))
        by = memory.divisor(left_out if outside == "skip" else [], reduction)
        ctx.save_for_backward(h, g, s, e, mask, gold)
        ctx.kind, ctx.layout, ctx.alive = kind, (batch_first, handle, outside != "raise"), alive(handle)
        ctx.factor, ctx.left_out, ctx.gradients = sign / by, left_out, memory.back(out)
        total = math.inf if outside == "inf" and any(left_out) else math.fsum(values)
        return h.new_tensor(total * ctx.factor)

    @staticmethod
    def backward(ctx, weight):  # type: ignore[no-untyped-def]
        h, g, s, e, mask, gold = ctx.saved_tensors
        if torch.is_grad_enabled():
            weights = (weight * ctx.factor).expand(len(ctx.left_out)).masked_fill(torch.tensor(ctx.left_out, device=h.device), 0)
            return (*_twice(ctx.kind, weights, h, g, s, e, mask, gold, *ctx.layout[:2]), *[None] * 9)
        scale = weight.item() * ctx.factor
        gradients = ctx.__dict__.pop("gradients", None)
        if gradients is None:
            _, _, *gradients = loss(ctx.kind, h, g, s, e, mask, gold, *ctx.layout, True)
        if scale != 1:
            torch._foreach_mul_(gradients, scale)
        return (*gradients, *[None] * 9)


reduced_loss = applied(ReducedLoss)
ONCE = "{} can be differentiated once; log_prob and log_partition can twice"


def _twice(kind, weights, h, g, s, e, mask, gold, batch_first, handle):  # type: ignore[no-untyped-def]
    """Gradients of Σ weights[i] · nll[i] that can themselves be differentiated."""
    if kind != "nll":
        raise RuntimeError(ONCE.format(kind))
    scores = [x for x in (h, g, s, e) if x.requires_grad]
    value = LogPartition.apply(h, g, s, e, mask, batch_first, handle) - gold_score(h, g, s, e, mask, gold, batch_first)
    gradients = iter(torch.autograd.grad(value, scores, weights, create_graph=True))
    return [next(gradients) if x.requires_grad else None for x in (h, g, s, e)]


class DeviceLoss(Function):
    """On a device: (h, g, s, e, mask, gold, the rest of what `cuda.device_loss` takes) → the loss."""

    @staticmethod
    def forward(ctx, h, g, s, e, mask, gold, asked):  # type: ignore[no-untyped-def]
        out, kept = cuda.device_loss(h, g, s, e, mask, gold, *asked)
        ctx.save_for_backward(h, g, s, e, mask, gold, kept)
        _, _, handle, *_, want_h, want_g = asked
        ctx.asked, ctx.alive = asked, alive(handle)
        if (want_h or want_g) and not compiling():  # for the first backward pass; others make their own
            need_h, need_g, need_s, need_e, *_ = ctx.needs_input_grad
            ctx.room = cuda.room_for_gradients(h, g, s, e, need_h, need_g, need_s, need_e)
        return out

    @staticmethod
    def backward(ctx, weights):  # type: ignore[no-untyped-def]
        h, g, s, e, mask, gold, kept = ctx.saved_tensors
        operation, batch_first, handle, *_, want_h, want_g = ctx.asked
        gradients = None if compiling() else ctx.__dict__.pop("room", None)  # the caller's from now on
        if torch.is_grad_enabled() and not compiling():
            if operation == "entropy":
                raise RuntimeError(ONCE.format(operation))
            return (*DeviceGradient.apply(weights, h, g, s, e, mask, gold, kept, ctx.asked, ctx.needs_input_grad[:4]), None, None, None)
        if gradients is not None:
            cuda.weigh_into(gradients, weights, kept, h, g, mask, batch_first, want_h, want_g)
            return (*gradients, None, None, None)
        need_h, need_g, need_s, need_e, *_ = ctx.needs_input_grad
        return (*cuda.weigh(weights, kept, h, g, s, e, mask, batch_first, want_h, want_g, need_h, need_g, need_s, need_e),
                None, None, None)


class DeviceGradient(Function):
    """On a device: (weights, h, g, s, e, mask, gold, kept, asked, which of h, g, s, e are wanted) → the gradients of Σ weights · loss, None
    where not wanted. kept: what `cuda.device_loss` left, or None where it was not called yet."""

    @staticmethod
    def forward(ctx, weights, h, g, s, e, mask, gold, kept, asked, wanted):  # type: ignore[no-untyped-def]
        _, batch_first, handle, *_, want_h, want_g = asked
        if kept is None:
            _, kept = cuda.device_loss(h, g, s, e, mask, gold, *asked)
        ctx.save_for_backward(weights, h, g, s, e, mask, gold, kept)
        ctx.layout, ctx.alive = (batch_first, handle), alive(handle)
        gradients = cuda.weigh(weights, kept, h, g, s, e, mask, batch_first, want_h, want_g, *wanted)
        return tuple(x if want else None for x, want in zip(gradients, wanted))

    @staticmethod
    @once_differentiable
    def backward(ctx, *direction):  # type: ignore[no-untyped-def]
        weights, h, g, s, e, mask, gold, kept = ctx.saved_tensors
        direction = tuple(torch.zeros_like(x) if v is None else v for x, v in zip((h, g, s, e), direction))
        need_weights, *needed = ctx.needs_input_grad[:5]
        found = cuda.device_curvature(*direction, weights, kept, h, g, s, e, mask, gold, *ctx.layout, *needed)
        return (*(x if need else None for x, need in zip(found, (need_weights, *needed))), *[None] * 5)


device_loss = applied(DeviceLoss)
