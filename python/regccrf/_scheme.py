"""How labels spell spans. A label such as B-PER is a role (begin, inside, end, single) and a type; any other is plain and stands for itself.
From the labels alone `Scheme` finds which of the usual spellings they are for:

    bio     B-X I-X*                           also without I-X
    iob1    I-X+, and B-X where a span of X follows one of X directly; noticed by a type that has I-X alone while another has B-X
    bioes   S-X | B-X I-X* E-X                 also as BILOU, BMES, BMEWO, and without E-X (BIOS) or without S-X
    io      I-X+
    plain   no roles: a span is a run of one label

It knows the language of its spelling, the spans of a label sequence, the event whose probability is a span's, and the transition scores of
the six biases of privacy-filter's decoding.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from . import _core
from ._core import Labels, Language
from .inference import Span

SCHEMES = ("bio", "iob1", "bioes", "io", "plain")
BIASES = ("background_stay", "background_to_start", "end_to_background", "end_to_start", "inside_to_continue", "inside_to_end")
_ROLES = {"B": "begin", "I": "inside", "M": "inside", "E": "end", "L": "end", "S": "single", "U": "single", "W": "single"}
_PLAIN = "plain"
_CALIBRATION = "transition_bias_"  # what the names begin with in a viterbi_calibration.json


class Spelling(NamedTuple):
    """What a label says: a role and a type; for a plain label, itself."""
    role: str
    type: str


class Found(NamedTuple):
    """A span of a label sequence: positions begin … end − 1."""
    begin: int
    end: int
    type: str


class Scheme:
    """The spelling of `labels`, found from them unless `name` says it."""

    def __init__(self, labels: Sequence[str], name: Optional[str] = None) -> None:
        if name is not None and name not in SCHEMES:
            raise ValueError(f"scheme is {name!r}, expected one of {', '.join(SCHEMES)}, or None to find it from the labels")
        self.labels = Labels(list(labels))
        self.spellings = [Spelling(_PLAIN, label) for label in self.labels] if name == "plain" else _spellings(list(self.labels))
        self.name = name or self._find()
        self._ids: Dict[Spelling, int] = {spelling: i for i, spelling in enumerate(self.spellings)}
        self._checked_name(name)
        K = range(len(self.labels))
        self._not_before = [tuple(p for p in K if not self._starts(p, a)) for a in K]  # labels that a span with first label a would have begun at
        self._not_after = [tuple(n for n in K if not self._starts(a, n)) for a in K]

    def __repr__(self) -> str:
        return f"Scheme({self.name}: {', '.join(self.types) or 'no types'})"

    @property
    def types(self) -> List[str]:
        """Of labels that have a role, in their order."""
        return list(dict.fromkeys(spelling.type for spelling in self.spellings if spelling.role != _PLAIN))

    def _has(self, role: str) -> bool:
        return any(spelling.role == role for spelling in self.spellings)

    def _find(self) -> str:
        if self._has("end") or self._has("single"):
            return "bioes"
        if not self._has("begin"):
            return "io" if self._has("inside") else "plain"
        begun, inside = ({spelling.type for spelling in self.spellings if spelling.role == role} for role in ("begin", "inside"))
        return "bio" if inside <= begun else "iob1"

    def _checked_name(self, name: Optional[str]) -> None:
        needed = {"bio": "begin", "iob1": "inside", "bioes": "begin", "io": "inside"}.get(name or "")
        if needed and not self._has(needed):
            raise _core.Error(f"scheme {name!r} was asked for, and the labels {list(self.labels)} have none that {needed}s a span")

    # --- the language --------------------------------------------------------------------------------------------------

    def language(self) -> Language:
        """Every sequence that the scheme can spell."""
        plain = [_quoted(label) for label, spelling in zip(self.labels, self.spellings) if spelling.role == _PLAIN]
        if self.name in ("io", "plain"):
            return Language.everything(self.labels)
        spans = [spans for spans in map(self._spans_of, self.types) if spans]
        return Language("(" + " | ".join(plain + spans) + ")*", self.labels)

    def _label(self, role: str, type: str) -> str:
        """Quoted; empty where there is no such label."""
        i = self._ids.get(Spelling(role, type))
        return "" if i is None else _quoted(self.labels[i])

    def _spans_of(self, type: str) -> str:
        begin, inside, end, single = (self._label(role, type) for role in ("begin", "inside", "end", "single"))
        more = f"{inside}*" if inside else ""
        if self.name == "iob1" and inside:
            return f"{inside} ({inside} | {begin})*" if begin else f"{inside}+"
        if not begin:
            return single or (f"{inside}+" if inside and not end else "")  # an end alone ends nothing: never legal
        if self.name == "bio" or not (end or single):
            return f"{begin} {more}"
        longer = f"{begin} {more} {end}" if end else f"{begin} {inside}+" if inside else begin
        alone = single if single else begin if not self._has("single") else ""
        return f"{alone} | {longer}" if alone else longer

    # --- spans ---------------------------------------------------------------------------------------------------------

    def _starts(self, before: int, now: int) -> bool:
        """Does a span begin at `now`, a label that stands after `before`?"""
        p, n = self.spellings[before], self.spellings[now]
        if p.type != n.type or (p.role == _PLAIN) != (n.role == _PLAIN):
            return True
        return n.role in ("begin", "single") or p.role in ("end", "single")

    def spans(self, ids: Sequence[int]) -> List[Found]:
        """The spans of a label sequence, one after another without gaps: a run of a plain label, O for one, is a span too."""
        begins = [t for t in range(len(ids)) if t == 0 or self._starts(ids[t - 1], ids[t])]
        return [Found(begin, end, self.spellings[ids[begin]].type) for begin, end in zip(begins, begins[1:] + [len(ids)])]

    def is_background(self, label: int) -> bool:
        """No part of a span that one looks for: a plain label, or O where all are plain."""
        return self.spellings[label].role == _PLAIN and (self.name != "plain" or self.labels[label] == "O")

    def events(self, ids: Sequence[int], span: Found, strict: bool) -> List[Span]:
        """What `span_marginals` is to be asked for, and to be summed: these labels, and no span of which they are a part. In IOB1 the first label
        depends on what stands before; where the language is not the scheme's own (`strict`) it may be either, too."""
        labels, first = tuple(ids[span.begin:span.end]), self.spellings[ids[span.begin]]
        firsts = [labels[0]]
        if self.name == "iob1" or (self.name == "bio" and not strict):
            firsts = [i for i in (self._ids.get(Spelling(role, first.type)) for role in ("begin", "inside")) if i is not None] or firsts
        return [Span(span.begin, (a, *labels[1:]), self._not_before[a], self._not_after[labels[-1] if len(labels) > 1 else a]) for a in firsts]

    # --- biases --------------------------------------------------------------------------------------------------------

    def transitions(self, biases: Mapping[str, float]) -> np.ndarray:
        """[K, K] from, to: what privacy-filter's decoding adds to a pair of labels. All plain labels are background."""
        values = _biases(biases)
        if self.name != "bioes" or not (self._has("end") and self._has("single")):
            raise _core.Error(f"biases are for labels that begin, continue, end and stand alone (BIOES); these are {self.name}: {list(self.labels)}")
        kind = {_PLAIN: "background", "begin": "inside", "inside": "inside", "end": "end", "single": "end"}
        step = {_PLAIN: "background", "begin": "start", "single": "start", "inside": "continue", "end": "end"}
        names = {("background", "background"): "background_stay"}
        scores = np.zeros((len(self.labels), len(self.labels)))
        for a, before in enumerate(self.spellings):
            for b, now in enumerate(self.spellings):
                pair = (kind[before.role], step[now.role])
                if pair[0] != "inside" or before.type == now.type:
                    scores[a, b] = values.get(names.get(pair, "_to_".join(pair)), 0.0)
        return scores


def _spellings(labels: List[str]) -> List[Spelling]:
    letters = "".join(_ROLES)
    bare = all(label in _ROLES or label == "O" for label in labels) and "B" in labels  # B I O, B M E S
    for form in ([rf"([{letters}])()"] if bare else [rf"([{letters}])-(.+)", rf"([{letters}])[_:.](.+)"]):
        found = [re.fullmatch(form, label) for label in labels]
        if any(match and _ROLES[match[1]] in ("begin", "inside") for match in found):
            return [Spelling(_ROLES[match[1]], match[2]) if match else Spelling(_PLAIN, label) for label, match in zip(labels, found)]
    return [Spelling(_PLAIN, label) for label in labels]


def _biases(biases: Mapping[str, float]) -> Dict[str, float]:
    named = {key[len(_CALIBRATION):] if key.startswith(_CALIBRATION) else key: float(value) for key, value in biases.items()}
    unknown = [key for key in named if key not in BIASES]
    if unknown:
        raise _core.Error(f"there is no bias {unknown[0]!r}: they are {', '.join(BIASES)}")
    return named


def _quoted(label: str) -> str:
    return '"' + label.replace("\\", "\\\\").replace('"', '\\"') + '"'
