"""The layer's operations on a CUDA device, on tensors that are there: the device's counterpart of the CPU part of `_torch_ops`.

A call enqueues kernels on the tensors' current stream, in memory from PyTorch's allocator, and waits for nothing. It is made
of as few of PyTorch's own operations as can be: each takes as long as a kernel of ours. What goes wrong is left on the device:
the first error of all calls under a constraint. It is raised by the next operation that waits for the device anyway (those that
answer with lists) or by `raise_pending`. While a CUDA graph is captured none is kept: what goes wrong in a replay shows as NaN
or an infinite loss.

Arguments as in `_torch_ops`, except that emissions may be half precision where the rest is float32. The address of an empty tensor is 0.

No `from __future__ import annotations` here: operator schemas are read from the annotations.
"""

import contextlib
import functools
import math
import weakref
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _core
from ._torch_graph import Part, batch_size, constraint_of, nothing, operator, share

BUILT = _core.cuda_built()
OPERATIONS = ("log_z", "nll", "partial_nll", "language_mass", "posterior_decode", "entropy")
# The core's enums. Operators take numbers: what passes through one is a number here already.
NOTHING, BAD_SCORES, EVERYTHING = map(int, (_core.CudaErrors.none, _core.CudaErrors.bad_scores, _core.CudaErrors.all))
REDUCTIONS = {name: int(reduction) for name, reduction in _core.Reduction.__members__.items()}
UNREDUCED = REDUCTIONS["none"]
OUTSIDE = {"raise": int(_core.CudaLeftOut.no), "skip": int(_core.CudaLeftOut.skip), "inf": int(_core.CudaLeftOut.infinite)}
_TYPES = {torch.float16: _core.CudaType.f16, torch.bfloat16: _core.CudaType.bf16, torch.float32: _core.CudaType.f32,
          torch.float64: _core.CudaType.f64}
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # a number, without an object around it
_raw_device = getattr(torch._C, "_cuda_getDevice", None) or torch.cuda.current_device  # without a look at whether CUDA is set up
_AS_IT_IS = contextlib.nullcontext()


def on_device(x: Tensor) -> bool:
    """Whether this module computes with a tensor. What is none is refused later, in words."""
    return BUILT and getattr(x, "is_cuda", False)


class There:
    """A constraint in a device's memory, and the first error of the calls that used it: status, sequence, number of the operation."""

    def __init__(self, constraint: _core.Constraint, device: torch.device) -> None:
        self.copy = _core.DeviceConstraint(constraint)
        with torch.inference_mode(False):  # training will use it, too
            self.failure = torch.zeros(6, dtype=torch.int32).to(device)  # from the host, so that it is there for every stream
        self.unseen = False  # calls that may have failed since somebody looked


class Place:
    """What devices hold for one constraint. Beside it the constraint that allows everything."""

    def __init__(self) -> None:
        self.unconstrained: Optional[_core.Constraint] = None
        self.unconstrained_handle = 0
        self.devices: Dict[Optional[int], There] = {}


_places: Dict[int, Place] = {}


def _place(handle: int) -> Place:
    place = _places.get(handle)
    if place is None:
        place = _places[int(handle)] = Place()
        weakref.finalize(constraint_of(handle), _places.pop, int(handle), None)
    return place


def unconstrained(handle: int) -> int:
    """The handle of the constraint with the same labels that allows everything."""
    place = _place(handle)
    if place.unconstrained is None:
        place.unconstrained_handle, place.unconstrained = share(_core.Constraint.unconstrained(constraint_of(handle).labels))
    return place.unconstrained_handle


def there(device: torch.device, handle: int) -> There:
    """The constraint on a device."""
    devices = _place(handle).devices
    found = devices.get(device.index)
    if found is None:
        with current(device):
            found = devices[device.index] = There(constraint_of(handle), device)
    return found


def failure(here: There, errors: int) -> int:
    """Where a call leaves an error; 0: nowhere."""
    if errors == NOTHING or torch.cuda.is_current_stream_capturing():
        return 0
    here.unseen = True
    return here.failure.data_ptr()


def places_of(handle: int) -> int:
    """Where the sequences' numbers are; 0: they are 0, 1, …"""
    return handle.places.data_ptr() if isinstance(handle, Part) and handle.places is not None else 0


