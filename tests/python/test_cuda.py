"""The layer on CUDA tensors against the same layer on the CPU, on whatever device there is (devices.py)."""

import copy
import math

import pytest
import torch

import regccrf
from devices import agree, device, to, transposed
from helpers import LABELS, OUTSIDE_CASES, PATTERNS, REDUCTION_CASES, legal_tags, module, ragged, reduced_losses, reduction_case, zero_module
from regccrf import _torch_cuda
from regccrf._torch_ops import LossRequest, loss
from test_constraints import CHOICE, METHODS, gold
from test_constraints import LENGTHS as CHOICE_LENGTHS

HOLES = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 1], [1, 0, 1], [1, 1, 0]])
LENGTHS = [6, 2, 5, 1]


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("start_end", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS[:3])
def test_log_prob_with_a_weight_for_each_sequence(device, pattern, start_end, batch_first, dtype):
    crf = module(pattern, dtype, start_end=start_end, batch_first=batch_first)
    emissions, mask = ragged(LENGTHS, dtype=dtype)
    tags = legal_tags(crf, LENGTHS)
    emissions, tags, mask = transposed(batch_first, emissions, tags, mask)
    weights = torch.randn(len(LENGTHS), dtype=dtype)
    agree(device, crf, lambda m, h, y, k: m.log_prob(h, y, k), emissions, tags, mask, weights=weights)


def test_weights_of_any_stride(device):
    crf = module()
    emissions, mask = ragged(LENGTHS)
    tags = legal_tags(crf, LENGTHS)
    for weights in (torch.randn(8).double()[::2], torch.randn(1).double().expand(4), torch.randn(4, 3).double()[:, 1]):
        agree(device, crf, lambda m, h, y, k: m.log_prob(h, y, k), emissions, tags, mask, weights=weights)
    agree(device, crf, lambda m, h, y, k: m.log_prob(h, y, k).sum(), emissions, tags, mask)


@pytest.mark.parametrize("reduction", ["sum", "mean", "token_mean"])
def test_reductions_and_no_mask(device, reduction):
    crf = module()
    emissions, _ = ragged([5, 5, 5])
    agree(device, crf, lambda m, h, y: m(h, y, reduction=reduction), emissions, legal_tags(crf, [5, 5, 5]))
    agree(device, crf, lambda m, h, y: m(h, y, reduction=reduction), emissions[:1], torch.zeros(1, 3, dtype=torch.long))


@pytest.mark.parametrize("case", REDUCTION_CASES)
@pytest.mark.parametrize("outside", ["raise", "skip", "inf"])
@pytest.mark.parametrize("reduction", ["sum", "mean", "token_mean"])
def test_reductions(device, reduction, outside, case):
    tags, mask, expected = reduction_case(case, reduction, outside)
    if outside == "raise" and case in OUTSIDE_CASES:
        return
    with device.working():
        losses = reduced_losses(zero_module(outside=outside).to(device.device), to(device, tags), to(device, mask), reduction)
    for way, found in losses.items():
        assert found.item() == pytest.approx(expected), way


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.long])
@pytest.mark.parametrize("method", ["log_partition", "language_mass", "marginals", "entropy"])
def test_masks_with_holes(device, method, kind):
    crf = module(PATTERNS[1])
    emissions = torch.randn(5, 3, 3, dtype=torch.double)
    weights = torch.randn((5, 3, 3) if method == "marginals" else 3, dtype=torch.double)
    agree(device, crf, lambda m, h, k: getattr(m, method)(h, k), emissions, HOLES.to(kind), weights=weights)
    agree(device, crf, lambda m, h: getattr(m, method)(h), emissions, weights=weights)


@pytest.mark.parametrize("name", ["start_transitions", "transitions", "emissions"])
def test_gradients_are_computed_where_they_are_wanted(device, name):
    crf = module(dtype=torch.float).to(device.device)
    for parameter, scores in crf.named_parameters():
        scores.requires_grad_(parameter == name)
    emissions, mask = (to(device, x) for x in ragged(LENGTHS, dtype=torch.float))
    emissions.requires_grad_(name == "emissions")
    with device.working():
        crf(emissions, to(device, legal_tags(crf, LENGTHS)), mask).backward()
    wanted = emissions if name == "emissions" else getattr(crf, name)
    assert wanted.grad.abs().max() > 0
    assert all(x.grad is None for x in (emissions, *crf.parameters()) if x is not wanted)


