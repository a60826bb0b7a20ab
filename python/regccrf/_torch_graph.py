"""How the layer's parts travel through PyTorch's graphs: constraints as numbers, functions as custom operators.

No `from __future__ import annotations` in modules that use `operator`: schemas are read from the annotations.
"""

import hashlib
import inspect
import weakref
from collections import OrderedDict
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _core
from .inference import _choice

# Operators take numbers and tensors only, so a constraint travels through them as a number, its handle. It is made of the constraint's
# content: equal constraints have one, in every process, so that a graph that outlives this one never meets another constraint under it. One
# constraint stands for all that are equal. Its module keeps it alive, and so does a graph that is still to be differentiated. An exported
# program holds the bytes of its constraints, too, and those that were read from there are kept here.
_live: "weakref.WeakValueDictionary[int, _core.Constraint]" = weakref.WeakValueDictionary()
_number_of: Dict[int, int] = {}  # by id()
_packed: Dict[int, Tensor] = {}  # uint8: the bytes
_unpacked: "OrderedDict[int, _core.Constraint]" = OrderedDict()
_MOST_UNPACKED = 64


def _register(constraint: _core.Constraint, bytes: bytes) -> int:
    number = int.from_bytes(hashlib.sha256(bytes).digest()[:8], "little") >> 2  # positive, and fits an int64
    if _live.setdefault(number, constraint) is constraint:
        with torch.inference_mode(False):
            _packed[number] = torch.frombuffer(bytearray(bytes), dtype=torch.uint8)
        weakref.finalize(constraint, _forget, number)
    return number


def _forget(number: int) -> None:
    if number not in _live:
        _packed.pop(number, None)


# How sums under rules that a constraint keeps are certified, where its layer says something about it: max_gap, and whether the bound
# is good enough where that is not met. A constraint with other such words has another handle.
_certified: Dict[int, Tuple[Optional[float], bool]] = {}
_gaps: Dict[int, Tensor] = {}  # float64 [B] of the last sum, by handle


def share_certified(constraint: _core.Constraint, max_gap: Optional[float], bound: bool) -> Tuple[int, _core.Constraint]:
    """As `share`."""
    if constraint.rules == 0 or (max_gap is None and not bound):
        return share(constraint)
    handle, constraint = share(constraint)
    words = f"{handle} {max_gap!r} {bound}".encode()
    number = int.from_bytes(hashlib.sha256(words).digest()[:8], "little") >> 2
    if number not in _live:
        _live[number] = constraint
        _packed[number] = _packed[handle]
    _certified[number] = (max_gap, bound)
    return number, constraint


def certified(handle: int) -> Tuple[Optional[float], bool]:
    return handle.certified if isinstance(handle, Several) else _certified.get(handle, (None, False))


def keeps_rules(handle: int) -> bool:
    return any(one.rules for one in handle.constraints) if isinstance(handle, Several) else constraint_of(handle).rules > 0


def note_gaps(handle: int, gaps: Tensor) -> None:
    if not isinstance(handle, Several) and gaps.numel():
        _gaps[handle] = gaps


def gaps_tensor(handle: int) -> Tensor:
    return _gaps.get(handle, nothing(torch.device("cpu"), torch.float64))


def gaps_of(handle: int) -> List[float]:
    return _gaps[handle].tolist() if handle in _gaps else []


def share(constraint: _core.Constraint) -> Tuple[int, _core.Constraint]:
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
    found = _live.get(handle)
    if found is None:
        raise _core.Error("a graph was captured with a constraint that is not in this process: keep its layer, or make one with this "
                          "constraint first. "
                          "(Programs of torch.export bring theirs along where PyTorch is 2.7 or later.)")
    return found


def _unpack(handle: int, packed: Optional[Tensor]) -> _core.Constraint:
    """The constraint of a handle; where it is not live, from its bytes."""
    found = _live.get(handle)
    if found is not None or packed is None:
        return constraint_of(handle)
    bytes = packed.cpu().numpy().tobytes()
    found = _core.Constraint.from_bytes(bytes)
    if _register(found, bytes) != handle:
        raise _core.Error("the constraint in an exported program was changed: export it again")
    _unpacked[handle] = found
    while len(_unpacked) > _MOST_UNPACKED:
        _unpacked.popitem(last=False)
    return found


# Outside of graphs a handle can say more. In both classes below it keeps constraints alive until the backward pass is done.


class Several(int):
    """In the place of a handle: a constraint for each sequence."""
    constraints: List[_core.Constraint]
    certified: Tuple[Optional[float], bool] = (None, False)

    @staticmethod
    def of(constraints: List[_core.Constraint]) -> "Several":
        several = Several()
        several.constraints = constraints
        return several


class Part(int):
    """A handle, and the sequences of a batch that have its constraint."""
    constraint: _core.Constraint
    numbers: List[int]                # their places in the batch
    places: Optional[Tensor] = None   # the same, int64, on the device, where they are not the whole batch


