"""CRF layers for PyTorch. `CRF` has the interface of pytorch-crf's class of this name. `RegCCRF` is the same layer with a constraint: only
sequences of a regular language have probability.

>>> crf = RegCCRF(["O", "B-PER", "I-PER"], constraint="(O | B-PER I-PER*)*", batch_first=True)
>>> crf.decode(torch.tensor([[[0., 0., 5.], [0., 0., 5.]]]))
[[1, 2]]

Emissions are [T, B, K], or [B, T, K] with `batch_first`. Tags (label ids) and masks have the same shape without K. A masked position is treated
as absent: its neighbours become adjacent. Half precision is computed in float32.

Every method takes `constraint=`, which is used instead of the layer's own: a `Constraint` with the layer's labels, a `Language`, a pattern, or a
list of these, one for each sequence. A pattern or language is compiled at its first use, and the last ones are kept. If the constraint keeps
rules, losses and other sums also take `max_gap=` (docs/rules.md).

If the package was built with CUDA, CUDA tensors are computed on their device, on the current stream, and the host does not wait. Other tensors
are copied to the CPU, and the answers back. To raise an error, the host must wait for the device. So an error in training (tags that are not in
the language, a NaN score) first shows as an infinite or NaN loss with zero gradients. It is raised by the next method that waits (`decode`,
`sample`, …), by `raise_pending()`, or at once with `checks=True`.
"""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar, Union, cast

try:
    import torch
    from torch import Tensor, nn
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("regccrf.torch needs PyTorch: pip install regccrf[torch]", name="torch") from None

from . import LanguageLike, _core, compile
from . import _torch_cuda as cuda
from ._certified import DEFAULT, Certified
from ._core import Constraint, Labels, Language
from ._torch_arguments import (
    LabelsLike,
    Scores,
    check_outside,
    check_reduction,
    check_shapes,
    label_ids,
    labels_of,
    refuse_export,
    refuse_graphs,
    refuse_transforms,
    scores_of,
    warn_of_inverted,
)
from ._torch_cpu import Memory, gold_score
from ._torch_graph import compiling, exporting, outside_of_graphs, transformed
from ._torch_handles import BatchConstraints, by_constraint, gaps_of, keeps_rules, note_gaps, register, register_certified, send_sequence_ids
from ._torch_ops import LossRequest, label_marginals, loss_of, no_gold, reduce, viterbi
from .inference import Path

__all__ = ["CRF", "Outside", "Path", "RegCCRF"]

Constraints = Union[str, Language, Constraint, Sequence[Union[str, Language, Constraint]]]
_MOST_REMEMBERED = 64
_SAVED = "_extra_state"  # the constraint's key in a state


class Outside(NamedTuple):
    """A labelled sequence that is not in the language: where it leaves, with which label, and what was possible there.

    `label` is None where the sequence ends too early.

    >>> Outside(sequence=0, position=3, label="I", possible=["O", "B"]).position
    3
    """
    sequence: int
    position: int
    label: Optional[str]
    possible: List[str]


_Method = TypeVar("_Method", bound=Callable[..., Any])
_SUMS: Set[str] = set()  # names of the methods that have gaps


def _takes_max_gap(method: _Method) -> _Method:
    """The method with one more argument, `max_gap`: how uncertain a sum may be under rules that the constraint keeps (docs/rules.md)."""
    @functools.wraps(method)
    def call(self: CRF, *args: Any, max_gap: Optional[float] = None, **rest: Any) -> Any:
        if max_gap is None:
            return method(self, *args, **rest)
        other = self._certified(max_gap)
        answer = method(other, *args, **rest)
        note_gaps(self._handle, gaps_of(other._handle))
        return answer
    _SUMS.add(method.__name__)
    return cast(_Method, call)


