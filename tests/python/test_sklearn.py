"""The estimator in the place of sklearn-crfsuite's: its keywords, its answers, and what scikit-learn does with it."""

import copy
import inspect
import pathlib
import pickle
import random

import pytest

import regccrf
from regccrf.sklearn import CRF, NotFittedError

BIO = "(O | B I*)*"
REFUSED = {
    "calibration_eta": 0.1,
    "calibration_rate": 2.0,
    "calibration_samples": 1000,
    "calibration_candidates": 10,
    "calibration_max_trials": 20,
    "pa_type": 0,
    "c": 1.0,
    "error_sensitive": True,
    "averaging": False,
    "variance": 1.0,
    "gamma": 1.0,
    "keep_tempfiles": True,
    "trainer_cls": object,
}


def corpus(many=30):
    sentences = [("Ann", "Lee", "sings"), ("he", "saw", "Ann"), ("Jo", "saw", "Ann", "Lee"), ("they", "sing")]
    labels = [("B", "I", "O"), ("O", "O", "B"), ("B", "O", "B", "I"), ("O", "O")]
    X = [[{"w": word, "capital": word[0].isupper()} for word in sentence] for sentence in sentences]
    return (X * many)[:many], ([list(y) for y in labels] * many)[:many]


def noisy(many=80, seed=1):
    """Labels that follow from words and neighbours more often than not, with values of all kinds."""
    rng = random.Random(seed)
    X, y = [], []
    for _ in range(many):
        gold = [rng.choice("ABC") for _ in range(rng.randint(1, 8))]
        words = [rng.choice("abc") if rng.random() < 0.3 else a.lower() + str(rng.randint(0, 9)) for a in gold]
        X.append([{"w": w, "long": round(rng.random(), 2), "near": words[t - 1 : t]} for t, w in enumerate(words)])
        y.append(gold)
    return X, y


def skip_without(name, package):
    return pytest.importorskip(name, reason=f"pip install {package} (make test-torch-latest does)")


@pytest.fixture
def crfsuite():
    return skip_without("sklearn_crfsuite", "sklearn-crfsuite")


@pytest.fixture
def model_selection():
    return skip_without("sklearn.model_selection", "scikit-learn")


@pytest.fixture
def clone():
    return skip_without("sklearn.base", "scikit-learn").clone


def test_fit_and_what_comes_of_it():
    X, y = corpus()
    crf = CRF(c2=0.1, constraint=BIO)
    assert crf.fit(X, y, X_dev=X[:4], y_dev=y[:4]) is crf
    assert crf.predict(X) == y and crf.predict_single(X[0]) == y[0]
    assert crf.score(X, y) == 1.0
    assert sorted(crf.classes_) == ["B", "I", "O"]
    assert crf.predict_marginals_single(X[0])[0]["B"] > 0.5
    assert len(crf.predict_marginals(X)) == len(X)
    assert ("B", "I") in crf.transition_features_ and ("w:Ann", "B") in crf.state_features_
    assert "w:Ann" in crf.attributes_ and len(crf.attributes_) == crf.num_attributes_
    assert crf.size_ == len(crf.model_.to_bytes())
    assert all(now["development"] is not None for now in crf.training_log_)
    with pytest.raises(ValueError, match="both X_dev and y_dev"):
        crf.fit(X, y, y_dev=y)


def test_before_fit_there_is_nothing():
    crf = CRF()
    with pytest.raises(ValueError, match="not fitted"):
        crf.predict([])
    for name in ["tagger_", "classes_", "attributes_", "num_attributes_", "state_features_", "transition_features_", "size_"]:
        assert not hasattr(crf, name)
        with pytest.raises(NotFittedError, match="call fit"):
            getattr(crf, name)
    with pytest.raises(AttributeError, match="no CRFsuite file"):
        crf.modelfile  # noqa: B018


def test_score_leaves_unknown_gold_out():
    X, y = corpus()
    crf = CRF(unknown="?").fit(X, y)
    assert crf.score(X[:1], [["?", "I", "B"]]) == 0.5


@pytest.mark.parametrize("name", REFUSED)
def test_keywords_without_a_meaning_here_are_refused(name):
    X, y = corpus(4)
    crf = CRF(**{name: REFUSED[name]})
    assert crf.get_params()[name] == REFUSED[name]
    with pytest.raises(ValueError, match=f"^{name} is .*, and .*; leave it out"):
        crf.fit(X, y)


@pytest.mark.parametrize("algorithm", ["l2sgd", "ap", "pa", "arow"])
def test_algorithms_that_are_not_here_are_refused(algorithm):
    X, y = corpus(4)
    with pytest.raises(ValueError, match=f"algorithm is '{algorithm}'.* not here; there is 'lbfgs', and 'adagrad'"):
        CRF(algorithm=algorithm).fit(X, y)


