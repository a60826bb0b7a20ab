"""Gradients of gradients on CUDA tensors: of losses, and of marginals, which are a gradient themselves."""

import copy

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from devices import agree, answers, device, to, transposed
from helpers import PATTERNS, functional, inputs, legal_tags, module, ragged
from regccrf import _torch_cpu, _torch_cuda
from regccrf._torch_ops import LossRequest, loss
from test_constraints import CHOICE
from test_constraints import LENGTHS as CHOICE_LENGTHS


@pytest.fixture(autouse=True)
def nothing_comes_to_the_cpu(monkeypatch):
    """While a device works, the operations of the CPU are not called."""
    def refuse(*args, **rest):
        assert not _torch_cuda.on_device(args[0]), "this came to the CPU"
        return memory(*args, **rest)
    memory = _torch_cpu.Memory
    monkeypatch.setattr(_torch_cpu, "Memory", refuse)


@pytest.mark.parametrize("pattern, batch_first, start_end", [(PATTERNS[0], False, True), (PATTERNS[1], True, False), (PATTERNS[2], True, True)])
def test_second_derivatives_are_exact(device, pattern, batch_first, start_end):
    crf = module(pattern, batch_first=batch_first, start_end=start_end).to(device.device)
    emissions, mask, tags = (to(device, x) for x in transposed(batch_first, *ragged([4, 2, 3]), legal_tags(crf, [4, 2, 3])))
    with device.working():
        for call in (lambda m, h: m.log_partition(h, mask), lambda m, h: m.log_prob(h, tags, mask),
                     lambda m, h: m.nll(h, tags, mask, "mean"), lambda m, h: m(h, tags, mask, "token_mean")):
            assert gradgradcheck(functional(crf, call), inputs(crf, emissions), fast_mode=True)
        assert gradcheck(functional(crf, lambda m, h: m.marginals(h, mask)), inputs(crf, emissions))


def test_second_derivatives(device):
    crf = module()
    emissions, mask = ragged([4, 2, 3])
    tags = legal_tags(crf, [4, 2, 3])

    def penalty(m, h, *rest):
        value = m.log_prob(h, *rest[::-1]) if len(rest) == 2 else m.log_partition(h, *rest)
        gradients = torch.autograd.grad(value.pow(2).sum(), [h, m.transitions], create_graph=True)
        return sum(x.pow(2).sum() for x in gradients)

    agree(device, crf, penalty, emissions, mask)
    agree(device, crf, penalty, emissions, mask, tags)


def test_second_derivatives_under_several_constraints(device):
    crf = module()
    emissions, mask = ragged(CHOICE_LENGTHS)

    def penalty(m, h, k):
        slope, = torch.autograd.grad(m.log_partition(h, k, constraint=CHOICE).pow(2).sum(), h, create_graph=True)
        return slope.pow(2).sum()
    agree(device, crf, penalty, emissions, mask)


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_gradients_of_marginals(device, dtype):
    crf = module(dtype=dtype)
    emissions, mask = ragged([5, 1, 4], dtype=dtype)
    weights = torch.randn(5, 3, 3, dtype=dtype)
    agree(device, crf, lambda m, h, k: m.marginals(h, k), emissions, mask, weights=weights)
    agree(device, crf, lambda m, h, k: m.marginals(h, k).transpose(0, 2), emissions, mask, weights=weights.transpose(0, 2).contiguous())
    agree(device, crf, lambda m, h, k: m.marginals(h.half(), k), emissions, mask, weights=weights, tolerance=0.01)
    forbidden = torch.zeros(5, 3, 3, dtype=torch.bool)
    forbidden[1, 0, 0] = True
    agree(device, crf, lambda m, h, k, f: m.marginals(h, k, forbidden=f), emissions, mask, forbidden, weights=weights)


@pytest.mark.parametrize("names", [("emissions",), ("transitions",), ("start_transitions",), ("emissions", "end_transitions")])
def test_second_derivatives_are_computed_where_they_are_wanted(device, names):
    crf = module()
    emissions, mask = ragged([4, 2, 3])
    tags = legal_tags(crf, [4, 2, 3])
    for name, parameter in crf.named_parameters():
        parameter.requires_grad_(name in names)

    def slopes(crf, h, y, k):
        h = h.requires_grad_("emissions" in names)
        wanted = [x for x in (h, *crf.parameters()) if x.requires_grad]
        first = torch.autograd.grad(crf.nll(h, y, k, "mean"), wanted, create_graph=True)
        return [*first, *torch.autograd.grad(sum(x.pow(3).sum() for x in first), wanted)]

    expected = slopes(crf, emissions.clone(), tags, mask)
    with device.working():
        found = slopes(copy.deepcopy(crf).to(device.device), *(to(device, x.clone()) for x in (emissions, tags, mask)))
    assert all(torch.allclose(x.cpu(), y, atol=1e-9) for x, y in zip(found, expected))