def test_gradients_do_not_share_memory(device):
    crf = module().to(device.device)
    emissions = to(device, torch.randn(1, 2, 3, dtype=torch.double))
    with device.working():
        for _ in range(2):
            crf(emissions, to(device, torch.zeros(1, 2, dtype=torch.long))).backward()
    first, last = crf.start_transitions.grad.clone(), crf.end_transitions.grad.clone()
    crf.start_transitions.grad.zero_()
    assert torch.equal(crf.end_transitions.grad, last) and torch.allclose(first, last)


def test_a_backward_pass_may_be_repeated(device):
    crf = module().to(device.device)
    emissions, mask = (to(device, x) for x in ragged(LENGTHS))
    with device.working():
        value = crf(emissions.requires_grad_(), to(device, legal_tags(crf, LENGTHS)), mask)
        first, = torch.autograd.grad(value, emissions, retain_graph=True)
        second, = torch.autograd.grad(value, emissions)
    assert torch.equal(first, second)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
def test_nll(device, reduction):
    crf = module(outside="skip")
    emissions, mask = ragged([3, 3, 2])
    tags = torch.tensor([[0, 1, 2], [2, 2, 0], [0, 0, -100]])  # O I O, B I O, I O
    agree(device, crf, lambda m, h, y, k: m.nll(h, y, k, reduction), emissions, tags, mask)
    agree(device, crf, lambda m, h, k: m.nll(h, torch.ones_like(h, dtype=torch.bool), k, reduction), emissions, mask)


def test_backward_twice_through_one_graph(device):
    """A second pass leaves the first one's gradients as they are."""
    crf, (emissions, mask) = module().to(device.device), ragged(LENGTHS)
    h, mask, tags = to(device, emissions).requires_grad_(), to(device, mask), to(device, legal_tags(crf, LENGTHS))
    with device.working():
        loss, inputs = crf.nll(h, tags, mask), [h, *crf.parameters()]
        once = torch.autograd.grad(loss, inputs, retain_graph=True)
        before = [x.clone() for x in once]
        twice = torch.autograd.grad(loss, inputs, 2 * torch.ones_like(loss), retain_graph=True)
        some = torch.autograd.grad(loss, inputs[2:])
    assert all(torch.equal(x, y) and torch.equal(2 * x, z) for x, y, z in zip(once, before, twice))
    assert all(torch.equal(x, y) for x, y in zip(once[2:], some))


@pytest.mark.skipif(not hasattr(torch, "func"), reason="needs PyTorch 2")
def test_transforms_of_functions_are_refused(device):
    crf, (emissions, mask) = module().to(device.device), ragged(LENGTHS)
    h, mask, tags = to(device, emissions), to(device, mask), to(device, legal_tags(crf, LENGTHS))
    for function in (lambda x: crf.nll(x, tags, mask), lambda x: crf.log_partition(x, mask).sum(), lambda x: crf.marginals(x, mask).sum()):
        with device.working(), pytest.raises(regccrf.Error, match="on the CPU only"):
            torch.func.grad(function)(h)
    escaped = []
    torch.func.grad(lambda x: (escaped.append(x), x.sum())[1])(h)
    with device.working():
        for call in (lambda x: crf.nll(x, tags, mask), lambda x: crf.log_partition(x, mask), lambda x: crf.marginals(x, mask)):
            assert torch.equal(call(escaped[0]), call(h))


@pytest.mark.parametrize("outside", ["skip", "inf"])
@pytest.mark.parametrize("reduction", ["none", "mean", "token_mean"])
def test_gold_outside_the_language(device, outside, reduction):
    crf = module(outside=outside)
    emissions, mask = ragged([3, 3, 2])
    tags = torch.tensor([[0, 1, 2], [2, 2, 0], [0, 0, -100]])  # O I O, B I O, I O
    keep = lambda values: values if reduction != "none" or outside == "skip" else values[1:2]
    agree(device, crf, lambda m, h, y, k: keep(m(h, y, k, reduction)), emissions, tags, mask)