def raise_pending(handle: int) -> None:
    """Raise the first error that a device has kept for this constraint. Waits for the device where there may be one."""
    place = _places.get(handle)
    for here in place.devices.values() if place else ():
        if not here.unseen:
            continue
        here.unseen = False
        *status, sequence, operation = here.failure.tolist()
        if status[0]:
            here.failure.zero_()
            _core.raise_status(OPERATIONS[operation], constraint_of(handle), sequence, *status)


def current(device: torch.device) -> Any:
    return _AS_IT_IS if device.index == _raw_device() else torch.cuda.device(device)


def stream(device: torch.device) -> int:
    return _raw_stream(device.index) if _raw_stream else torch.cuda.current_stream(device).cuda_stream


def _dimensions(shape: Sequence[int], batch_first: bool) -> Tuple[int, int, Tuple[int, int]]:
    """B, T, and by how many rows sequences and positions lie apart, where h has this shape."""
    first, second, _ = shape
    return (first, second, (second, 1)) if batch_first else (second, first, (1, second))


def room(bytes: int, device: torch.device) -> Tensor:
    return torch.empty(bytes, dtype=torch.uint8, device=device)


class DeviceMemory:
    """Scores as contiguous tensors on their device, and the view of them that the core takes."""

    def __init__(self, h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool) -> None:
        h, g, s, e, mask = self.tensors = h.contiguous(), g.contiguous(), s.contiguous(), e.contiguous(), mask.contiguous()
        self.device, transitions = h.device, g.data_ptr()
        self.B, self.T, strides = _dimensions(h.shape, batch_first)
        self.batch = _core.CudaBatch(self.B, self.T, *strides, _TYPES[h.dtype], _TYPES[g.dtype], h.data_ptr() or transitions, transitions,
                                     s.data_ptr(), e.data_ptr(), mask.data_ptr())


def _aligned(bytes: int) -> int:
    return (bytes + 255) // 256 * 256


def scale_of(kept: Tensor) -> Tensor:
    """[1]"""
    return kept[:8].view(torch.float64)


@functools.lru_cache(maxsize=4096)
def _losses(shape: torch.Size, emissions_type: torch.dtype, type: torch.dtype, batch_first: bool, want_h: bool,
            want_g: bool) -> _core.CudaLosses:
    """The losses of batches whose h has this shape, and where things are in the memory that each keeps for its gradients."""
    first, second, labels = shape
    return _core.CudaLosses(first, second, labels, _TYPES[emissions_type], _TYPES[type], torch.finfo(type).bits // 8, batch_first,
                            want_h, want_g)


def kept_bytes(shape: Sequence[int], width: int, batch_first: bool, want_h: bool, want_g: bool) -> int:
    """`_losses(…).end`, for sizes that are not known yet. width: of a number of g's."""
    first, second, K = shape
    B = first if batch_first else second
    return (_aligned(16 + 24 * B) + (_aligned(first * second * K * width) if want_h else 0) + (B * K * K * width if want_g else 0))


def _fake_loss(h, g, s, e, mask, gold, operation, batch_first, handle, errors, sign,  # type: ignore[no-untyped-def]
               reduction, left_out, exact, want_h, want_g):
    return (g.new_empty((batch_size(h, batch_first),) if reduction == UNREDUCED else (), dtype=torch.float64 if exact else g.dtype),
            g.new_empty(kept_bytes(h.shape, g.element_size(), batch_first, want_h, want_g), dtype=torch.uint8))


