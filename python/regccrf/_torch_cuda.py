"""The operators of `_torch_ops` on a CUDA device, and decoding there.

A call enqueues kernels on the tensors' current stream, in memory from PyTorch's allocator, and waits for nothing. What goes wrong is left on
the device: the first error of all calls under a constraint. It is raised by the next operation that waits for the device anyway (those that
answer with lists) or by `raise_pending`. While a CUDA graph is captured none is kept: what goes wrong in a replay shows as NaN
or an infinite loss.

Arguments as in `_torch_ops`, except that emissions may be half precision where the rest is float32. The address of an empty tensor is 0. What
a loss saves for its gradients is one tensor of bytes (`SavedLayout`).
"""

import contextlib
import functools
import math
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _core
from ._torch_handles import batch_constraints, constraint_of, register

BUILT = _core.cuda_built()
# The core's objective of each operation. Losses over sets of labels and language masses are differences of two log_z.
_OBJECTIVES = {"log_z": _core.CudaObjective.log_z, "nll": _core.CudaObjective.nll, "partial_nll": _core.CudaObjective.log_z,
               "language_mass": _core.CudaObjective.log_z, "posterior_decode": _core.CudaObjective.log_z,
               "entropy": _core.CudaObjective.entropy}
_OPERATIONS = list(_OBJECTIVES)  # a device keeps an operation's place in it with an error
_OUTSIDE = {"raise": _core.CudaOutside.keep, "skip": _core.CudaOutside.skip, "inf": _core.CudaOutside.infinite}
_REDUCTIONS, _ERRORS = _core.Reduction.__members__, _core.CudaErrors.__members__
_TYPES = {torch.float16: _core.CudaType.f16, torch.bfloat16: _core.CudaType.bf16, torch.float32: _core.CudaType.f32,
          torch.float64: _core.CudaType.f64}
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # a number, without an object around it
_raw_device = getattr(torch._C, "_cuda_getDevice", None) or torch.cuda.current_device  # without a look at whether CUDA is set up
_NO_GUARD = contextlib.nullcontext()


def on_device(x: Tensor) -> bool:
    """Whether this module computes with a tensor. What is none is refused later, in words."""
    return BUILT and getattr(x, "is_cuda", False)


def device_guard(device: torch.device) -> Any:
    return _NO_GUARD if device.index == _raw_device() else torch.cuda.device(device)


def current_stream(device: torch.device) -> int:
    return _raw_stream(device.index) if _raw_stream else torch.cuda.current_stream(device).cuda_stream


def workspace(bytes: int, device: torch.device) -> Tensor:
    return torch.empty(bytes, dtype=torch.uint8, device=device)


# --- constraints on devices, and errors that wait there ------------------------------------------------------------------------


class DeviceState:
    """A constraint in a device's memory, and the first error of the calls that used it: status, sequence, number of the operation."""

    def __init__(self, constraint: _core.Constraint, device: torch.device) -> None:
        self.constraint = _core.DeviceConstraint(constraint)
        with torch.inference_mode(False):  # training will use it, too
            self.failure = torch.zeros(6, dtype=torch.int32).to(device)  # from the host, so that every stream sees it
        self.unchecked = False  # calls that may have failed since somebody looked


_states: Dict[int, Dict[Optional[int], DeviceState]] = {}  # by handle, then by device
_unconstrained: Dict[int, Tuple[int, _core.Constraint]] = {}  # by handle


def _base(handle: int) -> int:
    batch = batch_constraints(handle)
    return handle if batch is None else batch.base


def device_state(device: torch.device, handle: int) -> DeviceState:
    handle = _base(handle)
    devices = _states.get(handle)
    if devices is None:
        devices = _states[handle] = {}
        weakref.finalize(constraint_of(handle), _states.pop, handle, None)
    found = devices.get(device.index)
    if found is None:
        with device_guard(device):
            found = devices[device.index] = DeviceState(constraint_of(handle), device)
    return found


def unconstrained(handle: int) -> int:
    """The handle of the constraint with the same labels that allows everything."""
    handle = _base(handle)
    if handle not in _unconstrained:
        _unconstrained[handle] = register(_core.Constraint.unconstrained(constraint_of(handle).labels))
        weakref.finalize(constraint_of(handle), _unconstrained.pop, handle, None)
    return _unconstrained[handle][0]


def raise_pending(handle: int) -> None:
    """Raise the first error that a device has kept for this constraint. Waits for the device where there may be one."""
    for state in _states.get(_base(handle), {}).values():
        if not state.unchecked:
            continue
        state.unchecked = False
        *status, sequence, operation = state.failure.tolist()
        if status[0]:
            state.failure.zero_()
            _core.raise_status(_OPERATIONS[operation], constraint_of(handle), sequence, *status)


