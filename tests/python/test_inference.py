"""Inference on arrays, against enumeration."""

import array
import math

import numpy as np
import pytest

import regccrf

K = 3
BIO = regccrf.compile("(O | B I*)*")


def scores(T, seed=0, dtype=np.float64):
    random = np.random.RandomState(seed)
    return tuple(random.randn(*shape).astype(dtype) for shape in [(T, K), (K, K), (K,), (K,)])


def enumerated(h, g, s, e):
    """{label ids: score} over the language."""
    sequences = (BIO.labels.ids(names) for names in BIO.language().of_length(len(h), most=10 ** 6))
    return {tuple(y): sum(h[t, a] for t, a in enumerate(y)) + sum(g[a, b] for a, b in zip(y, y[1:])) + s[y[0]] + e[y[-1]]
            for y in sequences}


def test_one_sequence_against_enumeration():
    h, g, s, e = scores(5)
    all_scores = enumerated(h, g, s, e)
    z = np.logaddexp.reduce(list(all_scores.values()))
    ranked = sorted(all_scores, key=all_scores.get, reverse=True)
    assert math.isclose(regccrf.log_z(BIO, h, g, s, e), z, rel_tol=1e-10)
    assert tuple(regccrf.viterbi(BIO, h, g, s, e).labels) == ranked[0]
    assert [tuple(path.labels) for path in regccrf.k_best(BIO, h, g, s, e, k=7)] == ranked[:7]
    marginals, bigrams = np.zeros((5, K)), np.zeros((5, K, K))
    for y, score in all_scores.items():
        for t in range(5):
            marginals[t, y[t]] += np.exp(score - z)
        for t in range(4):
            bigrams[t, y[t], y[t + 1]] += np.exp(score - z)
    np.testing.assert_allclose(regccrf.marginals(BIO, h, g, s, e), marginals, atol=1e-10)
    np.testing.assert_allclose(regccrf.bigram_marginals(BIO, h, g, s, e), bigrams, atol=1e-10)
    entropy = -sum(np.exp(score - z) * (score - z) for score in all_scores.values())
    assert math.isclose(regccrf.entropy(BIO, h, g, s, e), entropy, rel_tol=1e-9)
    free = regccrf.Constraint.unconstrained(BIO.labels)
    assert math.isclose(regccrf.language_mass(BIO, h, g, s, e), z - regccrf.log_z(free, h, g, s, e), rel_tol=1e-9)
    best = max(all_scores, key=lambda y: sum(marginals[t, a] for t, a in enumerate(y)))
    assert tuple(regccrf.posterior_decode(BIO, h, g, s, e).labels) == best
    value, gradients = regccrf.nll(BIO, h, g, s, e, gold=ranked[3])
    assert math.isclose(value, z - all_scores[ranked[3]], rel_tol=1e-9)
    np.testing.assert_allclose(gradients.emissions, marginals - np.eye(K)[list(ranked[3])], atol=1e-9)


def test_span_marginals_against_enumeration():
    h, g, s, e = scores(5)
    all_scores = enumerated(h, g, s, e)
    z = np.logaddexp.reduce(list(all_scores.values()))
    B, inside = BIO.labels.ids(["B", "I"])
    spans = [regccrf.Span(1, [B, inside], not_after=[inside]), regccrf.Span(4, [B], not_after=[inside]),
             regccrf.Span(2, [B], not_before=[B, inside]), (0, [inside])]
    expected = [sum(np.exp(score - z) for y, score in all_scores.items() if condition(y)) for condition in (
        lambda y: y[1:3] == (B, inside) and y[3] != inside, lambda y: y[4] == B,
        lambda y: y[2] == B and y[1] not in (B, inside), lambda y: False)]
    np.testing.assert_allclose(regccrf.span_marginals(BIO, h, g, s, e, spans=spans), expected, atol=1e-10)
    masked = regccrf.span_marginals(BIO, np.insert(h, 2, 9, 0)[None], g, s, e, mask=[[1, 1, 0, 1, 1, 1]], spans=[spans])
    np.testing.assert_allclose(masked, [expected], atol=1e-10)  # positions that are absent are not counted


@pytest.mark.parametrize("span, message", [
    (regccrf.Span(4, [0, 0]), "span 0 is at positions 4 … 5, and sequence 0 has 5"), (regccrf.Span(-1, [0]), "positions -1"),
    (regccrf.Span(0, []), "span 0 has no labels"), (regccrf.Span(0, [0], [3]), "has label 3, which is not in 0 … 2")])
