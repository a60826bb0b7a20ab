"""Rules that are kept beside a base, from Python: decoding is exact, the rest says what to do."""
import itertools
import json
import pickle
import random
import subprocess
import sys

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


SMALL = "[A B C D]* & at_most(1, A) & once_contiguous(B) & requires(C, A)"


@pytest.mark.parametrize("operation", [regccrf.log_z, regccrf.marginals, regccrf.entropy])
@pytest.mark.parametrize("max_gap", [1e-2, 1e-5])
def test_sums_are_certified(operation, max_gap):
    kept, multiplied = regccrf.compile(SMALL, rules="all"), regccrf.compile(SMALL, rules="none")
    assert kept.rules == 3
    rng = np.random.default_rng(1)
    emissions, transitions = 2 * rng.normal(size=(6, 7, 4)), rng.normal(size=(4, 4))
    gaps = np.full(6, 7.0)
    answer = operation(kept, emissions, transitions, max_gap=max_gap, gaps=gaps)
    assert (gaps <= max_gap).all() and (gaps >= 0).all()
    bound = 7 * np.log(4) * max_gap + 8 * max_gap * (1 - np.log(max_gap)) if operation is regccrf.entropy else 1.01 * max_gap
    assert np.abs(answer - operation(multiplied, emissions, transitions)).max() <= bound


def test_answers_of_sums_obey_the_rules():
    kept = regccrf.compile(SMALL, rules="all")
    emissions = 2 * np.random.default_rng(2).normal(size=(7, 4))
    assert kept.accepts(regccrf.posterior_decode(kept, emissions, np.zeros((4, 4))).labels).accepted
    for path in regccrf.sample(kept, emissions, np.zeros((4, 4)), count=20, seed=1):
        assert kept.accepts(path.labels).accepted


NO_GAPS = [0, -1, float("nan"), float("inf")]


@pytest.mark.parametrize("max_gap", NO_GAPS)
def test_gaps_that_are_none_are_refused(max_gap):
    kept = regccrf.compile(SMALL, rules="all")
    with pytest.raises(regccrf.Error, match=r"\[log_z\] max_gap is .* expected a number above 0"):
        regccrf.log_z(kept, np.zeros((3, 4)), np.zeros((4, 4)), max_gap=max_gap)
    with pytest.raises(regccrf.Error, match=r"\[train\] max_gap is .* expected a number above 0"):
        regccrf.train([["a"]], [["A"]], constraint=kept, max_gap=max_gap)


@pytest.mark.parametrize("max_gap", NO_GAPS)
def test_the_layer_refuses_them_too(max_gap):
    torch = pytest.importorskip("torch")
    from regccrf.torch import RegCCRF

    with pytest.raises(ValueError, match="max_gap is .* expected a number above 0"):
        RegCCRF(["A", "B", "C", "D"], SMALL, max_gap=max_gap)
    crf = RegCCRF(["A", "B", "C", "D"], regccrf.compile(SMALL, rules="all"), batch_first=True)
    with pytest.raises(ValueError, match="max_gap is .* expected a number above 0"):
        crf.nll(torch.zeros(1, 2, 4), torch.zeros(1, 2, dtype=torch.long), max_gap=max_gap)


TWO = "[A B C]* & exactly(2, A) & at_most(1, B)"
NOTHING_LEFT = "no sequence of that length obeys all rules and has a finite score"
TOO_SHORT = "the rules ask for 2 labels at least"


def too_short():
    return np.zeros((1, 3))


def all_forbidden():
    emissions = np.zeros((3, 3))
    emissions[:2, 0] = -np.inf  # one place is left for two As
    return emissions


@pytest.mark.parametrize("emissions, message", [(too_short(), TOO_SHORT), (all_forbidden(), NOTHING_LEFT)])
def test_what_is_impossible_is_said(emissions, message):
    kept, transitions = regccrf.compile(TWO, rules="all"), np.zeros((3, 3))
    for operation in (regccrf.marginals, regccrf.bigram_marginals, regccrf.entropy, regccrf.sample, regccrf.posterior_decode):
        with pytest.raises(regccrf.Error, match=message):
            operation(kept, emissions, transitions)
    assert regccrf.log_z(kept, emissions, transitions) == -np.inf
    assert regccrf.language_mass(kept, emissions, transitions) == -np.inf


