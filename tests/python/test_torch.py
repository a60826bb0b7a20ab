"""The PyTorch layer: values against enumeration, gradients by finite differences, and what a module must survive."""

import copy
import math
import pickle
import threading
import warnings

import pytest
import torch
import torch.nn.utils.parametrize
from torch.autograd import gradcheck, gradgradcheck

import regccrf
from helpers import (
    LABELS,
    OUTSIDE_CASES,
    PATTERNS,
    REDUCTION_CASES,
    all_scores,
    functional,
    inputs,
    legal_tags,
    module,
    ragged,
    reduced_losses,
    reduction_case,
    threads,
    zero_module,
)
from regccrf import _core, _torch_graph
from regccrf._torch_ops import LossRequest, loss, loss_gradients
from regccrf.torch import CRF, Outside, RegCCRF

HOLES = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 1], [1, 0, 1], [1, 1, 0]])


@pytest.mark.parametrize("start_end", [True, False])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_values_against_enumeration(pattern, start_end):
    crf = module(pattern, start_end=start_end)
    emissions, mask = ragged([4, 3])
    tags = legal_tags(crf, [4, 3])
    for i, length in enumerate([4, 3]):
        scores = all_scores(crf, emissions[:length, i])
        z = torch.logsumexp(torch.stack(list(scores.values())), 0)
        gold = tuple(tags[:length, i].tolist())
        assert torch.allclose(crf.log_partition(emissions, mask)[i], z)
        assert torch.allclose(crf.log_prob(emissions, tags, mask)[i], scores[gold] - z)
        assert crf.decode(emissions, mask)[i] == list(max(scores, key=scores.get))
        assert crf.k_best(emissions, 2, mask)[i][0].score == pytest.approx(max(scores.values()).item())
        marginals = sum(torch.exp(score - z) * torch.nn.functional.one_hot(torch.tensor(y), 3) for y, score in scores.items())
        assert torch.allclose(crf.marginals(emissions, mask)[:length, i], marginals)
        entropy = -sum(torch.exp(score - z) * (score - z) for score in scores.values())
        assert torch.allclose(crf.entropy(emissions, mask)[i], entropy)
        free = torch.logsumexp(torch.stack(list(all_scores(crf.with_constraint(), emissions[:length, i]).values())), 0)
        assert torch.allclose(crf.language_mass(emissions, mask)[i], z - free)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_gradients_of_log_prob(pattern):
    crf = module(pattern)
    emissions, mask = ragged([4, 2, 3])
    tags = legal_tags(crf, [4, 2, 3])
    assert gradcheck(functional(crf, lambda m, h: m.log_prob(h, tags, mask)), inputs(crf, emissions))
    assert gradcheck(functional(crf, lambda m, h: m(h, tags, mask, "token_mean")), inputs(crf, emissions))


@pytest.mark.parametrize("pattern", PATTERNS[:2])
@pytest.mark.parametrize("method", ["log_partition", "entropy", "language_mass", "marginals"])
def test_gradients_with_holes_in_the_mask(method, pattern):
    crf = module(pattern, batch_first=True)
    emissions = torch.randn(3, 5, 3, dtype=torch.double)
    assert gradcheck(functional(crf, lambda m, h: getattr(m, method)(h, HOLES.t())), inputs(crf, emissions))


@pytest.mark.parametrize("pattern", PATTERNS[:3])
def test_second_derivatives_are_exact(pattern):
    crf = module(pattern)
    emissions, mask = ragged([4, 2, 3])
    tags = legal_tags(crf, [4, 2, 3])
    assert gradgradcheck(functional(crf, lambda m, h: m.log_partition(h, mask)), inputs(crf, emissions))
    assert gradgradcheck(functional(crf, lambda m, h: m.log_prob(h, tags, mask)), inputs(crf, emissions))