@operator(_fake_loss)
def device_loss(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, gold: Tensor, operation: str, batch_first: bool,
                handle: int, errors: int, sign: int, reduction: int, left_out: int, exact: bool, want_h: bool,
                want_g: bool) -> Tuple[Tensor, Tensor]:
    """sign · log_z, [B] or reduced to one number, and what its gradients need: counts of labels (want_h), of bigrams (want_g).

    With gold (int64, shaped as the mask) the negative log-likelihood instead, +inf outside the language, and counts minus
    gold's. Sequences with a NaN or +inf among their scores have NaN. The operation `entropy` gives entropies instead, NaN where
    there is none, and their gradients. `reduction`, `left_out`: of REDUCTIONS and OUTSIDE. `exact`: the answer is float64.
    """
    h, g, s, e, mask, gold = h.contiguous(), g.contiguous(), s.contiguous(), e.contiguous(), mask.contiguous(), gold.contiguous()
    device, type, transitions, entropy = h.device, torch.float64 if exact else g.dtype, g.data_ptr(), operation == "entropy"
    losses = _losses(h.shape, h.dtype, g.dtype, batch_first, want_h, want_g)
    out = torch.empty((batch_size(h, batch_first),) if reduction == UNREDUCED else (), dtype=type, device=device)
    kept = torch.empty(losses.end, dtype=torch.uint8, device=device)
    gold_at = gold.data_ptr() or (transitions if gold.dim() == 2 else 0)  # T = 0: there, and never read
    with current(device):
        here = there(device, handle)
        bytes = losses.bytes(here.copy, entropy, gold_at != 0)
        memory = room(bytes, device)
        losses.compute(here.copy, h.data_ptr(), transitions, s.data_ptr(), e.data_ptr(), mask.data_ptr(), gold_at, entropy, sign,
                       reduction, left_out, _TYPES[type], errors, OPERATIONS.index(operation), failure(here, errors), places_of(handle),
                       out.data_ptr(), kept.data_ptr(), memory.data_ptr(), bytes, stream(device))
    return out, kept


def divisor(left_out: Tensor, mask: Tensor, size: int, length: int, batch_first: bool, reduction: int) -> Tensor:
    """`divisor` of _torch_ops."""
    device, left_out = left_out.device, left_out.contiguous()
    lengths = mask.sum(1 if batch_first else 0) if mask.dim() == 2 else torch.full((size,), length, dtype=torch.int64, device=device)
    out = torch.empty((), dtype=torch.float64, device=device)
    with current(device):
        _core.cuda_divisor(reduction, size, left_out.data_ptr(), lengths.data_ptr(), out.data_ptr(), stream(device))
    return out


def _fake_weigh(weights, kept, h, g, s, e, mask, batch_first, want_h, want_g,  # type: ignore[no-untyped-def]
                need_h, need_g, need_s, need_e):
    return tuple(x.new_empty(x.shape if need else (0,)) for x, need in zip((h, g, s, e), (need_h, need_g, need_s, need_e)))