def test_keywords_are_checked():
    X, y = corpus(4)
    for options, complaint in [
        ({"algorithm": "sgd"}, "algorithm is 'sgd'; it may be"),
        ({"linesearch": "Wolfe"}, "linesearch is 'Wolfe'; it may be one of MoreThuente, "),
        ({"algorithm": "adagrad", "epsilon": 0.1}, "epsilon is 0.1, and it belongs to lbfgs"),
        ({"algorithm": "adagrad", "c1": 0.1}, "adagrad has no l1 penalty"),
        ({"num_memories": 0}, "memories"),
        ({"max_linesearch": 0}, "line_search_trials"),
        ({"min_freq": -1}, "min_frequency"),
        ({"period": 0}, "period is 0"),
    ]:
        with pytest.raises((ValueError, regccrf.Error), match=complaint):
            CRF(**options).fit(X, y)


def test_keywords_do_what_they_say():
    X, y = noisy()

    def fit(**options):
        return CRF(**options).fit(X, y)

    plain = fit()
    assert len(fit(max_iterations=3).training_log_) == 3
    assert len(fit(epsilon=0.5).training_log_) < len(plain.training_log_)
    assert len(fit(delta=0.1, period=1).training_log_) < len(plain.training_log_)
    assert len(fit(c1=5.0, c2=0).state_features_) < len(plain.state_features_)
    assert len(fit(all_possible_states=True).state_features_) == 3 * plain.num_attributes_
    assert fit(min_freq=5).num_attributes_ < plain.num_attributes_
    for options in [{"linesearch": "Backtracking"}, {"linesearch": "StrongBacktracking"}, {"num_memories": 3}]:
        other = fit(delta=0, **options)
        assert other.best_["objective"] == pytest.approx(fit(delta=0).best_["objective"], rel=1e-6)
        assert [now["objective"] for now in other.training_log_] != [now["objective"] for now in plain.training_log_]
    assert fit(algorithm="adagrad", max_iterations=20).score(X, y) > 0.8


def test_parameters(tmp_path):
    crf = CRF("lbfgs", 1, c2=0.1, constraint=BIO)
    assert (crf.algorithm, crf.min_freq, crf.c2) == ("lbfgs", 1, 0.1)
    assert CRF(**crf.get_params()).get_params() == crf.get_params()
    assert crf.set_params(c1=0.5).c1 == 0.5
    assert repr(CRF(c1=0.5)) == "CRF(c1=0.5)"
    with pytest.raises(ValueError, match="c3"):
        crf.set_params(c3=1)


def test_settings_of_decoding_may_change_after_fit():
    X, y = corpus()
    crf = CRF(constraint="B I+ O* | O+ B | B O B I | O O").fit(X, y)
    with pytest.raises(regccrf.Error):
        crf.predict([X[0][:1]])
    assert crf.set_params(no_sequence="empty").predict([X[0][:1]]) == [None]


def test_verbose_prints_iterations(capsys):
    X, y = corpus()
    CRF(verbose=True, max_iterations=2).fit(X, y)
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [["iteration", "1"], ["iteration", "2"]]


def test_pickles_before_and_after_fit():
    X, y = corpus()
    crf = CRF(c2=0.1, constraint=regccrf.Language(BIO))
    assert pickle.loads(pickle.dumps(crf)).fit(X, y).predict(X) == y
    crf.fit(X, y).predict(X)
    for again in [pickle.loads(pickle.dumps(crf)), copy.deepcopy(crf)]:
        assert again.predict(X) == y
        assert again.state_features_ == crf.state_features_ and again.training_log_ == crf.training_log_
        assert again.set_params(c2=1.0).fit(X, y).score(X, y) == 1.0
    assert crf.c2 == 0.1


def test_model_filename_is_written_and_read(tmp_path):
    X, y = corpus()
    path = tmp_path / "names.model"
    with pytest.raises(NotFittedError):
        CRF(model_filename=path).predict(X)
    CRF(c2=0.1, constraint=BIO, model_filename=str(path)).fit(X, y)
    assert CRF(model_filename=path).predict(X) == y
    assert regccrf.Tagger(path).tag_all(X) == y
    path.write_bytes(b"lCRF and more")
    with pytest.raises(ValueError, match="a model of CRFsuite's; write it as text"):
        CRF(model_filename=path).predict(X)


# --- in the place of sklearn-crfsuite ---------------------------------------------------------------------------------