def test_gold_that_is_impossible_is_said():
    kept, transitions = regccrf.compile(TWO, rules="all"), np.zeros((3, 3))
    with pytest.raises(regccrf.Error, match=r"position 2 with label A.*exactly\(2, A\).*possible there: B, C"):
        regccrf.nll(kept, np.zeros((3, 3)), transitions, gold=[0, 0, 0])
    with pytest.raises(regccrf.Error, match="end too early"):
        regccrf.nll(kept, too_short(), transitions, gold=[0])
    with pytest.raises(regccrf.Error, match="the correct labels have a score of -inf"):
        regccrf.nll(kept, all_forbidden(), transitions, gold=[0, 0, 1])


def test_wrong_words_for_gaps():
    kept, scores = regccrf.compile(SMALL, rules="all"), (np.zeros((3, 4)), np.zeros((4, 4)))
    with pytest.raises(regccrf.Error, match="'error', 'bound' or 'relax'"):
        regccrf.log_z(kept, *scores, uncertified="guess")
    with pytest.raises(regccrf.Error, match="max_cells is 0"):
        regccrf.log_z(kept, *scores, max_cells=0)
    with pytest.raises(regccrf.Error, match="float64 \\(1,\\)"):
        regccrf.log_z(kept, *scores, gaps=np.zeros(2))


@pytest.mark.parametrize("few", [2, 20])
def test_gaps_that_are_too_much_work_are_relaxed(few):
    """With few cells for each position gaps become larger, or the bound is taken; both hold."""
    generator = np.random.default_rng(few)
    emissions, transitions = 3 * generator.normal(size=(8, 12, 4)), generator.normal(size=(4, 4))
    kept, multiplied = (regccrf.compile(SMALL, ["A", "B", "C", "D"], rules=rules) for rules in ("all", "none"))
    gaps, exact = np.zeros(8), regccrf.log_z(multiplied, emissions, transitions)
    with pytest.raises(regccrf.Error, match="not certain.*larger max_gap.*uncertified: relax"):
        regccrf.log_z(kept, emissions, transitions, max_gap=1e-9, max_cells=few)
    found = regccrf.log_z(kept, emissions, transitions, max_gap=1e-9, max_cells=few, uncertified="relax", gaps=gaps)
    assert max(gaps) > 1e-9
    certain = np.isfinite(gaps)
    assert np.all(np.abs(found - exact)[certain] <= np.log1p(gaps[certain]) + 1e-9)
    assert np.all(found[~certain] >= exact[~certain])
    assert np.all(found[~certain] == regccrf.log_z(kept.base, emissions, transitions)[~certain])


def test_training_under_rules():
    sentences = [(["a", "b", "c", "d"], ["A", "B", "C", "D"]), (["b", "b", "d"], ["B", "B", "D"])] * 5
    kept = regccrf.compile(SMALL, rules="all")
    words, labels = [list(x) for x in zip(*sentences)]
    tagger = regccrf.train([[{"w": w} for w in x] for x in words], labels, constraint=kept, max_gap=1e-4, max_iterations=30)
    facts = json.loads(tagger.facts)
    assert facts["uncertified"] == 0 and 0 <= facts["largest_gap"] <= 1e-4


def small_layers(**certified):
    """With the rules kept, and multiplied out; emissions for both."""
    torch = pytest.importorskip("torch")
    from regccrf.torch import RegCCRF

    torch.manual_seed(1)
    labels = ["A", "B", "C", "D"]
    kept = RegCCRF(labels, regccrf.compile(SMALL, labels, rules="all"), batch_first=True, **certified).double()
    return kept, kept.with_constraint(regccrf.compile(SMALL, labels, rules="none")), 2 * torch.randn(6, 14, 4, dtype=torch.float64)


def test_gaps_hold_for_the_constraints_of_a_call():
    kept, multiplied, emissions = small_layers(max_gap=0.5)
    exact = multiplied.log_partition(emissions)
    tags = [[3] * 14] * 6
    for constraint in (None, kept.constraint, [kept.constraint, multiplied.constraint] * 3):
        kept.log_partition(emissions, constraint=constraint)
        assert 1e-2 < max(kept.gaps) <= 0.5  # those of the layer
        found = kept.log_partition(emissions, constraint=constraint, max_gap=1e-7)
        assert (found - exact).abs().max() <= 1.1e-7 and 0 < max(kept.gaps) <= 1e-7
        kept.nll(emissions, emissions.new_tensor(tags).long(), constraint=constraint, max_gap=1e-5)
        assert 1e-7 < max(kept.gaps) <= 1e-5
    kept.log_partition(emissions, constraint=multiplied.constraint)
    assert kept.gaps == []
    bounds, _, _ = small_layers(uncertified="bound", max_cells=1)
    assert (bounds.log_partition(emissions, constraint=kept.constraint) > exact).all()
    assert bounds.gaps == [float("inf")] * 6