def _failure_address(state: DeviceState, errors: str) -> int:
    """Where a call leaves an error; 0: nowhere."""
    if errors == "none" or torch.cuda.is_current_stream_capturing():
        return 0
    state.unchecked = True
    return state.failure.data_ptr()


def _sequence_ids(handle: int) -> int:
    """Where the sequences' numbers are; 0: they are 0, 1, …"""
    batch = batch_constraints(handle)
    return 0 if batch is None or batch.sequence_ids is None else batch.sequence_ids.data_ptr()


# --- tensors as the core's structs ---------------------------------------------------------------------------------------------


def _contiguous(*tensors: Tensor) -> List[Tensor]:
    return [x.contiguous() for x in tensors]


def _batch(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool) -> _core.CudaBatch:
    """Of contiguous tensors, which have to live until the call is made."""
    batch = _core.CudaBatch()
    first, second, _ = h.shape
    batch.size, batch.length = (first, second) if batch_first else (second, first)
    batch.batch_stride, batch.time_stride = (second, 1) if batch_first else (1, second)
    batch.emissions = _core.CudaConstArray(h.data_ptr() or g.data_ptr(), _TYPES[h.dtype])  # never read without positions
    batch.transitions, batch.start, batch.end = map(_const_array, (g, s, e))
    batch.mask = mask.data_ptr()
    return batch


def _array(x: Tensor) -> _core.CudaArray:
    return _core.CudaArray(x.data_ptr(), _TYPES[x.dtype])


def _const_array(x: Tensor) -> _core.CudaConstArray:
    return _core.CudaConstArray(x.data_ptr(), _TYPES[x.dtype])


def _aligned(bytes: int) -> int:
    return (bytes + 255) // 256 * 256


class SavedLayout(NamedTuple):
    """Where parts of a loss's saved tensor begin, in bytes. Its scale, float64 [1], comes first."""
    status: int       # [B] of 16 bytes
    value: int        # [B] float64
    emissions: int    # shaped as h, of g's type, where wanted
    transitions: int  # [B, K, K], where wanted
    end: int

    @staticmethod
    def of(shape: Sequence[int], width: int, batch_first: bool, want_h: bool, want_g: bool) -> "SavedLayout":
        """shape: of h, known or not; width: of a number of g's."""
        first, second, K = shape
        B = first if batch_first else second
        emissions = _aligned(16 + 24 * B)
        transitions = emissions + (_aligned(first * second * K * width) if want_h else 0)
        return SavedLayout(16, 16 + 16 * B, emissions, transitions, transitions + (B * K * K * width if want_g else 0))


_layout = functools.lru_cache(maxsize=4096)(SavedLayout.of)


def _saved(saved: Tensor, layout: SavedLayout, type: torch.dtype, want_h: bool, want_g: bool) -> _core.CudaSavedForBackward:
    view, at = _core.CudaSavedForBackward(), saved.data_ptr()
    view.scale, view.status, view.value = at, at + layout.status, at + layout.value
    if want_h and layout.transitions > layout.emissions:
        view.emissions = _core.CudaArray(at + layout.emissions, _TYPES[type])
    if want_g:
        view.transitions = _core.CudaArray(at + layout.transitions, _TYPES[type])
    return view


# --- losses ------------------------------------------------------------------------------------------------------------------


def out_like(h: Tensor, g: Tensor, request: Any) -> Tensor:
    shape = () if request.reduction != "none" else (h.shape[0 if request.batch_first else 1],)
    return torch.empty(shape, dtype=torch.float64 if request.exact else g.dtype, device=g.device)


def loss(h, g, s, e, mask, gold, request):  # type: ignore[no-untyped-def]
    """The loss, and what it saves. +inf where gold is outside the language, NaN where scores are NaN or +inf or where there is no entropy."""
    h, g, s, e, mask, gold = _contiguous(h, g, s, e, mask, gold)
    device, want_h, want_g = h.device, request.want_h, request.want_g
    layout = _layout(h.shape, g.element_size(), request.batch_first, want_h, want_g)
    out, saved = out_like(h, g, request), torch.empty(layout.end, dtype=torch.uint8, device=device)
    batch, wanted = _batch(h, g, s, e, mask, request.batch_first), _core.CudaLoss()
    wanted.objective, wanted.gold, wanted.sign = _OBJECTIVES[request.operation], gold.data_ptr(), request.sign
    wanted.reduction, wanted.outside, wanted.errors = _REDUCTIONS[request.reduction], _OUTSIDE[request.outside], _ERRORS[request.errors]
    wanted.out, wanted.saved = _array(out), _saved(saved, layout, g.dtype, want_h, want_g)
    wanted.operation, wanted.sequence_ids = _OPERATIONS.index(request.operation), _sequence_ids(request.handle)
    with device_guard(device):
        state = device_state(device, request.handle)
        wanted.failure = _failure_address(state, request.errors)
        bytes = _core.cuda_loss_bytes(state.constraint, batch, wanted)
        memory = workspace(bytes, device)
        _core.cuda_loss(state.constraint, batch, wanted, memory.data_ptr(), bytes, current_stream(device))
    return out, [saved]


