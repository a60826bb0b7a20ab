"""An estimator with the interface of sklearn-crfsuite, plus `constraint=`. In a script only the import changes.

>>> from regccrf.sklearn import CRF
>>> X = [[{"w": "Ann"}, {"w": "Lee"}, {"w": "sings"}]]
>>> crf = CRF(c2=0.1, constraint="(O | B I*)*").fit(X, [["B", "I", "O"]])
>>> crf.predict(X)
[['B', 'I', 'O']]

It works with scikit-learn's clone, cross_val_score and searches. scikit-learn itself is not needed.

Keywords of sklearn-crfsuite have the same meaning here, or fit() refuses them with the reason. As in scikit-learn,
arguments are checked in fit(), and not before.
"""

from __future__ import annotations

import inspect
import os
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy

from ._core import Model
from .tagger import Sentence, Tagger, _train

# What CRFsuite's keywords are called in `regccrf.train`.
_OPTIONS = {
    "min_freq": "min_frequency",
    "all_possible_states": "all_features",
    "all_possible_transitions": "all_transitions",
    "c1": "l1",
    "c2": "l2",
    "max_iterations": "max_iterations",
    "period": "period",
    "delta": "tolerance",
}
_LBFGS_OPTIONS = {
    "num_memories": "memories",
    "epsilon": "epsilon",
    "linesearch": "line_search",
    "max_linesearch": "line_search_trials",
}
_LINE_SEARCHES = {
    "MoreThuente": "more_thuente",
    "Backtracking": "backtracking",
    "StrongBacktracking": "strong_backtracking",
}
_NOT_HERE = {
    "l2sgd": "stochastic gradient descent with a calibrated rate",
    "ap": "the averaged perceptron",
    "pa": "passive aggressive updates",
    "arow": "adaptive regularisation of weights",
}
_L2SGD = "it calibrates l2sgd, which is not here"
_PA = "it belongs to passive aggressive updates (pa), which are not here"
_AROW = "it belongs to arow, which is not here"
_REFUSED = {
    "calibration_eta": _L2SGD,
    "calibration_rate": _L2SGD,
    "calibration_samples": _L2SGD,
    "calibration_candidates": _L2SGD,
    "calibration_max_trials": _L2SGD,
    "pa_type": _PA,
    "c": _PA,
    "error_sensitive": _PA,
    "averaging": _PA,
    "variance": _AROW,
    "gamma": _AROW,
    "keep_tempfiles": "there are no temporary files; model_filename=… saves the model",
    "trainer_cls": "python-crfsuite's trainers do not train these models; training_log_ tells of every iteration",
}


class NotFittedError(ValueError, AttributeError):
    """The CRF is not fitted yet. A ValueError and AttributeError, as scikit-learn's error of this name."""


class _Sequences(List[Any]):
    """A list that is an array of as many objects for NumPy, by which cross_val_predict joins folds."""

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        array = numpy.empty(len(self), dtype=object)
        for i, sequence in enumerate(self):  # at once, those of one length would become rows
            array[i] = sequence
        return array


