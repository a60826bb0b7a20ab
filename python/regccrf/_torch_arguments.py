"""What the layer's methods are given, checked and in the form that the operators take: labels, scores, masks, gold."""

from __future__ import annotations

import operator
import sys
import warnings
from typing import Any, Iterable, Mapping, Optional, Sequence, SupportsIndex, Tuple, Union

import torch
from torch import Tensor, nn

from . import _core
from ._core import Labels
from ._torch_graph import empty, exporting, transformed

LabelsLike = Union[SupportsIndex, Sequence[str], Mapping[str, int], Mapping[int, str], Mapping[str, str], Labels]
Scores = Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # emissions, transitions, start, end, mask
REDUCTIONS = tuple(_core.Reduction.__members__)
_OUTSIDE = ("raise", "skip", "inf")
_HALF = (torch.float16, torch.bfloat16)


def check_outside(word: str) -> str:
    """What becomes of gold outside the language. `regccrf.train` says error where this layer says raise: both will do."""
    if word != "error" and word not in _OUTSIDE:
        raise ValueError(f"invalid outside: {word} (expected {', '.join(_OUTSIDE)})")
    return "raise" if word == "error" else word


def check_reduction(word: str) -> None:
    if word not in REDUCTIONS:
        raise ValueError(f"invalid reduction: {word} (expected {', '.join(REDUCTIONS)})")


def check_shapes(num_tags: int, emissions: Tensor, tags: Optional[Tensor] = None, mask: Optional[Tensor] = None) -> None:
    for name, x in (("emissions", emissions), ("tags", tags), ("mask", mask)):
        if not isinstance(x, Tensor) and (x is not None or name == "emissions"):
            of_ids = " of label ids: the place of each label in the layer's list of labels, from 0" if name == "tags" else ""
            raise TypeError(f"{name}: a {type(x).__name__} was given, expected a tensor{of_ids}")
    shape = emissions.shape
    if len(shape) != 3:
        raise ValueError(f"emissions must have dimension of 3, got {len(shape)}")
    if shape[2] != num_tags:
        raise ValueError(f"expected last dimension of emissions is {num_tags}, got {shape[2]}")
    for name, x in (("tags", tags), ("mask", mask)):
        if x is None or x.shape == shape[:2] or (x is tags and x.dtype == torch.bool and x.shape == shape):
            continue
        raise ValueError(f"the first two dimensions of emissions and {name} must match, got {tuple(shape[:2])} and {tuple(x.shape)}")


def warn_of_inverted(mask: Any, batch_first: bool) -> None:
    """A mask that is True for padding looks so: no sequence has its first position, one has none at all, and all others have the last
    one, or none of them has any. A device is not asked: that would mean to wait for it."""
    if not isinstance(mask, Tensor) or mask.dim() != 2 or mask.device.type != "cpu" or mask.numel() == 0 or transformed(mask):
        return
    if bool((mask[:, 0] if batch_first else mask[0]).any()):
        return
    present = mask.ne(0) if batch_first else mask.ne(0).t()
    some = present.any(1)
    if bool(some.all()) or bool((some != present[:, -1]).any()):
        return
    what = "one sequence has none while the others have only their last ones" if bool(some.any()) else "no sequence has any"
    warnings.warn(f"the mask looks inverted: True means that a position is present, and here {what}; ~mask turns it round",
                  stacklevel=_callers_level())


def _callers_level() -> int:
    """The `stacklevel` of the line that called us from outside: PyTorch calls `forward` through frames of its own."""
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("regccrf", "torch"):
        level, frame = level + 1, frame.f_back
    return level + 1


