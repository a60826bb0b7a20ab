"""Agreement with pytorch-crf 0.7.2, the module that `CRF` stands in for."""

import inspect

import numpy as np
import pytest
import torch

from regccrf.torch import CRF

torchcrf = pytest.importorskip("torchcrf", reason="pytorch-crf is not installed: nothing to agree with")


def pair(K=5, batch_first=False, dtype=torch.float64):
    torch.manual_seed(3)
    theirs = torchcrf.CRF(K, batch_first=batch_first).to(dtype)
    ours = CRF(K, batch_first=batch_first).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def batch(K=5, T=7, lengths=(7, 3, 1, 5), batch_first=False, dtype=torch.float64):
    torch.manual_seed(5)
    emissions = 2 * torch.randn(T, len(lengths), K, dtype=dtype)
    tags = torch.randint(K, (T, len(lengths)))
    mask = torch.arange(T).unsqueeze(1) < torch.tensor(lengths)
    return tuple(x.transpose(0, 1) if batch_first else x for x in (emissions, tags, mask))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("mask_type", [torch.bool, torch.uint8, None])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
@pytest.mark.filterwarnings("ignore:where received a uint8")
def test_the_same_loss_and_gradients(reduction, mask_type, batch_first):
    ours, theirs = pair(batch_first=batch_first)
    emissions, tags, mask = batch(batch_first=batch_first)
    mask = None if mask_type is None else mask.to(mask_type)
    if mask_type is torch.uint8 and not hasattr(torch, "uint16"):
        expected_mask = mask
    else:
        expected_mask = mask if mask is None else mask.bool()
    results = []
    for crf, crf_mask in ((ours, mask), (theirs, expected_mask)):
        h = emissions.clone().requires_grad_()
        value = crf(h, tags, crf_mask, reduction)
        value.sum().backward()
        results.append([value.detach(), h.grad, *(p.grad for _, p in sorted(crf.named_parameters()))])
    for x, y in zip(*results):
        assert x.shape == y.shape and x.dtype == y.dtype and torch.allclose(x, y, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("batch_first", [False, True])
def test_the_same_decode(batch_first):
    ours, theirs = pair(batch_first=batch_first)
    emissions, _, mask = batch(batch_first=batch_first)
    assert ours.decode(emissions, mask) == theirs.decode(emissions, mask)
    assert ours.decode(emissions) == theirs.decode(emissions)


@pytest.mark.parametrize("batch_first", [False, True])
def test_the_same_private_methods(batch_first):
    """Public scripts call them: T before B, whatever batch_first says."""
    ours, theirs = pair(batch_first=batch_first)
    emissions, tags, mask = batch()
    found = []
    for crf in (ours, theirs):
        h = emissions.clone().requires_grad_()
        score, normalizer = crf._compute_score(h, tags, mask), crf._compute_normalizer(h, mask)
        (score - normalizer).sum().backward()
        found.append([score, normalizer, h.grad, *(p.grad for _, p in sorted(crf.named_parameters()))])
    assert all(x.shape == y.shape and torch.allclose(x, y) for x, y in zip(*found))
    assert ours._viterbi_decode(emissions, mask) == theirs._viterbi_decode(emissions, mask)
    assert ours.batch_first == batch_first
    for name in ("_compute_score", "_compute_normalizer", "_viterbi_decode"):
        assert list(inspect.signature(getattr(ours, name)).parameters) == list(inspect.signature(getattr(theirs, name)).parameters)


@pytest.mark.parametrize("number", [np.int64(5), np.int32(5), torch.tensor(5)])
def test_numbers_of_any_kind(number):
    ours, theirs = CRF(number), torchcrf.CRF(number)
    assert type(ours.num_tags) is int and ours.transitions.shape == theirs.transitions.shape


def test_float32_agrees_too():
    ours, theirs = pair(K=9, dtype=torch.float32)
    emissions, tags, mask = batch(K=9, T=40, lengths=(40, 17, 33), dtype=torch.float32)
    assert torch.allclose(ours(emissions, tags, mask, "mean"), theirs(emissions, tags, mask, "mean"), rtol=1e-5)
    assert ours.decode(emissions, mask) == theirs.decode(emissions, mask)


def test_parameters_repr_and_state():
    ours, theirs = pair()
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [p.shape for p in ours.parameters()] == [p.shape for p in theirs.parameters()]
    theirs.load_state_dict(ours.state_dict())
    torch.manual_seed(1)
    ours.reset_parameters()
    torch.manual_seed(1)
    theirs.reset_parameters()
    assert all(torch.equal(ours.state_dict()[key], value) for key, value in theirs.state_dict().items())


@pytest.mark.parametrize("call", [
    lambda crf: crf(torch.zeros(2, 5), torch.zeros(2, dtype=torch.long)),
    lambda crf: crf(torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long)),
    lambda crf: crf(torch.zeros(2, 3, 5), torch.zeros(2, 2, dtype=torch.long)),
    lambda crf: crf(torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.long), torch.ones(3, 3, dtype=torch.bool)),
    lambda crf: crf(torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.long), reduction="foo"),
    lambda crf: crf.decode(torch.zeros(2, 5)),
    lambda crf: crf.decode(torch.zeros(2, 3, 4)),
    lambda crf: crf.decode(torch.zeros(2, 3, 5), torch.ones(2, 2, dtype=torch.bool)),
    lambda crf: type(crf)(0),
    lambda crf: type(crf)(-3),
])
def test_the_same_errors(call):
    messages = []
    for crf in pair(dtype=torch.float32):
        with pytest.raises(ValueError) as error:
            call(crf)
        messages.append(str(error.value))
    assert messages[0].startswith(messages[1])  # ours may say more