def loss_gradients(weights, saved, h, g, s, e, mask, gold, request, needed=(True,) * 4):  # type: ignore[no-untyped-def]
    """The gradients of Σ weights · loss for h, g, s, e, empty where not needed."""
    gradients = [torch.empty_like(x, memory_format=torch.contiguous_format) if need else x.new_empty(0)
                 for x, need in zip((h, g, s, e), needed)]
    layout = _layout(h.shape, g.element_size(), request.batch_first, request.want_h, request.want_g)
    mask, wanted = mask.contiguous(), _core.CudaLossGradients()
    wanted.weights = _const_array(weights)
    wanted.weights_stride = weights.stride(0) if weights.dim() else 0
    wanted.saved = _saved(saved[0], layout, g.dtype, request.want_h, request.want_g)
    wanted.emissions, wanted.transitions, wanted.start, wanted.end = map(_array, gradients)
    with device_guard(h.device):
        _core.cuda_loss_gradients(_batch(h, g, s, e, mask, request.batch_first), h.shape[2], wanted, current_stream(h.device))
    return gradients


def curvature(direction, weights, saved, h, g, s, e, mask, gold, request):  # type: ignore[no-untyped-def]
    """Along a direction v, shaped as h, g, s, e: how each loss changes, shaped as the weights, and how the gradients of Σ weights · loss do."""
    h, g, s, e, mask, gold = _contiguous(h, g, s, e, mask, gold)
    vh, vg, vs, ve = _contiguous(*direction)
    device, request = h.device, request._replace(want_h=True, want_g=True)
    layout = _layout(h.shape, g.element_size(), request.batch_first, True, True)
    found = torch.empty(layout.end, dtype=torch.uint8, device=device)
    found[:layout.value].copy_(saved[0][:layout.value])  # scale and status
    batch, view, wanted, along = _batch(h, g, s, e, mask, request.batch_first), _saved(found, layout, g.dtype, True, True), \
        _core.CudaCurvature(), _core.CudaDirection()
    along.emissions, along.transitions, along.start, along.end = map(_const_array, (vh, vg, vs, ve))
    wanted.direction, wanted.status, wanted.value = along, view.status, view.value
    wanted.emissions, wanted.transitions = view.emissions, view.transitions
    if request.operation == "nll":
        wanted.gold = gold.data_ptr() or g.data_ptr()  # T = 0: never read
    with device_guard(device):
        constraint = device_state(device, request.handle).constraint
        bytes = _core.cuda_curvature_bytes(constraint, batch, wanted) if batch.size else 0
        memory = workspace(bytes, device)
        _core.cuda_curvature(constraint, batch, wanted, memory.data_ptr(), bytes, current_stream(device))
    each = found[layout.value:layout.value + 8 * batch.size].view(torch.float64) * found[:8].view(torch.float64)
    return [(each if weights.dim() else each.sum()).to(weights.dtype), *loss_gradients(weights, [found], h, g, s, e, mask, gold, request)]


# --- decoding: answers in lists wait for the device -----------------------------------------------------------------------------


class DeviceLabels:
    """Labels [rows, T] on the device with the status of B sequences, in one piece, which comes to the host at once. With `scores`, a
    float64 for each row too."""

    def __init__(self, batch: _core.CudaBatch, device: torch.device, rows: int, scores: bool = False) -> None:
        self.B, self.rows, self.T = batch.size, rows, batch.length
        self.before = 4 * self.B + (2 * rows if scores else 0)  # the labels
        self.tensor = torch.empty(self.before + rows * self.T, dtype=torch.int32, device=device)
        self.status = self.tensor.data_ptr()
        self.scores = self.status + 16 * self.B
        self.labels = self.status + 4 * self.before

    def lists(self, operation: str, handle: int) -> List[List[int]]:
        return self.lists_and_scores(operation, handle)[0]

    def lists_and_scores(self, operation: str, handle: int) -> Tuple[List[List[int]], List[float]]:
        host = self.tensor.cpu()
        self._check(host, operation, handle)
        scores = host[4 * self.B:self.before].view(torch.float64).tolist() if self.before > 4 * self.B else []
        return _core.label_lists(host.data_ptr() + 4 * self.before, self.rows, self.T), scores

    def checked(self, operation: str, handle: int) -> Tensor:
        """int32 [rows, T], on the device: a row's labels, then anything. Waits for the status alone."""
        self._check(self.tensor[:4 * self.B].cpu(), operation, handle)
        return self.tensor[self.before:].view(self.rows, self.T)

    def _check(self, host: Tensor, operation: str, handle: int) -> None:
        raise_pending(handle)
        first = _core.first_not_fine(host.data_ptr(), self.B)
        if first >= 0:
            status, batch = host[4 * first:4 * first + 4].tolist(), batch_constraints(handle)
            sequence = first if batch is None else batch.sequences[first]
            _core.raise_status(operation, constraint_of(handle), sequence, *status)


