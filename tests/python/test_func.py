"""The transforms of torch.func: the answers of autograd and of loops."""

import pytest
import torch

import regccrf
from helpers import legal_tags, module, ragged

if not hasattr(torch, "func"):
    pytest.skip("torch.func came with PyTorch 2.0", allow_module_level=True)

from torch.func import functional_call, grad, jacfwd, jacrev, vmap

LENGTHS = [4, 2, 3]
EMISSIONS, MASK = ragged(LENGTHS)
CRF = module("(O | B I*)* & at_most(2, B)", outside="skip")
TAGS = legal_tags(CRF, LENGTHS)
ALLOWED = EMISSIONS > -1
MANY = torch.stack([EMISSIONS, 2 * EMISSIONS, -EMISSIONS])
OUTSIDE = TAGS.clone()
OUTSIDE[0, 1] = 2  # begins with I
SCALARS = {
    "nll": lambda m, h: m.nll(h, TAGS, MASK),
    "mean": lambda m, h: m.nll(h, TAGS, MASK, "mean"),
    "token_mean": lambda m, h: m.nll(h, TAGS, MASK, "token_mean"),
    "skipped": lambda m, h: m.nll(h, OUTSIDE, MASK, "token_mean"),
    "weighted": lambda m, h: (m.log_prob(h, TAGS, MASK) * torch.tensor([1.0, 2.0, 3.0])).sum(),
    "allowed sets": lambda m, h: m.nll(h, ALLOWED, MASK),
    "log_partition": lambda m, h: m.log_partition(h, MASK).pow(2).sum(),
    "entropy": lambda m, h: m.entropy(h, MASK).pow(2).sum(),
    "language_mass": lambda m, h: m.language_mass(h, MASK).pow(2).sum(),
    "marginals": lambda m, h: m.marginals(h, MASK).pow(3).sum(),
    "constraints": lambda m, h: m.log_partition(h, MASK, constraint=["O*", "(O | B)*", ".*"]).sum(),
}


def slope(function, h):
    h = h.clone().requires_grad_()
    return torch.autograd.grad(function(CRF, h), h)[0]


@pytest.mark.parametrize("name", SCALARS)
def test_grad_and_vmap(name):
    function = lambda h: SCALARS[name](CRF, h)
    assert torch.allclose(grad(function)(EMISSIONS), slope(SCALARS[name], EMISSIONS))
    assert torch.allclose(vmap(function)(MANY), torch.stack([function(h) for h in MANY]))
    assert torch.allclose(vmap(grad(function))(MANY), torch.stack([slope(SCALARS[name], h) for h in MANY]))


def test_gradients_for_each_sequence():
    """What differentially private training asks for."""
    parameters = {name: p.detach() for name, p in CRF.named_parameters()}

    def one(parameters, h, tags, mask):
        return functional_call(CRF, parameters, (h.unsqueeze(1), tags.unsqueeze(1), mask.unsqueeze(1)))
    found = vmap(grad(one), in_dims=(None, 1, 1, 1))(parameters, EMISSIONS, TAGS, MASK)
    for i in range(3):
        CRF.zero_grad()
        CRF(EMISSIONS[:, i:i + 1], TAGS[:, i:i + 1], MASK[:, i:i + 1]).backward()
        assert all(torch.allclose(found[name][i], p.grad) for name, p in CRF.named_parameters())


def test_several_models_at_once():
    parameters = {name: torch.stack([p.detach(), 3 * p.detach()]) for name, p in CRF.named_parameters()}
    found = vmap(lambda p: functional_call(CRF, p, (EMISSIONS, TAGS, MASK)))(parameters)
    each = [functional_call(CRF, {n: p[i] for n, p in parameters.items()}, (EMISSIONS, TAGS, MASK)) for i in range(2)]
    assert torch.allclose(found, torch.stack(each))


@pytest.mark.parametrize("name", ["nll", "weighted", "log_partition"])
def test_second_derivatives(name):
    function = lambda h: SCALARS[name](CRF, h)
    assert torch.allclose(jacrev(grad(function))(EMISSIONS), torch.autograd.functional.hessian(function, EMISSIONS))


@pytest.mark.parametrize("call, words", [
    (lambda: grad(lambda h: CRF.decode(h))(EMISSIONS), "outside of grad and vmap"),
    (lambda: vmap(lambda h: CRF.k_best(h, 2))(MANY), "outside of grad and vmap"),
    (lambda: jacfwd(lambda h: CRF.log_partition(h))(EMISSIONS), "no forward-mode derivatives"),
    (lambda: grad(grad(lambda x: CRF.entropy(x * EMISSIONS).sum()))(torch.tensor(1.0).double()), "can be differentiated once"),
    (lambda: grad(lambda h: CRF.nll(h, OUTSIDE, MASK, outside="raise"))(EMISSIONS), "the correct labels leave the language"),
])
def test_what_does_not_work_says_so(call, words):
    with pytest.raises((regccrf.Error, RuntimeError), match=words):
        call()
