"""How the layer's parts travel through PyTorch's graphs: constraints as numbers, functions as custom operators.

No `from __future__ import annotations` in modules that use `operator`: schemas are read from the annotations.
"""

import itertools
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _core
from .inference import _choice

# Operators take numbers and tensors only, so a constraint travels through them as a number. Its module keeps it alive, and so does a graph
# that is still to be differentiated.
_live: "weakref.WeakValueDictionary[int, _core.Constraint]" = weakref.WeakValueDictionary()
_number_of: Dict[int, int] = {}  # by id()
_numbers = itertools.count(1)


def handle_of(constraint: _core.Constraint) -> int:
    """The number of this constraint, good for as long as it lives."""
    number = _number_of.get(id(constraint))
    if number is None:
        number = _number_of[id(constraint)] = next(_numbers)
        _live[number] = constraint
        weakref.finalize(constraint, _number_of.pop, id(constraint), None)
    return number


def constraint_of(handle: int) -> _core.Constraint:
    return _live[handle]


# Outside of graphs a handle can say more. In both classes below it keeps constraints alive until the backward pass is done.


class Several(int):
    """In the place of a handle: a constraint for each sequence."""
    constraints: List[_core.Constraint]

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
        handle = handle_of(constraint)
        if handle not in parts:
            parts[handle] = Part(handle)
            parts[handle].constraint, parts[handle].numbers = constraint, []
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
    return None if compiling() else handle if isinstance(handle, (Several, Part)) else _live[handle]


_nothing: Dict[Tuple[torch.device, torch.dtype], Tensor] = {}


def nothing(device: torch.device, dtype: torch.dtype) -> Tensor:
    """An empty tensor, which stands for an absent one."""
    if compiling():
        return torch.empty(0, dtype=dtype, device=device)
    found = _nothing.get((device, dtype))
    if found is None:
        found = _nothing[device, dtype] = torch.empty(0, dtype=dtype, device=device)
    return found


def batch_size(h: Tensor, batch_first: bool) -> int:
    return h.shape[0] if batch_first else h.shape[1]


compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


def outside_of_graphs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where a graph is being captured, the function runs between two of them."""
    return torch.compiler.disable(function) if hasattr(torch, "compiler") else function


_wrapped: Optional[Callable[[Tensor], bool]] = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None)
# Whether functorch may be at work. Some versions of PyTorch have it and cannot tell.
transforming: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: _wrapped is not None)


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
    """The function itself when run eagerly; a custom operator while a graph is being captured, where PyTorch has those."""
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if not hasattr(torch.library, "custom_op"):
            return function
        custom = torch.library.custom_op(f"regccrf::{function.__name__}", function, mutates_args=())
        custom.register_fake(fake)

        def call(*args: Any) -> Any:
            return custom(*args) if compiling() else function(*args)
        return call
    return decorate
