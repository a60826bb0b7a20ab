"""The training loss by the node in C++, where it was built, beside the same loss in Python; and how it is built (regccrf/node.py).

Where there is a node, the other test_cuda*.py are about it too; with REGCCRF_NODE=0 in the environment they are about Python alone.
"""

import contextlib
import gc
import itertools
import os
import random
import threading
import time
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import needs
import regccrf
from devices import answers, device, to
from helpers import PATTERNS, legal_tags, module, ragged
from regccrf import _core, _torch_cuda, _torch_ops, node

LENGTHS = [6, 2, 5, 1]


class Counted:
    """The node, and how many of the calls it took."""

    def __init__(self, there):
        self.there, self.taken = there, []

    def nll(self, *args):
        answer = self.there.nll(*args)
        self.taken.append(answer is not None)
        return answer


@pytest.fixture
def counted(device, monkeypatch):
    if os.environ.get("REGCCRF_NODE") == "0":
        pytest.skip("REGCCRF_NODE=0 asks for losses without the node")
    needs.need(_torch_ops._node is not None, "there is no node: python -m regccrf.node builds it")
    there = Counted(_torch_ops._node)
    monkeypatch.setattr(_torch_ops, "_node", there)
    return there


def both(counted, monkeypatch, call):
    """What call() gives with the node, and without."""
    found = call()
    with monkeypatch.context() as patch:
        patch.setattr(_torch_ops, "_node", None)
        return found, call()