def test_has_every_keyword_of_sklearn_crfsuite(crfsuite):
    theirs = inspect.signature(crfsuite.CRF.__init__).parameters
    ours = inspect.signature(CRF.__init__).parameters
    assert list(ours)[: len(theirs)] == list(theirs), "so that positions mean the same"
    assert [ours[name].default for name in theirs] == [p.default for p in theirs.values()]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"c1": 0.5, "c2": 0.01},
        {"all_possible_transitions": True, "all_possible_states": True},
        {"min_freq": 3},
        {"min_freq": 1.5, "all_possible_states": True},
        {"linesearch": "Backtracking", "num_memories": 3, "max_linesearch": 10},
        {"max_iterations": 4},
        {"period": 2, "delta": 0.05},
        {"epsilon": 0.1},
    ],
    ids=str,
)
def test_answers_as_sklearn_crfsuite_does(crfsuite, options):
    X, y = noisy()
    unseen = noisy(40, seed=2)[0]
    theirs = crfsuite.CRF(**options).fit(X, y)
    ours = CRF(**theirs.get_params()).fit(X, y)
    assert ours.predict(unseen) == [list(labels) for labels in theirs.predict(unseen)]
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y))
    assert sorted(ours.classes_) == sorted(theirs.classes_)
    # CRFsuite tells of weights with six digits.
    for mine, other in [
        (ours.state_features_, theirs.state_features_),
        (ours.transition_features_, theirs.transition_features_),
    ]:
        assert {key: mine.get(key, 0) for key in other} == pytest.approx(other, abs=2e-3)
        assert all(abs(mine[key]) < 2e-3 for key in mine if key not in other)
    for mine, other in zip(ours.predict_marginals(unseen), theirs.predict_marginals(unseen)):
        for p, q in zip(mine, other):
            assert p == pytest.approx(dict(q), abs=1e-3)


def test_a_model_of_crfsuite_is_refused_and_can_be_imported(crfsuite, tmp_path):
    pycrfsuite = skip_without("pycrfsuite", "python-crfsuite")
    X, y = noisy()
    path, text = str(tmp_path / "model"), str(tmp_path / "text")
    expected = [list(labels) for labels in crfsuite.CRF(model_filename=path).fit(X, y).predict(X)]
    with pytest.raises(ValueError, match="import_crfsuite"):
        CRF(model_filename=path).predict(X)
    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    tagger.dump(text)
    regccrf.Model.import_crfsuite(text).save(path)
    assert CRF(model_filename=path).predict(X) == expected


# --- under scikit-learn -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, regccrf.Language, regccrf.compile, pathlib.Path])
def test_clones(clone, kind, tmp_path):
    X, y = corpus()
    pattern = BIO
    if kind is pathlib.Path:
        pattern = tmp_path / "bio.lang"
        pattern.write_text(BIO + "\n")
    crf = CRF(c2=0.1, constraint=kind(pattern)).fit(X, y)
    fresh = clone(crf)
    assert not hasattr(fresh, "model_") and fresh.get_params() == crf.get_params()
    assert fresh.fit(X, y).predict(X) == y


def test_cross_validation_and_searches(model_selection):
    X, y = corpus()
    assert list(model_selection.cross_val_score(CRF(constraint=BIO), X, y, cv=3)) == [1.0] * 3
    grid = {"c2": [0.1, 1.0], "constraint": [None, BIO, regccrf.Language(BIO)]}
    search = model_selection.GridSearchCV(CRF(), grid, cv=2, error_score="raise").fit(X, y)
    assert search.best_score_ == 1.0 and search.predict(X) == y
    assert pickle.loads(pickle.dumps(search)).predict(X) == y
    with pytest.raises(ValueError, match="there is no parameter 'c3'"):
        model_selection.GridSearchCV(CRF(), {"c3": [1]}, cv=2, error_score="raise").fit(X, y)
    with pytest.raises(ValueError, match="'l2sgd'"):
        model_selection.GridSearchCV(CRF(), {"algorithm": ["l2sgd"]}, cv=2, error_score="raise").fit(X, y)


@pytest.mark.parametrize("short", [False, True])  # sequences of one length must not become a table
def test_cross_validated_predictions(model_selection, short):
    X, y = corpus()
    if short:
        X, y = [x[:2] for x in X], [labels[:2] for labels in y]
    answers = model_selection.cross_val_predict(CRF(c2=0.1), X, y, cv=3)
    assert answers.shape == (len(X),) and answers.tolist() == y


def test_a_search_in_several_processes(model_selection):
    X, y = corpus()
    search = model_selection.GridSearchCV(CRF(constraint=regccrf.compile(BIO)), {"c2": [0.1, 1.0]}, cv=2, n_jobs=2)
    assert search.fit(X, y).best_estimator_.predict(X) == y


def test_is_fitted_by_scikit_learns_own_check():
    validation = skip_without("sklearn.utils.validation", "scikit-learn")
    exceptions = skip_without("sklearn.exceptions", "scikit-learn")
    X, y = corpus()
    with pytest.raises(exceptions.NotFittedError):
        validation.check_is_fitted(CRF())
    validation.check_is_fitted(CRF().fit(X, y))
