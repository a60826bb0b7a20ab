"""Linear-chain CRFs whose whole probability mass lies on a regular language.

A `Language` says which label sequences are legal, `compile` makes a `Constraint` of it, and inference runs on that:

>>> import numpy, regccrf
>>> bio = regccrf.compile("(O | B-PER I-PER*)*")
>>> regccrf.viterbi(bio, numpy.eye(3), numpy.zeros((3, 3)))
Path(labels=[0, 1, 2], score=3.0)

A tagger with features is trained by `train` and used by `Tagger`; `regccrf.sklearn.CRF` is an estimator with the interface of
sklearn-crfsuite. PyTorch modules are in `regccrf.torch`, which is the only part that needs PyTorch.
"""

from __future__ import annotations

import os
from typing import Optional, Sequence, Union

from ._core import Constraint, Error, Labels, Language, LimitError, Limits, Membership, Model, __version__, compile_language
from .inference import Gradients, Path, bigram_marginals, entropy, k_best, language_mass, log_z, marginals, nll, posterior_decode, sample, viterbi
from .tagger import Tagger, Tagging, train

LanguageLike = Union[str, "os.PathLike[str]", Language, Constraint]

__all__ = ["Constraint", "Error", "Gradients", "Labels", "Language", "LanguageLike", "LimitError", "Limits", "Membership",
           "Model", "Path", "Tagger", "Tagging", "__version__", "bigram_marginals", "compile", "entropy", "k_best",
           "language_mass", "log_z", "marginals", "nll", "posterior_decode", "sample", "train", "viterbi"]


def compile(language: LanguageLike, labels: Union[Labels, Sequence[str], None] = None,
            limits: Optional[Limits] = None) -> Constraint:
    """The cheapest unambiguous automaton for a language: a pattern, a path to a file, a `Language` or a `Constraint`.

    `labels` fixes the labels and their order. Without it they are the language's own.

    >>> compile("A B*", labels=["A", "B", "C"]).accepts([0, 1]).accepted
    True
    """
    if labels is not None and not isinstance(labels, Labels):
        labels = Labels(list(labels))
    if isinstance(language, Constraint):
        if labels is None or labels == language.labels:
            return language
        language = language.language()
    if isinstance(language, os.PathLike):
        language = Language.load(os.fspath(language), labels, limits=limits or Limits())
    elif isinstance(language, str):
        if os.path.splitext(language)[1] and os.path.isfile(language):  # as a pattern it would be two labels with any between them
            raise Error(f"a str is a pattern, and {language!r} names a file: to read it, give pathlib.Path({language!r})")
        language = Language(language, labels)
    elif labels is not None and labels != language.labels:
        language = language.with_labels(labels)
    return compile_language(language, limits or Limits())
