"""A constraint for each sequence of a batch: the answers of the sequences on their own."""

import copy
import itertools
import pathlib

import pytest
import torch

import regccrf
import regccrf.torch as regccrf_torch
from helpers import LABELS, PATTERNS, legal_tags, module, ragged
from regccrf.torch import CRF, RegCCRF

LENGTHS = [4, 2, 5, 3, 4]
WHICH = [0, 1, 0, 2, 1]
CONSTRAINTS = [regccrf.compile(pattern, labels=LABELS) for pattern in PATTERNS[:3]]
CHOICE = [CONSTRAINTS[i] for i in WHICH]


def gold():
    """Legal under each sequence's own constraint: [T, B]."""
    tags = torch.full((max(LENGTHS), len(LENGTHS)), -100)
    for i, (which, length) in enumerate(zip(WHICH, LENGTHS)):
        tags[:length, i] = legal_tags(RegCCRF(LABELS, CONSTRAINTS[which]), [length])[:, 0]
    return tags


METHODS = {
    "forward": lambda m, h, y, k, **options: m(h, y, k, "none", **options),
    "log_prob": lambda m, h, y, k, **options: m.log_prob(h, y, k, **options),
    "allowed sets": lambda m, h, y, k, **options: m.log_prob(h, allowed(m, h), k, outside="inf", **options),
    "log_partition": lambda m, h, y, k, **options: m.log_partition(h, k, **options),
    "entropy": lambda m, h, y, k, **options: m.entropy(h, k, **options),
    "language_mass": lambda m, h, y, k, **options: m.language_mass(h, k, **options),
    "marginals": lambda m, h, y, k, **options: m.marginals(h, k, **options).transpose(0, int(not m.batch_first)),
    "forbidden": lambda m, h, y, k, **options: m.log_partition(h, k, forbidden=~allowed(m, h), **options),
    "decode": lambda m, h, y, k, **options: m.decode(h, k, **options),
    "posterior_decode": lambda m, h, y, k, **options: m.posterior_decode(h, k, **options),
    "k_best": lambda m, h, y, k, **options: m.k_best(h, 3, k, **options),
    "check": lambda m, h, y, k, **options: [outside._replace(sequence=0) for outside in m.check(y, k, **options)],
}


def allowed(m, h):
    """Label 0 and what the scores like."""
    return (h.detach() > -0.5) | (torch.arange(3, device=h.device) == 0)