def test_gold_outside_the_language_has_no_second_derivative(device):
    crf = module().to(device.device)
    emissions, mask = (to(device, x) for x in ragged([4, 2, 3]))
    tags = to(device, legal_tags(crf, [4, 2, 3]))
    tags[0, 1] = 2  # I: nothing begins so
    h, along = emissions.requires_grad_(), to(device, torch.randn(4, 3, 3, dtype=torch.double))
    with device.working():
        loss = crf.nll(h, tags, mask, "none", outside="skip")
        first, = torch.autograd.grad(loss.sum(), h, create_graph=True)
        second, = torch.autograd.grad((first * along).sum(), h)
    assert torch.isfinite(second).all() and second[:, 1].eq(0).all() and second[:, 0].ne(0).any() and second[:, 2].ne(0).any()


def test_a_direction_may_be_large(device):
    """It is no score, so nothing bounds it."""
    crf = module()
    emissions, mask = ragged([4, 2, 3])
    weights = torch.randn(4, 3, 3, dtype=torch.double)
    expected = answers(crf, lambda m, h: m.marginals(h, mask), [emissions], weights)
    with device.working():
        found = answers(copy.deepcopy(crf).to(device.device), lambda m, h: m.marginals(h, to(device, mask)), [to(device, emissions)],
                        to(device, 1e15 * weights))
    assert all(torch.allclose(x.cpu() / 1e15, y, rtol=1e-9) for x, y in zip(found[1:], expected[1:]))


def test_a_graph_keeps_its_constraint(device):
    crf, h = module().to(device.device), to(device, torch.randn(3, 2, 3, dtype=torch.double)).requires_grad_()
    with device.working():
        for call in (lambda m: torch.autograd.grad(m.log_partition(h).sum(), h, create_graph=True)[0], lambda m: m.marginals(h)):
            expected, = torch.autograd.grad(call(crf).pow(2).sum(), h)
            value = call(crf.with_constraint("(O | B I*)*")).pow(2).sum()  # of a layer that is gone
            assert torch.allclose(torch.autograd.grad(value, h)[0], expected)


def test_no_second_derivative_is_invented(device):
    crf, h = module().to(device.device), to(device, torch.randn(3, 1, 3, dtype=torch.double)).requires_grad_()
    with device.working(), pytest.raises(RuntimeError, match="once"):
        torch.autograd.grad(crf.entropy(h).sum(), h, create_graph=True)


def test_second_derivatives_of_half_precision(device):
    crf = module(dtype=torch.float)
    emissions, mask = ragged([4, 2, 3], dtype=torch.float)
    tags = legal_tags(crf, [4, 2, 3])

    def penalty(m, h, y, k):
        first, = torch.autograd.grad(m.nll(h.half(), y, k), h, create_graph=True)
        return first.pow(2).sum()
    agree(device, crf, penalty, emissions, tags, mask, tolerance=0.01)


def test_empty_sequences_and_batches(device):
    crf = module()
    for T, B in ((0, 2), (3, 0), (1, 1)):
        agree(device, crf, lambda m, h: m.marginals(h), torch.randn(T, B, 3, dtype=torch.double))

        def penalty(m, h):
            first = torch.autograd.grad(m.log_partition(h).sum(), [h, m.transitions], create_graph=True)
            return sum(x.pow(2).sum() for x in first)
        agree(device, crf, penalty, torch.randn(T, B, 3, dtype=torch.double))


@pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="needs PyTorch 2.4")
def test_marginals_compile_with_their_gradients(device):
    crf = module(dtype=torch.float).to(device.device)
    emissions, mask = (to(device, x) for x in ragged([5, 1, 4], dtype=torch.float))
    with device.working():
        found = []
        for function in (crf.marginals, torch.compile(lambda *args: crf.marginals(*args), backend="aot_eager", fullgraph=True)):
            h = emissions.clone().requires_grad_()
            crf.zero_grad()
            function(h, mask).pow(2).sum().backward()
            found.append([h.grad, *(p.grad.clone() for p in crf.parameters())])
    assert all(torch.equal(x, y) for x, y in zip(*found))


@pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="needs PyTorch 2.4")
def test_the_operator_is_registered_as_it_behaves(device):
    crf = module(dtype=torch.float).to(device.device)
    emissions, mask = (to(device, x) for x in ragged([5, 1, 4], dtype=torch.float))
    with device.working():
        scores = [x.detach() for x in crf._scores(emissions, mask, None, half=True)]
        none = torch.empty(0, dtype=torch.int64, device=device.device)
        request = LossRequest("log_z", crf._handle, False, errors="none", want_h=True, want_g=True)
        out, saved = loss(*scores, none, *request)
        direction = [torch.randn_like(x) for x in scores[:4]]
        torch.library.opcheck(torch.ops.regccrf.loss_curvature.default,
                              (*direction, torch.ones_like(out), saved, *scores, none, *request, None), test_utils=("test_schema", "test_faketensor"))