@operator(_fake_weigh)
def weigh(weights: Tensor, kept: Tensor, h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, want_h: bool,
          want_g: bool, need_h: bool, need_g: bool, need_s: bool, need_e: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of Σ weights · loss for h, g, s, e, where needed. kept, want_h, want_g: as device_loss had them."""
    gradients = room_for_gradients(h, g, s, e, need_h, need_g, need_s, need_e)
    weigh_into(gradients, weights, kept, h, g, mask, batch_first, want_h, want_g)
    return gradients


def room_for_gradients(h: Tensor, g: Tensor, s: Tensor, e: Tensor, need_h: bool, need_g: bool, need_s: bool,
                       need_e: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """Memory for the gradients, where needed. Made ahead, in the caller's thread, it takes half as long as in autograd's."""
    like, whole = torch.empty_like, torch.contiguous_format
    return (like(h, memory_format=whole) if need_h else h.new_empty(0), like(g, memory_format=whole) if need_g else g.new_empty(0),
            like(s, memory_format=whole) if need_s else s.new_empty(0), like(e, memory_format=whole) if need_e else e.new_empty(0))


def weigh_into(gradients: Tuple[Tensor, Tensor, Tensor, Tensor], weights: Tensor, kept: Tensor, h: Tensor, g: Tensor, mask: Tensor,
               batch_first: bool, want_h: bool, want_g: bool) -> None:
    """`weigh`, into the memory of `room_for_gradients`."""
    losses = _losses(h.shape, h.dtype, g.dtype, batch_first, want_h, want_g)
    dh, dg, ds, de = gradients
    mask, device, stride = mask.contiguous(), h.device, weights.stride(0) if weights.dim() else 0
    with current(device):
        losses.weigh(weights.data_ptr(), stride, _TYPES[weights.dtype], kept.data_ptr(), mask.data_ptr(), dh.data_ptr(), dg.data_ptr(),
                     ds.data_ptr(), de.data_ptr(), stream(device))


def _fake_curvature(vh, vg, vs, ve, weights, kept, h, g, s, e, mask, gold, batch_first, handle,  # type: ignore[no-untyped-def]
                    need_h, need_g, need_s, need_e):
    gradients = _fake_weigh(weights, kept, h, g, s, e, mask, batch_first, True, True, need_h, need_g, need_s, need_e)
    return (weights.new_empty(weights.shape), *gradients)


@operator(_fake_curvature)
def device_curvature(vh: Tensor, vg: Tensor, vs: Tensor, ve: Tensor, weights: Tensor, kept: Tensor, h: Tensor, g: Tensor, s: Tensor,
                     e: Tensor, mask: Tensor, gold: Tensor, batch_first: bool, handle: int, need_h: bool, need_g: bool, need_s: bool,
                     need_e: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Along a direction v, shaped as h, g, s, e: how each loss changes, times its scale, which is the gradient of v · `weigh` for the
    weights; and how the gradients of Σ weights · loss change, where needed. kept: as device_loss left it."""
    h, g, s, e, mask, gold = h.contiguous(), g.contiguous(), s.contiguous(), e.contiguous(), mask.contiguous(), gold.contiguous()
    vh, vg, vs, ve = vh.contiguous(), vg.contiguous(), vs.contiguous(), ve.contiguous()
    device, B, want_h = h.device, batch_size(h, batch_first), need_h or need_s or need_e
    losses = _losses(h.shape, h.dtype, g.dtype, batch_first, want_h, need_g)
    found = torch.empty(losses.end, dtype=torch.uint8, device=device)
    found[:losses.value].copy_(kept[:losses.value])  # scale and status, which come first
    gold_at = gold.data_ptr() or (g.data_ptr() if gold.dim() == 2 else 0)
    with current(device):
        copy = there(device, handle).copy
        bytes = losses.curvature_bytes(copy)
        memory = room(bytes, device)
        losses.curvature(copy, h.data_ptr(), g.data_ptr(), s.data_ptr(), e.data_ptr(), mask.data_ptr(), gold_at, vh.data_ptr(),
                         vg.data_ptr(), vs.data_ptr(), ve.data_ptr(), found.data_ptr(), memory.data_ptr(), bytes, stream(device))
    gradients = room_for_gradients(h, g, s, e, need_h, need_g, need_s, need_e)
    weigh_into(gradients, weights, found, h, g, mask, batch_first, want_h, need_g)
    each = found[losses.value:losses.value + 8 * B].view(torch.float64) * scale_of(kept)
    return ((each if weights.dim() else each.sum()).to(weights.dtype), *gradients)


# --- answers in lists: these wait for the device -----------------------------------------------------------------------------


class Lists:
    """Labels [rows, T] on the device with the status of B sequences, in one piece, which comes to the host at once. With `scores`, a
    float64 for each row too."""

    def __init__(self, memory: DeviceMemory, rows: int, scores: bool = False) -> None:
        self.B, self.rows, self.T = memory.B, rows, memory.T
        self.before = 4 * self.B + (2 * rows if scores else 0)  # the labels
        self.tensor = torch.empty(self.before + rows * self.T, dtype=torch.int32, device=memory.device)
        self.status = self.tensor.data_ptr()
        self.scores = self.status + 16 * self.B
        self.labels = self.status + 4 * self.before

    def host(self, operation: str, handle: int) -> List[List[int]]:
        return self.host_with_scores(operation, handle)[0]

    def host_with_scores(self, operation: str, handle: int) -> Tuple[List[List[int]], List[float]]:
        here = self.tensor.cpu()
        self._check(here, operation, handle)
        scores = here[4 * self.B:self.before].view(torch.float64).tolist() if self.before > 4 * self.B else []
        return _core.label_lists(here.data_ptr() + 4 * self.before, self.rows, self.T), scores

    def checked(self, operation: str, handle: int) -> Tensor:
        """int32 [rows, T], on the device: a row's labels, then anything. Waits for the status alone."""
        self._check(self.tensor[:4 * self.B].cpu(), operation, handle)
        return self.tensor[self.before:].view(self.rows, self.T)

    def _check(self, here: Tensor, operation: str, handle: int) -> None:
        raise_pending(handle)
        first = _core.first_not_fine(here.data_ptr(), self.B)
        if first >= 0:
            status = here[4 * first:4 * first + 4].tolist()
            number = handle.numbers[first] if isinstance(handle, Part) else first
            _core.raise_status(operation, constraint_of(handle), number, *status)


def enqueue_viterbi(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int) -> Lists:
    """The best sequences, on the device still. Waits for nothing."""
    memory = DeviceMemory(h, g, s, e, mask, batch_first)
    lists = Lists(memory, memory.B)
    if memory.B == 0:
        return lists
    with current(h.device):
        copy = there(h.device, handle).copy
        bytes = _core.cuda_viterbi_bytes(copy, memory.batch)
        scratch = room(_aligned(bytes) + 8 * memory.B, h.device)  # scores behind it
        at = scratch.data_ptr()
        _core.cuda_viterbi(copy, memory.batch, lists.labels, at + _aligned(bytes), lists.status, at, bytes, stream(h.device))
    return lists


def viterbi(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int,
            operation: str = "viterbi") -> List[List[int]]:
    return enqueue_viterbi(h, g, s, e, mask, batch_first, handle).host(operation, handle)


def viterbi_tensor(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int, fill: int) -> Tensor:
    """The best labels where they belong, `fill` at absent positions: int64, shaped as the emissions without K."""
    labels = enqueue_viterbi(h, g, s, e, mask, batch_first, handle).checked("viterbi", handle).long()
    if mask.numel():
        present = mask.bool() if batch_first else mask.bool().t()
        labels = labels.gather(1, (present.cumsum(1) - 1).clamp(min=0)).masked_fill(~present, fill)
    return labels if batch_first else labels.t().contiguous()


def k_best(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int,
           k: int) -> List[List[Tuple[List[int], float]]]:
    if k < 1:
        raise _core.Error(f"[k_best] k is {k}, expected 1 or more")
    memory = DeviceMemory(h, g, s, e, mask, batch_first)
    if memory.B == 0:
        return []
    with current(h.device):
        copy, lists = there(h.device, handle).copy, Lists(memory, memory.B * k, scores=True)
        bytes = _core.cuda_k_best_bytes(copy, memory.batch, k)
        scratch = room(bytes, h.device)
        _core.cuda_k_best(copy, memory.batch, k, lists.labels, lists.scores, lists.status, scratch.data_ptr(), bytes, stream(h.device))
        labels, scores = lists.host_with_scores("k_best", handle)
    paths = list(zip(labels, scores))
    return [[path for path in paths[i * k:(i + 1) * k] if path[1] > -math.inf] for i in range(memory.B)]


def sample(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int, count: int, seed: int,
           temperature: float) -> List[List[List[int]]]:
    if count < 0:
        raise _core.Error(f"[sample] count is {count}, expected 0 or more")
    if not (temperature > 0 and math.isfinite(temperature)):
        raise _core.Error(f"[sample] temperature is {temperature}, expected a number above 0")
    memory = DeviceMemory(h, g, s, e, mask, batch_first)
    if memory.B == 0 or count == 0:
        return [[] for _ in range(memory.B)]
    with current(h.device):
        copy, lists = there(h.device, handle).copy, Lists(memory, memory.B * count)
        bytes = _core.cuda_sample_bytes(copy, memory.batch, count)
        scratch = room(bytes, h.device)
        _core.cuda_sample(copy, memory.batch, count, seed, temperature, places_of(handle), lists.labels, lists.status,
                          scratch.data_ptr(), bytes, stream(h.device))
        all = lists.host("sample", handle)
    return [all[i * count:(i + 1) * count] for i in range(memory.B)]


def posterior_decode(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int) -> List[List[int]]:
    """Viterbi with marginals for emissions and nothing for the rest. What scores forbid stays forbidden."""
    none = nothing(h.device, torch.int64)
    _, kept = device_loss(h, g, s, e, mask, none, "posterior_decode", batch_first, handle, EVERYTHING, 1, UNREDUCED, OUTSIDE["raise"], False,
                          True, False)
    begin = _losses(h.shape, h.dtype, g.dtype, batch_first, True, False).counts
    marginals = kept[begin:begin + h.numel() * g.element_size()].view(g.dtype).view(h.shape)
    g, s, e = (torch.where(torch.isneginf(x), x, torch.zeros_like(x)) for x in (g, s, e))
    return viterbi(marginals.masked_fill(torch.isneginf(h), -math.inf), g, s, e, mask, batch_first, handle, "posterior_decode")