def parts_of(constraints: List[_core.Constraint]) -> List[Part]:
    """A batch by constraint."""
    parts: Dict[int, Part] = {}
    for i, constraint in enumerate(constraints):
        handle, shared = share(constraint)
        if handle not in parts:
            parts[handle] = Part(handle)
            parts[handle].constraint, parts[handle].numbers = shared, []
        parts[handle].numbers.append(i)
    return list(parts.values())


def send(parts: List[Part], device: torch.device) -> Tuple[Sequence[Tensor], Tensor]:
    """Every part's places, on a device, without waiting for it; and where in the concatenated parts each sequence is: [B]."""
    order = [i for part in parts for i in part.numbers]
    both = torch.tensor([order, sorted(range(len(order)), key=order.__getitem__)])
    if device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            raise _core.Error("several constraints in one batch cannot be captured in a CUDA graph: capture a call for each")
        both = both.pin_memory().to(device, non_blocking=True)
    places = both[0].split([len(part.numbers) for part in parts])
    for part, here in zip(parts, places):
        part.places = here
    return places, both[1]


def choice_of(handle: int) -> _core.Choice:
    if isinstance(handle, Several):
        return _choice(handle.constraints, len(handle.constraints))
    return _core.Choice([constraint_of(handle)])


def alive(handle: int) -> Any:
    """What has to live for as long as a handle is to be used."""
    return None if compiling() else handle if isinstance(handle, (Several, Part)) else constraint_of(handle)


_nothing: Dict[Tuple[torch.device, torch.dtype], Tensor] = {}


def nothing(device: torch.device, dtype: torch.dtype) -> Tensor:
    """An empty tensor, which stands for an absent one."""
    if compiling():
        return torch.empty(0, dtype=dtype, device=device)
    found = _nothing.get((device, dtype))
    if found is None:
        with torch.inference_mode(False):  # training will use it, too
            found = torch.empty(0, dtype=dtype, device=device)
        if type(found) is Tensor:  # a fake one is not for others
            _nothing[device, dtype] = found
    return found


def batch_size(h: Tensor, batch_first: bool) -> int:
    return h.shape[0] if batch_first else h.shape[1]


compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)




def exporting() -> bool:
    """Whether torch.export is at work. `torch.compiler.is_exporting` says so of torch.compile, too, before PyTorch 2.12."""
    return hasattr(torch, "compiler") and getattr(torch.compiler, "_is_exporting_flag", False)


def outside_of_graphs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where a graph is being captured, the function runs between two of them."""
    return torch.compiler.disable(function) if hasattr(torch, "compiler") else function


_wrapped: Optional[Callable[[Tensor], bool]] = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None)
# Whether functorch may be at work. Some versions of PyTorch have it and cannot tell.
transforming: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: _wrapped is not None)


def transformed(*tensors: Any) -> bool:
    """Whether a transform of torch.func is at work on one of these."""
    return _wrapped is not None and not compiling() and transforming() and any(isinstance(x, Tensor) and _wrapped(x) for x in tensors)


def applied(function: Any) -> Callable[..., Any]:
    """An autograd function's `apply`, without what PyTorch does in Python for functorch where nothing here is functorch's: that takes as
    long as a kernel. The function's first four arguments are tensors, which may be."""
    plain = super(torch.autograd.Function, function).apply

    def apply(*args: Any) -> Any:
        if _wrapped is None or compiling() or transforming() or any(map(_wrapped, args[:4])):
            return function.apply(*args)
        return plain(*args)
    return apply


def operator(fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The function itself when run eagerly; a custom operator while a graph is being captured, where PyTorch has those. The operator of a
    function with a handle has one argument more, the constraint's bytes, which are there in exported programs alone: elsewhere they would be
    a tensor on the CPU beside those on a device, which CUDA graphs do not take."""
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if not hasattr(torch.library, "custom_op"):
            return function
        names = list(inspect.signature(function).parameters)
        if "handle" not in names:
            custom = torch.library.custom_op(f"regccrf::{function.__name__}", function, mutates_args=())
            custom.register_fake(fake)
            return lambda *args: custom(*args) if compiling() else function(*args)
        place = names.index("handle")
        with_bytes = torch.library.custom_op(f"regccrf::{function.__name__}", _with_bytes(function, place), mutates_args=())
        with_bytes.register_fake(lambda *args: fake(*args[:-1]))

        def call(*args: Any) -> Any:
            if not compiling():
                return function(*args)
            return with_bytes(*args, _bytes_of(args[place]) if exporting() else None)
        return call
    return decorate


def _bytes_of(handle: int) -> Tensor:
    return _packed[handle]


if hasattr(torch, "compiler"):
    _bytes_of = torch.compiler.assume_constant_result(_bytes_of)  # a constant of the program, and no input of it


def _with_bytes(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """The function with the bytes of a constraint for its last argument. place: the handle's."""
    def run(*args: Any) -> Any:
        held = _unpack(args[place], args[-1])
        result = function(*args[:-1])
        del held  # until here
        return result
    signature = inspect.signature(function)
    packed = inspect.Parameter("packed", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Optional[Tensor])
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), packed])  # type: ignore[attr-defined]
    return run
