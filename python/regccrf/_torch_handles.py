"""Constraints as numbers, which is all that PyTorch's operators take beside tensors.

A constraint's number, its handle, is made of its content: equal constraints have one, in every process, so that a graph that outlives
this process never meets another constraint under it. One constraint stands for all that are equal. Its layer keeps it alive, and so does a
graph that is still to be differentiated (`alive`). An exported program holds the bytes of its constraints, too; those that were read
from there are kept here.

What a call alone needs, a constraint for each sequence or those sequences of a batch that have one, is a `BatchConstraints`. Its handle is
negative, and never part of a graph.
"""

import hashlib
import itertools
import json
import weakref
from collections import OrderedDict
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _core
from ._certified import DEFAULT, Certified
from ._torch_graph import compiling
from .inference import _choice

_live: "weakref.WeakValueDictionary[int, _core.Constraint]" = weakref.WeakValueDictionary()
_number_of: Dict[int, int] = {}  # by id()
_packed: Dict[int, Tensor] = {}  # uint8: the bytes
_unpacked: "OrderedDict[int, _core.Constraint]" = OrderedDict()
_MOST_UNPACKED = 64


def _hashed(bytes: bytes) -> int:
    return int.from_bytes(hashlib.sha256(bytes).digest()[:8], "little") >> 2  # positive, and fits an int64


def _register(constraint: _core.Constraint, bytes: bytes) -> int:
    number = _hashed(bytes)
    if _live.setdefault(number, constraint) is constraint:
        with torch.inference_mode(False):
            _packed[number] = torch.frombuffer(bytearray(bytes), dtype=torch.uint8)
        weakref.finalize(constraint, _forget, number)
    return number


def _forget(number: int) -> None:
    if number in _live:
        return
    for table in (_packed, _certified, _gaps):
        table.pop(number, None)


def register(constraint: _core.Constraint) -> Tuple[int, _core.Constraint]:
    """A constraint's handle, and the one that stands for those equal to it: the handle is good for as long as that one lives."""
    number = _number_of.get(id(constraint))
    found = None if number is None else _live.get(number)
    if number is None or found is None:
        number = _register(constraint, constraint.to_bytes())
        if id(constraint) not in _number_of:
            weakref.finalize(constraint, _number_of.pop, id(constraint), None)
            _number_of[id(constraint)] = number
        found = _live[number]
    return number, found


def constraint_of(handle: int) -> _core.Constraint:
    found = _live.get(handle) if handle >= 0 else _batches[handle].constraints[0]
    if found is None:
        raise _core.Error("a graph was captured with a constraint that is not in this process: keep its layer, or make one with this "
                          "constraint first. "
                          "(Programs of torch.export bring theirs along where PyTorch is 2.7 or later.)")
    return found


def packed(handle: int) -> Tensor:
    return _packed[handle]


def unpack(handle: int, packed: Optional[Tensor]) -> _core.Constraint:
    """The constraint of a handle; where it is not live, from its bytes."""
    found = _live.get(handle)
    if found is not None or packed is None:
        return constraint_of(handle)
    bytes = packed.cpu().numpy().tobytes()
    bytes, certified = (bytes, DEFAULT) if _hashed(bytes) == handle else _without_certified(bytes)
    number, found = register_certified(_core.Constraint.from_bytes(bytes), certified)
    if number != handle:
        raise _core.Error("the constraint in an exported program was changed: export it again")
    _unpacked[handle] = found
    while len(_unpacked) > _MOST_UNPACKED:
        _unpacked.popitem(last=False)
    return found


def alive(handle: int) -> Any:
    """What has to live for as long as a handle is to be used."""
    return None if compiling() else constraint_of(handle) if handle >= 0 else _batches[handle]


# --- the constraints of one call ---------------------------------------------------------------------------------------------


class BatchConstraints:
    """A constraint for each sequence; or one (`base`: its handle), and which sequences of a larger batch these are."""

    def __init__(self, constraints: List[_core.Constraint], certified: Certified = DEFAULT, base: int = 0,
                 sequences: Sequence[int] = ()) -> None:
        self.constraints, self.certified, self.base, self.sequences = constraints, certified, base, list(sequences)
        self.sequence_ids: Optional[Tensor] = None  # `sequences`, int64, on the device
        self.gaps: Optional[Tensor] = None  # float64 [B] of the last sum
        self.handle = next(_next_handle)
        _batches[self.handle] = self