def gradients(crf, emissions, value):
    weights = torch.arange(1, value.numel() + 1).to(value).view(value.shape)
    finite = torch.isfinite(value)
    return torch.autograd.grad((value[finite] * weights[finite]).sum(), [emissions, *crf.parameters()], allow_unused=True)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_answers_are_those_of_the_sequences_on_their_own(name, batch_first):
    crf = module(batch_first=batch_first)
    emissions, mask = ragged(LENGTHS, batch_first=batch_first)
    tags = gold().t() if batch_first else gold()
    emissions.requires_grad_()
    together = METHODS[name](crf, emissions, tags, mask, constraint=CHOICE)
    alone = []
    for i, constraint in enumerate(CHOICE):
        one = (lambda x: x[i:i + 1]) if batch_first else (lambda x: x[:, i:i + 1])
        alone.append(METHODS[name](crf.with_constraint(constraint), one(emissions), one(tags), one(mask)))
    if not isinstance(together, torch.Tensor):
        assert together == list(itertools.chain(*alone))
        return
    assert torch.allclose(together, torch.cat(alone), rtol=1e-10, atol=1e-10)
    for x, y in zip(gradients(crf, emissions, together), gradients(crf, emissions, torch.cat(alone))):
        assert torch.allclose(x, y, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("outside", ["skip", "inf"])
@pytest.mark.parametrize("reduction", ["sum", "mean", "token_mean"])
def test_reductions(reduction, outside):
    crf = module(outside=outside)
    emissions, mask = ragged(LENGTHS)
    tags = gold()
    tags[:2, 1] = 1  # B B: not in the second language, which allows one B
    values = crf.log_prob(emissions, tags, mask, outside="inf", constraint=CHOICE)
    keep = torch.arange(5) != 1
    assert values.isneginf().tolist() == (~keep).tolist()
    value = crf(emissions, tags, mask, reduction, constraint=CHOICE)
    count = {"sum": 1, "mean": 4, "token_mean": sum(LENGTHS) - LENGTHS[1]}[reduction]
    assert value == -torch.inf if outside == "inf" else torch.allclose(value, values[keep].sum() / count)


def test_one_constraint_for_all_and_an_empty_batch():
    crf = module()
    emissions, mask = ragged(LENGTHS)
    other = crf.with_constraint(CONSTRAINTS[1])
    for choice in (CONSTRAINTS[1], [CONSTRAINTS[1]] * 5):
        assert crf.decode(emissions, mask, constraint=choice) == other.decode(emissions, mask)
        assert torch.equal(crf.log_partition(emissions, mask, constraint=choice), other.log_partition(emissions, mask))
    assert crf.decode(emissions[:, :0], constraint=[]) == []
    assert crf.log_partition(emissions[:, :0], constraint=[]).shape == (0,)


def test_languages_and_patterns_are_compiled_once(monkeypatch):
    (emissions, mask), tags, crf, compiled, compile = ragged(LENGTHS), gold(), module(), [], regccrf_torch.compile
    monkeypatch.setattr(regccrf_torch, "compile", lambda *args: compiled.append(args) or compile(*args))
    expected = crf.log_partition(emissions, mask, constraint=CHOICE)
    languages = [regccrf.Language(pattern) for pattern in PATTERNS[:3]]
    one, odd = "(O | B I*)* & at_most(1, B) & .*", regccrf.Language("O*")  # not in the cache yet; fewer labels than the layer has
    for _ in range(3):
        assert torch.allclose(crf.log_partition(emissions, mask, constraint=[languages[i] for i in WHICH]), expected)
        several = [PATTERNS[0], languages[1], CHOICE[2], PATTERNS[2], languages[1]]
        assert torch.allclose(crf.log_partition(emissions, mask, constraint=several), expected)
        assert crf.decode(emissions, mask, constraint=one) == crf.decode(emissions, mask, constraint=CONSTRAINTS[1])
        assert crf.decode(emissions, mask, constraint=odd) == [[0] * length for length in LENGTHS]
        assert crf.check(tags, mask, constraint=odd) == crf.check(tags, mask, constraint=regccrf.compile(odd, LABELS))
    assert 5 <= len(compiled) <= 7


def test_samples_do_not_depend_on_the_other_constraints():
    crf = module()
    emissions, mask = ragged(LENGTHS)
    samples = crf.sample(emissions, 3, mask, seed=4, constraint=CHOICE)
    for i, constraint in enumerate(CONSTRAINTS):
        alone = crf.with_constraint(constraint).sample(emissions, 3, mask, seed=4)
        assert all(samples[j] == alone[j] for j in range(5) if WHICH[j] == i)


def test_second_derivatives():
    crf = module()
    emissions, mask = ragged(LENGTHS)

    def penalty(h):
        slope, = torch.autograd.grad(crf.log_prob(h, gold(), mask, constraint=CHOICE).sum(), h, create_graph=True)
        return slope.pow(2).sum()
    assert torch.autograd.gradcheck(penalty, emissions.requires_grad_())


def test_constraints_need_not_outlive_the_call():
    crf = module()
    emissions, mask = ragged(LENGTHS)
    fresh = lambda: [regccrf.compile(PATTERNS[i], labels=LABELS) for i in WHICH]
    h, other = emissions.clone().requires_grad_(), emissions.clone().requires_grad_()
    crf.log_partition(h, mask, constraint=fresh()).sum().backward()
    crf.log_partition(other, mask, constraint=CHOICE).sum().backward()
    assert torch.equal(h.grad, other.grad)
    h.grad = None
    crf.log_partition(h, mask, constraint=fresh()[0]).sum().backward()
    assert h.grad.abs().max() > 0


def test_errors():
    crf = module()
    emissions, mask = ragged(LENGTHS)
    with pytest.raises(regccrf.Error, match="2 constraints were given for 5 sequences"):
        crf.decode(emissions, mask, constraint=CONSTRAINTS[:2])
    other = regccrf.compile("A*", labels=["A", "B", "C"])
    with pytest.raises(regccrf.Error, match="the constraint of sequence 2 has other labels"):
        crf.log_partition(emissions, mask, constraint=[*CHOICE[:2], other, *CHOICE[3:]])
    for wrong in (3, pathlib.Path("a.lang"), [3] * 5, [None] * 5):
        with pytest.raises(TypeError, match="expected a Constraint, a Language or a pattern|not iterable"):
            crf.decode(emissions, mask, constraint=wrong)
    with pytest.raises(regccrf.Error, match="did you mean|unknown"):
        crf.decode(emissions, mask, constraint="(O | B-PER)*")
    with pytest.raises(ValueError, match="mask"):
        crf.log_partition(emissions, mask[:2], constraint=CHOICE)
    tags = gold()
    tags[:2, 1] = 1
    with pytest.raises(regccrf.Error, match="sequence 1: the correct labels leave the language at position 1"):
        crf(emissions, tags, mask, constraint=CHOICE)
    short = regccrf.compile("O O", labels=LABELS)
    with pytest.raises(regccrf.Error, match="sequence 3 has length 3"):
        crf.decode(emissions, mask, constraint=[*CHOICE[:3], short, CHOICE[4]])


def test_a_layer_without_a_constraint_takes_them_too():
    crf, emissions = CRF(LABELS).double(), torch.zeros(2, 2, 3, dtype=torch.double)
    emissions[..., 2] = 5
    never, only = regccrf.compile("[^I]*", labels=LABELS), regccrf.compile("I*", labels=LABELS)
    first, second = crf.decode(emissions, constraint=[never, only])
    assert 2 not in first and second == [2, 2]
    assert copy.deepcopy(crf).decode(emissions, constraint=[never, only]) == [first, second]


@pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="needs PyTorch 2.4")
def test_compiled_functions_may_call_it():
    crf = module()
    emissions, mask = ragged(LENGTHS)
    function = torch.compile(lambda h: crf.log_partition(h * 2, mask, constraint=CHOICE).sum() * 3, backend="aot_eager")
    assert torch.allclose(function(emissions), crf.log_partition(emissions * 2, mask, constraint=CHOICE).sum() * 3)