def test_bad_spans_are_errors(span, message):
    with pytest.raises(regccrf.Error, match=message):
        regccrf.span_marginals(BIO, *scores(5), spans=[span])


def test_batches_are_their_sequences():
    h, g, s, e = scores(12)
    one_by_one = [regccrf.log_z(BIO, part, g, s, e) for part in (h[:5], h[5:6], h[6:])]
    np.testing.assert_allclose(regccrf.log_z(BIO, h, g, s, e, lengths=[5, 1, 6]), one_by_one)
    padded = np.zeros((3, 6, K))
    mask = np.zeros((3, 6), bool)
    for i, part in enumerate((h[:5], h[5:6], h[6:])):
        padded[i, :len(part)], mask[i, :len(part)] = part, True
    np.testing.assert_allclose(regccrf.log_z(BIO, padded, g, s, e, mask=mask), one_by_one)
    np.testing.assert_allclose(regccrf.log_z(BIO, padded, g, s, e, lengths=[5, 1, 6], threads=2), one_by_one)


def test_a_masked_position_is_absent():
    h, g, s, e = scores(6)
    keep = np.array([0, 1, 1, 0, 1, 0], bool)
    assert math.isclose(regccrf.log_z(BIO, h, g, s, e, mask=keep), regccrf.log_z(BIO, h[keep], g, s, e))
    assert len(regccrf.viterbi(BIO, h, g, mask=keep).labels) == 3


def test_anything_with_a_buffer():
    h = memoryview(array.array("d", [0.0] * 6)).cast("B").cast("d", [2, 3])
    assert regccrf.viterbi(BIO, h, np.zeros((3, 3))).score == 0.0
    h32, g32, _, _ = scores(4, dtype=np.float32)
    assert regccrf.marginals(BIO, h32, g32).dtype == np.float32
    assert regccrf.viterbi(BIO, np.asfortranarray(h32), g32.T.copy().T) == regccrf.viterbi(BIO, h32, g32)


def test_samples_follow_the_distribution():
    h, g, s, e = scores(3)
    all_scores = enumerated(h, g, s, e)
    z = np.logaddexp.reduce(list(all_scores.values()))
    drawn = [tuple(path.labels) for path in regccrf.sample(BIO, h, g, s, e, count=20000, seed=3)]
    for y, score in all_scores.items():
        p = np.exp(score - z)
        assert abs(drawn.count(y) / len(drawn) - p) < 5 * math.sqrt(p * (1 - p) / len(drawn)) + 1e-9


def test_edges_of_the_contract():
    two = regccrf.compile("A A")
    assert regccrf.log_z(two, np.zeros((1, 1)), np.zeros((1, 1))) == -math.inf
    with pytest.raises(regccrf.Error, match=r"\[viterbi\] sequence 0 has length 1"):
        regccrf.viterbi(two, np.zeros((1, 1)), np.zeros((1, 1)))
    assert regccrf.log_z(BIO, np.zeros((0, 3)), np.zeros((3, 3))) == 0.0
    with pytest.raises(regccrf.Error, match="leave the language at position 1"):
        regccrf.nll(BIO, np.zeros((2, 3)), np.zeros((3, 3)), gold=[0, 2])
    with pytest.raises(regccrf.Error, match="NaN"):
        regccrf.log_z(BIO, np.full((1, 3), np.nan), np.zeros((3, 3)))
    with pytest.raises(regccrf.Error, match="transitions have shape"):
        regccrf.log_z(BIO, np.zeros((1, 3)), np.zeros((2, 3)))


def test_several_constraints_in_one_batch():
    h, g, s, e = scores(8)
    free = regccrf.Constraint.unconstrained(BIO.labels)
    both = regccrf.log_z([BIO, free, BIO], h, g, s, e, lengths=[3, 3, 2])
    expected = [regccrf.log_z(c, part, g, s, e) for c, part in ((BIO, h[:3]), (free, h[3:6]), (BIO, h[6:]))]
    np.testing.assert_allclose(both, expected)
    with pytest.raises(regccrf.Error, match="2 constraints were given for 3 sequences"):
        regccrf.log_z([BIO, free], h, g, lengths=[3, 3, 2])
