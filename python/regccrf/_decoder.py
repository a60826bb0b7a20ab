"""From a token classifier's scores to legal labels and spans with exact probabilities, on arrays. `regccrf.transformers` uses it in
pipelines. It does not need transformers itself, so it can decode other logits, for example those of an ONNX session."""

from __future__ import annotations

import itertools
import re
import warnings
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np

from . import LanguageLike, _core, compile
from ._scheme import Found, Scheme
from .inference import marginals, span_marginals, viterbi

LabelNames = Union[Sequence[str], Mapping[int, str]]


class FoundSpan(NamedTuple):
    """Positions begin … end − 1, and the probability that exactly this span is there.

    >>> FoundSpan(0, 2, "PER", 0.9).type
    'PER'
    """
    begin: int
    end: int
    type: str
    probability: Optional[float]


class SpanDecoder:
    """Decodes scores [T, K] under a language.

    Args:
        labels: names in the order of their ids, or {id: name}, a model's `config.id2label`.
        language: "auto" for everything that is legal in the scheme of the labels; or a pattern, a path to a .lang file, a `Language`, a
            `Constraint`.
        scheme: how labels make spans: `bio`, `iob1`, `bioes`, `io` or `plain`. The default follows from the labels.
        biases: the transition biases of privacy-filter's decoding, by name: `background_stay`, `background_to_start`, `end_to_background`,
            `end_to_start`, `inside_to_continue`, `inside_to_end`. Those that are not given are 0.
        probabilities: False leaves out the probabilities of spans, which is faster.

    >>> decoder = SpanDecoder(["O", "B-PER", "I-PER"])
    >>> decoder.decode([[0., 0., 5.], [0., 0., 5.]])
    ['B-PER', 'I-PER']
    >>> decoder.spans([[0., 0., 5.], [0., 0., 5.]])
    [FoundSpan(begin=0, end=2, type='PER', probability=0.9...)]
    """

    def __init__(self, labels: LabelNames, language: LanguageLike = "auto", *, scheme: Optional[str] = None,
                 biases: Optional[Mapping[str, float]] = None, probabilities: bool = True) -> None:
        self.scheme = Scheme(label_names(labels), scheme)
        self.own_language = isinstance(language, str) and language == "auto"
        if self.own_language and all(re.fullmatch(r"LABEL_\d+", label) for label in self.scheme.labels):
            warnings.warn("the labels are LABEL_0, LABEL_1, …, which say nothing: everything is legal. Give the model's id2label names such as B-PER")
        self.constraint = compile(self.scheme.language() if self.own_language else language, self.scheme.labels)
        K = len(self.scheme.labels)
        self.transitions = np.zeros((K, K)) if biases is None else self.scheme.transitions(biases)
        self.start: Optional[np.ndarray] = None
        self.end: Optional[np.ndarray] = None
        self.probabilities = probabilities
        if probabilities and self.constraint.rules:
            raise _core.Error(f"the constraint keeps {self.constraint.rules} rules beside a base, and probabilities are sums that need it multiplied "
                              "out: probabilities=False decodes without them")

    @property
    def labels(self) -> List[str]:
        return list(self.scheme.labels)

    def ids(self, scores: Any) -> List[int]:
        """The best legal sequence, as label ids.

        >>> SpanDecoder(["O", "B-PER", "I-PER"]).ids([[0., 1., 5.]])
        [1]
        """
        best: Any = viterbi(*self._scores(scores))
        return list(best.labels)

    def decode(self, scores: Any) -> List[str]:
        """The best legal sequence, as label names.

        >>> SpanDecoder(["O", "B-PER", "I-PER"]).decode([[0., 1., 5.]])
        ['B-PER']
        """
        return self.scheme.labels.names(self.ids(scores))

    def label_probabilities(self, scores: Any, ids: Sequence[int]) -> List[Optional[float]]:
        """P(y_t = ids[t]) for each position.

        >>> SpanDecoder(["A", "B"]).label_probabilities([[0., 0.]], [1])
        [0.5]
        """
        if not self.probabilities:
            return [None] * len(ids)
        return marginals(*self._scores(scores))[np.arange(len(ids)), ids].astype(float).tolist()

    def spans(self, scores: Any, plain: bool = False) -> List[FoundSpan]:
        """The spans of the best legal sequence. With `plain`, runs of labels without a role, such as O, are included. If no label has a role, they
        are always included, except those of O.

        >>> SpanDecoder(["O", "B-PER", "I-PER"]).spans([[9., 0., 5.]])
        []
        """
        ids = self.ids(scores)
        wanted = [span for span in self.scheme.spans(ids) if plain or not self.scheme.is_background(ids[span.begin])]
        return [FoundSpan(*span, p) for span, p in zip(wanted, self.span_probabilities(scores, ids, wanted))]

    def span_probabilities(self, scores: Any, ids: Sequence[int], spans: Sequence[Found]) -> List[Optional[float]]:
        """The probability of each span of `ids`: that exactly this span is there."""
        if not self.probabilities:
            return [None] * len(spans)
        flat, sizes = [], []
        for span in spans:
            events = self.scheme.events(ids, span, self.own_language)
            flat += events
            sizes.append(len(events))
        values = iter(span_marginals(*self._scores(scores), spans=flat))
        return [min(1.0, sum(itertools.islice(values, size))) for size in sizes]

    def _scores(self, scores: Any) -> Any:
        return self.constraint, np.asarray(scores), self.transitions, self.start, self.end


def label_names(labels: LabelNames) -> List[str]:
    """In the order of their ids."""
    if not isinstance(labels, Mapping):
        return list(labels)
    names = {int(i): name for i, name in labels.items()}
    if sorted(names) != list(range(len(names))):
        raise _core.Error(f"label ids must be 0 to {len(names) - 1}, got {sorted(names)}")
    return [names[i] for i in range(len(names))]
