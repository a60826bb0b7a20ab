"""Inference on arrays. Arguments may be NumPy arrays, lists or other buffers; results are NumPy arrays and lists.

Every function takes `(constraint, emissions, transitions, start=None, end=None)` and these keywords:

    constraint   a Constraint, or a list of B, one for each sequence
    emissions    [T, K] for one sequence, which has one result; [B, T, K] for a padded batch; [ΣT, K] with `lengths`
    transitions  [K, K] from, to
    start, end   [K], or None for none
    lengths      [B]: of sequences one after another in [ΣT, K], or of those in a padded batch
    mask         [T] or [B, T], 0 = absent: its neighbours become adjacent
    threads      1 by default; 0: as many as the machine has
    max_gap      under kept rules: the largest gap of a sum (docs/rules.md); None: 1e-3 for losses, 1e-4 otherwise
    uncertified  what to do if a gap would be larger than max_gap: "error"; "bound", take an upper bound; "relax", allow
                 a gap that is 10, 100, … times larger, and take the bound if a gap of 1 is not enough
    max_cells    under kept rules: the most cells for each position; None: limited for a sequence only
    gaps         a float64 array [B], which receives the gaps

float32 emissions are computed in float32, everything else in float64. If the language has no sequence of a length, this
is an `Error`; `log_z` and `language_mass` are −inf then.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _core
from ._certified import Certified
from ._core import Constraint

Array = Any  # anything that numpy.asarray takes without a copy
Constraints = Union[Constraint, Sequence[Constraint]]


class Path(NamedTuple):
    """A label sequence (ids) and its score.

    >>> Path([0, 1], 2.5).labels
    [0, 1]
    """
    labels: List[int]
    score: float


class Span(NamedTuple):
    """Labels (ids) of the positions `begin`, `begin` + 1, … Masked positions do not count. The label before the span must
    not be in `not_before`, and the label after it not in `not_after`.

    >>> Span(0, [1, 2], not_after=[2]).labels  # B I without an I after it
    [1, 2]
    """
    begin: int
    labels: Sequence[int]
    not_before: Sequence[int] = ()
    not_after: Sequence[int] = ()


class Gradients(NamedTuple):
    """Gradients of the sum of a loss, with the shapes of the scores; None if there are no such scores.

    >>> Gradients(np.zeros((2, 3)), np.zeros((3, 3))).start is None
    True
    """
    emissions: np.ndarray
    transitions: np.ndarray
    start: Optional[np.ndarray] = None
    end: Optional[np.ndarray] = None


class _Call:
    """Checked, contiguous arrays in one precision, and their addresses."""

    def __init__(self, constraint: Constraints, emissions: Array, transitions: Array, start: Array = None, end: Array = None, *,
                 lengths: Optional[Sequence[int]] = None, mask: Array = None, threads: int = 1, allow: bool = False,
                 max_gap: Optional[float] = None, uncertified: str = "error", max_cells: Optional[int] = None,
                 gaps: Optional[np.ndarray] = None) -> None:
        emissions = np.asarray(emissions)
        self.dtype = np.dtype(np.float32 if emissions.dtype == np.float32 else np.float64)
        self.emissions = np.ascontiguousarray(emissions, self.dtype)
        if self.emissions.ndim not in (2, 3):
            raise _core.Error(f"emissions have {self.emissions.ndim} dimensions, expected [T, K] or [B, T, K]")
        self.K = self.emissions.shape[-1]
        self.transitions = self._scores("transitions", transitions, (self.K, self.K))
        self.start = None if start is None else self._scores("start", start, (self.K,))
        self.end = None if end is None else self._scores("end", end, (self.K,))
        self.mask = None if mask is None else np.ascontiguousarray(np.asarray(mask) != 0, np.uint8)
        if self.mask is not None and self.mask.shape != self.emissions.shape[:-1]:
            raise _core.Error(f"mask has shape {self.mask.shape}, expected {self.emissions.shape[:-1]}")
        self.single = self.emissions.ndim == 2 and lengths is None
        self.first, self.lengths = self._rows(None if lengths is None else [int(n) for n in lengths])
        self.rows = int(np.prod(self.emissions.shape[:-1]))
        self.choice = _choice(constraint, len(self.first))
        if gaps is not None and (gaps.dtype != np.float64 or gaps.shape != (len(self.first),) or not gaps.flags.c_contiguous):
            raise _core.Error(f"gaps: an array of {gaps.dtype} {gaps.shape} was given, expected float64 ({len(self.first)},)")
        self.gaps = gaps  # kept alive
        self.settings = _core.Settings(threads, allow, *Certified(max_gap, uncertified, max_cells).for_core(), _address(gaps))
        self.batch = _core.Batch(self.dtype == np.float64, self.K, self.rows, _address(self.emissions), _address(self.transitions),
                                 _address(self.start), _address(self.end), self.first, self.lengths, 1, _address(self.mask))

    def _scores(self, what: str, array: Array, shape: Tuple[int, ...]) -> np.ndarray:
        array = np.ascontiguousarray(array, self.dtype)
        if array.shape != shape:
            raise _core.Error(f"{what} have shape {array.shape}, expected {shape}")
        return array

    def _rows(self, lengths: Optional[List[int]]) -> Tuple[List[int], List[int]]:
        """The first row and the length of each sequence."""
        if self.emissions.ndim == 3:
            B, T, _ = self.emissions.shape
            if lengths is not None and len(lengths) != B:
                raise _core.Error(f"{len(lengths)} lengths were given for {B} sequences")
            if lengths is not None and max(lengths, default=0) > T:
                raise _core.Error(f"a length is {max(lengths)}, and emissions have {T} positions")
            return [i * T for i in range(B)], [T] * B if lengths is None else lengths
        T = self.emissions.shape[0]
        if lengths is None:
            return [0], [T]
        if sum(lengths) != T:
            raise _core.Error(f"lengths sum to {sum(lengths)}, and emissions have {T} rows")
        return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(int).tolist() if lengths else [], lengths

    def one_or_all(self, answers: List[Any]) -> Any:
        return answers[0] if self.single else answers

    def numbers(self, values: List[float]) -> Union[float, np.ndarray]:
        return values[0] if self.single else np.array(values)


def _choice(constraint: Constraints, B: int) -> _core.Choice:
    """One constraint for all sequences, or one for each."""
    if isinstance(constraint, Constraint):
        return _core.Choice([constraint])
    for one in constraint if isinstance(constraint, (list, tuple)) else [constraint]:
        if not isinstance(one, Constraint):
            raise TypeError(f"a constraint is a {type(one).__name__}, expected a Constraint, which regccrf.compile makes, or a list of them")
    if len(constraint) != B:
        raise _core.Error(f"{len(constraint)} constraints were given for {B} sequences")
    distinct = {id(one): one for one in constraint}
    places = {key: i for i, key in enumerate(distinct)}
    return _core.Choice(list(distinct.values()), [places[id(one)] for one in constraint])


def _address(array: Optional[np.ndarray]) -> int:
    """Where an array's memory is; 0 for none."""
    return 0 if array is None else array.ctypes.data


