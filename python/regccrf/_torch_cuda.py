"""The layer's operations on a CUDA device, on tensors that are there: the device's counterpart of the CPU part of `_torch_ops`.

A call enqueues kernels on the tensors' current stream, in memory from PyTorch's allocator, and waits for nothing. What goes wrong is
left in a status record on the device. The record is kept, and raised by the next operation that waits for the device anyway (those
that answer with lists) or by `raise_pending`. While a CUDA graph is captured no record is kept: what goes wrong in a replay shows as
NaN or an infinite loss.

Arguments as in `_torch_ops`, except that emissions may be half precision where the rest is float32.

No `from __future__ import annotations` here: operator schemas are read from the annotations.
"""

import contextlib
import math
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _core
from ._torch_graph import address, batch_size, constraint_of, handle_of, operator

BUILT = _core.cuda_built()
NOTHING, BAD_SCORES, EVERYTHING = 0, 1, 2  # what of a status record is an error
_TYPES = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2, torch.float64: 3}
_BAD = (1, 4)  # outcomes: NaN or +inf among the emissions; among the other scores
_MOST_PENDING = 64


def on_device(x: Tensor) -> bool:
    """Whether this module computes with a tensor."""
    return BUILT and x.is_cuda


class Record(NamedTuple):
    """Status records that nobody has looked at."""
    operation: str
    errors: int                   # BAD_SCORES or EVERYTHING
    status: Tensor                # [N, 4] outcome, position, label, length
    sequences: Optional[Tensor]   # [N]; None: 0 … N-1

    def found(self) -> Tensor:
        """Which are errors: [N]."""
        outcome = self.status[:, 0]
        return outcome.ne(0) if self.errors == EVERYTHING else outcome.eq(_BAD[0]) | outcome.eq(_BAD[1])

    def raise_first(self, constraint: _core.Constraint) -> None:
        rows = self.status.tolist()
        numbers = range(len(rows)) if self.sequences is None else self.sequences.tolist()
        for number, row in zip(numbers, rows):
            if row[0] and (self.errors == EVERYTHING or row[0] in _BAD):
                raise _core.Error(_core.status_message(self.operation, constraint, number, *row))


class Place:
    """What devices hold for one constraint: copies of it, and records. Beside it the constraint that allows everything."""

    def __init__(self) -> None:
        self.unconstrained: Optional[_core.Constraint] = None
        self.unconstrained_handle = 0
        self.copies: Dict[Optional[int], _core.DeviceConstraint] = {}
        self.pending: List[Record] = []


_places: Dict[int, Place] = {}


def _place(handle: int) -> Place:
    place = _places.get(handle)
    if place is None:
        place = _places[handle] = Place()
        weakref.finalize(constraint_of(handle), _places.pop, handle, None)
    return place


def unconstrained(handle: int) -> int:
    """The handle of the constraint with the same labels that allows everything."""
    place = _place(handle)
    if place.unconstrained is None:
        place.unconstrained = _core.Constraint.unconstrained(constraint_of(handle).labels)
        place.unconstrained_handle = handle_of(place.unconstrained)
    return place.unconstrained_handle


def _copy_on(device: torch.device, handle: int) -> _core.DeviceConstraint:
    """The constraint in the device's memory. The device is current."""
    copies = _place(handle).copies
    copy = copies.get(device.index)
    if copy is None:
        copy = copies[device.index] = _core.DeviceConstraint(constraint_of(handle))
    return copy


def _keep(record: Record, handle: int) -> None:
    if record.errors == NOTHING or torch.cuda.is_current_stream_capturing():
        return
    pending = _place(handle).pending
    pending.append(record)
    if len(pending) > _MOST_PENDING:
        _place(handle).pending = _folded(pending)


def _folded(records: List[Record]) -> List[Record]:
    """The first error of each kind, still on the device: one record of one sequence."""
    kinds: Dict[Tuple[Any, ...], List[Record]] = {}
    for record in records:
        kinds.setdefault((record.operation, record.errors, record.status.device), []).append(record)
    folded = []
    for (operation, errors, device), some in kinds.items():
        status = torch.cat([r.status for r in some])
        sequences = torch.cat([torch.arange(len(r.status), device=device) if r.sequences is None else r.sequences for r in some])
        if len(status):
            first = Record(operation, errors, status, None).found().byte().argmax().view(1)
            folded.append(Record(operation, errors, status[first], sequences[first]))
    return folded