def test_errors_are_raised_by_the_next_call_that_waits(device):
    crf = module().to(device.device)
    emissions, mask = (to(device, x) for x in ragged([3, 3]))
    tags = to(device, torch.tensor([[0, 0], [0, 2], [0, 0]]))
    with device.working():
        for wait in (lambda: crf.decode(emissions, mask), lambda: crf.sample(emissions, 1, mask), lambda: crf.k_best(emissions, 1, mask),
                     lambda: crf.posterior_decode(emissions, mask), crf.raise_pending):
            h = emissions.clone().requires_grad_()
            loss = -crf(h, tags, mask)
            loss.backward()
            assert loss.item() == math.inf and torch.isfinite(h.grad).all() and h.grad[:, 1].abs().max() == 0
            with pytest.raises(regccrf.Error, match="sequence 1: the correct labels leave the language at position 1"):
                wait()
            wait()
        crf.checks = True
        with pytest.raises(regccrf.Error, match="sequence 1: the correct labels leave the language at position 1"):
            crf(emissions, tags, mask)
        crf(emissions, tags, mask, outside="skip")


def test_bad_scores_are_errors_whatever_is_allowed(device):
    crf = module(outside="skip").to(device.device)
    emissions, tags = torch.zeros(4, 2, 3, dtype=torch.double), torch.zeros(4, 2, dtype=torch.long)
    emissions[2, 1, 0] = math.nan
    emissions, tags = to(device, emissions), to(device, tags)
    with device.working():
        for call in (lambda: crf(emissions, tags), lambda: crf.log_partition(emissions), lambda: crf.marginals(emissions),
                     lambda: crf.language_mass(emissions), lambda: crf.entropy(emissions)):
            call()
            with pytest.raises(regccrf.Error, match="sequence 1.* position 2, label O"):
                crf.raise_pending()
        for call in (lambda: crf.decode(emissions), lambda: crf.sample(emissions), lambda: crf.posterior_decode(emissions),
                     lambda: crf.k_best(emissions, 2)):
            with pytest.raises(regccrf.Error, match="sequence 1.* position 2, label O"):
                call()
        good = torch.zeros_like(emissions)
        crf.transitions.data[0, 0] = math.inf
        for call in (lambda: crf(good, tags), lambda: crf.entropy(good)):
            call()
            with pytest.raises(regccrf.Error, match="transitions"):
                crf.raise_pending()
        for call in (lambda: crf.decode(good), lambda: crf.sample(good), lambda: crf.k_best(good, 2)):
            with pytest.raises(regccrf.Error, match="transitions"):
                call()


def test_the_first_error_of_many_calls_is_kept(device):
    crf = module().to(device.device)
    emissions = to(device, torch.zeros(3, 2, 3, dtype=torch.double))
    good, bad = to(device, torch.zeros(3, 2, dtype=torch.long)), to(device, torch.tensor([[0, 0], [0, 2], [0, 0]]))
    with device.working():
        for step in range(100):
            crf(emissions, bad if step == 20 else good)
            crf.log_partition(emissions.masked_fill(emissions == 0, math.nan) if step == 40 else emissions)
        with pytest.raises(regccrf.Error, match=r"\[nll\] sequence 1: the correct labels leave the language at position 1"):
            crf.raise_pending()
        crf.raise_pending()


