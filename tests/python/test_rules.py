"""Rules that are kept beside a base, from Python: decoding is exact, the rest says what to do."""
import itertools
import pickle
import random

import numpy as np
import pytest

import regccrf

LABELS = [f"F{i}" for i in range(20)]
ONCE = " & ".join(f"once_contiguous({label})" for label in LABELS)


def best_by_enumeration(language, emissions, transitions):
    """The best score over all legal sequences of this length, by trying every sequence."""
    length, K = emissions.shape
    best = -np.inf
    for ids in itertools.product(range(K), repeat=length):
        if language.accepts([language.labels[i] for i in ids]).accepted:
            score = sum(emissions[t, a] for t, a in enumerate(ids)) + sum(transitions[a, b] for a, b in zip(ids, ids[1:]))
            best = max(best, score)
    return best


def test_a_large_conjunction_keeps_its_rules():
    constraint = regccrf.compile(ONCE)
    assert constraint.rules == constraint.memories == len(LABELS)
    assert constraint.products == len(LABELS) ** 2
    assert "20 rules" in repr(constraint)
    assert constraint.rule_texts[0] == ["once_contiguous(F0)"]
    assert pickle.loads(pickle.dumps(constraint)) == constraint


def test_decoding_is_that_of_enumeration():
    rng = np.random.default_rng(3)
    pattern = "[A B C D]* & at_most(1, A) & once_contiguous(B) & requires(C, D)"
    language = regccrf.Language(pattern)
    kept = regccrf.compile(pattern, rules="all")
    assert kept.rules >= 2
    for _ in range(20):
        h, g = rng.normal(size=(5, 4)) * 2, rng.normal(size=(4, 4))
        path = regccrf.viterbi(kept, h, g)
        assert kept.accepts(path.labels).accepted
        assert path.score == pytest.approx(best_by_enumeration(language, h, g), abs=1e-9)
        scores = [one.score for one in regccrf.k_best(kept, h, g, k=5)]
        others = [one.score for one in regccrf.k_best(regccrf.compile(pattern, rules="none"), h, g, k=5)]
        assert scores == pytest.approx(others, abs=1e-9)


def test_the_broken_rule_is_named():
    membership = regccrf.compile(ONCE).accepts([0, 1, 0])
    assert not membership.accepted and membership.position == 2
    assert membership.rule == "once_contiguous(F0)"
    assert membership.possible == list(range(1, 20))
    assert not regccrf.Language(ONCE).accepts(["F0", "F1", "F0"]).accepted


def test_what_needs_one_automaton_is_refused():
    constraint = regccrf.compile(ONCE)
    with pytest.raises(regccrf.Error, match="needs one automaton.*rules=\"none\""):
        constraint.arc_list()
    with pytest.raises(regccrf.LimitError, match="20 rules.*Limits\\(products"):
        regccrf.Language(ONCE).count(3)


def test_a_kept_constraint_is_a_language_again():
    pattern = "[A B C]* & at_most(1, A) & at_most(1, B)"
    kept = regccrf.compile(pattern, rules="all")
    assert kept.rules == 2
    language = kept.language()
    assert language.equals(regccrf.Language(pattern))
    assert language.count(3) == regccrf.Language(pattern).count(3) == 13
    assert all(kept.accepts(language.labels.ids(one)) for one in language.random(4, many=10))
    assert regccrf.compile(language, rules="none").rules == 0
    with pytest.raises(regccrf.LimitError, match="20 rules"):
        regccrf.compile(ONCE).language().count(3)


def test_other_limits_are_asked_anew():
    language = regccrf.Language("[A B C]* & at_most(1, A) & at_most(1, B)")
    with pytest.raises(regccrf.LimitError, match="2 rules.*more than 2 products"):
        language.count(3, regccrf.Limits(products=2))
    assert language.count(3) == 13


def test_wrong_words_for_rules():
    with pytest.raises(ValueError, match="'auto', 'all' or 'none'"):
        regccrf.compile("A*", rules="some")


def test_the_layer_decodes_under_rules():
    torch = pytest.importorskip("torch")
    from regccrf.torch import RegCCRF

    crf = RegCCRF(LABELS, constraint=ONCE, batch_first=True)
    assert "rules=20" in repr(crf)
    torch.manual_seed(0)
    emissions = torch.randn(6, 9, 20)
    mask = torch.ones(6, 9, dtype=torch.bool)
    mask[2, 5:] = False
    best = crf.decode(emissions, mask=mask)
    assert [len(labels) for labels in best] == [9, 9, 5, 9, 9, 9]
    assert all(crf.constraint.accepts(labels).accepted for labels in best)
    assert crf.k_best(emissions, 3)[0][0].labels == best[0]
    shuffled = [[random.Random(i).randrange(3) for i in range(9)]]
    assert crf.check(torch.tensor(shuffled))[0].sequence == 0