class CRF:
    """A linear-chain CRF over attributes, trained and decoded under a constraint.

    Args:
        algorithm: "lbfgs" (the default), or "adagrad", which sklearn-crfsuite does not have.
        c1, c2: penalties.
        min_freq: weights that occur less often in the data are left out.
        all_possible_states, all_possible_transitions, max_iterations, num_memories, epsilon, period, delta, linesearch,
            max_linesearch: as in CRFsuite; None for its defaults.
        verbose: print a line for every iteration.
        model_filename: fit saves the model there as well. Before fit, the model is loaded from there.
        calibration_*, pa_type, c, error_sensitive, averaging, variance, gamma, keep_tempfiles, trainer_cls: refused by
            fit, with the reason.
        constraint: a pattern, a path object, a `Language` or a `Constraint`.
        constrain: "train", "decode" or "none".
        outside: training labels that are not in the language: "error", "skip" or "repair".
        no_sequence: sentences for which no sequence is legal: "error", "free" or "empty".
        unknown: a label of this name is not known.
        features, threads, seed, patience: as in `regccrf.train`.

    After fit: `model_` (a `Model`), `best_` (its iteration), `training_log_` (a list of all), `tagger_`, `classes_`,
    `attributes_`, `num_attributes_`, `state_features_`, `transition_features_`, `size_`.
    """

    _tagger: Optional[Tagger] = None

    def __init__(
        self,
        algorithm: Optional[str] = None,
        min_freq: Optional[float] = None,
        all_possible_states: Optional[bool] = None,
        all_possible_transitions: Optional[bool] = None,
        c1: Optional[float] = None,
        c2: Optional[float] = None,
        max_iterations: Optional[int] = None,
        num_memories: Optional[int] = None,
        epsilon: Optional[float] = None,
        period: Optional[int] = None,
        delta: Optional[float] = None,
        linesearch: Optional[str] = None,
        max_linesearch: Optional[int] = None,
        calibration_eta: Optional[float] = None,
        calibration_rate: Optional[float] = None,
        calibration_samples: Optional[int] = None,
        calibration_candidates: Optional[int] = None,
        calibration_max_trials: Optional[int] = None,
        pa_type: Optional[int] = None,
        c: Optional[float] = None,
        error_sensitive: Optional[bool] = None,
        averaging: Optional[bool] = None,
        variance: Optional[float] = None,
        gamma: Optional[float] = None,
        verbose: bool = False,
        model_filename: Union[str, os.PathLike[str], None] = None,
        keep_tempfiles: bool = False,
        trainer_cls: Any = None,
        *,
        constraint: Any = None,
        constrain: Optional[str] = None,
        outside: str = "error",
        no_sequence: str = "error",
        unknown: str = "",
        features: Optional[str] = None,
        threads: int = 0,
        seed: int = 1,
        patience: int = 0,
    ) -> None:
        self.algorithm = algorithm
        self.min_freq = min_freq
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.c1 = c1
        self.c2 = c2
        self.max_iterations = max_iterations
        self.num_memories = num_memories
        self.epsilon = epsilon
        self.period = period
        self.delta = delta
        self.linesearch = linesearch
        self.max_linesearch = max_linesearch
        self.calibration_eta = calibration_eta
        self.calibration_rate = calibration_rate
        self.calibration_samples = calibration_samples
        self.calibration_candidates = calibration_candidates
        self.calibration_max_trials = calibration_max_trials
        self.pa_type = pa_type
        self.c = c
        self.error_sensitive = error_sensitive
        self.averaging = averaging
        self.variance = variance
        self.gamma = gamma
        self.verbose = verbose
        self.model_filename = model_filename
        self.keep_tempfiles = keep_tempfiles
        self.trainer_cls = trainer_cls
        self.constraint = constraint
        self.constrain = constrain
        self.outside = outside
        self.no_sequence = no_sequence
        self.unknown = unknown
        self.features = features
        self.threads = threads
        self.seed = seed
        self.patience = patience

    def fit(
        self,
        X: Sequence[Sentence],
        y: Sequence[Sequence[str]],
        X_dev: Optional[Sequence[Sentence]] = None,
        y_dev: Optional[Sequence[Sequence[str]]] = None,
    ) -> CRF:
        """X: sequences of attributes; y: their labels. With a development set, the model that is best on it is kept."""
        if (X_dev is None) != (y_dev is None):
            raise ValueError("a development set is both X_dev and y_dev, and one of them is missing")
        log: List[Dict[str, Any]] = []
        self.model_, self.best_ = _train(
            X,
            y,
            X_dev=X_dev,
            y_dev=y_dev,
            constraint=self.constraint,
            constrain=self.constrain,
            outside=self.outside,
            unknown=self.unknown,
            features=self.features,
            lists=None,
            embeddings="",
            columns=(),
            word_column=0,
            label_column=-1,
            format="auto",
            continue_from=None,
            progress=lambda now: self._note(log, now),
            **self._options(),
        )
        self.training_log_ = log
        self._tagger = None
        if self.model_filename is not None:
            self.model_.save(os.fspath(self.model_filename))
        return self

    def _options(self) -> Dict[str, Any]:
        """What was asked for in CRFsuite's words, in ours. ValueError for what is not here."""
        for name, reason in _REFUSED.items():
            value = getattr(self, name)
            if value is not None and (name, value) != ("keep_tempfiles", False):
                raise ValueError(f"{name} is {value!r}, and {reason}; leave it out")
        options = {ours: getattr(self, name) for name, ours in {**_OPTIONS, **self._optimizer_options()}.items()}
        options = {name: value for name, value in options.items() if value is not None}
        if "line_search" in options:
            options["line_search"] = self._line_search()
        return {
            **options,
            "optimizer": self.algorithm or "lbfgs",
            "threads": self.threads,
            "seed": self.seed,
            "patience": self.patience,
        }

    def _optimizer_options(self) -> Dict[str, str]:
        if self.algorithm in (None, "lbfgs"):
            return _LBFGS_OPTIONS
        if self.algorithm in _NOT_HERE:
            raise ValueError(
                f"algorithm is {self.algorithm!r}, {_NOT_HERE[self.algorithm]}, which is not here; there is 'lbfgs', and "
                "'adagrad', the nearest, which takes a step after every few sequences too"
            )
        if self.algorithm != "adagrad":
            raise ValueError(f"algorithm is {self.algorithm!r}; it may be 'lbfgs' or 'adagrad'")
        for name in _LBFGS_OPTIONS:
            if getattr(self, name) is not None:
                raise ValueError(f"{name} is {getattr(self, name)!r}, and it belongs to lbfgs, not to adagrad; leave it out")
        return {}

    def _line_search(self) -> str:
        if self.linesearch not in _LINE_SEARCHES:
            raise ValueError(f"linesearch is {self.linesearch!r}; it may be one of {', '.join(_LINE_SEARCHES)}")
        return _LINE_SEARCHES[self.linesearch]

    def _note(self, log: List[Dict[str, Any]], now: Dict[str, Any]) -> None:
        log.append(now)
        if self.verbose:
            development = "" if now["development"] is None else f"  development {now['development']:.4f}"
            print(
                f"iteration {now['iteration']}  objective {now['objective']:.6f}  "
                f"gradient {now['gradient_norm']:.4g}{development}"
            )

    def _fitted(self) -> Model:
        """The model that fit left, or the one in model_filename."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this CRF is not fitted yet; call fit(X, y) first")
        if getattr(self, "model_", None) is None:
            self.model_ = _load(self.model_filename)
        return self.model_

    @property
    def tagger_(self) -> Tagger:
        if self._tagger is None:
            self._tagger = Tagger(self._fitted(), no_sequence=self.no_sequence, threads=self.threads)
        return self._tagger

    @property
    def classes_(self) -> List[str]:
        return list(self._fitted().labels)

    @property
    def attributes_(self) -> List[str]:
        """The attributes that have weights."""
        return list(dict.fromkeys(name for name, _ in self._fitted().features()))

    @property
    def num_attributes_(self) -> int:
        return self._fitted().attributes

    @property
    def state_features_(self) -> Dict[Any, float]:
        """{(attribute, label): weight}"""
        return self._fitted().features()

    @property
    def transition_features_(self) -> Dict[Any, float]:
        """{(from, to): weight}"""
        return self._fitted().transitions()

    @property
    def size_(self) -> int:
        """The size of the model's file in bytes."""
        return len(self._fitted().to_bytes())

    @property
    def modelfile(self) -> Any:
        raise AttributeError(
            "there is no CRFsuite file behind this CRF; model_filename=… or model_.save(path) writes the model, and "
            "pickle takes the estimator"
        )

    def predict(self, X: Sequence[Sentence]) -> List[Optional[List[str]]]:
        return _Sequences(self.tagger_.tag_all(X))

    def predict_single(self, xseq: Sentence) -> Optional[List[str]]:
        return self.tagger_.tag(xseq)

    def predict_marginals(self, X: Sequence[Sentence]) -> List[List[Dict[str, float]]]:
        return self.tagger_.marginals_all(X)

    def predict_marginals_single(self, xseq: Sentence) -> List[Dict[str, float]]:
        return self.tagger_.marginals(xseq)

    def score(self, X: Sequence[Sentence], y: Sequence[Sequence[str]]) -> float:
        """Accuracy over positions. Positions whose correct label is unknown do not count."""
        right = total = 0
        for gold, predicted in zip(y, self.predict(X)):
            for t, label in enumerate(gold):
                if self.unknown and label == self.unknown:
                    continue
                total += 1
                right += predicted is not None and predicted[t] == label
        return right / total if total else 0.0

    # What scikit-learn asks of an estimator.
    def get_params(self, deep: bool = True) -> Dict[str, Any]:
        return {
            name: getattr(self, name) for name in inspect.signature(type(self).__init__).parameters if name != "self"
        }

    def set_params(self, **parameters: Any) -> CRF:
        known = self.get_params()
        for name, value in parameters.items():
            if name not in known:
                raise ValueError(f"there is no parameter {name!r}; there are {', '.join(known)}")
            setattr(self, name, value)
        self._tagger = None  # no_sequence and threads are its settings
        return self

    def __sklearn_is_fitted__(self) -> bool:
        if getattr(self, "model_", None) is not None:
            return True
        return self.model_filename is not None and os.path.exists(self.model_filename)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True),
            transformer_tags=None,
            classifier_tags=None,
            regressor_tags=None,
        )

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_tagger": None}

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in inspect.signature(type(self).__init__).parameters.items()}
        given = [f"{name}={value!r}" for name, value in self.get_params().items() if value != defaults[name]]
        return f"CRF({', '.join(given)})"


def _load(path: Any) -> Model:
    path = os.fspath(path)
    with open(path, "rb") as file:
        if file.read(4) == b"lCRF":
            raise ValueError(
                f"model_filename is {path!r}, a model of CRFsuite's; write it as text by pycrfsuite.Tagger's dump(), and "
                "regccrf.Model.import_crfsuite(text).save(path) makes a model for here of it"
            )
    return Model.load(path)


__all__ = ["CRF", "Model", "NotFittedError"]
