"""What PyTorch does with functions beside calling them: graphs that it captures, and transforms of torch.func."""

from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor

compiling: Callable[[], bool] = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)


def exporting() -> bool:
    """Whether torch.export is at work. `torch.compiler.is_exporting` says so of torch.compile, too, before PyTorch 2.12."""
    return hasattr(torch, "compiler") and getattr(torch.compiler, "_is_exporting_flag", False)


def outside_of_graphs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where a graph is being captured, the function runs between two of them."""
    return torch.compiler.disable(function) if hasattr(torch, "compiler") else function


_wrapped: Optional[Callable[[Tensor], bool]] = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None)
# Whether functorch may be at work. Some versions of PyTorch have it and cannot tell.
_transforming: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: _wrapped is not None)


def transformed(*tensors: Any) -> bool:
    """Whether a transform of torch.func is at work on one of these."""
    return _wrapped is not None and not compiling() and _transforming() and any(isinstance(x, Tensor) and _wrapped(x) for x in tensors)


def applied(function: Any) -> Callable[..., Any]:
    """An autograd function's `apply` without what PyTorch does in Python for functorch where nothing here is functorch's: that takes as
    long as a kernel. The function's first four arguments are tensors, which may be what a transform that has ended left."""
    plain = super(torch.autograd.Function, function).apply

    def apply(*args: Any) -> Any:
        if _wrapped is None or compiling() or any(map(_wrapped, args[:4])):
            return function.apply(*args)
        return plain(*args)
    return apply


_empty: Dict[Tuple[torch.device, torch.dtype], Tensor] = {}


def empty(device: torch.device, dtype: torch.dtype) -> Tensor:
    """An empty tensor, which stands for an absent one."""
    if compiling():
        return torch.empty(0, dtype=dtype, device=device)
    found = _empty.get((device, dtype))
    if found is None:
        with torch.inference_mode(False):  # training will use it, too
            found = torch.empty(0, dtype=dtype, device=device)
        if type(found) is Tensor:  # a fake one is not for others
            _empty[device, dtype] = found
    return found
