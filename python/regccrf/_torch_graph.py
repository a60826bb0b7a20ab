"""How the layer's parts travel through PyTorch's graphs: constraints as numbers, functions as custom operators.

No `from __future__ import annotations` in modules that use `operator`: schemas are read from the annotations.
"""

import itertools
import weakref
from typing import Any, Callable, Dict, Tuple

import torch
from torch import Tensor

from . import _core

# Operators take numbers and tensors only, so a constraint travels through them as a number. Its module keeps it alive.
_live: "weakref.WeakValueDictionary[int, _core.Constraint]" = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


def handle_of(constraint: _core.Constraint) -> int:
    """A number for this constraint, good for as long as it lives."""
    number = next(_numbers)
    _live[number] = constraint
    return number


def constraint_of(handle: int) -> _core.Constraint:
    return _live[handle]


def address(x: Tensor) -> int:
    """Where a tensor's memory is; 0 for an empty one."""
    return x.data_ptr() if x.numel() else 0


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


def compiling() -> bool:
    return hasattr(torch, "compiler") and torch.compiler.is_compiling()


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
