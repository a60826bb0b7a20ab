"""The training loss on a device as autograd sees it: kinds of arguments, saved tensors, threads, errors."""

import gc
import random
import threading
import time
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import regccrf
from devices import agree, answers, device, to
from helpers import PATTERNS, legal_tags, module, ragged

LENGTHS = [6, 2, 5, 1]


def batch(device, dtype=torch.double):
    crf, (h, mask) = module(dtype=dtype).to(device.device), (to(device, x) for x in ragged(LENGTHS, dtype=dtype))
    return crf, h, mask, to(device, legal_tags(crf, LENGTHS))


@pytest.mark.parametrize("seed", range(24))
def test_arguments_of_all_kinds(device, seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    dtype = draw.choice([torch.float, torch.double])
    batch_first, start_end, masked = (draw.random() < 0.5 for _ in range(3))
    lengths = [draw.randint(1, 9) for _ in range(draw.randint(1, 5))] if masked else [draw.randint(1, 9)] * 3
    outside, reduction = draw.choice(["raise", "skip", "inf"]), draw.choice(["none", "sum", "mean", "token_mean"])
    crf = module(draw.choice(PATTERNS[:3]), dtype, start_end=start_end, batch_first=batch_first)
    emissions, mask = ragged(lengths, dtype=dtype)
    tags = legal_tags(crf, lengths)
    if outside != "raise":
        tags[0, 0] = 1  # I, where none can be
    if batch_first:
        emissions, mask, tags = (x.transpose(0, 1) for x in (emissions, mask, tags))  # not contiguous either
    weights = torch.randn(len(lengths) if reduction == "none" else (), dtype=dtype)
    method = draw.choice(["nll", "forward"])
    agree(device, crf, lambda m, h, y, k: getattr(m, method)(h, y, k, reduction, outside=outside), emissions, tags, mask if masked else None,
          weights=weights)


def test_wrong_arguments(device):
    crf, h, mask, tags = batch(device, torch.float)
    with device.working():
        for wrong, message in ((dict(emissions=h[..., :2]), "last dimension"), (dict(tags=tags[:2]), "first two dimensions"),
                               (dict(mask=mask[:2]), "first two dimensions"), (dict(reduction="all"), "reduction")):
            with pytest.raises(ValueError, match=message):
                crf.nll(**{"emissions": h, "tags": tags, "mask": mask, **wrong})
        with pytest.raises(TypeError, match="label ids"):
            crf.nll(h, tags.float(), mask)
        with pytest.raises(TypeError, match="mask is"):
            crf.nll(h, tags, mask.float())


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("create_graph", [False, True])
def test_which_gradients_there_are_is_settled_by_the_loss(device, first, create_graph):
    """Parameters that are frozen or unfrozen before its backward pass change nothing."""
    crf, h, mask, tags = batch(device)
    h.requires_grad_()
    crf.transitions.requires_grad_(first)
    with device.working():
        loss = crf.nll(h, tags, mask)
        expected, = torch.autograd.grad(loss, h, retain_graph=True)
        crf.transitions.requires_grad_(not first)
        found, = torch.autograd.grad(loss, h, create_graph=create_graph)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("without", ["start_transitions", "end_transitions"])
def test_start_without_end(device, without):
    crf, (h, mask) = module(), ragged(LENGTHS)
    setattr(crf, without, None)
    agree(device, crf, lambda m, x, y, k: m.nll(x, y, k), h, legal_tags(crf, LENGTHS), mask)


def test_checkpoints(device):
    crf, (h, mask) = module(), ragged(LENGTHS)
    agree(device, crf, lambda m, x, y, k: checkpoint(lambda z: m.nll(2 * z, y, k), x, use_reentrant=False), h, legal_tags(crf, LENGTHS), mask)


def test_without_gradients_nothing_is_saved(device):
    crf, h, mask, tags = batch(device)
    with device.working(), torch.no_grad():
        value = crf.nll(h, tags, mask)
    assert value.grad_fn is None and not value.requires_grad
    with device.working():
        assert torch.equal(value, crf.nll(h, tags, mask).detach())


def test_a_graph_is_used_once_and_with_what_it_saw(device):
    crf, h, mask, tags = batch(device)
    h.requires_grad_()
    with device.working():
        loss = crf.nll(h, tags, mask)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        loss = crf.nll(h, tags, mask)
        mask.logical_not_()
        with pytest.raises(RuntimeError, match="inplace operation"):
            loss.backward()


def test_what_the_core_refuses_is_an_error_of_ours(device):
    crf = module(dtype=torch.float, batch_first=True).to(device.device)
    h, tags = to(device, torch.zeros(70000, 1, 3)), to(device, torch.zeros(70000, 1, dtype=torch.long))
    with device.working(), pytest.raises(regccrf.Error, match="70000 sequences"):
        crf.nll(h, tags)


def test_hooks_on_what_is_saved(device):
    """As torch.autograd.graph.save_on_cpu has them."""
    crf, h, mask, tags = batch(device)
    packed = []
    with device.working():
        expected = answers(crf, lambda m, x: m.nll(x, tags, mask), [h])
        with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x.clone(), lambda x: x.clone()):
            found = answers(crf, lambda m, x: m.nll(x, tags, mask), [h])
    assert len(packed) >= 5 and all(torch.equal(x, y) for x, y in zip(found, expected))


def test_a_graph_lets_go(device):
    """Of the constraint, and of memory, without the collector's help."""
    crf, h = module().to(device.device), to(device, torch.randn(3, 2, 3, dtype=torch.double)).requires_grad_()
    tags = torch.zeros(3, 2, dtype=torch.long, device=device.device)
    gc.disable()
    try:
        with device.working():
            other = crf.with_constraint("O* (B I*)*")
            seen = weakref.ref(other.constraint)
            loss = other.nll(h, tags)
            del other
            assert seen() is not None
            torch.autograd.grad(loss, h, create_graph=True)[0].sum().backward()
            del loss
        for _ in range(500):  # autograd's thread has it for a moment longer
            if seen() is not None:
                time.sleep(0.01)
        assert seen() is None
    finally:
        gc.enable()


def test_threads(device):
    if device.device.type == "cpu":
        pytest.skip("the emulator takes one call at a time")
    crf, h, mask, tags = batch(device)
    same = []

    def gradients():
        x = h.clone().requires_grad_()
        return torch.autograd.grad(crf.nll(x, tags, mask), [x, *crf.parameters()])

    def run():
        same.extend(all(torch.equal(x, y) for x, y in zip(gradients(), expected)) for _ in range(10))

    expected = gradients()
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 40
