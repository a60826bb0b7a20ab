"""The autograd functions of `_torch_ops` under the transforms of torch.func (grad, vmap, jacrev, …), on the CPU.

Those want them in another form, with all that a backward pass needs among the inputs and outputs. It takes longer, so it is used under
transforms alone. `vmap` calls the function for each element; sequences that lie in the batch cost less. Names and arguments as in
`_torch_ops`.
"""

from typing import Any, Tuple

import torch
from torch import Tensor
from torch.autograd import Function

from ._torch_handles import alive
from ._torch_ops import ONCE, REQUEST, TENSORS, TWICE, LossRequest, loss, loss_curvature, loss_gradients


class _Transformable(Function):
    @staticmethod
    def jvp(ctx, *_):  # type: ignore[no-untyped-def]
        raise RuntimeError("the layer has no forward-mode derivatives (jvp, jacfwd, hessian): use jacrev, and jacrev of jacrev for second ones")

    @classmethod
    def vmap(cls, info, in_dims, *args):  # type: ignore[no-untyped-def]
        each = [cls.apply(*(x if dim is None else x.select(dim, i) for x, dim in zip(args, in_dims))) for i in range(info.batch_size)]
        return tuple(map(torch.stack, zip(*each))), (0,) * len(each[0])


class Loss(_Transformable):
    """(h, g, s, e, mask, gold, *request) → the loss, and what it saves."""

    @staticmethod
    def forward(*args: Any) -> Tuple[Tensor, ...]:
        out, saved = loss(*args)
        return (out, *saved)

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.request = LossRequest(*inputs[TENSORS:])
        ctx.alive = alive(ctx.request.handle)
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[:TENSORS], *output[1:])

    @staticmethod
    def backward(ctx, weights, *_):  # type: ignore[no-untyped-def]
        unpacked = ctx.saved_tensors
        tensors, saved = unpacked[:TENSORS], unpacked[TENSORS:]
        return (*LossGradients.apply(weights, *tensors, *(True,) * 4, *ctx.request, *saved), *[None] * (2 + REQUEST))


class LossGradients(_Transformable):
    """(weights, h, g, s, e, mask, gold, four times True, *request, *saved) → the gradients for h, g, s, e."""

    @staticmethod
    def forward(weights: Tensor, *args: Any) -> Tuple[Tensor, ...]:
        tensors, rest = args[:TENSORS], args[TENSORS:]
        return tuple(loss_gradients(weights, rest[4 + REQUEST:], *tensors, *rest[:4 + REQUEST]))

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        rest = inputs[1 + TENSORS + 4:]
        ctx.request, ctx.arguments = LossRequest(*rest[:REQUEST]), len(inputs)
        ctx.alive = alive(ctx.request.handle)
        ctx.save_for_backward(*inputs[:1 + TENSORS], *rest[REQUEST:REQUEST + 1])

    @staticmethod
    def backward(ctx, *direction):  # type: ignore[no-untyped-def]
        if ctx.request.operation not in TWICE:
            raise RuntimeError(ONCE.format(ctx.request.operation))
        return (*LossCurvature.apply(*direction, *ctx.saved_tensors, *ctx.request), *[None] * (ctx.arguments - 5))


class LossCurvature(_Transformable):
    """(vh, vg, vs, ve, weights, h, g, s, e, mask, gold, *saved, *request) → the change of the loss, and of its gradients."""

    @staticmethod
    def forward(*args: Any) -> Tuple[Tensor, ...]:
        before, saved, request = args[:5], args[5 + TENSORS:-REQUEST], args[-REQUEST:]
        return tuple(loss_curvature(*before, saved, *args[5:5 + TENSORS], *request))

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        pass

    @staticmethod
    def backward(ctx, *_):  # type: ignore[no-untyped-def]
        raise RuntimeError("log_prob and log_partition can be differentiated twice, and no more")
