"""torch.compile captures the layer in one graph."""

import itertools

import pytest
import torch

from helpers import legal_tags, module, ragged
from regccrf._torch_ops import LossRequest, loss

if not hasattr(torch.library, "custom_op"):
    pytest.skip("torch.compile with custom operators needs PyTorch 2.4", allow_module_level=True)


def compiled(function):
    return torch.compile(function, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize("reduction", ["sum", "mean", "token_mean", "none"])
def test_the_loss_compiles_without_a_graph_break(reduction):
    crf = module()
    emissions, mask = ragged([4, 3])
    tags = legal_tags(crf, [4, 3])
    weights = torch.tensor([1.0, 3.0], dtype=torch.double)
    gradients = []
    for function in (crf.forward, compiled(lambda *args: crf(*args))):
        h = emissions.clone().requires_grad_()
        crf.zero_grad()
        value = function(h, tags, mask, reduction)
        (value * weights).sum().backward()
        gradients.append([value.detach(), h.grad, *(p.grad.clone() for p in crf.parameters())])
    assert all(torch.allclose(x, y) for x, y in zip(*gradients))


@pytest.mark.parametrize("method", ["log_partition", "entropy", "language_mass", "marginals"])
def test_other_methods_compile_too(method):
    crf = module()
    emissions, mask = ragged([4, 3])
    gradients = []
    for function in (getattr(crf, method), compiled(lambda *args: getattr(crf, method)(*args))):
        h = emissions.clone().requires_grad_()
        value = function(h, mask)
        (value ** 2).sum().backward()
        gradients.append([value.detach(), h.grad])
    assert all(torch.allclose(x, y) for x, y in zip(*gradients))


def test_shapes_may_change():
    crf = module()
    function = torch.compile(lambda h: crf.log_partition(h).sum(), backend="aot_eager", fullgraph=True, dynamic=True)
    for T in (3, 5, 8):
        h = torch.randn(T, 2, 3, dtype=torch.double)
        assert torch.allclose(function(h), crf.log_partition(h).sum())


def test_a_graph_has_no_bytes_of_constraints():
    """Only exported programs need them; on a device they would keep CUDA graphs away."""
    crf, inputs = module(), []
    emissions, _ = ragged([4, 3])
    torch.compile(lambda h: crf.log_partition(h).sum(), backend=lambda graph, given: inputs.extend(given) or graph, fullgraph=True)(emissions)
    assert len(inputs) == 4 and all(x.dtype == torch.double for x in inputs)


def test_operators_are_registered_as_they_behave():
    crf = module()
    emissions, mask = ragged([4, 3])
    scores = [x.detach() for x in crf._scores(emissions, mask, None)]
    tags, direction = legal_tags(crf, [4, 3]).to(torch.int32), [torch.randn_like(x) for x in scores[:4]]
    for operation, reduction, want in itertools.product(["log_z", "nll"], ["none", "mean"], [False, True]):
        request = LossRequest(operation, crf._handle, False, reduction=reduction, want_h=want, want_g=want)
        torch.library.opcheck(torch.ops.regccrf.loss.default, (*scores, tags, *request, None))
        out, saved = loss(*scores, tags, *request)
        weights = torch.ones_like(out)
        torch.library.opcheck(torch.ops.regccrf.loss_gradients.default, (weights, saved, *scores, tags, *[True] * 4, *request, None))
        torch.library.opcheck(torch.ops.regccrf.loss_curvature.default, (*direction, weights, saved[:1], *scores, tags, *request, None))


def test_labels_compile_too():
    crf = module()
    function = torch.compile(lambda h, k: crf.decode_tensor(h, k, fill=-100), backend="aot_eager", fullgraph=True, dynamic=True)
    for lengths in ([4, 3], [1, 6, 2]):
        emissions, mask = ragged(lengths)
        assert torch.equal(function(emissions.requires_grad_(), mask), crf.decode_tensor(emissions, mask, fill=-100))