_batches: "weakref.WeakValueDictionary[int, BatchConstraints]" = weakref.WeakValueDictionary()
_next_handle = itertools.count(-1, -1)


def batch_constraints(handle: int) -> Optional[BatchConstraints]:
    return None if handle >= 0 else _batches[handle]


def by_constraint(constraints: List[_core.Constraint]) -> List[BatchConstraints]:
    """A batch, split by constraint."""
    parts: Dict[int, BatchConstraints] = {}
    for i, constraint in enumerate(constraints):
        base, representative = register(constraint)
        if base not in parts:
            parts[base] = BatchConstraints([representative], base=base)
        parts[base].sequences.append(i)
    return list(parts.values())


def send_sequence_ids(parts: List[BatchConstraints], device: torch.device) -> Tensor:
    """Puts every part's `sequence_ids` on a device, without waiting for it. Returns where in the concatenated parts each sequence is: [B]."""
    order = [i for part in parts for i in part.sequences]
    both = torch.tensor([order, sorted(range(len(order)), key=order.__getitem__)])
    if device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            raise _core.Error("several constraints in one batch cannot be captured in a CUDA graph: capture a call for each")
        both = both.pin_memory().to(device, non_blocking=True)
    for part, ids in zip(parts, both[0].split([len(part.sequences) for part in parts])):
        part.sequence_ids = ids
    return both[1]


def choice_of(handle: int) -> _core.Choice:
    if handle >= 0:
        return _core.Choice([constraint_of(handle)])
    constraints = _batches[handle].constraints
    return _choice(constraints, len(constraints)) if len(constraints) > 1 else _core.Choice(constraints)


# --- certified sums under rules that a constraint keeps ------------------------------------------------------------------------

_certified: Dict[int, Certified] = {}  # those that are not the default; a constraint under other ones has another handle
_gaps: Dict[int, Tensor] = {}  # float64 [B] of the last sum, by handle; nothing where it was exact


def register_certified(constraint: _core.Constraint, certified: Certified) -> Tuple[int, _core.Constraint]:
    """As `register`."""
    handle, constraint = register(constraint)
    if constraint.rules == 0 or certified == DEFAULT:
        return handle, constraint
    number = _hashed(f"{handle} {certified!r}".encode())
    if number not in _live:
        _live[number] = constraint
        with torch.inference_mode(False):
            _packed[number] = torch.cat([_packed[handle], torch.frombuffer(_with_length(certified), dtype=torch.uint8)])
        weakref.finalize(constraint, _forget, number)
    _certified[number] = certified
    return number, constraint


def _with_length(certified: Certified) -> bytearray:
    """What stands behind the bytes of a constraint."""
    text = json.dumps(certified).encode()
    return bytearray(text + len(text).to_bytes(8, "little"))


def _without_certified(bytes: bytes) -> Tuple[bytes, Certified]:
    """A constraint's bytes, and what stands behind them."""
    end = len(bytes) - 8
    begin = end - int.from_bytes(bytes[end:], "little")
    try:
        return bytes[:begin], Certified(*json.loads(bytes[begin:end]))
    except (ValueError, TypeError):
        raise _core.Error("the constraint in an exported program was changed: export it again") from None


def certified(handle: int) -> Certified:
    return _certified.get(handle, DEFAULT) if handle >= 0 else _batches[handle].certified


def keeps_rules(handle: int) -> bool:
    return constraint_of(handle).rules > 0 if handle >= 0 else any(one.rules for one in _batches[handle].constraints)


def note_gaps(handle: int, gaps: Optional[Tensor]) -> None:
    if handle < 0:
        _batches[handle].gaps = gaps
    elif gaps is None:
        _gaps.pop(handle, None)
    else:
        _gaps[handle] = gaps


def gaps_of(handle: int) -> Optional[Tensor]:
    return _gaps.get(handle) if handle >= 0 else _batches[handle].gaps