@pytest.mark.parametrize("seed", range(24))
def test_the_node_gives_what_python_gives(device, counted, monkeypatch, seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    dtype, half = draw.choice([(torch.float, None), (torch.double, None), (torch.float, torch.bfloat16), (torch.float, torch.half)])
    batch_first, start_end, masked = (draw.random() < 0.5 for _ in range(3))
    lengths = [draw.randint(1, 9) for _ in range(draw.randint(1, 5))] if masked else [draw.randint(1, 9)] * 3
    outside, reduction = draw.choice(["raise", "skip", "inf"]), draw.choice(["none", "sum", "mean", "token_mean"])
    crf = module(draw.choice(PATTERNS[:3]), dtype, start_end=start_end, batch_first=batch_first).to(device.device)
    emissions, mask = ragged(lengths, dtype=dtype)
    tags = legal_tags(crf, lengths)
    if outside != "raise":
        tags[0, 0] = 1  # I, where none can be
    if batch_first:
        emissions, mask, tags = (x.transpose(0, 1) for x in (emissions, mask, tags))  # not contiguous either
    h, tags, mask = to(device, emissions.to(half or dtype)), to(device, tags), to(device, mask) if masked else None
    weights = torch.randn(len(lengths) if reduction == "none" else (), dtype=dtype)
    method = draw.choice(["nll", "forward"])

    def run():
        with device.working():
            return answers(crf, lambda m, x: getattr(m, method)(x, tags, mask, reduction, outside=outside), [h], to(device, weights))

    found, expected = both(counted, monkeypatch, run)
    assert counted.taken == [True]
    assert len(found) == len(expected)
    for x, y in zip(found, expected):  # the same kernels
        assert x.dtype == y.dtype and x.shape == y.shape and torch.equal(torch.nan_to_num(x), torch.nan_to_num(y))


def test_second_derivatives_are_pythons(device, counted, monkeypatch):
    crf, (h, mask) = module().to(device.device), (to(device, x) for x in ragged(LENGTHS))
    tags = to(device, legal_tags(crf, LENGTHS))

    def penalty(m, x):
        slopes = torch.autograd.grad(m.nll(x, tags, mask, "mean"), [x, m.transitions], create_graph=True)
        return sum(slope.pow(2).sum() for slope in slopes)

    def run():
        with device.working():
            return answers(crf, penalty, [h])

    found, expected = both(counted, monkeypatch, run)
    assert counted.taken == [True] and all(torch.equal(x, y) for x, y in zip(found, expected))


def test_what_is_not_common_is_pythons(device, counted, monkeypatch):
    crf, (h, mask) = module(dtype=torch.float).to(device.device), (to(device, x) for x in ragged(LENGTHS, dtype=torch.float))
    tags = to(device, legal_tags(crf, LENGTHS))
    forbidden = torch.zeros_like(h, dtype=torch.bool)
    for some in ({"tags": tags.int()}, {"mask": mask.to(torch.uint8)}, {"mask": mask.long()}, {"emissions": h.double()}, {"forbidden": forbidden}):
        arguments = {"emissions": h, "tags": tags, "mask": mask, **some}
        counted.taken.clear()

        def run():
            with device.working():
                return answers(crf, lambda m: m.nll(**arguments), [])

        found, expected = both(counted, monkeypatch, run)
        assert not any(counted.taken), some
        assert all(torch.equal(x, y) for x, y in zip(found, expected))
    with device.working():
        for wrong, message in ((dict(emissions=h[..., :2]), "last dimension"), (dict(tags=tags[:2]), "first two dimensions"),
                               (dict(mask=mask[:2]), "first two dimensions"), (dict(reduction="all"), "reduction")):
            with pytest.raises(ValueError, match=message):
                crf.nll(**{"emissions": h, "tags": tags, "mask": mask, **wrong})
        wide = module(dtype=torch.float).to(device.device)
        wide.transitions = torch.nn.Parameter(torch.zeros(5, 5, device=device.device))
        with pytest.raises(ValueError, match="last dimension"):
            wide.nll(torch.zeros(4, 2, 5, device=device.device), torch.zeros(4, 2, dtype=torch.long, device=device.device))
        with pytest.raises(TypeError, match="label ids"):
            crf.nll(h, tags.float(), mask)
        with pytest.raises(TypeError, match="mask is"):
            crf.nll(h, tags, mask.float())


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("again", [lambda loss, h: torch.autograd.grad(loss, h), lambda loss, h: torch.autograd.grad(loss, h, create_graph=True)])
def test_which_gradients_there_are_is_settled_by_the_loss(device, counted, monkeypatch, first, again):
    """Parameters that are frozen or unfrozen before its backward pass change nothing."""
    (h, mask), tags = (to(device, x) for x in ragged(LENGTHS)), to(device, legal_tags(module(), LENGTHS))

    def run():
        crf, x = module().to(device.device), h.clone().requires_grad_()
        crf.transitions.requires_grad_(first)
        with device.working():
            loss = crf.nll(x, tags, mask)
            found = torch.autograd.grad(loss, x, retain_graph=True)
            crf.transitions.requires_grad_(not first)
            return [*found, *again(loss, x)]

    found, expected = both(counted, monkeypatch, run)
    assert counted.taken == [True] and all(torch.equal(x, y) for x, y in zip(found, expected))


@pytest.mark.parametrize("without", ["start_transitions", "end_transitions"])
def test_start_without_end(device, counted, monkeypatch, without):
    crf, (h, mask) = module().to(device.device), (to(device, x) for x in ragged(LENGTHS))
    tags = to(device, legal_tags(crf, LENGTHS))
    setattr(crf, without, None)

    def run():
        with device.working():
            return answers(crf, lambda m, x: m.nll(x, tags, mask), [h])

    found, expected = both(counted, monkeypatch, run)
    assert counted.taken == [True] and len(found) == 4 and all(torch.equal(x, y) for x, y in zip(found, expected))


def test_checkpoints(device, counted, monkeypatch):
    crf, (h, mask) = module().to(device.device), (to(device, x) for x in ragged(LENGTHS))
    tags = to(device, legal_tags(crf, LENGTHS))

    def run():
        with device.working():
            return answers(crf, lambda m, x: checkpoint(lambda y: m.nll(2 * y, tags, mask), x, use_reentrant=False), [h])

    found, expected = both(counted, monkeypatch, run)
    assert any(counted.taken) and all(torch.equal(x, y) for x, y in zip(found, expected))


def test_a_trace_is_pythons(device, counted):
    crf, h = module().to(device.device), to(device, torch.randn(3, 2, 3, dtype=torch.double))
    tags = torch.zeros(3, 2, dtype=torch.long, device=device.device)
    with device.working(), contextlib.suppress(RuntimeError):
        torch.jit.trace(lambda x: crf.nll(x, tags), h, check_trace=False)
    assert counted.taken and not any(counted.taken)


def test_without_gradients_nothing_is_kept(device, counted):
    crf, (h, mask) = module().to(device.device), (to(device, x) for x in ragged(LENGTHS))
    tags = to(device, legal_tags(crf, LENGTHS))
    with device.working(), torch.no_grad():
        value = crf.nll(h, tags, mask)
    assert value.grad_fn is None and not value.requires_grad
    with device.working():
        assert torch.equal(value, crf.nll(h, tags, mask).detach())
    assert counted.taken == [True, True]


def test_a_graph_is_used_once_and_with_what_it_saw(device, counted):
    crf, (h, mask) = module().to(device.device), (to(device, x) for x in ragged(LENGTHS))
    h, tags = h.requires_grad_(), to(device, legal_tags(crf, LENGTHS))
    with device.working():
        loss = crf.nll(h, tags, mask)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        loss = crf.nll(h, tags, mask)
        mask.logical_not_()
        with pytest.raises(RuntimeError, match="inplace operation"):
            loss.backward()


def test_errors_in_python_come_back_as_they_are(device, counted, monkeypatch):
    crf, (h, mask) = module().to(device.device), (to(device, x) for x in ragged(LENGTHS))
    h, tags = h.requires_grad_(), to(device, legal_tags(crf, LENGTHS))

    class Refuses:
        @staticmethod
        def apply(*args):
            raise KeyError("of Python")
    monkeypatch.setattr(_torch_ops, "DeviceGradient", Refuses)
    with device.working(), pytest.raises(KeyError, match="of Python"):
        torch.autograd.grad(crf.nll(h, tags, mask), h, create_graph=True)


def test_what_the_core_refuses_is_an_error_of_ours(device, counted, monkeypatch):
    crf = module(dtype=torch.float, batch_first=True).to(device.device)
    h, tags = to(device, torch.zeros(70000, 1, 3)), to(device, torch.zeros(70000, 1, dtype=torch.long))

    def run():
        with device.working(), pytest.raises(regccrf.Error) as error:
            crf.nll(h, tags)
        return str(error.value)

    found, expected = both(counted, monkeypatch, run)
    assert found == expected and "70000 sequences" in found


def test_hooks_on_what_is_saved(device, counted):
    """As torch.autograd.graph.save_on_cpu has them."""
    crf, (h, mask) = module().to(device.device), (to(device, x) for x in ragged(LENGTHS))
    tags, packed = to(device, legal_tags(crf, LENGTHS)), []
    with device.working():
        expected = answers(crf, lambda m, x: m.nll(x, tags, mask), [h])
        with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x.clone(), lambda x: x.clone()):
            found = answers(crf, lambda m, x: m.nll(x, tags, mask), [h])
    assert len(packed) >= 5 and all(torch.equal(x, y) for x, y in zip(found, expected))