def log_z(constraint: Constraints, emissions: Array, transitions: Array, start: Array = None, end: Array = None,
          **layout: Any) -> Union[float, np.ndarray]:
    """log Σ exp score(y) over the sequences y of the language: a number, or [B].

    >>> round(log_z(regccrf.compile("A | B"), np.zeros((1, 2)), np.zeros((2, 2))), 6)
    0.693147
    """
    call = _Call(constraint, emissions, transitions, start, end, **layout)
    return call.numbers(_core.log_z(call.choice, call.batch, call.settings))


def viterbi(constraint: Constraints, emissions: Array, transitions: Array, start: Array = None, end: Array = None,
            **layout: Any) -> Union[Path, List[Path]]:
    """The best sequence of the language: a `Path`, or a list of B.

    >>> viterbi(regccrf.compile("A B | B A"), [[1., 0.], [3., 0.]], np.zeros((2, 2)))
    Path(labels=[1, 0], score=3.0)
    """
    call = _Call(constraint, emissions, transitions, start, end, **layout)
    return call.one_or_all([Path(*path) for path in _core.viterbi(call.choice, call.batch, call.settings)])


def posterior_decode(constraint: Constraints, emissions: Array, transitions: Array, start: Array = None, end: Array = None,
                     **layout: Any) -> Union[Path, List[Path]]:
    """The sequence of the language with the largest sum of label marginals, which is its score.

    >>> posterior_decode(regccrf.compile("A B"), np.zeros((2, 2)), np.zeros((2, 2)))
    Path(labels=[0, 1], score=2.0)
    """
    call = _Call(constraint, emissions, transitions, start, end, **layout)
    return call.one_or_all([Path(*path) for path in _core.posterior_decode(call.choice, call.batch, call.settings)])


def k_best(constraint: Constraints, emissions: Array, transitions: Array, start: Array = None, end: Array = None, *, k: int,
           **layout: Any) -> Union[List[Path], List[List[Path]]]:
    """The k best sequences, distinct, best first; fewer if there are fewer.

    >>> [path.labels for path in k_best(regccrf.compile("A | B"), [[1., 2.]], np.zeros((2, 2)), k=5)]
    [[1], [0]]
    """
    call = _Call(constraint, emissions, transitions, start, end, **layout)
    answers = _core.k_best(call.choice, call.batch, k, call.settings)
    return call.one_or_all([[Path(*path) for path in paths] for paths in answers])


def sample(constraint: Constraints, emissions: Array, transitions: Array, start: Array = None, end: Array = None, *,
           count: int = 1, seed: int = 0, temperature: float = 1.0, **layout: Any) -> Union[List[Path], List[List[Path]]]:
    """`count` independent sequences from P(y | x, L)^(1/temperature), normalised; the same for the same seed.

    >>> [path.labels for path in sample(regccrf.compile("A A"), [[1.], [2.]], [[0.]], count=2)]
    [[0, 0], [0, 0]]
    """
    call = _Call(constraint, emissions, transitions, start, end, **layout)
    answers = _core.sample(call.choice, call.batch, count, seed, temperature, [], call.settings)
    return call.one_or_all([[Path(*path) for path in paths] for paths in answers])


