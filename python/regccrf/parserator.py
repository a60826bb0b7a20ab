"""usaddress and probablepeople without RepeatedLabelError. Tokens, features and trained models are theirs; only decoding is different.

The original `tag` makes a dict with one text for each label, and raises an error if a label comes in two pieces. Here the label sequences
without such an error are a language, and the best sequence of this language is found. So `tag` always has a result. If the original `tag` does
not raise, the result is the same. In a program only the import changes:

>>> from regccrf.parserator import usaddress      # instead of: import usaddress
>>> usaddress.tag("123 Main St. Chicago, IL")[1]
'Street Address'

`usaddress` and `probablepeople` are used like the packages of these names. `tag` and `parse` have the same signatures. Everything else
(`tokenize`, `LABELS`, `RepeatedLabelError`, …) is that of the package. Models are read and languages compiled at the first use.

The search for the best sequence has a limit of work. A text of many addresses in a row can reach it. Then the result is the best one in which
the parts come in the order in which the model alone finds them first.
"""

from __future__ import annotations

import functools
import importlib
import os
import pathlib
import tempfile
import types
import warnings
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from . import Constraint, Error, Language, Model, Tagger, compile

Tokens = List[Tuple[str, str]]             # (token, label)
Answer = Tuple[Dict[str, str], str]        # ({label: text}, kind)

_SEPARATOR = "IntersectionSeparator"
_HERE = pathlib.Path(__file__).parent


class _Package:
    """What both have in common. `theirs`: the package that this stands for."""

    theirs: Any
    parse: Callable[..., Tokens]

    def __init__(self, name: str) -> None:
        try:
            self.theirs = importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"regccrf.parserator.{name} needs {error.name}: pip install regccrf[parserator]", name=error.name) from None
        self.__name__, self.__doc__ = f"regccrf.parserator.{name}", type(self).__doc__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.theirs, name)

    def __repr__(self) -> str:
        return f"<{self.__name__}>"

    def __reduce__(self) -> str:
        return str(self.theirs.__name__)  # of this module's attribute

    def _label(self, text: str, tagger: Tagger, named: Callable[[str], str]) -> Tokens:
        """named: a label's name in the answer of `tag`."""
        tokens = self.theirs.tokenize(text)
        if not tokens:
            return []
        features = self.theirs.tokens2features(tokens)
        try:
            labels = tagger.tag(features)
        except Error as error:
            if error.kind != "limit":
                raise
            labels = _in_order(features, tagger.model, named)
        return list(zip(tokens, labels or []))

    def _count(self, text: str, parse: Callable[..., Tokens], *arguments: Any) -> Answer:
        """What their own `tag` makes of what `parse` gives."""
        names = {**vars(self.theirs), "parse": parse}
        answer: Answer = types.FunctionType(self.theirs.tag.__code__, names, "tag", self.theirs.tag.__defaults__)(text, *arguments)
        return answer


class _UsAddress(_Package):
    """usaddress, whose `tag` never raises RepeatedLabelError.

    >>> from regccrf.parserator import usaddress
    >>> usaddress.parse("123 Main St.")
    [('123', 'AddressNumber'), ('Main', 'StreetName'), ('St.', 'StreetNamePostType')]
    """

    def __init__(self) -> None:
        super().__init__("usaddress")
        self._tagger = functools.lru_cache(maxsize=64)(self._make_tagger)

    def parse(self, address_string: str) -> Tokens:
        """The tokens of an address with their labels, each label in one piece; those of a street's name anew at a crossing."""
        return self._label(address_string, self._tagger(frozenset()), str)

    def tag(self, address_string: str, tag_mapping: Optional[Mapping[str, str]] = None) -> Answer:
        """The parts of an address, by label, and what kind of address it is. With a `tag_mapping`, parts have the names that it gives to
        labels; then each name is in one piece, whatever its labels are."""
        names = dict(tag_mapping or {})
        tagger = self._tagger(frozenset(names.items()))
        return self._count(address_string, lambda text: self._label(text, tagger, lambda label: names.get(label) or label), tag_mapping)

    def _make_tagger(self, mapping: FrozenSet[Tuple[str, str]]) -> Tagger:
        constraint = compile(_one_piece(list(self._model.labels), dict(mapping)), self._model.labels, rules="all")
        return Tagger(self._model.with_constraint(constraint), threads=1)

    @functools.cached_property
    def _model(self) -> Model:
        return _import_model(self.theirs.TAGGER)


