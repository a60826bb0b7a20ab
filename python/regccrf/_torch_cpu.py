"""The operators of `_torch_ops` on the CPU: the compiled core on the tensors' memory. Tensors from elsewhere are copied, and answers go back.

Arguments as in `_torch_ops`. What a loss saves for its gradients: its scale, by which each sequence counts, and for each whether it was left
out, as float64 [1 + B]; and the gradients of the plain sum of its values for h, g, s and e, empty where not wanted. Without these, as for
log_z, gradients are computed when their weights are known, and nothing is saved of a loss that is not reduced.
"""

import math
import warnings
from typing import Any, List, Sequence, Tuple

import torch
from torch import Tensor

from . import _core
from ._torch_handles import certified, choice_of, keeps_rules, note_gaps

_REDUCTIONS = _core.Reduction.__members__


class Memory:
    """Scores as contiguous CPU tensors, and the view of them that the core takes. `allow`: what is impossible is no error. `sums`: for
    sums, which have gaps under kept rules."""

    def __init__(self, h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int,
                 allow: bool = False, sums: bool = True) -> None:
        if h.is_cuda and not _core.cuda_built():
            warnings.warn("this build of regccrf has no CUDA in it, so tensors are copied to the CPU: build it where nvcc is, with REGCCRF_CUDA=ON")
        self.h, self.g, self.s, self.e, self.mask = (_on_cpu(x) for x in (h, g, s, e, mask))
        self.device, self.dtype = h.device, h.dtype
        self.B, T = h.shape[:2] if batch_first else (h.shape[1], h.shape[0])
        self.T, self.batch_first = T, batch_first
        first = [i * T for i in range(self.B)] if batch_first else list(range(self.B))
        self.batch = _core.Batch(h.dtype == torch.float64, h.shape[2], h.shape[0] * h.shape[1], self.h.data_ptr(), self.g.data_ptr(),
                                 self.s.data_ptr(), self.e.data_ptr(), first, [T] * self.B, 1 if batch_first else max(self.B, 1),
                                 self.mask.data_ptr())
        self.choice = choice_of(handle)
        if not sums or not keeps_rules(handle):
            self.settings = _core.Settings(torch.get_num_threads(), allow)
            if sums:
                note_gaps(handle, None)
            return
        self.gaps = torch.zeros(self.B, dtype=torch.float64)
        note_gaps(handle, self.gaps)
        self.settings = _core.Settings(torch.get_num_threads(), allow, *certified(handle).for_core(), self.gaps.data_ptr())

    def gradients(self, want_h: bool = True, want_g: bool = True) -> List[Tensor]:
        """Memory for the gradients of h, g, s, e; empty where not wanted."""
        return [torch.empty_like(x) if want else x.new_empty(0)
                for x, want in ((self.h, want_h), (self.g, want_g), (self.s, want_h), (self.e, want_h))]

    def divisor(self, left_out: Sequence[bool], reduction: str) -> float:
        """What the sum of the batch's losses is divided by. left_out: none, or [B]."""
        if reduction == "sum":
            return 1.0
        return _core.divisor(_REDUCTIONS[reduction], self.B, self.T, self.batch_first, left_out, self.mask.data_ptr())

    def back(self, tensors: Sequence[Tensor]) -> List[Tensor]:
        return list(tensors) if self.h.device == self.device else [x.to(self.device) for x in tensors]

    def numbers(self, values: Any) -> Tensor:
        return torch.tensor(values, dtype=self.dtype, device=self.device)


def _on_cpu(x: Tensor) -> Tensor:
    at_hand = x.is_cpu and x.is_contiguous()  # type: ignore[attr-defined]  # PyTorch 1.13 has is_cpu, and does not declare it
    return x if at_hand else x.detach().cpu().contiguous()


def _addresses(tensors: Sequence[Tensor]) -> _core.Wanted:
    """The tensors have to live until the call is made."""
    return _core.Wanted(*map(Tensor.data_ptr, tensors))


def _values(operation: str, memory: Memory, gold: Tensor, out: Sequence[Tensor]) -> Tuple[List[float], List[bool]]:
    """Values of a loss, and which sequences were left out. Gradients go to `out`: of h, g, s, e, then weights [B] to read."""
    wanted = _addresses(out)
    if operation in ("nll", "partial_nll"):
        gold, call = _on_cpu(gold), _core.nll if operation == "nll" else _core.partial_nll
        try:
            return call(memory.choice, memory.batch, gold.data_ptr(), wanted, memory.settings)
        except _core.Error as error:
            if error.kind == "outside" and not memory.batch_first:
                error.args = (f"{error} (tags and emissions were read as {memory.T} positions × {memory.B} sequences, time first: "
                              "if the batch comes first, make the layer with batch_first=True)",)
            raise
    if operation == "log_z" and out:
        values = _core.log_z_gradients(memory.choice, memory.batch, wanted, memory.settings)
    elif operation == "log_z":
        values = _core.log_z(memory.choice, memory.batch, memory.settings)
    else:
        values = getattr(_core, operation)(memory.choice, memory.batch, wanted, memory.settings)
    return values, [False] * len(values)


