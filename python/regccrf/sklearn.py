"""An estimator with sklearn-crfsuite's interface, plus `constraint=`: replacing the import is all that is needed.

>>> from regccrf.sklearn import CRF
>>> X = [[{"w": "Ann"}, {"w": "Lee"}, {"w": "sings"}]]
>>> crf = CRF(c2=0.1, constraint="(O | B I*)*").fit(X, [["B", "I", "O"]])
>>> crf.predict(X)
[['B', 'I', 'O']]

scikit-learn's clone, cross_val_score and searches take it; scikit-learn itself is not needed.
"""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Optional, Sequence

from ._core import Model
from .tagger import Sentence, Tagger, _train

_ALGORITHMS = {"lbfgs": "lbfgs", "l2sgd": "adagrad", "adagrad": "adagrad"}


class CRF:
    """A linear-chain CRF over attributes, trained and decoded under a constraint.

    algorithm: "lbfgs", or "l2sgd" (AdaGrad here). c1, c2: penalties as in CRFsuite. min_freq: attributes seen less
    often are left out. all_possible_states, all_possible_transitions, max_iterations, period, delta: as in
    CRFsuite. verbose: print a line for every iteration. model_filename: save the model there as well.
    constraint: a pattern, a path object, a `Language` or a `Constraint`; constrain: "train", "decode" or "none";
    outside: "error", "skip" or "repair"; no_sequence: "error", "free" or "empty"; unknown: gold labels spelled so
    are not known; features, threads, seed, patience: as in `regccrf.train`.

    After fit: `model_` (a `Model`), `tagger_`, `classes_`, `state_features_`, `transition_features_`, `training_log_`.
    """

    def __init__(
        self,
        algorithm: str = "lbfgs",
        *,
        c1: float = 0.0,
        c2: float = 1.0,
        min_freq: int = 0,
        all_possible_states: bool = False,
        all_possible_transitions: bool = False,
        max_iterations: Optional[int] = None,
        period: int = 10,
        delta: float = 1e-5,
        verbose: bool = False,
        model_filename: Optional[str] = None,
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
        self.c1 = c1
        self.c2 = c2
        self.min_freq = min_freq
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.max_iterations = max_iterations
        self.period = period
        self.delta = delta
        self.verbose = verbose
        self.model_filename = model_filename
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
    ) -> "CRF":
        """X: sequences of attributes; y: their labels. With a development set the best model on it is kept."""
        if self.algorithm not in _ALGORITHMS:
            raise ValueError(f"algorithm is {self.algorithm!r}; it may be one of {', '.join(_ALGORITHMS)}")
        log: List[Dict[str, Any]] = []
        model, best = _train(
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
            progress=lambda now: self._note(log, now),
            optimizer=_ALGORITHMS[self.algorithm],
            l1=self.c1,
            l2=self.c2,
            min_count=max(1, self.min_freq),
            all_features=self.all_possible_states,
            all_transitions=self.all_possible_transitions,
            max_iterations=self.max_iterations or 0,
            period=self.period,
            tolerance=self.delta,
            threads=self.threads,
            seed=self.seed,
            patience=self.patience,
        )
        self.model_ = model
        self.best_ = best
        self.training_log_ = log
        self._tagger: Optional[Tagger] = None
        if self.model_filename is not None:
            model.save(self.model_filename)
        return self

    def _note(self, log: List[Dict[str, Any]], now: Dict[str, Any]) -> None:
        log.append(now)
        if self.verbose:
            development = "" if now["development"] is None else f"  development {now['development']:.4f}"
            print(
                f"iteration {now['iteration']}  objective {now['objective']:.6f}  "
                f"gradient {now['gradient_norm']:.4g}{development}"
            )

    @property
    def tagger_(self) -> Tagger:
        self._check_fitted()
        if self._tagger is None:
            self._tagger = Tagger(self.model_, no_sequence=self.no_sequence, threads=self.threads)
        return self._tagger

    def _check_fitted(self) -> None:
        if getattr(self, "model_", None) is None:
            raise ValueError("this CRF is not fitted yet; call fit(X, y) first")

    @property
    def classes_(self) -> List[str]:
        self._check_fitted()
        return list(self.model_.labels)

    @property
    def state_features_(self) -> Dict[Any, float]:
        self._check_fitted()
        return self.model_.features()

    @property
    def transition_features_(self) -> Dict[Any, float]:
        self._check_fitted()
        return self.model_.transitions()

    def predict(self, X: Sequence[Sentence]) -> List[Optional[List[str]]]:
        return self.tagger_.tag_all(X)

    def predict_single(self, xseq: Sentence) -> Optional[List[str]]:
        return self.tagger_.tag(xseq)

    def predict_marginals(self, X: Sequence[Sentence]) -> List[List[Dict[str, float]]]:
        return self.tagger_.marginals_all(X)

    def predict_marginals_single(self, xseq: Sentence) -> List[Dict[str, float]]:
        return self.tagger_.marginals(xseq)

    def score(self, X: Sequence[Sentence], y: Sequence[Sequence[str]]) -> float:
        """Accuracy over positions; those of unknown gold do not count."""
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

    def set_params(self, **parameters: Any) -> "CRF":
        known = self.get_params()
        for name, value in parameters.items():
            if name not in known:
                raise ValueError(f"there is no parameter {name!r}; there are {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "model_", None) is not None

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


__all__ = ["CRF", "Model"]