@pytest.mark.parametrize("outside", ["skip", "inf"])
@pytest.mark.parametrize("reduction", ["sum", "mean", "token_mean"])
def test_a_reduced_loss_is_the_reduction_of_losses(reduction, outside):
    """Values, gradients and second derivatives, and of a second backward pass through the same graph too."""
    crf = module("O O O O | O O O B | O B")
    emissions, mask = ragged([4, 2, 4])
    emissions.requires_grad_()
    tags = torch.tensor([[0, 0, 2], [0, 1, 2], [0, 0, 2], [1, 0, 2]])  # the third is outside
    kept = torch.tensor([True, True, False])
    by = {"sum": 1, "mean": 2 if outside == "skip" else 3, "token_mean": 6 if outside == "skip" else 10}[reduction]
    inputs = [emissions, *crf.parameters()]
    value = crf.nll(emissions, tags, mask, reduction, outside=outside)
    parts = -crf.log_prob(emissions, tags, mask, outside="skip")[kept].sum() / by
    assert value.isinf() if outside == "inf" else torch.allclose(value, parts)
    expected = torch.autograd.grad(parts, inputs, create_graph=True)
    for factor in (1, -3):
        found = torch.autograd.grad(value, inputs, torch.full_like(value, factor), retain_graph=True)
        assert all(torch.allclose(x, factor * y) for x, y in zip(found, expected))
    found = torch.autograd.grad(value, inputs, create_graph=True)
    assert all(torch.allclose(x, y) for x, y in zip(found, expected))
    second, again = (torch.autograd.grad(sum(x.pow(2).sum() for x in first), inputs) for first in (found, expected))
    assert all(torch.allclose(x, y) for x, y in zip(second, again))


def test_gradients_add_up_over_backward_passes():
    crf, emissions = module(), torch.randn(3, 2, 3, dtype=torch.double, requires_grad=True)
    loss = crf.nll(emissions, torch.zeros(3, 2).long())
    loss.backward(retain_graph=True)
    once = [x.grad.clone() for x in (emissions, *crf.parameters())]
    loss.backward()
    assert all(torch.allclose(x.grad, 2 * y) for x, y in zip((emissions, *crf.parameters()), once))


def test_no_second_derivative_is_invented():
    crf = module()
    emissions = torch.randn(3, 1, 3, dtype=torch.double, requires_grad=True)
    with pytest.raises(RuntimeError, match="once"):
        torch.autograd.grad(crf.entropy(emissions).sum(), emissions, create_graph=True)


def test_a_functional_call_has_its_own_parameters():
    crf, emissions = module(), torch.randn(3, 2, 3, dtype=torch.double)
    call = functional(crf, lambda m, h: m.log_partition(h).sum())
    others = [torch.randn_like(p).requires_grad_() for p in crf.parameters()]
    value = call(emissions, *others)
    assert value != crf.log_partition(emissions).sum()
    assert all(x is not None and x.ne(0).any() for x in torch.autograd.grad(value, others))


def test_a_graph_keeps_its_constraint():
    """Of a layer that is gone when its gradients are asked for."""
    emissions = torch.randn(3, 2, 3, dtype=torch.double, requires_grad=True)
    crf = module()
    for call in (lambda m: m.log_partition(emissions), lambda m: m.marginals(emissions)[0, 0],
                 lambda m: m.log_prob(emissions, torch.zeros(3, 2).long()),
                 lambda m: torch.autograd.grad(m.log_partition(emissions).sum(), emissions, create_graph=True)[0]):
        value = call(crf.with_constraint("O*")).pow(2).sum()
        expected, = torch.autograd.grad(call(crf.with_constraint(regccrf.Language("O O O", labels=LABELS))).pow(2).sum(), emissions)
        assert torch.allclose(torch.autograd.grad(value, emissions)[0], expected)