class CRF(nn.Module):
    """A linear-chain CRF with the interface of pytorch-crf.

    Args:
        num_tags: the number of labels K, or their names.
        batch_first: emissions are [B, T, K] and not [T, B, K].
        checks: raise errors on CUDA devices at once. Costs a synchronisation with the device in every call.

    Parameters: `start_transitions` [K], `end_transitions` [K], `transitions` [K, K] from, to.

    >>> CRF(5)
    CRF(num_tags=5)
    """

    checks = save_constraint = False
    certified = DEFAULT  # how certain sums under kept rules must be

    def __init__(self, num_tags: LabelsLike, batch_first: bool = False, checks: bool = False) -> None:
        super().__init__()
        self._assemble(Constraint.unconstrained(labels_of(num_tags)), batch_first, checks)
        self._add_parameters(start_end=True)

    def _assemble(self, constraint: Constraint, batch_first: bool, checks: bool) -> None:
        self.batch_first, self.checks = batch_first, checks
        self.outside = "raise"
        self._set_constraint(constraint)

    @property
    def constraint(self) -> Constraint:
        """The constraint of the layer; without one, a constraint that allows everything. You can assign a `Constraint` with the same labels, a
        `Language` or a pattern.

        >>> crf = CRF(["A", "B"])
        >>> crf.constraint = "A*"
        >>> crf.decode(torch.tensor([[[0., 9.]]]))
        [[0]]
        """
        return self._constraint

    @constraint.setter
    def constraint(self, constraint: Union[str, Language, Constraint]) -> None:
        if constraint is None:
            raise TypeError("the constraint is None: crf.with_constraint() is the layer without one")
        self._set_constraint(self._compile(constraint, "the constraint"))

    def _set_constraint(self, constraint: Constraint) -> None:
        self._handle, self._constraint = register_certified(constraint, self.certified)
        self._keeps_rules = constraint.rules > 0
        self.labels = constraint.labels
        self.num_tags = len(self.labels)
        self._pending = {self._handle: self._constraint}  # those under which errors may wait on a device

    def _add_parameters(self, start_end: bool) -> None:
        K = self.num_tags
        self.start_transitions = nn.Parameter(torch.empty(K)) if start_end else None
        self.end_transitions = nn.Parameter(torch.empty(K)) if start_end else None
        self.transitions = nn.Parameter(torch.empty(K, K))
        self.reset_parameters()

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)
        self._set_constraint(self._constraint)

    def reset_parameters(self) -> None:
        """Draw new parameters from the uniform distribution between −0.1 and 0.1.

        >>> CRF(5).reset_parameters()
        """
        for scores in (self.start_transitions, self.end_transitions, self.transitions):
            if scores is not None:
                nn.init.uniform_(scores, -0.1, 0.1)

    def __repr__(self) -> str:
        constraint = self.constraint
        unconstrained = constraint.states == 1 and constraint.arcs == self.num_tags
        size = "" if unconstrained and not isinstance(self, RegCCRF) else f", states={constraint.states}, arcs={constraint.arcs}"
        size += f", rules={constraint.rules}" if constraint.rules else ""
        return f"{self.__class__.__name__}(num_tags={self.num_tags}{size})"

    def with_constraint(self, constraint: Optional[LanguageLike] = None) -> CRF:
        """A layer with the same parameters (shared, not copied) under another constraint; without an argument, under none.

        >>> CRF(["A", "B"]).with_constraint("A*").decode(torch.tensor([[[0., 9.]]]))
        [[0]]
        """
        other = CRF.__new__(CRF if constraint is None else RegCCRF)
        nn.Module.__init__(other)
        other.certified = self.certified
        other._assemble(Constraint.unconstrained(self.labels) if constraint is None else compile(constraint, self.labels),
                        self.batch_first, self.checks)
        other.outside, other.save_constraint = self.outside, self.save_constraint and constraint is not None
        other.start_transitions, other.end_transitions = self.start_transitions, self.end_transitions
        other.transitions = self.transitions
        return other.train(self.training)

    # --- training ------------------------------------------------------------------------------------------------------

    @_takes_max_gap
    def forward(self, emissions: Tensor, tags: Tensor, mask: Optional[Tensor] = None, reduction: str = "sum", *,
                forbidden: Optional[Tensor] = None, outside: Optional[str] = None,
                constraint: Optional[Constraints] = None) -> Tensor:
        """log P(tags | emissions) under the language; its negative is the loss.

        Args:
            emissions: [T, B, K]
            tags: [T, B] label ids; masked positions may have anything. Or, for partly known labels, sets of allowed labels: bool [T, B, K]. The
                result is then the log-probability of all sequences of allowed labels.
            mask: [T, B], 0 or False = absent.
            reduction: `none` [B], `sum`, `mean` over sequences, `token_mean` over positions that are not masked. If all sequences are skipped,
                the result is 0.
            forbidden: bool [T, B, K], labels that are not allowed at a position.
            outside: what to do with tags that are not in the language: `raise` (or `error`, which is the same), `skip` (these sequences do not
                count) or `inf` (their log-probability is −inf).
            constraint: used instead of the layer's: a `Constraint`, a `Language`, a pattern, or a list of these, one for each sequence.

        >>> crf = CRF(3)
        >>> crf(torch.zeros(4, 2, 3), torch.zeros(4, 2, dtype=torch.long), reduction="none").shape
        torch.Size([2])
        """
        return self._signed(-1, emissions, tags, mask, reduction, forbidden, outside, constraint)

    @_takes_max_gap
    def nll(self, emissions: Tensor, tags: Tensor, mask: Optional[Tensor] = None, reduction: str = "sum", *,
            forbidden: Optional[Tensor] = None, outside: Optional[str] = None, constraint: Optional[Constraints] = None) -> Tensor:
        """The loss, −log P(tags | emissions). The same as `-crf(...)`, but faster on a GPU. It does not call
        `forward`, so hooks on the layer do not see it.

        >>> crf = CRF(3)
        >>> crf.nll(torch.zeros(4, 2, 3), torch.zeros(4, 2, dtype=torch.long)).backward()
        """
        return self._signed(1, emissions, tags, mask, reduction, forbidden, outside, constraint)

    @_takes_max_gap
    def log_prob(self, emissions: Tensor, tags: Tensor, mask: Optional[Tensor] = None, *, forbidden: Optional[Tensor] = None,
                 outside: Optional[str] = None, constraint: Optional[Constraints] = None) -> Tensor:
        """`forward` without a reduction: [B].

        >>> CRF(2).log_prob(torch.zeros(1, 3, 2), torch.zeros(1, 3, dtype=torch.long)).shape
        torch.Size([3])
        """
        return self(emissions, tags, mask, "none", forbidden=forbidden, outside=outside, constraint=constraint)

    @_takes_max_gap
    def log_partition(self, emissions: Tensor, mask: Optional[Tensor] = None, *, forbidden: Optional[Tensor] = None,
                      constraint: Optional[Constraints] = None) -> Tensor:
        """log Σ exp score(y) over the language: [B]; −inf if it has no sequence. Differentiable twice.

        >>> CRF(2).log_partition(torch.zeros(1, 3, 2)).shape
        torch.Size([3])
        """
        if constraint is not None:
            return self._each(CRF.log_partition, constraint, emissions, mask=mask, forbidden=forbidden)
        return self._loss("log_z", self._scores(emissions, mask, forbidden), errors="bad_scores")

    @_takes_max_gap
    def entropy(self, emissions: Tensor, mask: Optional[Tensor] = None, *, forbidden: Optional[Tensor] = None,
                constraint: Optional[Constraints] = None) -> Tensor:
        """−Σ P(y) log P(y), in nats: [B]. Differentiable.

        >>> CRF(2).entropy(torch.zeros(1, 3, 2)).shape
        torch.Size([3])
        """
        if constraint is not None:
            return self._each(CRF.entropy, constraint, emissions, mask=mask, forbidden=forbidden)
        return self._loss("entropy", self._scores(emissions, mask, forbidden))

    @_takes_max_gap
    def language_mass(self, emissions: Tensor, mask: Optional[Tensor] = None, *, forbidden: Optional[Tensor] = None,
                      constraint: Optional[Constraints] = None) -> Tensor:
        """log P(L | emissions), the probability of all legal sequences without the constraint: [B]; −inf for none. Differentiable.

        >>> CRF(2).language_mass(torch.zeros(1, 1, 2)).tolist()
        [0.0]
        """
        if constraint is not None:
            return self._each(CRF.language_mass, constraint, emissions, mask=mask, forbidden=forbidden)
        scores = self._scores(emissions, mask, forbidden, half=False)
        if not self._on_device(emissions) or compiling():
            return self._loss("language_mass", scores, errors="bad_scores")
        legal = self._loss("language_mass", scores, errors="bad_scores", exact=True)
        everything = self._loss("language_mass", scores, errors="none", exact=True, handle=cuda.unconstrained(self._handle))
        return (legal - everything).to(scores[1].dtype).masked_fill(legal.isfinite().logical_not(), float("-inf"))

    @_takes_max_gap
    def marginals(self, emissions: Tensor, mask: Optional[Tensor] = None, *, forbidden: Optional[Tensor] = None,
                  constraint: Optional[Constraints] = None) -> Tensor:
        """P(y_t = a), shaped as the emissions; zeros under the mask. Differentiable.

        >>> CRF(2).marginals(torch.zeros(4, 1, 2)).sum(-1).shape
        torch.Size([4, 1])
        """
        if constraint is not None:
            return self._each(CRF.marginals, constraint, emissions, mask=mask, forbidden=forbidden)
        scores, on_device = self._scores(emissions, mask, forbidden, half=False), self._on_device(emissions)
        if on_device:
            refuse_transforms(scores)
        request = LossRequest("log_z", self._handle, self.batch_first)
        return self._checked(label_marginals((*scores, no_gold(emissions)), request, on_device))

    def check(self, tags: Tensor, mask: Optional[Tensor] = None, *,
              constraint: Optional[Constraints] = None) -> List[Outside]:
        """The sequences that are not in the language, with the place where each leaves it.

        >>> RegCCRF(["A", "B"], constraint="A B*").check(torch.tensor([[0], [0]]))
        [Outside(sequence=0, position=1, label='A', possible=['B'])]
        """
        if not self.batch_first:
            tags, mask = tags.transpose(0, 1), None if mask is None else mask.transpose(0, 1)
        present = torch.ones_like(tags, dtype=torch.bool) if mask is None else mask.ne(0)
        each = self._constraints(self.constraint if constraint is None else constraint, len(tags))
        found = (self._check_one(i, each[i], tags[i].tolist(), present[i].tolist()) for i in range(len(tags)))
        return [outside for outside in found if outside is not None]

    def _check_one(self, i: int, constraint: Constraint, tags: List[int], present: List[bool]) -> Optional[Outside]:
        rows = [t for t, here in enumerate(present) if here]
        sequence = [tags[t] for t in rows]
        membership = constraint.accepts(sequence)
        if membership.accepted:
            return None
        possible = self.labels.names(membership.possible)
        if membership.position >= len(rows):
            return Outside(i, rows[-1] + 1 if rows else 0, None, possible)
        label = sequence[membership.position]
        return Outside(i, rows[membership.position], self.labels[label] if 0 <= label < self.num_tags else str(label), possible)

    def raise_pending(self) -> None:
        """Raise the first error that calls on CUDA tensors have left on the device. Waits for the device.

        >>> CRF(2).raise_pending()
        """
        if not compiling():
            for handle in self._pending:
                cuda.raise_pending(handle)

    # --- decoding ------------------------------------------------------------------------------------------------------

    def decode(self, emissions: Tensor, mask: Optional[Tensor] = None, *, forbidden: Optional[Tensor] = None,
               constraint: Optional[Constraints] = None) -> List[List[int]]:
        """The most likely label ids of each sequence, without masked positions. Always in the language.

        >>> CRF(2).decode(torch.tensor([[[0., 9.]], [[9., 0.]]]))
        [[1, 0]]
        """
        if constraint is not None:
            return self._each(CRF.decode, constraint, emissions, mask=mask, forbidden=forbidden)
        if self._on_device(emissions):
            return cuda.decode(*self._detached(emissions, mask, forbidden), self.batch_first, self._handle)
        memory = self._memory(emissions, mask, forbidden, sums=False)
        return [labels for labels, _ in _core.viterbi(memory.choice, memory.batch, memory.settings)]

    def decode_tensor(self, emissions: Tensor, mask: Optional[Tensor] = None, *, fill: int = -1, forbidden: Optional[Tensor] = None,
                      constraint: Optional[Constraints] = None) -> Tensor:
        """What `decode` gives, as a tensor: int64, shaped as the emissions without K, `fill` at masked positions. It can be part of
        `torch.compile(fullgraph=True)` and of programs of `torch.export`. For ONNX see `regccrf.onnx`.

        >>> CRF(2).decode_tensor(torch.tensor([[[0., 9.]], [[9., 0.]]]), torch.tensor([[True], [False]]))
        tensor([[ 1],
                [-1]])
        """
        if constraint is not None:
            return self._each(CRF.decode_tensor, constraint, emissions, mask=mask, fill=fill, forbidden=forbidden)
        if transformed(emissions, mask):
            raise _core.Error("labels are nothing that torch.func can transform: call decode_tensor outside of grad and vmap")
        self.raise_pending()
        with torch.no_grad():
            return viterbi(*self._scores(emissions, mask, forbidden), self.batch_first, self._handle, fill)

    @_takes_max_gap
    def posterior_decode(self, emissions: Tensor, mask: Optional[Tensor] = None, *,
                         forbidden: Optional[Tensor] = None,
                         constraint: Optional[Constraints] = None) -> List[List[int]]:
        """The label ids with the largest sum of marginals, and so the fewest expected errors. Always in the language.

        >>> CRF(2).posterior_decode(torch.tensor([[[0., 9.]], [[9., 0.]]]))
        [[1, 0]]
        """
        if constraint is not None:
            return self._each(CRF.posterior_decode, constraint, emissions, mask=mask, forbidden=forbidden)
        if self._on_device(emissions):
            request = LossRequest("posterior_decode", self._handle, self.batch_first, want_h=True)
            return cuda.posterior_decode(*self._detached(emissions, mask, forbidden), no_gold(emissions), request)
        memory = self._memory(emissions, mask, forbidden)
        return [labels for labels, _ in _core.posterior_decode(memory.choice, memory.batch, memory.settings)]

    def k_best(self, emissions: Tensor, k: int, mask: Optional[Tensor] = None, *,
               forbidden: Optional[Tensor] = None, constraint: Optional[Constraints] = None) -> List[List[Path]]:
        """The k best sequences with their scores, distinct, best first; fewer if there are fewer.

        >>> [path.labels for path in CRF(2).k_best(torch.tensor([[[0., 9.]]]), 2)[0]]
        [[1], [0]]
        """
        if constraint is not None:
            return self._each(CRF.k_best, constraint, emissions, k, mask=mask, forbidden=forbidden)
        if self._on_device(emissions):
            found = cuda.k_best(*self._detached(emissions, mask, forbidden), self.batch_first, self._handle, k)
        else:
            memory = self._memory(emissions, mask, forbidden, sums=False)
            found = _core.k_best(memory.choice, memory.batch, k, memory.settings)
        return [[Path(*path) for path in paths] for paths in found]

    @_takes_max_gap
    def sample(self, emissions: Tensor, count: int = 1, mask: Optional[Tensor] = None, *, seed: Optional[int] = None,
               temperature: float = 1.0, forbidden: Optional[Tensor] = None,
               constraint: Optional[Constraints] = None) -> List[List[List[int]]]:
        """`count` independent sequences of label ids for each sequence: [B][count][length]. Without a seed, PyTorch's generator gives one.

        >>> CRF(2).sample(torch.tensor([[[0., 99.]]]), count=3)
        [[[1], [1], [1]]]
        """
        if seed is None:
            seed = int(torch.randint(2 ** 62, ()))
        if constraint is not None:
            return self._each(CRF.sample, constraint, emissions, count, mask=mask, seed=seed, temperature=temperature,
                              forbidden=forbidden)
        if self._on_device(emissions):
            scores = self._detached(emissions, mask, forbidden)
            return cuda.sample(*scores, self.batch_first, self._handle, count, seed, temperature)
        memory = self._memory(emissions, mask, forbidden)
        samples = _core.sample(memory.choice, memory.batch, count, seed, temperature, [], memory.settings)
        return [[labels for labels, _ in paths] for paths in samples]

    # --- what scripts written for pytorch-crf call: T before B, whatever batch_first says ------------------------------------

    def _compute_score(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """score(tags): [B]. Differentiable."""
        return gold_score(*self._scores(emissions, mask, None, tags, half=False), label_ids(tags), False)

    def _compute_normalizer(self, emissions: Tensor, mask: Tensor) -> Tensor:
        return self._time_first().log_partition(emissions, mask)

    def _viterbi_decode(self, emissions: Tensor, mask: Tensor) -> List[List[int]]:
        return self._time_first().decode(emissions, mask)

    def _time_first(self) -> CRF:
        other = self._under(self._handle, self._constraint)
        other.batch_first = False
        return other

    # --- inside --------------------------------------------------------------------------------------------------------

    def _scores(self, emissions: Tensor, mask: Optional[Tensor], forbidden: Optional[Tensor], tags: Optional[Tensor] = None,
                half: Optional[bool] = None) -> Scores:
        """As the operators take them. `half`: emissions in half precision stay so; by default where kernels take them."""
        check_shapes(self.num_tags, emissions, tags, mask)
        return scores_of(self, emissions, mask, forbidden, self._on_device(emissions) if half is None else half)

    def _constraints(self, constraint: Constraints, B: int) -> List[Constraint]:
        """One for each sequence."""
        if isinstance(constraint, (str, os.PathLike, Language, Constraint)):
            return [self._compile(constraint, "the constraint")] * B
        each = list(constraint)
        if len(each) != B:
            raise _core.Error(f"{len(each)} constraints were given for {B} sequences")
        compiled: Dict[int, Constraint] = {}
        for i, one in enumerate(each):
            if id(one) not in compiled:
                compiled[id(one)] = self._compile(one, f"the constraint of sequence {i}")
        return [compiled[id(one)] for one in each]

    def _compile(self, constraint: Any, what: str) -> Constraint:
        """With the labels of the layer."""
        if isinstance(constraint, (str, Language)):
            return _compiled(constraint, self.labels)
        if not isinstance(constraint, Constraint):
            raise TypeError(f"{what} is {constraint!r:.80}, expected a Constraint, a Language or a pattern: "
                            "regccrf.compile(…, labels=crf.labels) makes one of a file")
        if constraint.labels != self.labels:
            raise _core.Error(f"{what} has other labels than the layer, whose are {list(self.labels)}: compile it with labels=crf.labels")
        return constraint

    def _certified(self, max_gap: float) -> CRF:
        """This layer with another gap for its sums."""
        certified = self.certified._replace(max_gap=max_gap).checked()
        other = self._under(register_certified(self._constraint, certified)[0], self._constraint)
        other.certified = certified
        return other

    @property
    def gaps(self) -> List[float]:
        """If the constraint keeps rules: the gap of each sequence in the last sum (a loss, log_partition, marginals, …), `inf` if
        it is an upper bound. Empty before the first sum, and if there are no kept rules, because sums are exact then. Layers with
        equal constraints and the same `max_gap`, `uncertified` and `max_cells` share it.

        >>> CRF(2).gaps
        []
        """
        gaps = gaps_of(self._handle)
        return [] if gaps is None else gaps.tolist()

    def _under(self, handle: int, constraint: Union[Constraint, BatchConstraints]) -> CRF:
        """This layer, its parameters included, under another constraint."""
        other = CRF.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._handle, other._keeps_rules = handle, keeps_rules(handle)
        other.__dict__["_constraint" if isinstance(constraint, Constraint) else "_batch_constraints"] = constraint
        return other

    def _layers(self, constraint: Constraints, emissions: Tensor, tags: Optional[Tensor],
                mask: Optional[Tensor]) -> List[Tuple[CRF, BatchConstraints]]:
        """This layer under each sequence's constraint. The CPU takes such a batch as it is, in one call; on a device there is a call for
        each constraint, on the sequences that have it."""
        refuse_export("a constraint for a call", "export crf.with_constraint(…), a layer with that constraint")
        check_shapes(self.num_tags, emissions, tags, mask)
        each = self._constraints(constraint, emissions.shape[0 if self.batch_first else 1])
        parts = by_constraint(each)
        if cuda.on_device(emissions) and not any(one.rules for one in each):
            self._remember(parts)
        elif len(parts) > 1:
            several = BatchConstraints(each, self.certified)
            return [(self._under(several.handle, several), several)]
        if len(parts) == 1:
            handle, one = register_certified(parts[0].constraints[0], self.certified)
            return [(self._under(handle, one), parts[0])]
        return [(self._under(part.handle, part), part) for part in parts]

    def _take_gaps(self, method: Callable[..., Any], layer: Optional[CRF] = None) -> None:
        """Those of a call under another layer's constraint."""
        if method.__name__ in _SUMS:
            note_gaps(self._handle, None if layer is None else gaps_of(layer._handle))

    @outside_of_graphs
    def _each(self, method: Callable[..., Any], constraint: Constraints, emissions: Tensor, *args: Any,
              mask: Optional[Tensor] = None, **rest: Any) -> Any:
        """A method's answer under each sequence's constraint."""
        layers = self._layers(constraint, emissions, rest.get("tags"), mask)
        if len(layers) < 2:
            layer = layers[0][0] if layers else self
            answer = method(layer, emissions, *args, mask=mask, **rest)
            self._take_gaps(method, layer)
            return answer
        self._take_gaps(method)  # where no rules are kept
        dim, order = 0 if self.batch_first else 1, send_sequence_ids([part for _, part in layers], emissions.device)
        answers = []
        for layer, part in layers:
            here = cast(Tensor, part.sequence_ids)
            some = {name: x.index_select(dim, here) if isinstance(x, Tensor) else x for name, x in rest.items()}
            some["mask"] = None if mask is None else mask.index_select(dim, here)
            answers.append(method(layer, emissions.index_select(dim, here), *args, **some))
        if isinstance(answers[0], Tensor):
            dim = dim if answers[0].dim() > 1 else 0
            return torch.cat(answers, dim).index_select(dim, order)
        by_sequence = {i: one for (_, part), some in zip(layers, answers) for i, one in zip(part.sequences, some)}
        return [by_sequence[i] for i in range(len(by_sequence))]

    @outside_of_graphs
    def _each_loss(self, sign: int, constraint: Constraints, emissions: Tensor, tags: Tensor, mask: Optional[Tensor], reduction: str,
                   forbidden: Optional[Tensor], outside: str) -> Tensor:
        """sign · negative log-likelihood under each sequence's constraint."""
        method = CRF.forward if sign < 0 else CRF.nll
        layers = self._layers(constraint, emissions, tags, mask)
        if len(layers) < 2:
            layer = layers[0][0] if layers else self
            loss = method(layer, emissions, tags, mask, reduction, forbidden=forbidden, outside=outside)
            self._take_gaps(method, layer)
            return loss
        skip = outside == "skip"
        values = self._each(method, constraint, emissions, tags=tags, mask=mask, reduction="none", forbidden=forbidden,
                            outside="inf" if skip else outside)
        left_out = values.isinf() if skip else None
        return self._reduce(values if left_out is None else values.masked_fill(left_out, 0), left_out, mask, emissions, reduction)

    def _save_to_state_dict(self, destination: Dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.save_constraint:
            destination[prefix + _SAVED] = torch.frombuffer(bytearray(self.constraint.to_bytes()), dtype=torch.uint8)

    def _load_from_state_dict(self, state_dict: Dict[str, Any], prefix: str, local_metadata: Any, strict: bool,
                              missing_keys: List[str], unexpected_keys: List[str], error_msgs: List[str]) -> None:
        saved = state_dict.get(prefix + _SAVED)
        if saved is not None:
            state_dict = {key: value for key, value in state_dict.items() if key != prefix + _SAVED}
            try:
                self._load_constraint(saved)
            except (_core.Error, TypeError) as error:
                error_msgs.append(f"{prefix + _SAVED}, the constraint of the saved layer, was not used: {error}. "
                                  "Without this key the weights load alone.")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def _load_constraint(self, saved: Any) -> None:
        if not isinstance(self, RegCCRF):
            raise _core.Error("this layer is a CRF, which has none; a RegCCRF takes it")
        if not isinstance(saved, Tensor) or saved.dtype != torch.uint8:
            kind = saved.dtype if isinstance(saved, Tensor) else type(saved).__name__
            raise TypeError(f"it is {kind}, expected bytes in a uint8 tensor, which are not to be averaged or cast")
        constraint = Constraint.from_bytes(saved.cpu().numpy().tobytes())
        if constraint.labels != self.labels:
            raise _core.Error(f"its labels are {list(constraint.labels)}, and this layer's are {list(self.labels)}: the weights belong to others")
        if constraint != self.constraint:
            warnings.warn("the saved layer's constraint takes the place of this layer's; with_constraint() puts another around the weights")
        self._set_constraint(constraint)

    def _remember(self, parts: List[BatchConstraints]) -> None:
        """Errors under these constraints may wait on a device. Of many, the last ones are remembered."""
        self._pending.update((part.base, part.constraints[0]) for part in parts)
        others = [handle for handle in self._pending if handle != register(self.constraint)[0]]
        for handle in others[:-_MOST_REMEMBERED]:
            del self._pending[handle]

    def _memory(self, emissions: Tensor, mask: Optional[Tensor], forbidden: Optional[Tensor], sums: bool = True) -> Memory:
        refuse_graphs(emissions, mask)
        self.raise_pending()
        with torch.no_grad():
            scores = self._scores(emissions, mask, forbidden, half=False)
            if cuda.on_device(emissions):  # and not by the kernels
                h, g, start, end, present = scores
                scores = (h.cpu(), g.cpu(), start.cpu(), end.cpu(), present.cpu())
            return Memory(*scores, self.batch_first, self._handle, sums=sums)

    def _on_device(self, emissions: Tensor) -> bool:
        """Whether the kernels serve it; rules that are kept beside a base are obeyed on the CPU."""
        return cuda.on_device(emissions) and not self._keeps_rules

    def _detached(self, emissions: Tensor, mask: Optional[Tensor], forbidden: Optional[Tensor]) -> Scores:
        refuse_graphs(emissions, mask)
        self.raise_pending()
        with torch.no_grad():
            return self._scores(emissions, mask, forbidden)

    def _checked(self, answer: Tensor) -> Tensor:
        if self.checks:
            self.raise_pending()
        return answer

    def _signed(self, sign: int, emissions: Tensor, tags: Tensor, mask: Optional[Tensor], reduction: str, forbidden: Optional[Tensor],
                outside: Optional[str], constraint: Optional[Constraints]) -> Tensor:
        """sign · negative log-likelihood."""
        outside = check_outside(self.outside if outside is None else outside)
        check_reduction(reduction)
        if mask is not None and not compiling() and not exporting():
            warn_of_inverted(mask, self.batch_first)
        if constraint is not None:
            return self._each_loss(sign, constraint, emissions, tags, mask, reduction, forbidden, outside)  # type: ignore[no-any-return]
        scores, on_device = self._scores(emissions, mask, forbidden, tags), self._on_device(emissions)
        errors = "all" if outside == "raise" else "bad_scores"
        if tags.dim() == 2:
            gold = label_ids(tags).to(torch.int64 if on_device else torch.int32)
            return self._loss("nll", scores, gold, sign=sign, reduction=reduction, outside=outside, errors=errors)
        if not on_device:
            return self._loss("partial_nll", scores, tags.to(torch.uint8), sign=sign, reduction=reduction, outside=outside, errors=errors)
        values, left_out = self._device_partial_nll(scores, tags, outside, errors)
        return self._reduce(sign * values, left_out, mask, emissions, reduction)

    def _loss(self, operation: str, scores: Scores, gold: Optional[Tensor] = None, *, sign: int = 1, reduction: str = "none",
              outside: str = "raise", errors: str = "all", exact: bool = False, handle: Optional[int] = None) -> Tensor:
        """`LossRequest` says what the arguments are."""
        h, g, s, e, _ = scores
        if self._on_device(h):
            refuse_transforms(scores)
        differentiate = torch.is_grad_enabled()
        want_h, want_g = differentiate and (h.requires_grad or s.requires_grad or e.requires_grad), differentiate and g.requires_grad
        request = LossRequest(operation, self._handle if handle is None else handle, self.batch_first, sign, reduction, outside, errors, exact,
                              want_h, want_g)
        return self._checked(loss_of((*scores, no_gold(h) if gold is None else gold), request))

    def _device_partial_nll(self, scores: Scores, allowed: Tensor, outside: str, errors: str) -> Tuple[Tensor, Optional[Tensor]]:
        """−log P(sets of labels) [B], 0 or inf where gold is outside as the caller wants, and which count for nothing [B]."""
        h, *rest = scores
        legal = h.masked_fill(allowed.logical_not(), float("-inf"))
        consistent = self._loss("partial_nll", cast(Scores, (legal, *rest)), errors=errors, exact=True)
        everything = self._loss("partial_nll", scores, errors="bad_scores", exact=True)
        values = (everything - consistent).to(scores[1].dtype)
        if outside == "raise":
            return values, None
        left_out = consistent.isfinite().logical_not()
        values = values.masked_fill(left_out, 0.0 if outside == "skip" else float("inf"))
        return values, left_out if outside == "skip" else None

    def _reduce(self, values: Tensor, left_out: Optional[Tensor], mask: Optional[Tensor], emissions: Tensor, reduction: str) -> Tensor:
        length = emissions.shape[1 if self.batch_first else 0]
        return reduce(values, left_out, None if mask is None else mask.ne(0), self.batch_first, length, reduction)


class RegCCRF(CRF):
    """A CRF on a regular language: a `CRF` that gives every sequence outside it probability 0, in training and in decoding.

    Args:
        labels: label names in the order of their ids, or {name: id}, {id: name}, or their number K (the names are then "0" … "K-1").
        constraint: a pattern, a path to a .lang file or automaton, a `Language` or a `Constraint`.
        batch_first: emissions are [B, T, K] and not [T, B, K].
        start_end: False leaves out start and end scores, as in the paper.
        outside: what to do with tags that are not in the language: `raise`, `skip` or `inf`.
        checks: raise errors on CUDA devices at once. Costs a synchronisation with the device in every call.
        max_gap: if the constraint keeps rules: the largest gap of a sum (docs/rules.md). None: 1e-3 for losses, 1e-4 for everything else.
        uncertified: what to do with a sequence whose gap would be larger: `error`; `bound`, the loss without the rules, an upper bound; or `relax`,
            allow a gap that is 10, 100, … times larger, and take the bound if a gap of 1 is not enough. `relax` is for training.
        max_cells: if the constraint keeps rules: the most cells for each position of a sequence (docs/rules.md). 100 to 2000 keep a training
            step short. None: only the cells of a sequence are limited.
        save_constraint: the `state_dict` also has the constraint, as bytes in a uint8 tensor named `_extra_state`. Otherwise it has the keys of
            pytorch-crf only. These are weights, which can be averaged and loaded anywhere.

    Loading a state with a constraint replaces the constraint of the layer. Loading one without it does not change the constraint.

    >>> RegCCRF(["O", "B", "I"], constraint="(O | B I*)*")
    RegCCRF(num_tags=3, states=2, arcs=5)
    """

    def __init__(self, labels: LabelsLike, constraint: LanguageLike, batch_first: bool = False,
                 start_end: bool = True, outside: str = "raise", checks: bool = False, save_constraint: bool = False,
                 max_gap: Optional[float] = None, uncertified: str = "error", max_cells: Optional[int] = None) -> None:
        nn.Module.__init__(self)
        self.certified = Certified(max_gap, uncertified, max_cells).checked()
        outside = check_outside(outside)
        if constraint is None:
            raise TypeError("constraint is None: the layer without one is CRF")
        self._assemble(_over(constraint, labels), batch_first, checks)
        self.outside, self.save_constraint = outside, save_constraint
        self._add_parameters(start_end)


def _over(constraint: LanguageLike, labels: LabelsLike) -> Constraint:
    try:
        return compile(constraint, labels_of(labels))
    except _core.Error as error:
        if not isinstance(labels, int) or "unknown label" not in str(error):
            raise
        raise _core.Error(f"{error}\nlabels is the number {labels}, so they are called 0, 1, …: give a list of their names") from None


@functools.lru_cache(maxsize=_MOST_REMEMBERED)
def _compiled(language: Union[str, Language], labels: Labels) -> Constraint:
    return compile(language, labels)
