"""Linear-chain CRFs that give probability only to the sequences of a regular language.

A `Language` is a set of legal label sequences. `compile` makes a `Constraint` of it, which inference uses:

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

from . import _core, _words
from ._core import Constraint, Error, Labels, Language, LimitError, Limits, Membership, Model, __version__, compile_language
from .inference import (
    Gradients,
    Path,
    Span,
    bigram_marginals,
    entropy,
    k_best,
    language_mass,
    log_z,
    marginals,
    nll,
    posterior_decode,
    sample,
    span_marginals,
    viterbi,
)
from .tagger import Tagger, Tagging, train

LanguageLike = Union[str, "os.PathLike[str]", Language, Constraint]

__all__ = ["Constraint", "Error", "Gradients", "Labels", "Language", "LanguageLike", "LimitError", "Limits", "Membership",
           "Model", "Path", "Span", "Tagger", "Tagging", "__version__", "bigram_marginals", "compile", "entropy", "k_best",
           "language_mass", "log_z", "marginals", "nll", "posterior_decode", "sample", "span_marginals", "train", "viterbi"]

_words.in_words((Constraint, Labels, Language, Limits, Model, _core.Settings), _core, ("k_best", "sample"))


def compile(language: LanguageLike, labels: Union[Labels, Sequence[str], None] = None,
            limits: Optional[Limits] = None, rules: str = "auto") -> Constraint:
    """The cheapest unambiguous automaton for a language: a pattern, a path to a file, a `Language` or a `Constraint`.

    `labels` gives the labels and their order. By default they are those of the language. `rules` is about rules that are
    joined by `&`: "none" makes one automaton for all of them, "all" keeps them apart, and "auto" keeps them apart only if one
    automaton would take more than `limits.products` multiplications a position.

    >>> compile("A B*", labels=["A", "B", "C"]).accepts([0, 1]).accepted
    True
    """
    if labels is not None and not isinstance(labels, Labels):
        labels = Labels(labels if isinstance(labels, str) else list(labels))  # a str is no list of names, and refused there
    if limits is not None and not isinstance(limits, Limits):
        raise TypeError(f"limits is a {type(limits).__name__}, expected a Limits")
    if rules not in ("auto", "all", "none"):
        raise ValueError(f"rules is {rules!r}, expected 'auto', 'all' or 'none'")
    if isinstance(language, Constraint):
        if labels is None or labels == language.labels:
            return language
        language = language.language()
    if isinstance(language, os.PathLike):
        language = Language.load(language, labels, limits=limits or Limits())
    elif isinstance(language, str):
        language = Language(language, labels)
    elif not isinstance(language, Language):
        raise TypeError(f"the language is a {type(language).__name__}, expected a pattern, a pathlib.Path, a Language or a Constraint")
    elif labels is not None and labels != language.labels:
        language = language.with_labels(labels)
    return compile_language(language, limits or Limits(), rules)