@pytest.mark.parametrize("start_end", [True, False])
def test_validation_in_inference_mode_may_come_first(start_end, monkeypatch):
    monkeypatch.setattr(_torch_graph, "_empty", {})  # as in a fresh process
    crf, emissions = module(start_end=start_end), torch.randn(3, 2, 3, dtype=torch.double)
    with torch.inference_mode():
        crf.decode(emissions)
        crf.log_prob(emissions, torch.zeros(3, 2).long())
        crf.marginals(emissions)
    crf.nll(emissions, torch.zeros(3, 2).long(), reduction="mean").backward()
    assert crf.transitions.grad.abs().max() > 0
    crf.log_partition(emissions.requires_grad_()).sum().backward()
    assert emissions.grad.abs().max() > 0


def test_a_layer_made_in_inference_mode_decodes_outside_of_it():
    with torch.inference_mode():
        crf = module("O* & O O O")
    assert crf.decode(torch.randn(3, 1, 3, dtype=torch.double)) == [[0, 0, 0]]


def test_labels_by_their_ids():
    names = ["O", "B", "I"]
    for labels in (names, {"B": 1, "O": 0, "I": 2}, {2: "I", 0: "O", 1: "B"}):
        assert list(RegCCRF(labels, "(O | B I*)*").labels) == names
    assert list(RegCCRF({"0": "O", "1": "B", "2": "I"}, "(O | B I*)*").labels) == names  # as JSON has it
    assert list(CRF({"0": 1, "1": 0}).labels) == ["1", "0"]
    for labels, error in (("O B", TypeError), ([0, 1], TypeError), (2.0, TypeError), ({"0": "O", "2": "B"}, ValueError),
                          ({"O": 0, "B": 2}, ValueError), ({"O": 0, "B": 0}, ValueError), ({1: "O", 2: "B"}, ValueError), ({"O", "B"}, TypeError)):
        with pytest.raises(error):
            RegCCRF(labels, "(O | B)*")
    with pytest.raises(TypeError, match=r"expected a list of names: \['O', 'B'\]"):
        CRF("O B")
    with pytest.raises(TypeError, match="CRF"):
        RegCCRF(names, None)


def test_what_is_no_mask_and_no_gold():
    crf, emissions = module(), torch.randn(3, 2, 3, dtype=torch.double)
    tags = torch.zeros(3, 2).long()
    for mask in (torch.ones(3, 2), torch.zeros(3, 2).double()):
        with pytest.raises(TypeError, match="mask == 0"):
            crf.decode(emissions, mask)
    for wrong in (tags.double(), tags.bool()):
        with pytest.raises(TypeError, match="label ids"):
            crf(emissions, wrong)
    assert torch.equal(crf(emissions, tags.int()), crf(emissions, tags))


def test_what_is_no_tensor():
    crf, emissions = module(), torch.zeros(3, 2, 3, dtype=torch.double)
    tags = torch.zeros(3, 2).long()
    for call, words in ((lambda: crf.decode(emissions.numpy()), "emissions: a ndarray was given"),
                        (lambda: crf(emissions, tags.tolist()), "tags: a list was given, expected a tensor of label ids"),
                        (lambda: crf.decode(emissions, tags.tolist()), "mask: a list"), (lambda: crf.decode(None), "emissions: a NoneType")):
        with pytest.raises(TypeError, match=words):
            call()


# Padding behind, the longest sequence without any: turned round, that one has nothing. Holes, a first position that nobody has (a model's
# [CLS]), padding in front and empty sequences are no mistakes.
@pytest.mark.parametrize("batch_first", [False, True])
def test_an_inverted_mask_is_told(batch_first):
    crf, right = CRF(2, batch_first=batch_first), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]).bool()
    legitimate = [right, right.flip(1), torch.tensor([[0, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]), torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0]])]

    def loss(mask):
        emissions, tags = torch.zeros(*mask.shape, 2), torch.zeros(mask.shape, dtype=torch.long)
        turned = (lambda x: x) if batch_first else (lambda x: x.transpose(0, 1))
        return crf(turned(emissions), turned(tags), turned(mask))

    for inverted in (~right, torch.zeros(2, 3).bool()):
        with pytest.warns(UserWarning, match="the mask looks inverted") as caught:
            loss(inverted)
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mask in legitimate:
            loss(mask)