class _ProbablePeople(_Package):
    """probablepeople, whose `tag` never raises RepeatedLabelError.

    >>> from regccrf.parserator import probablepeople
    >>> probablepeople.parse("Mr. Bond")
    [('Mr.', 'PrefixMarital'), ('Bond', 'Surname')]
    """

    def __init__(self) -> None:
        super().__init__("probablepeople")
        self._tagger = functools.lru_cache(maxsize=None)(self._make_tagger)

    def parse(self, raw_string: str, type: Optional[str] = None) -> Tokens:
        """The tokens of a name with their labels, each label in one piece, as `tag` counts them. type: `generic`, `person` or `company`."""
        return self._label(raw_string, self._tagger(type or "generic"), str)

    def tag(self, raw_string: str, type: Optional[str] = None) -> Answer:
        """The parts of a name, by label, and what kind of name it is."""
        return self._count(raw_string, self.parse, type)

    def _make_tagger(self, type: str) -> Tagger:
        taggers = self.theirs.TAGGERS
        if type not in taggers:
            raise KeyError(f"type is {type!r}, expected {', '.join(map(repr, taggers))} or None")
        model = _import_model(taggers[type])
        with warnings.catch_warnings():  # one language serves models of persons, of companies and of both
            warnings.simplefilter("ignore")
            return Tagger(model.with_constraint(self._constraint), threads=1)

    @functools.cached_property
    def _constraint(self) -> Constraint:
        return compile(_HERE / "languages" / "name-parts.lang", rules="all")


def _import_model(tagger: Any) -> Model:
    """A model of python-crfsuite's, by way of its dump."""
    handle, path = tempfile.mkstemp(suffix=".dump")
    os.close(handle)
    try:
        tagger.dump(path)
        return Model.import_crfsuite(path)
    finally:
        os.unlink(path)


def _in_order(features: Sequence[Any], model: Model, named: Callable[[str], str]) -> Optional[List[str]]:
    """The best labels in which every part comes once, in the order of the answer without a constraint. There is no crossing."""
    free = Tagger(model, unconstrained=True, threads=1).tag(features) or []
    parts: Dict[str, List[str]] = {named(label): [] for label in [*free, *model.labels] if label != _SEPARATOR}
    for label in model.labels:
        if label != _SEPARATOR:
            parts[named(label)].append(label)
    language = Language(" ".join(map(_many, parts.values())), model.labels)
    return Tagger(model.with_constraint(compile(language, model.labels)), threads=1).tag(features)


# --- what usaddress's `tag` can count ---------------------------------------------------------------------------------------------


def _one_piece(labels: Sequence[str], mapping: Mapping[str, str]) -> Language:
    """Every part in one piece, under the name that `mapping` gives to its label. Behind the first IntersectionSeparator labels of a street's
    name are others (StreetName is SecondStreetName there)."""
    def named(label: str, crossed: bool) -> str:
        label = "Second" + label if crossed and "StreetName" in label else label
        return mapping.get(label) or label
    names = dict.fromkeys(named(label, crossed) for label in labels for crossed in (False, True))
    rules = [_piece([a for a in labels if named(a, False) == name], [a for a in labels if named(a, True) == name], labels) for name in names]
    return Language(" & ".join([".*", *rules]), list(labels))


def _piece(before: Sequence[str], behind: Sequence[str], labels: Sequence[str]) -> str:
    """Labels `before` the first separator and `behind` it, that one included, are in one piece together."""
    before = [a for a in before if a != _SEPARATOR]
    x, other_x = _many(before), _many([a for a in labels if a not in before and a != _SEPARATOR])
    y, other_y = _many(behind), _many([a for a in labels if a not in behind])
    begun = f"{other_x} {x} {other_x}"
    if _SEPARATOR not in labels:
        return f"({begun})"
    crossed = f'"{_SEPARATOR}" .*'
    on_one_side = f"{begun} | {begun} ({crossed} & {other_y}) | {other_x} ({crossed} & {other_y} {y} {other_y})"
    return f"({on_one_side} | {other_x} {x} ({crossed} & {y} {other_y}))"


def _many(labels: Sequence[str]) -> str:
    """Any number of these, none included."""
    return "[" + " ".join(f'"{label}"' for label in labels) + "]*" if labels else "()"


# --- the packages, each imported when it is first asked for ------------------------------------------------------------------------

_PACKAGES: Dict[str, Callable[[], _Package]] = {"usaddress": _UsAddress, "probablepeople": _ProbablePeople}


def __getattr__(name: str) -> Any:
    if name not in _PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = _PACKAGES[name]()
    return globals()[name]
