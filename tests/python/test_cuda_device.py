"""What only a real device can show: that nothing waits for it, graphs, streams, memory, languages of size."""

import contextlib
import pathlib

import pytest
import torch

import regccrf
from devices import Cuda, agree, answers, needs_device
from regccrf import _torch_cuda
from regccrf.torch import CRF, RegCCRF

SRL = pathlib.Path(__file__).resolve().parents[2] / "languages" / "srl.lang"


@contextlib.contextmanager
def no_waiting():
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def srl_batch(B, T, dtype=torch.float, seed=0):
    """An SRL layer with emissions, gold and a mask of right padding, [B, T, …], on the CPU."""
    torch.manual_seed(seed)
    constraint = regccrf.compile(SRL)
    crf = RegCCRF(list(constraint.labels), constraint, batch_first=True).to(dtype)
    lengths = torch.randint(1, T + 1, (B,))
    lengths[0] = T
    tags = torch.full((B, T), -100)
    for i, length in enumerate(lengths.tolist()):
        tags[i, :length] = torch.tensor(crf.labels.ids(constraint.language().random(length, seed=seed + i)[0]))
    return crf, torch.randn(B, T, crf.num_tags, dtype=dtype), tags, torch.arange(T) < lengths.unsqueeze(1)


@needs_device
def test_nothing_waits_for_the_device():
    crf, emissions, tags, mask = (x.cuda() for x in srl_batch(8, 32))
    h, free = emissions.requires_grad_(), crf.with_constraint().constraint

    def penalty():
        return torch.autograd.grad(crf.nll(h, tags, mask), h, create_graph=True)[0].pow(2).sum()

    calls = [lambda: crf(h, tags, mask, reduction="mean"), lambda: crf(h, tags, mask, reduction="token_mean", outside="skip"),
             lambda: crf.log_prob(h, tags, mask, outside="inf").sum(), lambda: crf.log_partition(h, mask).sum(),
             lambda: crf.language_mass(h, mask).sum(), lambda: crf.log_prob(h, h.detach() > -1, mask).sum(),
             lambda: crf.entropy(h, mask).sum(), lambda: crf.marginals(h, mask).pow(2).sum(), penalty,
             lambda: crf(h.bfloat16(), tags, mask), lambda: crf(h[:, :1], tags[:, :1]),
             lambda: crf(h, tags, mask, constraint=[crf.constraint] * 4 + [free] * 4)]
    for call in calls:
        call().backward()  # copies the constraint
        with no_waiting():
            call().backward()
    with no_waiting(), torch.no_grad():
        crf.marginals(h, mask)


@needs_device
@pytest.mark.parametrize("dtype", [torch.float, torch.double])
@pytest.mark.parametrize("B, T", [(3, 40), (300, 20)])
def test_a_language_of_size(B, T, dtype):
    crf, emissions, tags, mask = srl_batch(B, T, dtype)
    agree(Cuda(), crf, lambda m, h, y, k: m(h, y, k, "mean"), emissions, tags, mask)
    agree(Cuda(), crf, lambda m, h, k: m.language_mass(h, k), emissions[:5], mask[:5])
    agree(Cuda(), crf, lambda m, h, k: m.entropy(h, k), emissions[:5], mask[:5])
    agree(Cuda(), crf, lambda m, h, k: m.decode(h, k), emissions, mask)
    agree(Cuda(), crf, lambda m, h, k: m.sample(h, 2, k, seed=3), emissions[:5], mask[:5])
    labels = lambda found: [[path.labels for path in paths] for paths in found]
    agree(Cuda(), crf, lambda m, h, k: labels(m.k_best(h, 3, k)), emissions, mask)


@needs_device
def test_unconstrained_with_many_labels():
    torch.manual_seed(0)
    crf = CRF(47, batch_first=True)
    emissions, tags = torch.randn(16, 33, 47), torch.randint(47, (16, 33))
    agree(Cuda(), crf, lambda m, h, y: m.log_prob(h, y), emissions, tags, weights=torch.randn(16))
    agree(Cuda(), crf, lambda m, h: m.decode(h), emissions)


@needs_device
@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_answers_do_not_depend_on_what_is_in_memory(dtype, monkeypatch):
    crf, emissions, tags, mask = (x.cuda() for x in srl_batch(5, 24, dtype))
    calls = [lambda m, h: m(h, tags, mask, "mean"), lambda m, h: m.entropy(h, mask).sum(), lambda m, h: m.marginals(h, mask)[0].sum(),
             lambda m, h: m.decode(h, mask), lambda m, h: m.k_best(h, 3, mask), lambda m, h: m.sample(h, 3, mask, seed=1)]
    for number, call in enumerate(calls):
        found = []
        for garbage in (0x00, 0x5a, 0x7f, 0xff):
            monkeypatch.setattr(_torch_cuda, "workspace",
                                lambda bytes, device: torch.full((bytes,), garbage, dtype=torch.uint8, device=device))
            found.append(answers(crf, call, [emissions]))
        for other in found[1:]:
            for x, y in zip(found[0], other):
                assert torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y, number


@needs_device
def test_a_training_step_is_captured_in_a_graph():
    crf, emissions, tags, mask = (x.cuda() for x in srl_batch(4, 16))
    h = emissions.requires_grad_()

    def step():
        value = -crf(h, tags, mask, reduction="mean")
        return (value, *torch.autograd.grad(value, [h, *crf.parameters()]))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed in range(2):
        torch.manual_seed(seed)
        with torch.no_grad():
            h.copy_(torch.randn_like(h))
        graph.replay()
        expected = step()
        assert all(torch.equal(x, y) for x, y in zip(captured, expected))
    crf.raise_pending()


class MeanLoss(torch.nn.Module):
    def __init__(self, crf):
        super().__init__()
        self.crf = crf

    def forward(self, h, tags, mask):
        return -self.crf(h, tags, mask, reduction="mean")


@needs_device
def test_graphed_callables_and_a_backward_pass_in_the_callers_thread():
    crf, emissions, tags, mask = (x.cuda() for x in srl_batch(4, 16))
    graphed = torch.cuda.make_graphed_callables(MeanLoss(crf), (emissions.clone().requires_grad_(), tags.clone(), mask.clone()))

    def answer(loss, h):
        value = loss(h, tags, mask)
        return [x.clone() for x in (value, *torch.autograd.grad(value, [h, *crf.parameters()]))]

    for seed in range(2):
        torch.manual_seed(seed)
        h = torch.randn_like(emissions).requires_grad_()
        expected = answer(MeanLoss(crf), h)
        with torch.autograd.set_multithreading_enabled(False):
            found = [answer(MeanLoss(crf), h), answer(graphed, h)]
        assert all(torch.equal(x, y) for one in found for x, y in zip(one, expected))


@needs_device
def test_another_stream_and_repeated_runs_agree():
    crf, emissions, tags, mask = (x.cuda() for x in srl_batch(8, 64))
    expected = crf.log_prob(emissions, tags, mask)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = [crf.log_prob(emissions, tags, mask) for _ in range(3)]
    torch.cuda.current_stream().wait_stream(stream)
    assert all(torch.equal(x, expected) for x in found)


@needs_device
def test_memory_does_not_grow():
    crf, emissions, tags, mask = (x.cuda() for x in srl_batch(8, 32))
    h = emissions.requires_grad_()
    used = []
    for _ in range(300):
        crf(h, tags, mask).backward()
        h.grad = None
        used.append(torch.cuda.memory_allocated())
    assert min(used[250:]) <= min(used[100:150])  # of several: autograd's thread may still hold what a step has left