def raise_pending(handle: int) -> None:
    """Raise the first error that a device has recorded for this constraint. Waits for the device where there are records."""
    place = _places.get(handle)
    if place is None or not place.pending:
        return
    pending, place.pending = place.pending, []
    for record in pending:
        record.raise_first(constraint_of(handle))


def _current(device: torch.device) -> Any:
    return contextlib.nullcontext() if device.index == torch.cuda.current_device() else torch.cuda.device(device)


def _stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream


class DeviceMemory:
    """Scores as contiguous tensors on their device, and the view of them that the core takes."""

    def __init__(self, h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool) -> None:
        self.tensors = h, g, s, e, mask = [x.contiguous() for x in (h, g, s, e, mask)]
        self.device = h.device
        self.B, self.T = h.shape[:2] if batch_first else (h.shape[1], h.shape[0])
        self.batch = _core.CudaBatch(self.B, self.T, *((self.T, 1) if batch_first else (1, self.B)), _TYPES[h.dtype], _TYPES[g.dtype],
                                     address(h) or address(g), address(g), address(s), address(e), address(mask))

    def scratch(self, bytes: int) -> Tensor:
        return torch.empty(bytes, dtype=torch.uint8, device=self.device)


def _fake_counts(operation, h, g, s, e, mask, gold, batch_first, handle, errors, want_h, want_g):  # type: ignore[no-untyped-def]
    B, K = batch_size(h, batch_first), h.shape[2]
    return (h.new_empty(B, dtype=torch.float64), h.new_empty((B, 4), dtype=torch.int32), g.new_empty(h.shape if want_h else (0,)),
            g.new_empty((B, K, K) if want_g else (0,)))