def enqueue_viterbi(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int) -> DeviceLabels:
    """The best sequences, on the device still. Waits for nothing."""
    h, g, s, e, mask = _contiguous(h, g, s, e, mask)
    batch, best = _batch(h, g, s, e, mask, batch_first), _core.CudaBest()
    labels = DeviceLabels(batch, h.device, batch.size)
    if batch.size == 0:
        return labels
    with device_guard(h.device):
        constraint = device_state(h.device, handle).constraint
        bytes = _core.cuda_viterbi_bytes(constraint, batch, best)
        memory = workspace(_aligned(bytes) + 8 * batch.size, h.device)  # scores behind it
        best.labels, best.score, best.status = labels.labels, memory.data_ptr() + _aligned(bytes), labels.status
        _core.cuda_viterbi(constraint, batch, best, memory.data_ptr(), bytes, current_stream(h.device))
    return labels


def decode(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int,
           operation: str = "viterbi") -> List[List[int]]:
    return enqueue_viterbi(h, g, s, e, mask, batch_first, handle).lists(operation, handle)


def viterbi(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int, fill: int) -> Tensor:
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
    h, g, s, e, mask = _contiguous(h, g, s, e, mask)
    batch, best = _batch(h, g, s, e, mask, batch_first), _core.CudaKBest()
    if batch.size == 0:
        return []
    with device_guard(h.device):
        labels = DeviceLabels(batch, h.device, batch.size * k, scores=True)
        best.k, best.labels, best.score, best.status = k, labels.labels, labels.scores, labels.status
        _decode(_core.cuda_k_best_bytes, _core.cuda_k_best, batch, best, h.device, handle)
        lists, scores = labels.lists_and_scores("k_best", handle)
    paths = list(zip(lists, scores))
    return [[path for path in paths[i * k:(i + 1) * k] if path[1] > -math.inf] for i in range(batch.size)]


def sample(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int, count: int, seed: int,
           temperature: float) -> List[List[List[int]]]:
    if count < 0:
        raise _core.Error(f"[sample] count is {count}, expected 0 or more")
    if not (temperature > 0 and math.isfinite(temperature)):
        raise _core.Error(f"[sample] temperature is {temperature}, expected a number above 0")
    h, g, s, e, mask = _contiguous(h, g, s, e, mask)
    batch, samples = _batch(h, g, s, e, mask, batch_first), _core.CudaSamples()
    if batch.size == 0 or count == 0:
        return [[] for _ in range(batch.size)]
    with device_guard(h.device):
        labels = DeviceLabels(batch, h.device, batch.size * count)
        samples.count, samples.seed, samples.temperature, samples.ids = count, seed, temperature, _sequence_ids(handle)
        samples.labels, samples.status = labels.labels, labels.status
        _decode(_core.cuda_sample_bytes, _core.cuda_sample, batch, samples, h.device, handle)
        lists = labels.lists("sample", handle)
    return [lists[i * count:(i + 1) * count] for i in range(batch.size)]


def _decode(bytes_of: Any, call: Any, batch: _core.CudaBatch, request: Any, device: torch.device, handle: int) -> None:
    constraint = device_state(device, handle).constraint
    bytes = bytes_of(constraint, batch, request)
    memory = workspace(bytes, device)
    call(constraint, batch, request, memory.data_ptr(), bytes, current_stream(device))


def posterior_decode(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, gold: Tensor, request: Any) -> List[List[int]]:
    """Viterbi with marginals for emissions and nothing for the rest. What scores forbid stays forbidden. request: want_h."""
    _, (saved,) = loss(h, g, s, e, mask, gold, request)
    begin = _layout(h.shape, g.element_size(), request.batch_first, True, False).emissions
    marginals = saved[begin:begin + h.numel() * g.element_size()].view(g.dtype).view(h.shape)
    g, s, e = (torch.where(torch.isneginf(x), x, torch.zeros_like(x)) for x in (g, s, e))
    return decode(marginals.masked_fill(torch.isneginf(h), -math.inf), g, s, e, mask, request.batch_first, request.handle, "posterior_decode")