def test_a_node_lets_go(device, counted):
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


def test_threads(device, counted):
    if device.device.type == "cpu":
        pytest.skip("the emulator takes one call at a time")
    crf, (h, mask) = module().to(device.device), (to(device, x) for x in ragged(LENGTHS))
    tags, same = to(device, legal_tags(crf, LENGTHS)), []

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


def test_sizes_that_are_not_known_yet():
    """What torch.compile is told is what the core says."""
    for shape, type, batch_first, want_h, want_g in itertools.product(
            [(1, 1, 1), (7, 3, 5), (0, 3, 5), (4, 0, 2), (64, 8, 68)], [torch.float, torch.double], *[[False, True]] * 3):
        width = 8 if type == torch.double else 4
        losses = _torch_cuda._losses(torch.Size(shape), type, type, batch_first, want_h, want_g)
        assert losses.end == _torch_cuda.kept_bytes(shape, width, batch_first, want_h, want_g)


# --- building it -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def buildable(tmp_path, monkeypatch):
    """As if nothing were built, in a folder of its own."""
    for source in node.SOURCES:
        (tmp_path / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(node, "PACKAGE", tmp_path)
    monkeypatch.setattr(node, "SOURCES", [tmp_path / source.name for source in node.SOURCES])
    monkeypatch.setattr(_core, "cuda_built", lambda: True)
    monkeypatch.delenv("REGCCRF_NODE", raising=False)
    return tmp_path


def test_what_building_it_takes(buildable, monkeypatch):
    before = sorted(buildable.iterdir())
    for name, value, message in (("CXX", "no-such-compiler", "install g"), ("CXX", "false", "failed")):
        monkeypatch.setenv(name, value)
        with pytest.raises(node.CannotBuild, match=message):
            node.build()
    monkeypatch.setattr(node, "PYTORCH", buildable)
    monkeypatch.delenv("CXX")
    with pytest.raises(node.CannotBuild, match="not there|no compiler"):
        node.build()
    monkeypatch.setattr(_core, "cuda_built", lambda: False)
    with pytest.raises(node.CannotBuild, match="no CUDA in it"):
        node.build()
    assert sorted(buildable.iterdir()) == before


def test_a_core_of_another_header(buildable):
    node.SOURCES[1].write_text("// another\n")
    node.path().write_bytes(b"")
    assert node.load(print) is None
    with pytest.raises(node.CannotBuild, match="build it again"):
        node.build()


def test_without_its_sources(buildable):
    node.SOURCES[0].unlink()
    assert node.load(print) is None
    with pytest.raises(node.CannotBuild, match="install it again"):
        node.build()


def test_a_node_of_other_sources_is_another(buildable):
    before = node.path()
    assert node.load(print) is None
    with open(node.SOURCES[0], "a") as source:
        source.write("// more\n")
    assert node.path() != before


def test_a_broken_node_is_not_used(buildable):
    node.path().write_bytes(b"cut short")
    with pytest.warns(UserWarning, match="builds it anew"):
        assert node.load(print) is None