@operator(_fake_counts)
def device_counts(operation: str, h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, gold: Tensor, batch_first: bool, handle: int,
                  errors: int, want_h: bool, want_g: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """log_z [B] in float64, status [B, 4], and where wanted expected counts of labels, shaped as h, and of bigrams, [B, K, K].

    With gold (int64, shaped as the mask) the negative log-likelihood instead, +inf outside the language, and counts minus gold's:
    zeros where it is outside. Sequences with a NaN or +inf among their scores have NaN and zeros. The operation `entropy` gives
    entropies instead, NaN where there is none, and their gradients.
    """
    memory = DeviceMemory(h, g, s, e, mask, batch_first)
    gold, B, K, device = gold.contiguous(), memory.B, h.shape[2], h.device
    value = torch.empty(B, dtype=torch.float64, device=device)
    status = torch.empty((B, 4), dtype=torch.int32, device=device)
    rows = torch.zeros if mask.numel() else torch.empty  # kernels leave absent positions alone
    dh = rows(h.shape if want_h else (0,), dtype=g.dtype, device=device)
    dg = torch.empty((B, K, K) if want_g else (0,), dtype=g.dtype, device=device)
    if B == 0:
        return value, status, dh, dg
    gold_at = address(gold) or (address(g) if gold.dim() == 2 else 0)  # T = 0: there, and never read
    wanted = [address(value), address(dh), address(dg), address(status)]
    compute, size = _core.cuda_entropy, _core.cuda_entropy_bytes
    if operation != "entropy":
        compute, size, wanted = _core.cuda_expectation, _core.cuda_expectation_bytes, [*wanted, gold_at]
    with _current(device):
        copy = _copy_on(device, handle)
        bytes = size(copy, memory.batch, *wanted)
        scratch = memory.scratch(bytes)
        compute(copy, memory.batch, *wanted, address(scratch), bytes, _stream(device))
        _keep(Record(operation, errors, status, None), handle)
    return value, status, dh, dg


def weighted(weights: Tensor, dh: Tensor, dg: Tensor, h: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool,
             wanted: Sequence[bool]) -> List[Optional[Tensor]]:
    """Gradients of h, g, s and e, where wanted: sums of the sequences' counts, times weights [B]."""
    weights = weights.to(dh.dtype)
    each = weights.view(-1, 1, 1)
    rows = dh * (each if batch_first else weights.view(1, -1, 1)) if wanted[0] or wanted[2] or wanted[3] else dh
    ds, de = _ends(rows, mask, batch_first) if wanted[2] or wanted[3] else (None, None)
    return [rows.to(h.dtype) if wanted[0] else None, (dg * each).sum(0) if wanted[1] else None, ds if wanted[2] else None,
            de if wanted[3] else None]


def _ends(rows: Tensor, mask: Tensor, batch_first: bool) -> Tensor:
    """Sums over sequences of their first rows and of their last: [2, K]."""
    if not batch_first:
        rows, mask = rows.transpose(0, 1), mask.t() if mask.numel() else mask
    B, T, K = rows.shape
    if B == 0 or T == 0:
        return rows.new_zeros((2, K))
    if not mask.numel():
        return rows[:, ::T - 1].sum(0) if T > 1 else rows.sum(0).repeat(2, 1)
    first, last = mask.argmax(1), mask.cumsum(1).argmax(1)  # of an empty sequence the first row, which is zeros
    return rows.gather(1, torch.stack([first, last], 1).unsqueeze(2).expand(B, 2, K)).sum(0)


def expectation(weights: Tensor, h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int,
                allow: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of Σ weights[i] · log_z[i]: expected counts."""
    none = torch.empty(0, dtype=torch.int64, device=h.device)
    _, _, dh, dg = device_counts("log_z", h, g, s, e, mask, none, batch_first, handle, BAD_SCORES if allow else EVERYTHING, True, True)
    dh, dg, ds, de = weighted(weights, dh, dg, h, s, e, mask, batch_first, [True, True, s.numel() > 0, e.numel() > 0])
    return dh, dg, torch.empty_like(s) if ds is None else ds, torch.empty_like(e) if de is None else de


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
        raise_pending(handle)
        Record(operation, EVERYTHING, here[:4 * self.B].view(self.B, 4), None).raise_first(constraint_of(handle))
        scores = here[4 * self.B:self.before].view(torch.float64).tolist()
        return _core.label_lists(here.data_ptr() + 4 * self.before, self.rows, self.T), scores


def enqueue_viterbi(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int) -> Lists:
    """The best sequences, on the device still. Waits for nothing."""
    memory = DeviceMemory(h, g, s, e, mask, batch_first)
    lists = Lists(memory, memory.B)
    if memory.B == 0:
        return lists
    with _current(h.device):
        copy = _copy_on(h.device, handle)
        bytes = _core.cuda_viterbi_bytes(copy, memory.batch)
        scratch, score = memory.scratch(bytes), torch.empty(memory.B, dtype=torch.float64, device=h.device)
        _core.cuda_viterbi(copy, memory.batch, lists.labels, address(score), lists.status, address(scratch), bytes, _stream(h.device))
    return lists


def viterbi(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int,
            operation: str = "viterbi") -> List[List[int]]:
    return enqueue_viterbi(h, g, s, e, mask, batch_first, handle).host(operation, handle)


def k_best(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int,
           k: int) -> List[List[Tuple[List[int], float]]]:
    if k < 1:
        raise _core.Error(f"[k_best] k is {k}, expected 1 or more")
    memory = DeviceMemory(h, g, s, e, mask, batch_first)
    if memory.B == 0:
        return []
    with _current(h.device):
        copy, lists = _copy_on(h.device, handle), Lists(memory, memory.B * k, scores=True)
        bytes = _core.cuda_k_best_bytes(copy, memory.batch, k)
        scratch = memory.scratch(bytes)
        _core.cuda_k_best(copy, memory.batch, k, lists.labels, lists.scores, lists.status, address(scratch), bytes, _stream(h.device))
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
    with _current(h.device):
        copy, lists = _copy_on(h.device, handle), Lists(memory, memory.B * count)
        bytes = _core.cuda_sample_bytes(copy, memory.batch, count)
        scratch = memory.scratch(bytes)
        _core.cuda_sample(copy, memory.batch, count, seed, temperature, lists.labels, lists.status, address(scratch), bytes,
                          _stream(h.device))
        all = lists.host("sample", handle)
    return [all[i * count:(i + 1) * count] for i in range(memory.B)]


def posterior_decode(h: Tensor, g: Tensor, s: Tensor, e: Tensor, mask: Tensor, batch_first: bool, handle: int) -> List[List[int]]:
    """Viterbi with marginals for emissions and nothing for the rest. What scores forbid stays forbidden."""
    none = torch.empty(0, dtype=torch.int64, device=h.device)
    _, _, marginals, _ = device_counts("posterior_decode", h, g, s, e, mask, none, batch_first, handle, EVERYTHING, True, False)
    g, s, e = (torch.where(torch.isneginf(x), x, torch.zeros_like(x)) for x in (g, s, e))
    return viterbi(marginals.masked_fill(torch.isneginf(h), -math.inf), g, s, e, mask, batch_first, handle, "posterior_decode")