def test_impossible_lengths(device):
    crf = module("O O | B O O")
    emissions, mask = ragged([2, 1, 3])
    agree(device, crf, lambda m, h, k: m.log_partition(h, k), emissions, mask, weights=torch.tensor([1.0, 0.0, 2.0]).double())
    agree(device, crf, lambda m, h, k: m.language_mass(h, k), emissions, mask, weights=torch.tensor([1.0, 0.0, 2.0]).double())
    there = copy.deepcopy(crf).to(device.device)
    with device.working():
        for call in (there.decode, there.posterior_decode, lambda h, k: there.sample(h, 1, k), lambda h, k: there.k_best(h, 2, k)):
            with pytest.raises(regccrf.Error, match="sequence 1 has length 1"):
                call(to(device, emissions), to(device, mask))
        for call in (there.marginals, there.entropy):
            call(to(device, emissions), to(device, mask))
            with pytest.raises(regccrf.Error, match="sequence 1 has length 1"):
                there.raise_pending()
        h = to(device, emissions).requires_grad_()
        value = there.entropy(h, to(device, mask))
        value.sum().backward()
        assert value.isnan().tolist() == [False, True, False] and h.grad[:, 1].abs().max() == 0


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_answers_in_lists(device, dtype, batch_first):
    crf = module(PATTERNS[1], dtype, batch_first=batch_first)
    emissions, mask = transposed(batch_first, torch.randn(5, 3, 3, dtype=dtype), HOLES)
    for call in (lambda m, h, k: m.decode(h, k), lambda m, h, k: m.posterior_decode(h, k),
                 lambda m, h, k: m.sample(h, 7, k, seed=5), lambda m, h, k: m.sample(h, 3, k, seed=5, temperature=2.5),
                 lambda m, h, k: m.sample(h, 0, k), lambda m, h, k: m.decode(h), lambda m, h, k: m.decode_tensor(h, k).tolist(),
                 lambda m, h, k: m.decode_tensor(h, fill=7).tolist(), lambda m, h, k: m.decode_tensor(h, k, constraint="[O B]*").tolist()):
        agree(device, crf, call, emissions, mask)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dtype", [torch.float, torch.double])
@pytest.mark.parametrize("k", [1, 3, 200])
def test_k_best(device, k, dtype, batch_first):
    crf = module(PATTERNS[1], dtype, batch_first=batch_first)
    emissions, mask = transposed(batch_first, torch.randn(5, 3, 3, dtype=dtype), HOLES)
    expected = crf.k_best(emissions, k, mask)
    there = copy.deepcopy(crf).to(device.device)
    with device.working():
        found = there.k_best(to(device, emissions), k, to(device, mask))
    assert [[path.labels for path in paths] for paths in found] == [[path.labels for path in paths] for paths in expected]
    assert [path.score for paths in found for path in paths] == pytest.approx([path.score for paths in expected for path in paths])


def test_errors_of_sampling_and_k_best(device):
    crf = module().to(device.device)
    emissions = to(device, torch.zeros(2, 1, 3, dtype=torch.double))
    with device.working():
        with pytest.raises(regccrf.Error, match="k is 0, expected 1 or more"):
            crf.k_best(emissions, 0)
        with pytest.raises(regccrf.Error, match="temperature"):
            crf.sample(emissions, temperature=0)
        with pytest.raises(regccrf.Error, match="count"):
            crf.sample(emissions, -1)


def test_empty_sequences_and_batches(device):
    crf = module()
    tags = lambda *shape: torch.zeros(*shape, dtype=torch.long)
    emissions = lambda *shape: torch.zeros(*shape, dtype=torch.double)
    agree(device, crf, lambda m, h, y, k: m.log_prob(h, y, k), emissions(2, 1, 3), tags(2, 1), tags(2, 1))
    agree(device, crf, lambda m, h, y: m.log_prob(h, y), emissions(0, 2, 3), tags(0, 2))
    agree(device, crf, lambda m, h, y: m(h, y), emissions(4, 0, 3), tags(4, 0))
    agree(device, crf, lambda m, h: m.decode(h), emissions(0, 2, 3))
    agree(device, crf, lambda m, h: m.decode(h), emissions(4, 0, 3))
    agree(device, crf, lambda m, h, k: m.decode(h, k), emissions(4, 2, 3), tags(4, 2))
    for size in ((0, 2, 3), (4, 0, 3)):
        agree(device, crf, lambda m, h: m.k_best(h, 2), emissions(*size))
        agree(device, crf, lambda m, h: m.entropy(h), emissions(*size))
    agree(device, crf, lambda m, h, k: m.entropy(h, k), emissions(4, 2, 3), tags(4, 2))
    needy = module("O+", outside="inf")
    agree(device, needy, lambda m, h, y: m.log_prob(h, y), emissions(0, 2, 3), tags(0, 2))