# The batch comes second by default, as in pytorch-crf. Who overlooks that finds labels of several sentences in one.
def test_a_forgotten_batch_first_is_told():
    labels, tags, emissions = ["O", "B", "I"], torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.zeros(2, 3, 3)
    assert RegCCRF(labels, "(O | B I*)*", batch_first=True)(emissions, tags) < 0
    with pytest.raises(regccrf.Error, match="2 positions × 3 sequences.* batch_first=True") as caught:
        RegCCRF(labels, "(O | B I*)*")(emissions, tags)
    assert caught.value.kind == "outside" and caught.value.sequence == 2
    with pytest.raises(regccrf.Error, match="leave the language") as caught:
        RegCCRF(labels, "(O | B I*)*", batch_first=True)(emissions, tags.flip(0, 1))
    assert "batch_first" not in str(caught.value)


def test_outside_may_be_said_as_train_says_it():
    crf = RegCCRF(["O", "B", "I"], "(O | B I*)*", outside="error")
    with pytest.raises(regccrf.Error):
        crf(torch.zeros(1, 1, 3), torch.tensor([[2]]))
    assert crf(torch.zeros(1, 1, 3), torch.tensor([[2]]), outside="skip") == 0
    with pytest.raises(ValueError, match="invalid outside: warn"):
        crf(torch.zeros(1, 1, 3), torch.tensor([[2]]), outside="warn")


def test_a_masked_position_is_absent():
    crf = module()
    emissions = torch.randn(5, 3, 3, dtype=torch.double)
    for i in range(3):
        alone = emissions[:, i][HOLES[:, i].bool()].unsqueeze(1)
        assert torch.allclose(crf.log_partition(emissions, HOLES)[i], crf.log_partition(alone)[0])
        assert crf.decode(emissions, HOLES)[i] == crf.decode(alone)[0]


def test_allowed_sets_sum_over_what_is_consistent():
    crf = module()
    emissions, mask = ragged([4])
    allowed = torch.zeros(4, 1, 3, dtype=torch.bool)
    allowed[0, 0, :2] = allowed[1:, 0, :] = True
    scores = all_scores(crf, emissions[:, 0])
    consistent = torch.stack([score for y, score in scores.items() if y[0] < 2]).logsumexp(0)
    expected = consistent - torch.stack(list(scores.values())).logsumexp(0)
    assert torch.allclose(crf.log_prob(emissions, allowed, mask)[0], expected)
    assert gradcheck(functional(crf, lambda m, h: m.log_prob(h, allowed, mask)), inputs(crf, emissions))


def test_forbidden_labels():
    crf = module()
    emissions, mask = ragged([4])
    forbidden = torch.zeros(4, 1, 3, dtype=torch.bool)
    forbidden[1, 0, 0] = True
    assert crf.decode(emissions, forbidden=forbidden)[0][1] != 0
    assert crf.marginals(emissions, forbidden=forbidden)[1, 0, 0] == 0
    assert gradcheck(functional(crf, lambda m, h: m.log_partition(h, forbidden=forbidden)), inputs(crf, emissions))


def test_shapes_that_do_not_fit():
    crf, h, tags = module(), torch.zeros(4, 2, 3, dtype=torch.double), torch.zeros(4, 2, dtype=torch.long)
    sets = torch.ones(4, 2, 3, dtype=torch.bool)
    crf.nll(h, sets, tags.eq(0))  # fits
    for tags_, mask, words in ((tags.t(), None, "emissions and tags"), (sets.long(), None, "emissions and tags"),
                               (sets[:3], None, "emissions and tags"),
                               (tags, sets, "emissions and mask"), (tags, tags[:3].eq(0), "emissions and mask")):
        with pytest.raises(ValueError, match=f"the first two dimensions of {words} must match"):
            crf.nll(h, tags_, mask)
    with pytest.raises(ValueError, match="must have dimension of 3, got 2"):
        crf.nll(h[0], tags)
    with pytest.raises(ValueError, match="last dimension of emissions is 3, got 2"):
        crf.nll(h[:, :, :2], tags)


