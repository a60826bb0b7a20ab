"""What is trained, how each is decoded, and how outputs are judged: shared by the feature-based and the neural
experiment.

A trained model has roles and, perhaps, a language to train under. A system, a row of the table, is a trained model
with a way to decode it: CRF-reduced and constrained decoding are the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from configuration import Configuration
from corpus import Instance, bio_of_spans, labels_of_roles, role_counts, roles_of_labels, spans_of_bio
from score import Score


@dataclass(frozen=True)
class Trained:
    roles: str  # full, or those of a language: reduced, rich
    language: Optional[str]  # to train under
    systems: Tuple[Tuple[str, Optional[str]], ...]  # name of the system, language to decode under

    @property
    def judged_by(self) -> str:
        """The language that outputs are held against: that of the model or of one of its systems, or the reduced one."""
        decoded_under = (language for _, language in self.systems if language)
        return self.language or next(decoded_under, "reduced")


MODELS: Dict[str, Trained] = {
    "crf-full": Trained("full", None, (("CRF-full", None),)),
    "crf-reduced": Trained("reduced", None, (("CRF-reduced", None), ("RegCCRF, constrained decoding", "reduced"))),
    "regccrf": Trained("reduced", "reduced", (("RegCCRF, constrained training", "reduced"),)),
    "crf-rich": Trained("rich", None, (("CRF-rich", None), ("RegCCRF-rich, constrained decoding", "rich"))),
    # All roles under all rules, which are kept beside a base.
    "crf-all": Trained("full", None, (("CRF-full", None), ("RegCCRF-full, constrained decoding", "full"))),
    "regccrf-full": Trained("full", "full", (("RegCCRF-full, constrained training", "full"),)),
    "regccrf-rich": Trained("rich", "rich", (("RegCCRF-rich, constrained training", "rich"),)),
}


class Languages:
    """The constraints of a configuration, each compiled when first asked for."""

    def __init__(self, configuration: Configuration) -> None:
        self.files = {"reduced": configuration.reduced, "rich": configuration.rich, "full": configuration.full}
        self._compiled: Dict[str, object] = {}
        try:  # before anything is trained
            from regccrf import compile
        except ImportError as error:
            raise SystemExit(f"error: the Python package is not built, or not on PYTHONPATH ({error}): run make") from None
        self._compile = compile

    def __getitem__(self, name: str):
        if name not in self._compiled:
            self._compiled[name] = self._compile(Path(self.files[name]))
        return self._compiled[name]

    def labels(self, roles: str, training: Sequence[Instance]) -> List[str]:
        return labels_of_roles(role_counts(training)) if roles == "full" else list(self[roles].labels)


def gold_labels(instances: Sequence[Instance], labels: Sequence[str]) -> List[List[str]]:
    """BIO over these labels; other roles are O."""
    known = set(roles_of_labels(labels))
    return [bio_of_spans(i.spans, len(i.sentence.forms), known.__contains__) for i in instances]


def outside(constraint, sequences: Sequence[Sequence[str]]) -> List[int]:
    """Which sequences are not in the language. Roles that it does not know count as O."""
    ids = {label: i for i, label in enumerate(constraint.labels)}
    return [
        i
        for i, sequence in enumerate(sequences)
        if not constraint.accepts([ids.get(label, ids["O"]) for label in sequence])
    ]


def judge(instances: Sequence[Instance], predicted: Sequence[Sequence[str]], constraint) -> Dict[str, object]:
    """Figures against the whole gold; how many outputs are outside the language, and how many of those break BIO."""
    score = Score()
    for instance, labels in zip(instances, predicted):
        score.add(instance.spans, spans_of_bio(labels))
    figures = score.figures()
    del figures["roles"], figures["sentences"]
    violations = outside(constraint, predicted)
    figures["outputs"] = len(predicted)
    figures["violations"] = len(violations)
    figures["malformed"] = sum(not is_bio(predicted[i]) for i in violations)
    return figures


def is_bio(labels: Sequence[str]) -> bool:
    return all(label[0] != "I" or before[2:] == label[2:] for before, label in zip(["O", *labels], labels))