def test_allowed_sets_and_forbidden_labels(device):
    crf = module(outside="skip")
    emissions, mask = ragged([4, 3, 4])
    torch.manual_seed(5)
    allowed, forbidden = torch.rand(4, 3, 3) < 0.7, torch.rand(4, 3, 3) < 0.2
    allowed[..., 0], forbidden[..., 0] = True, False
    allowed[1, 2] = False  # leaves the third out
    for kind in (torch.double, torch.float):
        module_of_kind, h = copy.deepcopy(crf).to(kind), emissions.to(kind)
        agree(device, module_of_kind, lambda m, h, a, k: m.log_prob(h, a, k), h, allowed, mask, weights=torch.randn(3))
        agree(device, module_of_kind, lambda m, h, f, k: m.log_partition(h, k, forbidden=f), h, forbidden, mask)
        agree(device, module_of_kind, lambda m, h, f, k: m.marginals(h, k, forbidden=f), h, forbidden, mask)
        agree(device, module_of_kind, lambda m, h, f, k: m.entropy(h, k, forbidden=f), h, forbidden, mask, weights=torch.randn(3))
        agree(device, module_of_kind, lambda m, h, f, k: m.posterior_decode(h, k, forbidden=f), h, forbidden, mask)
    there = copy.deepcopy(crf).to(device.device)
    with device.working():
        there.log_prob(*(to(device, x) for x in (emissions, allowed, mask)), outside="raise")
        with pytest.raises(regccrf.Error, match=r"\[partial_nll\] sequence 2"):
            there.raise_pending()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_it_is(device, dtype):
    crf = module(dtype=torch.float)
    emissions, mask = ragged(LENGTHS, dtype=torch.float)
    emissions, tags = emissions.to(dtype), legal_tags(crf, LENGTHS)
    agree(device, crf, lambda m, h, y, k: m.log_prob(h, y, k), emissions, tags, mask, tolerance=0.01)
    agree(device, crf, lambda m, h, k: m.log_partition(h, k), emissions, mask, tolerance=0.01)
    agree(device, crf, lambda m, h, k: m.marginals(h, k), emissions, mask, tolerance=0.01)
    agree(device, crf, lambda m, h, k: m.entropy(h, k), emissions, mask, tolerance=0.01)
    for call in (lambda m, h, k: m.decode(h, k), lambda m, h, k: m.posterior_decode(h, k), lambda m, h, k: m.sample(h, 3, k, seed=1)):
        agree(device, crf, call, emissions, mask)
    there, h = copy.deepcopy(crf).to(device.device), to(device, emissions).requires_grad_()
    with device.working(), torch.autocast(device.device.type, dtype=torch.bfloat16):
        value = there(h, to(device, tags), to(device, mask))
        value.backward()
    assert value.dtype == torch.float and h.grad.dtype == dtype and there.transitions.grad.dtype == torch.float
    assert torch.allclose(value.cpu(), crf(emissions, tags, mask), rtol=1e-4)


def test_non_contiguous_inputs(device):
    crf = module()
    emissions, mask = ragged(LENGTHS)
    tags = legal_tags(crf, LENGTHS)
    wide = torch.randn(12, 4, 6, dtype=torch.double)
    wide[::2, :, ::2] = emissions
    agree(device, crf, lambda m, h, y, k: m.log_prob(h[::2, :, ::2], y.t().contiguous().t(), k.t().contiguous().t()), wide, tags, mask)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_a_constraint_for_each_sequence(device, name, batch_first):
    crf = module(batch_first=batch_first)
    emissions, mask, tags = transposed(batch_first, *ragged(CHOICE_LENGTHS), gold())
    call = lambda m, h, y, k: METHODS[name](m, h, y, k, constraint=CHOICE)
    if name == "k_best":
        call = lambda m, h, y, k: [[path.labels for path in paths] for paths in m.k_best(h, 3, k, constraint=CHOICE)]
    agree(device, crf, call, emissions, tags, mask)


@pytest.mark.parametrize("outside", ["skip", "inf"])
@pytest.mark.parametrize("reduction", ["none", "mean", "token_mean"])
def test_reductions_under_several_constraints(device, reduction, outside):
    crf = module(outside=outside)
    emissions, mask = ragged(CHOICE_LENGTHS)
    tags = gold()
    tags[:2, 1] = 1  # B B: not in the second language
    agree(device, crf, lambda m, h, y, k: m(h, y, k, reduction, constraint=CHOICE), emissions, tags, mask)
    agree(device, crf, lambda m, h, k: m.sample(h, 2, k, seed=3, constraint=CHOICE), emissions, mask)