@pytest.mark.parametrize("outside", ["skip", "inf"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
def test_nll_is_forward_times_minus_one(reduction, outside):
    crf, other = module(), regccrf.compile("(O | B I*)* & at_most(1, B)", LABELS)
    emissions, mask = ragged([3, 3, 2])
    tags = torch.tensor([[0, 1, 1], [2, 2, 2], [0, 0, -100]])  # O I O, B I O, B I
    for gold, rest in ((tags, {}), (torch.ones(3, 3, 3, dtype=torch.bool), {}), (tags, {"constraint": [crf.constraint, other, other]})):
        found = []
        for method, sign in ((crf.nll, 1), (crf, -1)):
            h = emissions.clone().requires_grad_()
            value = method(h, gold, mask, reduction, outside=outside, **rest)
            found.append((sign * value.detach(), sign * torch.autograd.grad(value[value.isfinite()].sum(), h)[0]))
        assert all(torch.equal(x, y) for x, y in zip(*found)), (gold, rest)


def test_errors_have_a_kind_and_a_place():
    crf = RegCCRF(["O", "B", "I"], constraint="(O | B I*)*", batch_first=True)
    emissions = torch.zeros(2, 3, 3)
    with pytest.raises(regccrf.Error) as error:
        crf(emissions, torch.tensor([[0, 0, 0], [0, 2, 0]]))
    assert (error.value.kind, error.value.sequence, error.value.position) == ("outside", 1, 1)
    emissions[1, 2, 0] = math.nan
    with pytest.raises(regccrf.Error) as error:
        crf.decode(emissions)
    assert (error.value.kind, error.value.sequence, error.value.position) == ("invalid", 1, 2)
    with pytest.raises(regccrf.LimitError) as error:
        regccrf.compile("a{100}", limits=regccrf.Limits(states=10))
    assert (error.value.kind, error.value.sequence, error.value.position) == ("limit", None, None)


@pytest.mark.parametrize("case", REDUCTION_CASES)
@pytest.mark.parametrize("outside", ["raise", "skip", "inf"])
@pytest.mark.parametrize("reduction", ["sum", "mean", "token_mean"])
def test_reductions(reduction, outside, case):
    tags, mask, expected = reduction_case(case, reduction, outside)
    if outside == "raise" and case in OUTSIDE_CASES:
        return
    for way, found in reduced_losses(zero_module(outside=outside), tags, mask, reduction).items():
        assert found.item() == pytest.approx(expected), way


def test_the_core_takes_types_and_not_their_numbers():
    loss = _core.CudaLoss()
    with pytest.raises(TypeError):
        loss.reduction = 2
    loss.reduction = _core.Reduction.mean
    assert loss.reduction == _core.Reduction.mean
    with pytest.raises(TypeError):
        loss.out = _core.CudaArray(0, 3)


def test_gold_outside_the_language():
    crf = module()
    emissions, mask = ragged([3, 3])
    tags = torch.tensor([[0, 1], [2, 2], [0, 0]])  # O I O, B I O
    with pytest.raises(regccrf.Error, match="sequence 0: the correct labels leave the language at position 1 with label I"):
        crf(emissions, tags)
    good = crf.log_prob(emissions[:, 1:], tags[:, 1:])[0]
    assert torch.equal(crf.log_prob(emissions, tags, outside="inf"), torch.stack([torch.tensor(-math.inf).double(), good]))
    assert torch.equal(crf(emissions, tags, reduction="mean", outside="skip"), good)
    assert torch.allclose(crf(emissions, tags, reduction="token_mean", outside="skip"), good / 3)
    assert crf.check(tags) == [Outside(0, 1, "I", ["O", "B"])]
    assert crf.check(torch.tensor([[-100], [2], [0]])) == [Outside(0, 0, "-100", ["O", "B"])]
    hidden = torch.tensor([[1, 1], [0, 1], [1, 1]])
    assert crf.check(tags, hidden) == []
    assert crf.check(torch.tensor([[0, 1], [-100, 2], [0, 0]]), hidden) == []
    h = emissions.clone().requires_grad_()
    for outside in ["skip", "inf"]:
        values = crf.log_prob(h, tags, outside=outside)
        gradient, = torch.autograd.grad(values[1], h)
        assert gradient[:, 0].abs().max() == 0 and gradient[:, 1].abs().max() > 0
    with pytest.raises(ValueError, match="invalid outside"):
        crf(emissions, tags, outside="never")


def test_impossible_lengths():
    crf = module("O O | B O O")
    emissions, mask = ragged([2, 1, 3])
    assert crf.log_partition(emissions, mask)[1] == -math.inf
    assert crf.language_mass(emissions, mask)[1] == -math.inf
    with pytest.raises(regccrf.Error, match="sequence 1 has length 1"):
        crf.decode(emissions, mask)
    h = emissions.clone().requires_grad_()
    crf.log_partition(h, mask)[[0, 2]].sum().backward()
    assert torch.isfinite(h.grad).all() and h.grad[:, 1].abs().max() == 0


def test_empty_sequences_and_batches():
    crf = module()
    assert crf.log_prob(torch.zeros(2, 1, 3), torch.zeros(2, 1, dtype=torch.long), torch.zeros(2, 1, dtype=torch.bool)).item() == 0
    assert crf.decode(torch.zeros(0, 2, 3)) == [[], []]
    assert crf.decode(torch.zeros(4, 0, 3)) == []
    assert crf(torch.zeros(4, 0, 3), torch.zeros(4, 0, dtype=torch.long)).item() == 0


def test_samples_are_legal_and_repeatable():
    crf = module("(O | B I*)* & at_most(1, B)")
    emissions, mask = ragged([5, 2])
    samples = crf.sample(emissions, 50, mask, seed=4)
    assert samples == crf.sample(emissions, 50, mask, seed=4)
    assert all(crf.constraint.accepts(y) for paths in samples for y in paths)
    torch.manual_seed(1)
    first = crf.sample(emissions, 5, mask)
    torch.manual_seed(1)
    assert crf.sample(emissions, 5, mask) == first


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("pattern", [*PATTERNS, regccrf.compile("(O | B I*)* & at_most(1, B) & before(B, O)", LABELS, rules="all")])
def test_labels_as_a_tensor_are_those_in_lists(pattern, batch_first):
    crf = module(pattern, batch_first=batch_first)
    emissions, mask = torch.randn(5, 3, 3, dtype=torch.double), HOLES
    forbidden = torch.randn(5, 3, 3) > 1.8
    if batch_first:
        emissions, mask, forbidden = emissions.transpose(0, 1), mask.t(), forbidden.transpose(0, 1)
    for arguments in ({}, {"mask": mask}, {"mask": mask, "forbidden": forbidden}, {"constraint": ["O*", ".*", "B I*"]}):
        found = crf.decode_tensor(emissions, fill=-100, **arguments)
        present = arguments.get("mask", torch.ones_like(mask)).bool()
        assert found.shape == emissions.shape[:2] and found.dtype == torch.int64 and (found[~present] == -100).all()
        by_sequence = zip(found, present) if batch_first else zip(found.t(), present.t())
        assert [y[here].tolist() for y, here in by_sequence] == crf.decode(emissions, **arguments)
    assert crf.decode_tensor(emissions[:0]).shape == emissions[:0].shape[:2]


def test_the_error_for_padding_among_labels_says_how_to_mask_it():
    with pytest.raises(regccrf.Error, match=r"label -100 is not in 0 … 2; mask positions without a label, as with mask=tags >= 0"):
        CRF(3).nll(torch.zeros(2, 1, 3), torch.tensor([[0], [-100]]))


def test_labels_as_a_tensor_name_what_is_impossible():
    with pytest.raises(regccrf.Error, match="sequence 0 has length 1"):
        module("B I").decode_tensor(torch.zeros(1, 1, 3))


def test_posterior_decoding_maximises_marginals():
    crf = module()
    emissions, mask = ragged([4, 3])
    marginals = crf.marginals(emissions, mask)
    for i, (length, found) in enumerate(zip([4, 3], crf.posterior_decode(emissions, mask))):
        value = {y: sum(marginals[t, i, a] for t, a in enumerate(y)) for y in all_scores(crf, emissions[:length, i])}
        assert tuple(found) == max(value, key=value.get)


@pytest.mark.parametrize("make", [CRF, lambda labels: RegCCRF(labels, "(O | B I*)*")])
def test_another_constraint_may_be_assigned(make):
    crf, emissions = make(LABELS), torch.zeros(3, 1, 3)
    emissions[..., 2] = 9
    for other in ("O*", regccrf.Language("O*"), regccrf.compile("O*", labels=LABELS)):
        crf.constraint = other
        assert crf.constraint.language().equals(regccrf.Language("O*", labels=LABELS)) and "states=1, arcs=1" in repr(crf)
        assert crf.decode(emissions) == [[0, 0, 0]] and torch.allclose(crf.log_prob(emissions, torch.zeros(3, 1).long()), torch.zeros(1), atol=1e-5)
        for copied in (copy.deepcopy(crf), pickle.loads(pickle.dumps(crf))):
            assert copied.decode(emissions) == [[0, 0, 0]]
        crf.constraint = "I*"
        assert crf.decode(emissions) == [[2, 2, 2]]
    with pytest.raises(regccrf.Error, match=r"other labels than the layer, whose are \['O', 'B', 'I'\]"):
        crf.constraint = regccrf.compile("O*")
    with pytest.raises(TypeError, match="is 3, expected a Constraint, a Language or a pattern"):
        crf.constraint = 3
    with pytest.raises(TypeError, match=r"is None: crf.with_constraint\(\) is the layer without one"):
        crf.constraint = None
    assert crf.decode(emissions) == [[2, 2, 2]]


def test_the_same_weights_under_another_constraint():
    crf = CRF(LABELS)
    bio = crf.with_constraint("(O | B I*)*")
    emissions = torch.full((3, 1, 3), 0.0)
    emissions[..., 2] = 9
    assert crf.decode(emissions) == [[2, 2, 2]] and bio.decode(emissions) == [[1, 2, 2]]
    assert bio.transitions is crf.transitions and bio.with_constraint().start_transitions is crf.start_transitions
    assert type(bio) is RegCCRF and type(bio.with_constraint()) is CRF
    bio(emissions, torch.tensor([[1], [2], [0]])).backward()
    assert crf.transitions.grad is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    crf = module(dtype=torch.float32)
    emissions, mask = ragged([4, 3], dtype=torch.float32)
    emissions = emissions.to(dtype).requires_grad_()
    tags = legal_tags(crf, [4, 3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = crf(emissions, tags, mask)
    assert value.dtype == torch.float32
    assert torch.allclose(value, crf(emissions.detach().float(), tags, mask))
    value.backward()
    assert emissions.grad.dtype == dtype and torch.isfinite(emissions.grad).all()


def test_non_contiguous_inputs():
    crf = module()
    emissions, mask = ragged([4, 3])
    tags = legal_tags(crf, [4, 3])
    expected = crf.log_prob(emissions, tags, mask)
    wide = torch.randn(8, 2, 6, dtype=torch.double)
    wide[::2, :, ::2] = emissions
    assert torch.equal(crf.log_prob(wide[::2, :, ::2], tags.t().contiguous().t(), mask.t().contiguous().t()), expected)
    other = module(batch_first=True)
    assert torch.allclose(other.log_prob(emissions.transpose(0, 1), tags.t(), mask.t()), expected)


def test_copies_are_independent_and_whole():
    crf = module("(O | B I*)* & at_most(1, B)")
    emissions, mask = ragged([4, 3])
    for other in [copy.deepcopy(crf), copy.copy(crf), pickle.loads(pickle.dumps(crf))]:
        assert other.decode(emissions, mask) == crf.decode(emissions, mask)
        assert other.constraint == crf.constraint
    other = copy.deepcopy(crf)
    torch.nn.init.zeros_(other.transitions)
    assert crf.transitions.abs().max() > 0


def test_names_in_a_pattern_need_names_of_labels():
    with pytest.raises(regccrf.Error, match="unknown label O(.|\n)*the number 3, so they are called 0, 1, …: give a list of their names"):
        RegCCRF(3, constraint="bio({PER})")
    assert RegCCRF(3, constraint="(0 | 1 2*)*").num_tags == 3


def test_the_number_of_threads_does_not_matter():
    crf = CRF(40)
    emissions, tags = torch.randn(100, 32, 40, requires_grad=True), torch.randint(40, (100, 32))
    answers = []
    for count in (1, 2):
        with threads(count):
            value = crf.log_prob(emissions, tags)
            answers.append([value, torch.autograd.grad(value.sum(), emissions)[0]])
    assert all(torch.equal(x, y) for x, y in zip(*answers))


def test_many_threads_may_call_one_module():
    crf, answers = module(), []
    emissions, mask = ragged([30] * 8)
    callers = [threading.Thread(target=lambda: answers.append(crf.log_partition(emissions, mask).sum().item())) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(answers) == 4 and len(set(answers)) == 1


def test_scores_that_are_not_numbers():
    crf = module()
    with pytest.raises(regccrf.Error, match="sequence 1, position 2"):
        emissions = torch.zeros(4, 2, 3)
        emissions[2, 1, 0] = math.nan
        crf.log_partition(emissions)


class Twice(torch.nn.Module):
    def forward(self, x):
        return 2 * x


@pytest.mark.parametrize("start_end", [True, False])
def test_parameters_may_be_parametrised(start_end):
    crf, other = module(start_end=start_end), module(start_end=start_end)
    emissions, mask = ragged([4, 3])
    tags = legal_tags(crf, [4, 3])
    other.transitions.data *= 2
    torch.nn.utils.parametrize.register_parametrization(crf, "transitions", Twice())
    values = [m(emissions, tags, mask) for m in (crf, other)]
    assert torch.equal(*values) and crf.decode(emissions, mask) == other.decode(emissions, mask)
    for value in values:
        value.backward()
    assert torch.allclose(crf.parametrizations.transitions.original.grad, 2 * other.transitions.grad)


@pytest.mark.parametrize("operation", ["log_z", "nll"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
def test_gradients_that_nobody_wanted_at_first(operation, reduction):
    """They are computed when they are asked for, with the scale of the loss and a weight for each sequence."""
    crf, lengths = module(), [4, 3, 1]
    emissions, mask = ragged(lengths)
    emissions.requires_grad_()
    tags, scores = legal_tags(crf, lengths), [x.detach() for x in crf._scores(emissions, mask, None)]
    request = LossRequest(operation, crf._handle, False, -1, reduction)
    out, saved = loss(*scores, tags.to(torch.int32), *request)
    found = loss_gradients(torch.full_like(out, 0.5), saved, *scores, tags.to(torch.int32), *[True] * 4, *request)

    values = []
    for i, length in enumerate(lengths):
        every = all_scores(crf, emissions[:length, i])
        values.append(torch.stack(list(every.values())).logsumexp(0) - (every[tuple(tags[:length, i].tolist())] if operation == "nll" else 0))
    expected = -torch.stack(values) / {"none": 1, "sum": 1, "mean": len(lengths), "token_mean": sum(lengths)}[reduction]
    assert torch.allclose(out, expected if reduction == "none" else expected.sum())
    parameters = [emissions, crf.transitions, crf.start_transitions, crf.end_transitions]
    gradients = torch.autograd.grad(0.5 * expected.sum(), parameters)
    assert all(torch.allclose(x, y) for x, y in zip(found, gradients))