def test_decoding_leaves_the_gaps():
    kept, multiplied, emissions = small_layers(max_gap=0.5)
    kept.log_partition(emissions)
    gaps = kept.gaps
    for constraint in (None, kept.constraint, multiplied.constraint):
        kept.decode(emissions, constraint=constraint)
        kept.k_best(emissions, 2, constraint=constraint)
        kept.decode_tensor(emissions, constraint=constraint)
    assert kept.gaps == gaps


def test_an_exported_constraint_keeps_its_gap():
    kept, _, _ = small_layers(max_gap=0.25, uncertified="relax")
    from regccrf._torch_handles import packed

    code = ("import torch; from regccrf import _torch_handles as handles\n"
            f"packed = torch.tensor({packed(kept._handle).tolist()}, dtype=torch.uint8)\n"
            f"constraint = handles.unpack({kept._handle}, packed); print(constraint.rules, handles.certified({kept._handle}))\n"
            f"try: handles.unpack({kept._handle} + 1, packed)\nexcept Exception as error: print(error)")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout
    assert said.startswith(f"{kept.constraint.rules} Certified(max_gap=0.25, uncertified='relax', max_cells=None)")
    assert "in an exported program was changed" in said


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


def test_the_layer_trains_under_rules():
    torch = pytest.importorskip("torch")
    from regccrf.torch import RegCCRF

    labels = ["A", "B", "C", "D"]
    kept = RegCCRF(labels, regccrf.compile(SMALL, labels, rules="all"), batch_first=True, max_gap=1e-3)
    multiplied = RegCCRF(labels, regccrf.compile(SMALL, labels, rules="none"), batch_first=True)
    multiplied.load_state_dict(kept.state_dict())
    torch.manual_seed(0)
    emissions = [(2 * torch.randn(6, 9, 4, dtype=torch.float64)).requires_grad_() for _ in range(2)]
    emissions[1].data.copy_(emissions[0].data)
    tags = torch.tensor([[3, 0, 1, 1, 2, 3, 3, 3, 3]] * 6)
    for crf, h in zip((kept, multiplied), emissions):
        (crf.double().nll(h, tags, reduction="none") * torch.arange(6)).sum().backward()
    assert len(kept.gaps) == 6 and max(kept.gaps) <= 1e-3 and max(kept.gaps) > 0
    assert (emissions[0].grad - emissions[1].grad).abs().max() <= 5 * 1e-3
    assert (kept.transitions.grad - multiplied.transitions.grad).abs().max() <= 15 * 8 * 1e-3
    exact = multiplied.log_partition(emissions[1])
    assert (kept.log_partition(emissions[0], max_gap=1e-6) - exact).abs().max() <= 1e-6
    assert max(kept.gaps) <= 1e-6
    several = [kept.constraint, multiplied.constraint] * 3
    assert (kept.log_partition(emissions[0], constraint=several) - exact).abs().max() <= 1e-3
    allowed = torch.ones(6, 9, 4, dtype=torch.bool)
    allowed[:, 0, 3] = False
    difference = kept.log_prob(emissions[0], allowed) - multiplied.log_prob(emissions[1], allowed)
    assert difference.abs().max() <= 2.1e-3
    with pytest.raises(ValueError, match="uncertified"):
        RegCCRF(labels, SMALL, uncertified="guess")
    with pytest.raises(regccrf.Error, match="position 1.*at_most"):
        kept(emissions[0], torch.zeros(6, 9, dtype=torch.long))
    with pytest.raises(ValueError, match="max_gap is 0"):
        RegCCRF(labels, SMALL, max_gap=0)
    other = RegCCRF(labels, SMALL, max_gap=1e-2, uncertified="bound", max_cells=9).with_constraint(kept.constraint)
    assert other.certified == (1e-2, "bound", 9)
    base = kept.with_constraint(kept.constraint.base)
    assert base.constraint.rules == 0
    base.nll(emissions[0], tags).backward()
    assert base.gaps == [] and base.nll(emissions[0], tags) >= multiplied.nll(emissions[1], tags)