def scores_of(module: nn.Module, emissions: Tensor, mask: Optional[Tensor], forbidden: Optional[Tensor], half: bool) -> Scores:
    """Emissions, a layer's transitions, start and end, and mask as the operators take them: one precision, empty for absent. With `half`,
    emissions in half precision stay so beside float32."""
    g: Tensor = _held(module, "transitions")
    s: Optional[Tensor] = _held(module, "start_transitions")
    e: Optional[Tensor] = _held(module, "end_transitions")
    dtype = g.dtype if emissions.dtype == g.dtype else torch.promote_types(emissions.dtype, g.dtype)
    if dtype in _HALF:
        dtype = torch.float32
    if emissions.dtype != dtype and not (half and emissions.dtype in _HALF and dtype == torch.float32):
        emissions = emissions.to(dtype)
    if forbidden is not None:
        emissions = emissions.masked_fill(forbidden.bool(), float("-inf"))
    if g.dtype != dtype:
        g, s, e = g.to(dtype), None if s is None else s.to(dtype), None if e is None else e.to(dtype)
    if mask is not None and mask.dtype != torch.bool:
        if mask.dtype.is_floating_point or mask.dtype.is_complex:
            raise TypeError(f"mask is {mask.dtype}, expected bool or whole numbers, 0 for absent: mask > 0.5, or mask == 0 for a mask that "
                            "is added to scores")
        mask = mask.ne(0)
    device = emissions.device
    return (emissions, g, empty(device, dtype) if s is None else s, empty(device, dtype) if e is None else e,
            empty(device, torch.bool) if mask is None else mask)


def _held(module: nn.Module, name: str) -> Any:
    """A module's attribute. Looked for among its parameters first: those are found last otherwise, after a long search. (Where PyTorch 1.13
    calls a module with other parameters, these are found by looking for attributes alone.)"""
    if type(module).__getattribute__ is not object.__getattribute__:
        return getattr(module, name)
    parameters = module._parameters
    return parameters[name] if name in parameters else getattr(module, name)


def label_ids(tags: Tensor) -> Tensor:
    if tags.dtype.is_floating_point or tags.dtype.is_complex or tags.dtype == torch.bool:
        raise TypeError(f"tags are {tags.dtype}, expected label ids, whole numbers")
    return tags


def refuse_export(what: str, instead: str) -> None:
    if exporting():
        raise _core.Error(f"{what} cannot be part of an exported program: {instead}")


def refuse_graphs(emissions: Tensor, mask: Optional[Tensor]) -> None:
    """Of methods that answer with lists."""
    refuse_export("an answer in lists (decode, k_best, sample)", "decode_tensor can be, and decode takes the emissions of an exported program")
    if transformed(emissions, mask):
        raise _core.Error("an answer in lists (decode, k_best, sample) is nothing that torch.func can transform: call it outside of grad and vmap")


def refuse_transforms(scores: Scores) -> None:
    if transformed(*scores):
        raise _core.Error("torch.func's transforms reach this layer on the CPU only; on a device torch.autograd.grad differentiates it")


def labels_of(labels: LabelsLike) -> Labels:
    if isinstance(labels, Labels):
        return labels
    if isinstance(labels, str):
        raise TypeError(f"labels are the str {labels!r}, expected a list of names: {labels.split()}")
    if isinstance(labels, Mapping):
        return _labels_of_mapping(labels)
    if isinstance(labels, (set, frozenset)):
        raise TypeError("a set of labels has no order, and ids follow it: give a list")
    number = _whole_number(labels)
    if number is not None:
        if number <= 0:
            raise ValueError(f"invalid number of tags: {number}")
        return Labels([str(i) for i in range(number)])
    if not isinstance(labels, Iterable):
        raise TypeError(f"labels are a {type(labels).__name__}, expected their number, a list of names, {{name: id}} or {{id: name}}")
    names = list(labels)
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise TypeError(f"a label is {wrong[0]!r}, expected a name, a str")
    return Labels(names)


def _whole_number(x: Any) -> Optional[int]:
    """Of any kind: Python's, NumPy's, a tensor's."""
    try:
        return operator.index(x)
    except TypeError:
        return None


def _labels_of_mapping(labels: Mapping[Any, Any]) -> Labels:
    """label2id, or id2label; that one with names of ids for keys, too, which is how JSON keeps it."""
    if all(isinstance(key, str) and key.isdecimal() for key in labels) and all(isinstance(name, str) for name in labels.values()):
        by_id = {int(key): name for key, name in labels.items()}
    elif all(isinstance(name, str) for name in labels):
        by_id = {i: name for name, i in labels.items()}
    else:
        by_id = dict(labels)
    if len(by_id) != len(labels) or set(by_id) != set(range(len(labels))):
        raise ValueError(f"label ids must be 0 to {len(labels) - 1}, got {list(by_id)}")
    return Labels([by_id[i] for i in range(len(by_id))])
