"""Training and tagging with features, without PyTorch. This is what `regccrf train` and `regccrf tag` do.

A sentence is a list of positions. If the model has attributes, a position is a dict or a list of strings, as in
python-crfsuite: {"w": "Bank", "capital": True, "near": ["the", "of"]} has the attributes w:Bank, capital (with value 1),
near:the and near:of. If the model has word features or a template, a position is a word or a list of columns. If a
sentence is a str, its characters are the positions; text.split() gives words.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _core
from ._core import Constraint, Extractor, Labels, Language, Limits, Model, compile_language, fit_constraint
from ._words import assign

Position = Union[str, Sequence[str], Dict[str, Any]]
Sentence = Sequence[Position]
Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


class Tagging(NamedTuple):
    """A label sequence and its probability."""

    labels: List[str]
    probability: float


def _over(constraint: Any, labels: Sequence[str]) -> Constraint:
    """The language over its own labels and `labels`, as `regccrf train` takes it."""
    if isinstance(constraint, os.PathLike):
        constraint = Language.load(os.fspath(constraint))
    elif isinstance(constraint, str):
        # A pattern whose `.` is any label must know them all.
        own = list(Language(constraint).labels)
        names = own + [name for name in labels if name not in own]
        return compile_language(Language(constraint, Labels(names)), Limits())
    elif isinstance(constraint, Constraint) and constraint.rules:
        own = list(constraint.labels)
        return fit_constraint(constraint, Labels(own + [name for name in labels if name not in own]))
    elif isinstance(constraint, Constraint):
        constraint = constraint.language()
    if not isinstance(constraint, Language):
        raise TypeError(f"constraint is {constraint!r}, expected a pattern (a str), a path object, a Language or a Constraint")
    own = list(constraint.labels)
    names = own + [name for name in labels if name not in own]
    return compile_language(constraint.with_labels(Labels(names)), Limits())


class Tagger:
    """Labels sentences with a model: an object, or the path of its file.

    `constraint` is used instead of the model's own: a pattern, a path object, a `Language` or a `Constraint`. If it has
    labels that the model does not have, sequences with these labels are left out, with a warning.
    `unconstrained=True` uses no constraint. If a sentence has no legal sequence, that is an Error. With
    `no_sequence="free"` it is labelled without the constraint, with `"empty"` the answer is None.

    >>> X, y = [["Ann", "Lee", "sings"]], [["B", "I", "O"]]
    >>> tagger = regccrf.Tagger(regccrf.train(X, y, constraint="(O | B I*)*", features="words"))
    >>> tagger.tag(["Ann", "Lee", "sings"])
    ['B', 'I', 'O']
    """

    def __init__(
        self,
        model: Union[Model, str, os.PathLike[str]],
        constraint: Any = None,
        *,
        unconstrained: bool = False,
        no_sequence: str = "error",
        embeddings: str = "",
        threads: int = 0,
    ) -> None:
        if no_sequence not in ("error", "free", "empty"):
            raise ValueError(f"no_sequence is {no_sequence!r}; it may be 'error', 'free' or 'empty'")
        if not isinstance(model, Model):
            model = Model.load(os.fspath(model))
        if unconstrained and constraint is not None:
            raise ValueError("a constraint is given, and unconstrained=True")
        if unconstrained:
            model = model.with_constraint(None, "none")
        elif constraint is not None:
            model = model.with_constraint(_over(constraint, list(model.labels)))
        self._model = model
        self._settings: Dict[str, Any] = {"no_sequence": no_sequence, "embeddings": os.fspath(embeddings), "threads": threads}
        self._extractor = Extractor.from_text(model.extractor, os.fspath(embeddings))
        self._decoders: Dict[Any, _core.Tagger] = {}

    def __reduce__(self) -> Tuple[Any, ...]:
        return _rebuild, (self._model, self._settings)

    def _decoder(self, **wanted: Any) -> _core.Tagger:
        key = tuple(sorted(wanted.items()))
        if key not in self._decoders:
            self._decoders[key] = _core.Tagger(
                self._model,
                self._extractor,
                no_sequence=self._settings["no_sequence"],
                threads=self._settings["threads"],
                **wanted,
            )
        return self._decoders[key]

    @property
    def model(self) -> Model:
        return self._model

    @property
    def labels(self) -> Labels:
        return self._model.labels

    def tag(self, sentence: Sentence) -> Optional[List[str]]:
        """The best legal sequence of labels."""
        return self._tag_all([self._one(sentence)])[0]

    def _one(self, sentence: Sentence) -> Sentence:
        """Rows of one sentence have as many columns each; where they have not, these are sentences."""
        _warn_of_text(sentence, stacklevel=4)
        if not self._extractor.takes_attributes and isinstance(sentence, (list, tuple)):
            columns = {len(row) if isinstance(row, (list, tuple)) else 1 for row in sentence}
            if len(columns) > 1:
                raise ValueError(f"this is one sentence whose rows have {min(columns)} to {max(columns)} columns; several sentences are for "
                                 "tag_all and marginals_all")
        return sentence

    def tag_all(self, sentences: Iterable[Sentence]) -> List[Optional[List[str]]]:
        """The same for many sentences, at once."""
        _warn_of_texts(sentences)
        return self._tag_all(sentences)

    def _tag_all(self, sentences: Iterable[Sentence]) -> List[Optional[List[str]]]:
        names = list(self.labels)
        return [
            [names[a] for a in result.paths[0][0]] if result.paths else None
            for result in self._decoder().tag(sentences)
        ]

    def k_best(self, sentence: Sentence, k: int) -> List[Tagging]:
        """The k best legal sequences with their probabilities, best first."""
        result = self._decoder(k_best=k, scores=True).tag([self._one(sentence)])[0]
        return [Tagging(self.labels.names(ids), _exp(score)) for ids, score in result.paths]

    def marginals(self, sentence: Sentence) -> List[Dict[str, float]]:
        """The probability of every label at every position, under the constraint."""
        return self._marginals_all([self._one(sentence)])[0]

    def marginals_all(self, sentences: Iterable[Sentence]) -> List[List[Dict[str, float]]]:
        """The same for many sentences, at once."""
        _warn_of_texts(sentences)
        return self._marginals_all(sentences)

    def _marginals_all(self, sentences: Iterable[Sentence]) -> List[List[Dict[str, float]]]:
        names = list(self.labels)
        results = self._decoder(all_marginals=True).tag(sentences)
        return [
            [dict(zip(names, numbers[t : t + len(names)])) for t in range(0, len(numbers), len(names))]
            for numbers in (result.all_marginals for result in results)
        ]

    def language_mass(self, sentence: Sentence) -> float:
        """The probability of all legal sequences together, in the model without its constraint."""
        return self._decoder(language_mass=True).tag([self._one(sentence)])[0].language_mass


def _warn_of_text(sentence: Any, stacklevel: int) -> None:
    """A text with blanks is hardly meant as a sequence of characters."""
    if isinstance(sentence, str) and " " in sentence:
        warnings.warn(
            "the sentence is a str, which is a sequence of characters: text.split() makes words of it; if characters are meant, "
            "list(text) says so",
            stacklevel=stacklevel,
        )


def _warn_of_texts(sentences: Iterable[Sentence]) -> None:
    if isinstance(sentences, (list, tuple)) and sentences:
        _warn_of_text(sentences[0], stacklevel=4)


def _rebuild(model: Model, settings: Dict[str, Any]) -> Tagger:
    return Tagger(model, **settings)


def _exp(log: float) -> float:
    import math

    return math.exp(log)


def _extractor(features: str, **words: Any) -> Extractor:
    if features == "attributes":
        return Extractor.attributes()
    if features == "words":
        return Extractor.words(**words)
    if "%x[" in features:
        return Extractor.from_template(features)
    raise ValueError(f"features is {features!r}; it may be 'attributes', 'words', or a template's text (U00:%x[0,0] …)")


def _paths(X: Any, y: Any) -> Optional[List[str]]:
    """X as paths of files, which it is where it has no labels and is made of strings."""
    if y is not None:
        return None
    if isinstance(X, (str, os.PathLike)):
        return [os.fspath(X)]
    if isinstance(X, (list, tuple)) and X and all(isinstance(x, (str, os.PathLike)) for x in X):
        return [os.fspath(x) for x in X]
    return None


def _fill(data: _core.Data, X: Any, y: Any, format: str) -> _core.Data:
    paths = _paths(X, y)
    if paths is not None:
        for path in paths:
            data.read(path, format)
        return data
    if y is None:
        raise ValueError("y, the labels of every sequence, is missing")
    X, y = list(X), list(y)
    if len(X) != len(y):
        raise ValueError(f"X has {len(X)} sequences and y has {len(y)}")
    for i, (sentence, labels) in enumerate(zip(X, y)):
        if isinstance(labels, str) and len(labels.split()) > 1:
            raise ValueError(f"sequence {i}: the labels are the str {labels!r:.60}, expected a list of names: labels.split() makes one")
        try:
            data.add(sentence, labels)
        except (TypeError, ValueError) as error:
            raise type(error)(f"sequence {i}: {error}") from None
    return data


def train(
    X: Any,
    y: Optional[Sequence[Sequence[str]]] = None,
    *,
    X_dev: Any = None,
    y_dev: Optional[Sequence[Sequence[str]]] = None,
    constraint: Any = None,
    constrain: Optional[str] = None,
    outside: str = "error",
    unknown: str = "",
    features: Optional[str] = None,
    lists: Optional[Dict[str, str]] = None,
    embeddings: str = "",
    columns: Sequence[int] = (),
    word_column: int = 0,
    label_column: int = -1,
    format: str = "auto",
    continue_from: Union[None, Model, str, os.PathLike[str]] = None,
    progress: Optional[Callable[[Dict[str, Any]], Optional[bool]]] = None,
    **options: Any,
) -> Model:
    """Fits a model by penalised maximum likelihood, under a constraint or without.

    Args:
        X: sequences, or the path of a file or of several, as `regccrf train` reads them.
        y: the labels of the sequences; None if X is files.
        X_dev: a development set, like X. The model that is best on it is kept.
        y_dev: the labels of the development set.
        constraint: a pattern, a path object, a `Language` or a `Constraint`.
        constrain: where it is used: "train" (the default with a constraint), "decode" or "none".
        outside: what to do with training sequences that are not in the language: "error", "skip" or "repair".
        unknown: a label of this name is not known; the loss sums over all labels that are possible there.
        features: "attributes" (positions are dicts or lists of strings), "words" (positions are words or lists of
            columns), or the text of a CRF++ template. The default depends on X.
        lists: {name: path} of lists of words, as features.
        embeddings: the path of word vectors, as features.
        columns: further columns to use as features, counted from 0.
        word_column: the column of the words, counted from 0.
        label_column: the column of the labels in files; -1 is the last.
        format: of files: "auto", "columns" or "crfsuite".
        continue_from: a model, or the path of its file. Weights that it has start at its values, others at 0.
        progress: a function that is called with a dict after every iteration. Training stops if it returns False.
        options: optimizer, l1, l2, min_count, all_features, all_transitions, max_iterations, tolerance, max_gap, period,
            patience, rate, batch, average, seed, threads, checkpoint, every, resume, as in the command line; and
            min_frequency, memories, epsilon, line_search ("more_thuente", "backtracking" or "strong_backtracking") and
            line_search_trials, as in regccrf/trainer.h.

    Other threads can run meanwhile. Ctrl-C stops it with KeyboardInterrupt.

    >>> model = regccrf.train([[{"w": "a"}, {"w": "b"}]], [["B", "I"]], constraint="(O | B I*)*", l2=0.1)
    >>> model.constrain
    'train'
    """
    model, _ = _train(
        X,
        y,
        X_dev=X_dev,
        y_dev=y_dev,
        constraint=constraint,
        constrain=constrain,
        outside=outside,
        unknown=unknown,
        features=features,
        lists=lists,
        embeddings=embeddings,
        columns=columns,
        word_column=word_column,
        label_column=label_column,
        format=format,
        continue_from=continue_from,
        progress=progress,
        **options,
    )
    return model


def _warn_of_unused_labels(constraint: Constraint, of_data: Sequence[str]) -> None:
    """For labels that the pattern names and neither the language nor the data has: a rule about them forbids nothing."""
    import difflib

    used = dict(zip(constraint.labels, _core.labels_in_use(constraint)))
    for name in (name for name, is_used in used.items() if not is_used and name not in of_data):
        near = difflib.get_close_matches(name, [known for known in used if used[known]], 1)
        warnings.warn(f"no sequence of the language has the label {name}" + (f": did you mean {near[0]}?" if near else ""), stacklevel=4)


def _guess_features(X: Any, y: Any, format: str) -> str:
    paths = _paths(X, y)
    if paths is not None:
        format = _core.detect_format(paths[0]) if format == "auto" else format
        return "attributes" if format == "crfsuite" else "words"
    for sentence in X:
        for position in sentence:
            return "words" if isinstance(position, str) else "attributes"
    return "attributes"


def _no_option(name: str, settings: _core.TrainOptions) -> str:
    """The message for an option that there is not; CRFsuite's names are known."""
    import difflib
    import inspect

    known = [one for one in dir(settings) if not one.startswith("_")]
    known += [one for one in inspect.signature(train).parameters if one != "options"]
    elsewhere = {"c1": "l1", "c2": "l2", "algorithm": "optimizer", "verbose": "progress"}
    near = [elsewhere[name]] if name in elsewhere else difflib.get_close_matches(name, known, 1)
    return f"train() has no option {name!r}" + (f": did you mean {near[0]!r}?" if near else "; help(regccrf.train) lists them")