def test_errors_under_several_constraints_name_the_sequence(device):
    crf = module().to(device.device)
    emissions, mask = (to(device, x) for x in ragged(CHOICE_LENGTHS))
    tags = gold()
    tags[:2, 4] = 1
    short = regccrf.compile("O O", labels=LABELS)
    with device.working():
        for wait in (crf.raise_pending, lambda: crf.decode(emissions, mask), lambda: crf.k_best(emissions, 2, mask, constraint=CHOICE)):
            crf(emissions, to(device, tags), mask, constraint=CHOICE)
            with pytest.raises(regccrf.Error, match="sequence 4: the correct labels leave the language at position 1"):
                wait()
            wait()
        for method in (crf.decode, crf.posterior_decode):
            with pytest.raises(regccrf.Error, match="sequence 3 has length 3"):
                method(emissions, mask, constraint=[*CHOICE[:3], short, CHOICE[4]])
        for _ in range(100):
            crf.log_partition(emissions, mask, constraint=[regccrf.compile("O*", labels=LABELS), *CHOICE[1:]])
        assert len(crf._pending) < 70


def test_validation_in_inference_mode_may_come_first(device):
    crf = module("O*").to(device.device)
    emissions, tags = to(device, torch.zeros(3, 1, 3, dtype=torch.double)), to(device, torch.ones(3, 1).long())
    with device.working():
        with torch.inference_mode():
            crf.decode(emissions)
        crf.nll(emissions, tags)
        with pytest.raises(regccrf.Error, match="the correct labels leave the language"):
            crf.raise_pending()
        crf.nll(emissions, tags * 0).backward()
    assert crf.transitions.grad is not None


def test_a_constraint_is_on_the_device_until_its_layer_dies(device):
    crf = module("(O | B I*)* & at_most(17, B)").to(device.device)  # no other module has this constraint, which they would share
    with device.working():
        crf.log_partition(to(device, torch.zeros(2, 1, 3, dtype=torch.double)))
    handle = crf._handle
    assert handle in _torch_cuda._states
    del crf
    assert handle not in _torch_cuda._states


@pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="needs PyTorch 2.4")
def test_the_loss_compiles_without_a_graph_break(device):
    crf = module(dtype=torch.float).to(device.device)
    emissions, mask = (to(device, x) for x in ragged(LENGTHS, dtype=torch.float))
    tags = to(device, legal_tags(crf, LENGTHS))
    with device.working():
        found = []
        for function in (crf.forward, torch.compile(lambda *args: crf(*args), backend="aot_eager", fullgraph=True)):
            h = emissions.clone().requires_grad_()
            crf.zero_grad()
            function(h, tags, mask, "mean").backward()
            found.append({"emissions": h.grad, **{name: p.grad.clone() for name, p in crf.named_parameters()}})
    different = {name: (x - found[1][name]).abs().max().item() for name, x in found[0].items() if not torch.equal(x, found[1][name])}
    assert not different  # the same kernels in both


@pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="needs PyTorch 2.4")
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_operators_are_registered_as_they_behave(device, reduction):
    crf = module(dtype=torch.float).to(device.device)
    emissions, mask = (to(device, x) for x in ragged(LENGTHS, dtype=torch.float))
    tags, tests = to(device, legal_tags(crf, LENGTHS)), ("test_schema", "test_faketensor")
    with device.working():
        scores = [x.detach() for x in crf._scores(emissions.bfloat16(), mask, None, half=True)]
        request = LossRequest("nll", crf._handle, False, -1, reduction, want_h=True, want_g=True)
        torch.library.opcheck(torch.ops.regccrf.loss.default, (*scores, tags, *request, None), test_utils=tests)
        out, saved = loss(*scores, tags, *request)
        torch.library.opcheck(torch.ops.regccrf.loss_gradients.default,
                              (torch.ones_like(out), saved, *scores, tags, *[True] * 4, *request, None), test_utils=tests)
