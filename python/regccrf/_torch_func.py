"""The layer's losses under the transforms of torch.func (grad, vmap, jacrev, …), on the CPU.

Those want autograd functions in another form than `_torch_ops` has, with all that a backward pass needs among the inputs and outputs. It takes
longer, so it is used under transforms alone. `vmap` calls the function for each element; sequences that lie in the batch cost less. Names
and arguments as in `_torch_ops`.
"""

from typing import Any, Tuple

import torch
from torch import Tensor
from torch.autograd import Function

from ._torch_graph import alive
from ._torch_ops import ONCE, curvature, expectation, gold_score, log_partition, loss, loss_gradients


class _Transformable(Function):
    @staticmethod
    def jvp(ctx, *_):  # type: ignore[no-untyped-def]
        raise RuntimeError("the layer has no forward-mode derivatives (jvp, jacfwd, hessian): use jacrev, and jacrev of jacrev for second ones")

    @classmethod
    def vmap(cls, info, in_dims, *args):  # type: ignore[no-untyped-def]
        each = [cls.apply(*(x if dim is None else x.select(dim, i) for x, dim in zip(args, in_dims))) for i in range(info.batch_size)]
        if isinstance(each[0], Tensor):
            return torch.stack(each), 0
        return tuple(map(torch.stack, zip(*each))), (0,) * len(each[0])


class LogPartition(_Transformable):
    """(h, g, s, e, mask, batch_first, handle) → log_z [B]."""

    @staticmethod
    def forward(*args: Any) -> Tensor:
        return log_partition(*args)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        *scores, batch_first, handle = inputs
        ctx.save_for_backward(*scores)
        ctx.layout, ctx.alive = (batch_first, handle), alive(handle)

    @staticmethod
    def backward(ctx, weights):  # type: ignore[no-untyped-def]
        return (*Expectation.apply(weights, *ctx.saved_tensors, *ctx.layout, True), None, None, None)


class Expectation(_Transformable):
    """(weights, h, g, s, e, mask, batch_first, handle, allow) → expected counts, shaped as h, g, s, e."""

    @staticmethod
    def forward(*args: Any) -> Tuple[Tensor, ...]:
        return expectation(*args)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        *scores, batch_first, handle, _ = inputs
        ctx.save_for_backward(*scores)
        ctx.layout, ctx.alive = (batch_first, handle), alive(handle)

    @staticmethod
    def backward(ctx, *direction):  # type: ignore[no-untyped-def]
        return (*Curvature.apply(*direction, *ctx.saved_tensors, *ctx.layout), None, None, None, None)


class Curvature(_Transformable):
    """(vh, vg, vs, ve, weights, h, g, s, e, mask, batch_first, handle) → slopes [B], changes of the gradients."""

    @staticmethod
    def forward(*args: Any) -> Tuple[Tensor, ...]:
        return curvature(*args)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        pass

    @staticmethod
    def backward(ctx, *_):  # type: ignore[no-untyped-def]
        raise RuntimeError("log_prob and log_partition can be differentiated twice, and no more")


class Loss(_Transformable):
    """(kind, h, g, s, e, mask, gold, batch_first, handle, allow) → values [B], left out [B], gradients of the values' sum."""

    @staticmethod
    def forward(*args: Any) -> Tuple[Tensor, ...]:
        return loss(*args, True)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.kind, *scores, batch_first, handle, allow = inputs
        _, *rest = output
        ctx.mark_non_differentiable(*rest)
        ctx.save_for_backward(*scores, *rest)
        ctx.layout, ctx.alive = (batch_first, handle, allow), alive(handle)

    @staticmethod
    def backward(ctx, weights, *_):  # type: ignore[no-untyped-def]
        h, g, s, e, mask, gold, left_out, *gradients = ctx.saved_tensors
        weights = weights.masked_fill(left_out, 0)
        return (None, *LossGradients.apply(ctx.kind, weights, *gradients, h, g, s, e, mask, gold, *ctx.layout), *[None] * 5)


class LossGradients(_Transformable):
    """(kind, weights, dh, dg, ds, de, h, g, s, e, mask, gold, batch_first, handle, allow) → the gradients of Σ weights[i] · value[i]."""

    @staticmethod
    def forward(*args: Any) -> Tuple[Tensor, ...]:
        return loss_gradients(*args)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.kind, weights, _, _, _, _, *scores, batch_first, handle, _ = inputs
        ctx.save_for_backward(weights, *scores)
        ctx.layout, ctx.alive = (batch_first, handle), alive(handle)

    @staticmethod
    def backward(ctx, *direction):  # type: ignore[no-untyped-def]
        if ctx.kind != "nll":
            raise RuntimeError(ONCE.format(ctx.kind))
        *scores, gold = ctx.saved_tensors
        slopes, *changes = Curvature.apply(*direction, *scores, *ctx.layout)
        slopes = slopes - gold_score(*direction, scores[-1], gold, ctx.layout[0])  # type: ignore[call-arg]  # linear in its parts
        return (None, slopes, None, None, None, None, *changes, *[None] * 5)


def divisor(left_out: Tensor, mask: Tensor, size: int, length: int, batch_first: bool, token_mean: bool) -> Tensor:
    """`divisor` of _torch_ops for mean and token_mean, in tensor operations."""
    kept = torch.ones(size, dtype=torch.bool, device=mask.device) if left_out.numel() == 0 else ~left_out
    lengths = mask.sum(1 if batch_first else 0) if mask.dim() == 2 else torch.full((size,), length, device=mask.device)
    return (lengths * kept if token_mean else kept).sum().clamp(min=1)