def loss(h, g, s, e, mask, gold, request):  # type: ignore[no-untyped-def]
    """The loss, and what it saves."""
    memory = Memory(h, g, s, e, mask, request.batch_first, request.handle, request.errors != "all")
    differentiate = (request.want_h or request.want_g) and request.operation != "log_z"
    gradients = memory.gradients(request.want_h, request.want_g) if differentiate else []
    values, left_out = _values(request.operation, memory, gold, gradients)
    infinite = request.outside == "inf" and any(left_out)
    if request.reduction == "none":
        scale = float(request.sign)
        if infinite:
            values = [math.inf if out else value for value, out in zip(values, left_out)]
        out = memory.numbers([scale * value for value in values] if request.sign != 1 else values)
    else:
        scale = request.sign / memory.divisor(left_out if request.outside == "skip" else [], request.reduction)
        out = memory.numbers(scale * (math.inf if infinite else math.fsum(values)))
    if not differentiate and request.reduction == "none":
        return out, []
    return out, [torch.tensor([scale, *left_out], dtype=torch.float64), *memory.back(gradients)]


def loss_gradients(weights, saved, h, g, s, e, mask, gold, request, in_place=False):  # type: ignore[no-untyped-def]
    """The gradients of Σ weights[i] · loss[i] for h, g, s, e. Where the weights are equal, those of the plain sum are scaled, in place where
    that may be."""
    scale, gradients = saved[0].tolist()[0] if saved else request.sign, saved[1:]
    distinct = set(weights.tolist()) if weights.dim() else {weights.item()}
    if gradients and len(distinct) <= 1:
        factor = scale * (distinct.pop() if distinct else 1.0)
        if not in_place:
            return torch._foreach_mul(gradients, factor)
        if factor != 1:
            torch._foreach_mul_(gradients, factor)
        return gradients
    memory = Memory(h, g, s, e, mask, request.batch_first, request.handle, request.errors != "all")
    gradients = memory.gradients()
    each = _on_cpu((weights * scale).expand(memory.B)).to(h.dtype)
    _values(request.operation, memory, gold, [*gradients, each])
    return memory.back(gradients)


def curvature(direction, weights, saved, h, g, s, e, mask, gold, request):  # type: ignore[no-untyped-def]
    """Along a direction v, shaped as h, g, s, e: how each loss changes, shaped as the weights, and how the gradients of Σ weights · loss do."""
    memory = Memory(h, g, s, e, mask, request.batch_first, request.handle, allow=True)
    scale, left_out = (saved[0][0].item(), saved[0][1:].ne(0).to(h.device)) if saved else (request.sign, weights.new_zeros(memory.B).bool())
    each = _on_cpu((weights * scale).expand(memory.B).masked_fill(left_out, 0)).to(h.dtype)
    along, gradients = [_on_cpu(v).to(h.dtype) for v in direction], memory.gradients()
    slopes = memory.numbers(_core.curvature(memory.choice, memory.batch, _addresses(along), _addresses([*gradients, each]), memory.settings))
    if request.operation == "nll":
        slopes = slopes - gold_score(*direction, mask, gold, request.batch_first)  # type: ignore[call-arg]  # linear in its scores
    slopes = (slopes * scale).masked_fill(left_out, 0).to(weights.dtype)
    return [slopes if weights.dim() else slopes.sum(), *memory.back(gradients)]


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


def viterbi(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int, fill: int) -> Tensor:
    """The best labels, `fill` at absent positions: int64, shaped as the emissions without K."""
    memory = Memory(h, g, s, e, mask, batch_first, handle, sums=False)
    flat = torch.tensor([a for labels, _ in _core.viterbi(memory.choice, memory.batch, memory.settings) for a in labels], dtype=torch.int64)
    out = torch.full((memory.B, memory.T), fill, dtype=torch.int64)
    present = memory.mask.bool() if memory.mask.numel() else torch.ones(h.shape[:2], dtype=torch.bool)
    out[present if batch_first else present.t()] = flat
    return (out if batch_first else out.t().contiguous()).to(h.device)
