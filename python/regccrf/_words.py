"""Arguments of the wrong kind, in words. pybind11 answers them with the signatures of C++, which say what exists and not what is wrong.

A function of the compiled part is wrapped so that its TypeError is read: the signature in it names the parameters and their types, and the
first argument that does not fit its type is the one to speak of.
"""

from __future__ import annotations

import functools
import numbers
import os
import re
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Tuple

_PYBIND = "The following argument types are supported"


class _Kind(NamedTuple):
    words: str
    fits: Callable[[Any], bool]


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    def fits(x: Any) -> bool:
        return not isinstance(x, (str, bytes)) and hasattr(x, "__len__") and hasattr(x, "__getitem__") and all(isinstance(one, kind) for one in x)
    return fits


_KINDS = {
    "str": _Kind("a str", lambda x: isinstance(x, str)),
    "bytes": _Kind("bytes", lambda x: isinstance(x, bytes)),
    "int": _Kind("a whole number that is not negative", lambda x: isinstance(x, numbers.Integral) and int(x) >= 0),
    "float": _Kind("a number", lambda x: isinstance(x, numbers.Real)),
    "bool": _Kind("True or False", lambda x: isinstance(x, bool)),
    "os.PathLike": _Kind("a path, a str or pathlib.Path", lambda x: isinstance(x, (str, bytes, os.PathLike))),
    "List[str]": _Kind("a list of label names, each a str", _is_list_of(str)),
    "List[int]": _Kind("a list of label ids, whole numbers", _is_list_of(numbers.Integral)),  # type: ignore[type-abstract]
    "Labels": _Kind("labels, a list of names", lambda x: type(x).__name__ == "Labels" or isinstance(x, (list, tuple)) and _is_list_of(str)(x)),
}


def _kind(type_name: str) -> _Kind:
    """Of a type as pybind11 names it."""
    optional = re.fullmatch(r"Optional\[(.*)\]", type_name)
    if optional:
        inner = _kind(optional.group(1))
        return _Kind(f"{inner.words}, or None", lambda x: x is None or inner.fits(x))
    name = type_name.replace("regccrf._core.", "")
    other = _Kind(f"a {name}" if name.isidentifier() else name, lambda x: type(x).__name__ == name or not name.isidentifier())
    return _KINDS.get(name, other)


# How pybind11 names types from 2.12 and 3.0 on, and how 2.10 did, whose names stand above. In this order.
_NEWER = [
    (r"typing\.SupportsInt( \| typing\.SupportsIndex)?", "int"),
    (r"typing\.SupportsFloat( \| typing\.SupportsIndex)?", "float"),
    (r"os\.PathLike \| str \| bytes", "os.PathLike"),
    (r"\b(collections\.abc\.Sequence|list)\[", "List["),
    (r"([\w.]+(\[[^=\]]*\])?) \| None", r"Optional[\1]"),
]


def _parameters(message: str) -> List[Tuple[str, str]]:
    """Names and types of the first signature."""
    for newer, older in _NEWER:
        message = re.sub(newer, older, message)
    signature = re.search(r"^\s*1\. [\w.]*\((.*)\)(?: -> .*)?$", message, re.M)
    found = re.findall(r"(\w+): ((?:[\w.]+)(?:\[[^=]*?\])?)(?= = |, |$)", signature.group(1)) if signature else []
    return [(name, kind) for name, kind in found if name != "self"]


def _shown(x: Any) -> str:
    text = repr(x)
    return f"{text if len(text) < 60 else text[:57] + '…'} ({type(x).__name__})"


def _explanation(name: str, message: str, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> str:
    parameters = _parameters(message)
    names = [parameter for parameter, _ in parameters]
    unknown = [key for key in kwargs if key not in names]
    if unknown:
        return f"[{name}] there is no argument {unknown[0]}; there are {', '.join(names) or 'none'}"
    if len(args) > len(names):
        return f"[{name}] {len(args)} arguments were given, expected at most {len(names)}: {', '.join(names) or 'none'}"
    given = {**dict(zip(names, args)), **kwargs}
    for parameter, type_name in parameters:
        kind = _kind(type_name)
        if parameter in given and not kind.fits(given[parameter]):
            return f"[{name}] {parameter if parameter != 'arg0' else 'the argument'} is {_shown(given[parameter])}, expected {kind.words}"
    return f"[{name}] the arguments do not fit, expected {', '.join(f'{parameter}: {_kind(type_name).words}' for parameter, type_name in parameters)}"


def assign(target: Any, name: str, value: Any) -> None:
    """setattr, with a TypeError in words."""
    try:
        setattr(target, name, value)
        return
    except TypeError as error:
        kinds = [kind for parameter, kind in _parameters(str(error)) if parameter == "arg0"]
    raise TypeError(f"{name} is {_shown(value)}, expected {_kind(kinds[0]).words if kinds else 'something else'}")


def _wrapped(name: str, function: Callable[..., Any], bound: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if _PYBIND not in str(error):
                raise
            words = _explanation(name, str(error), args[1:] if bound else args, kwargs)
        raise TypeError(words)
    return call


_SPECIAL = {"__init__": "{}", "__contains__": "in {}", "__getitem__": "{}[…]"}


def in_words(classes: Iterable[type], module: Any, functions: Iterable[str]) -> None:
    """Wraps what users call of these classes, and functions of a module."""
    for name in functions:
        setattr(module, name, _wrapped(name, getattr(module, name), bound=False))
    for each in classes:
        for name, member in list(vars(each).items()):
            if name.startswith("_") and name not in _SPECIAL:
                continue
            shown = _SPECIAL.get(name, "{}." + name).format(each.__name__)
            if isinstance(member, staticmethod):
                setattr(each, name, staticmethod(_wrapped(shown, member.__func__, bound=False)))
            elif callable(member):
                setattr(each, name, _wrapped(shown, member, bound=True))