def marginals(constraint: Constraints, emissions: Array, transitions: Array, start: Array = None, end: Array = None,
              **layout: Any) -> np.ndarray:
    """P(y_t = a), shaped as the emissions; zeros at absent positions.

    >>> marginals(regccrf.compile("A B"), np.zeros((2, 2)), np.zeros((2, 2))).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    call = _Call(constraint, emissions, transitions, start, end, **layout)
    out = np.zeros_like(call.emissions)
    _core.label_marginals(call.choice, call.batch, _address(out), call.settings)
    return out


def bigram_marginals(constraint: Constraints, emissions: Array, transitions: Array, start: Array = None, end: Array = None,
                     **layout: Any) -> np.ndarray:
    """P(y_t = a, y_{t+1} = b) at [..., t, a, b]; zeros at absent and last positions.

    >>> bigram_marginals(regccrf.compile("A B"), np.zeros((2, 2)), np.zeros((2, 2)))[0].tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    call = _Call(constraint, emissions, transitions, start, end, **layout)
    out = np.zeros(call.emissions.shape + (call.K,), call.dtype)
    _core.bigram_marginals(call.choice, call.batch, _address(out), call.settings)
    return out


def span_marginals(constraint: Constraints, emissions: Array, transitions: Array, start: Array = None, end: Array = None, *,
                   spans: Sequence[Any], **layout: Any) -> Any:
    """The exact probability of each span. `spans` is a list of `Span`s for one sequence, and a list of lists for a batch; the
    result has the same shape.

    >>> bio = regccrf.compile("(O | B I*)*", labels=["O", "B", "I"])
    >>> span_marginals(bio, np.zeros((2, 3)), np.zeros((3, 3)), spans=[Span(0, [1], not_after=[2])])
    [0.4]
    """
    call = _Call(constraint, emissions, transitions, start, end, **layout)
    each = [spans] if call.single else list(spans)
    if len(each) != len(call.first):
        raise _core.Error(f"spans of {len(each)} sequences were given for {len(call.first)}")
    flat = [(i, *(span if isinstance(span, Span) else Span(*span))) for i, some in enumerate(each) for span in some]
    values = iter(_core.span_marginals(call.choice, call.batch, flat, call.settings))
    return call.one_or_all([[next(values) for _ in some] for some in each])


def entropy(constraint: Constraints, emissions: Array, transitions: Array, start: Array = None, end: Array = None,
            **layout: Any) -> Union[float, np.ndarray]:
    """−Σ P(y) log P(y), in nats.

    >>> round(entropy(regccrf.compile("A | B"), np.zeros((1, 2)), np.zeros((2, 2))), 6)
    0.693147
    """
    call = _Call(constraint, emissions, transitions, start, end, **layout)
    return call.numbers(_core.entropy(call.choice, call.batch, _core.Wanted(), call.settings))


def language_mass(constraint: Constraints, emissions: Array, transitions: Array, start: Array = None, end: Array = None,
                  **layout: Any) -> Union[float, np.ndarray]:
    """log P(L | x): the log-probability of all legal sequences together, without the constraint.

    >>> round(language_mass(regccrf.compile("A A | B B"), np.zeros((2, 2)), np.zeros((2, 2))), 6)
    -0.693147
    """
    call = _Call(constraint, emissions, transitions, start, end, allow=True, **layout)
    return call.numbers(_core.language_mass(call.choice, call.batch, _core.Wanted(), call.settings))


def nll(constraint: Constraints, emissions: Array, transitions: Array, start: Array = None, end: Array = None, *, gold: Array,
        **layout: Any) -> Tuple[Union[float, np.ndarray], Gradients]:
    """−log P(gold | x, L), and the gradients of its sum. `gold`: the correct label ids, shaped as the emissions without K.

    >>> round(nll(regccrf.compile("A | B"), np.zeros((1, 2)), np.zeros((2, 2)), gold=[0])[0], 6)
    0.693147
    """
    call = _Call(constraint, emissions, transitions, start, end, **layout)
    labels = np.ascontiguousarray(gold, np.int32)
    if labels.shape != call.emissions.shape[:-1]:
        raise _core.Error(f"gold has shape {labels.shape}, expected {call.emissions.shape[:-1]}")
    start_end = (None if scores is None else np.zeros_like(scores) for scores in (call.start, call.end))
    gradients = Gradients(np.zeros_like(call.emissions), np.zeros_like(call.transitions), *start_end)
    wanted = _core.Wanted(*(_address(gradient) for gradient in gradients))
    values, _ = _core.nll(call.choice, call.batch, _address(labels), wanted, call.settings)
    return call.numbers(values), gradients