def _train(
    X: Any,
    y: Any,
    *,
    X_dev: Any,
    y_dev: Any,
    constraint: Any,
    constrain: Optional[str],
    outside: str,
    unknown: str,
    features: Optional[str],
    lists: Optional[Dict[str, str]],
    embeddings: str,
    columns: Sequence[int],
    word_column: int,
    label_column: int,
    format: str,
    continue_from: Any,
    progress: Any,
    **options: Any,
) -> Tuple[Model, Dict[str, Any]]:
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is {progress!r}, expected a function that takes a dict, such as print")
    settings = _core.TrainOptions()
    for name, value in options.items():
        if not hasattr(settings, name):
            raise TypeError(_no_option(name, settings))
        assign(settings, name, os.fspath(value) if name == "checkpoint" else value)
    if not isinstance(X, (str, os.PathLike, list, tuple)):
        X = list(X)
    extractor = _extractor(
        features or _guess_features(X, y, format),
        word=word_column,
        columns=list(columns),
        lists=list((lists or {}).items()),
        embeddings=os.fspath(embeddings),
    )
    data = _fill(_core.Data(extractor, unknown, label_column), X, y, format)
    development = None if X_dev is None else _fill(data.development(), X_dev, y_dev, format)
    if constrain is None:
        constrain = "none" if constraint is None else "train"
    compiled = None if constraint is None or constrain == "none" else _over(constraint, data.labels)
    if compiled is not None:
        _warn_of_unused_labels(compiled, data.labels)
    if continue_from is not None and not isinstance(continue_from, Model):
        continue_from = Model.load(os.fspath(continue_from))
    return _core.train_model(data, development, compiled, constrain, outside, continue_from, settings, progress)
