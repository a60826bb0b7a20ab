"""A stand-in for a CUDA device: the core's device functions, done by its CPU functions on host memory, one sequence at a time.

With it the Python side of the CUDA path is tested where there is no device.
"""

import contextlib
import ctypes
import math
from typing import NamedTuple

import torch

import regccrf
from regccrf import _core, _torch_cuda, _torch_graph, _torch_ops

_TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
_FINE, _BAD_SCORE, _OUTSIDE, _IMPOSSIBLE, _BAD_TRANSITION = range(5)


class Batch(NamedTuple):
    size: int
    length: int
    batch_stride: int
    time_stride: int
    emissions_type: int
    type: int
    emissions: int
    transitions: int
    start: int
    end: int
    mask: int


class DeviceConstraint:
    def __init__(self, constraint):
        self.constraint = _core.Constraint.from_bytes(constraint.to_bytes())  # a copy, which does not keep the original alive
        self.handle = _torch_graph.handle_of(self.constraint)


def tensor(address, shape, dtype):
    """The numbers that are there; writes go there too."""
    size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
    if not address or not size:
        return torch.empty(shape if address else 0, dtype=dtype)
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype).view(shape)


class Sequences:
    """The sequences of a batch, absent positions left out."""

    def __init__(self, constraint, batch):
        self.constraint, self.batch, self.K = constraint, batch, len(constraint.constraint.labels)
        self.real, self.count = _TYPES[batch.type], batch.size * batch.length
        self.h = tensor(batch.emissions, (self.count, self.K), _TYPES[batch.emissions_type]).to(self.real)
        self.g = tensor(batch.transitions, (self.K, self.K), self.real)
        self.s, self.e = (tensor(x, (self.K,), self.real) for x in (batch.start, batch.end))
        self.mask = tensor(batch.mask, (self.count,), torch.uint8)

    def rows(self, i):
        rows = torch.arange(self.batch.length) * self.batch.time_stride + i * self.batch.batch_stride
        return rows[self.mask[rows] != 0] if self.mask.numel() else rows

    def scores(self, i):
        return self.h[self.rows(i)].unsqueeze(1), self.g, self.s, self.e, torch.empty(0, dtype=torch.uint8), False, self.constraint.handle

    def status(self, i):
        """[outcome, position, label, length] of the scores alone."""
        h, g, s, e = self.scores(i)[:4]
        bad = lambda x: torch.isnan(x) | torch.isposinf(x)
        if any(bad(x).any() for x in (g, s, e)):
            return [_BAD_TRANSITION, 0, 0, len(h)]
        found = bad(h[:, 0]).nonzero().tolist()
        return [_BAD_SCORE, *found[0], len(h)] if found else [_FINE, 0, 0, len(h)]


def expectation(constraint, batch, value, emissions, transitions, status, gold, memory, bytes, *loss):
    all, kept = Sequences(constraint, batch), (value, status)
    value, status = tensor(value, (batch.size,), torch.float64), tensor(status, (batch.size, 4), torch.int32)
    dh = tensor(emissions, (all.count, all.K), all.real)
    dg = tensor(transitions, (batch.size, all.K, all.K), all.real)
    y = tensor(gold, (all.count,), torch.int64)
    for i in range(batch.size):
        rows, scores, state = all.rows(i), all.scores(i), all.status(i)
        answer, counts = math.nan, None
        if state[0] == _FINE:
            answer = _torch_ops.log_partition(*scores).item()
            counts = _torch_ops.expectation(torch.ones(1), *scores, True)
            if answer == -math.inf:
                state[0], counts = _IMPOSSIBLE, None
        if gold and state[0] in (_FINE, _IMPOSSIBLE):
            labels = y[rows].tolist()
            membership = constraint.constraint.accepts(labels)
            score = _torch_ops.gold_score(*scores[:5], y[rows].unsqueeze(1), False).item() if membership else -math.inf
            if score == -math.inf:
                state[:2], answer, counts = [_OUTSIDE, -1 if membership else membership.position], math.inf, None
            else:
                answer -= score
        value[i], status[i] = answer, torch.tensor(state, dtype=torch.int32)
        if emissions:
            dh[rows] = 0 if counts is None else counts[0][:, 0]
            if gold and counts is not None:
                dh[rows, y[rows]] -= 1
        if transitions:
            dg[i] = 0 if counts is None else counts[1]
            for a, b in zip(labels, labels[1:]) if gold and counts is not None else ():
                dg[i, a, b] -= 1
    reduce(batch.size, *kept, *loss)


def reduce(size, value, status, sign, reduction, left_out, type, out, scale, errors, operation, failure, numbers, stream):
    value, status = tensor(value, (size,), torch.float64), tensor(status, (size, 4), torch.int32)
    fine = status[:, 0] == _FINE
    first = ((~fine if errors == 2 else (status[:, 0] == _BAD_SCORE) | (status[:, 0] == _BAD_TRANSITION)) & (errors > 0)).nonzero()
    if failure and len(first):
        kept = tensor(failure, (6,), torch.int32)
        if kept[0] == 0:
            number = tensor(numbers, (size,), torch.int64)[first[0, 0]] if numbers else first[0, 0]
            kept.copy_(torch.tensor([*status[first[0, 0]].tolist(), number, operation]))
    counts = fine | (left_out != 1)
    values = sign * value if left_out == 0 else sign * torch.where(fine, value, value.new_tensor([0, 0, math.inf][left_out]))
    share = [None, 1.0, counts.sum().item(), status[:, 3][counts].sum().item()][reduction] if reduction else 1.0
    share = max(share, 1.0) if reduction == 3 or left_out == 1 else share
    tensor(scale, (1,), torch.float64)[0] = sign / torch.tensor(float(share), dtype=torch.float64)
    found = values.sum().view(1) / share if reduction else values
    tensor(out, found.shape, _TYPES[type]).copy_(found)


def weigh(batch, K, weights, stride, weights_type, scale, status, counts, bigrams, emissions, transitions, start, end, stream):
    real, count = _TYPES[batch.type], batch.size * batch.length
    weights = tensor(weights, ((batch.size - 1) * stride + 1,), _TYPES[weights_type])
    fine = tensor(status, (batch.size, 4), torch.int32)[:, 0] == _FINE
    mask, counts = tensor(batch.mask, (count,), torch.uint8), tensor(counts, (count, K), real)
    sums = [torch.zeros(K, K, dtype=torch.double), torch.zeros(K, dtype=torch.double), torch.zeros(K, dtype=torch.double)]
    dh = tensor(emissions, (count, K), _TYPES[batch.emissions_type]).zero_()
    for i in range(batch.size):
        rows = torch.arange(batch.length) * batch.time_stride + i * batch.batch_stride
        rows = rows[mask[rows] != 0] if mask.numel() else rows
        weight = weights[i * stride].double() * tensor(scale, (1,), torch.float64)[0]
        if not fine[i]:
            continue
        if emissions:
            dh[rows] = (weight * counts[rows]).to(dh.dtype)
        if transitions:
            sums[0] += weight * tensor(bigrams, (batch.size, K, K), real)[i]
        if len(rows) and start:
            sums[1] += weight * counts[rows[0]]
        if len(rows) and end:
            sums[2] += weight * counts[rows[-1]]
    for address, sum in zip((transitions, start, end), sums):
        if address:
            tensor(address, sum.shape, real).copy_(sum)


def write_paths(all, i, out, status, draw):
    """Labels of draw(memory) into out [count, T], −1 after their end."""
    state = all.status(i)
    out.fill_(-1)
    if state[0] == _FINE:
        try:
            for row, (labels, _) in zip(out, draw(_torch_ops.Memory(*all.scores(i)))):
                row[:len(labels)] = torch.tensor(labels, dtype=torch.int32)
        except regccrf.Error:
            state[0] = _IMPOSSIBLE
    status[i] = torch.tensor(state, dtype=torch.int32)


def viterbi(constraint, batch, labels, score, status, memory, bytes, stream):
    all = Sequences(constraint, batch)
    out, status = tensor(labels, (batch.size, 1, batch.length), torch.int32), tensor(status, (batch.size, 4), torch.int32)
    for i in range(batch.size):
        write_paths(all, i, out[i], status, lambda m: _core.viterbi(m.choice, m.batch, m.settings))


def sample(constraint, batch, count, seed, temperature, ids, labels, status, memory, bytes, stream):
    all = Sequences(constraint, batch)
    ids = tensor(ids, (batch.size,), torch.int64).tolist() if ids else range(batch.size)
    out, status = tensor(labels, (batch.size, count, batch.length), torch.int32), tensor(status, (batch.size, 4), torch.int32)
    for i in range(batch.size):
        write_paths(all, i, out[i], status, lambda m: _core.sample(m.choice, m.batch, count, seed, temperature, [ids[i]], m.settings)[0])


def k_best(constraint, batch, k, labels, score, status, memory, bytes, stream):
    all = Sequences(constraint, batch)
    out, status = tensor(labels, (batch.size, k, batch.length), torch.int32), tensor(status, (batch.size, 4), torch.int32)
    score = tensor(score, (batch.size, k), torch.float64).fill_(-math.inf)
    for i in range(batch.size):
        found = []
        write_paths(all, i, out[i], status, lambda m: found.extend(_core.k_best(m.choice, m.batch, k, m.settings)[0]) or found)
        score[i, :len(found)] = torch.tensor([s for _, s in found], dtype=torch.float64)


def entropy(constraint, batch, value, emissions, transitions, status, memory, bytes, stream):
    all = Sequences(constraint, batch)
    value, status = tensor(value, (batch.size,), torch.float64), tensor(status, (batch.size, 4), torch.int32)
    dh = tensor(emissions, (all.count, all.K), all.real)
    dg = tensor(transitions, (batch.size, all.K, all.K), all.real)
    for i in range(batch.size):
        state, answer, by_h, by_g = all.status(i), math.nan, 0, 0
        if state[0] == _FINE:
            h, g, s, e, mask, *layout = all.scores(i)
            try:
                found = _torch_ops.loss("entropy", h, g, s, e, mask, torch.empty(0), *layout, False, True)
                answer, by_h, by_g = found[0].item(), found[2][:, 0], found[3]
            except regccrf.Error:
                state[0] = _IMPOSSIBLE
        value[i], status[i] = answer, torch.tensor(state, dtype=torch.int32)
        if emissions:
            dh[all.rows(i)] = by_h
        if transitions:
            dg[i] = by_g


class StandIn:
    """Installed by `patch` (pytest's monkeypatch). CPU tensors count as a device's inside `working()`."""
    name, device = "stand-in", torch.device("cpu")

    def __init__(self, patch):
        self.active = False
        patch.setattr(_torch_cuda, "on_device", lambda x: self.active)
        patch.setattr(_torch_cuda, "_current", lambda device: contextlib.nullcontext())
        patch.setattr(_torch_cuda, "_stream", lambda device: 0)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        patch.setattr(_core, "CudaBatch", Batch)
        patch.setattr(_core, "DeviceConstraint", DeviceConstraint)
        for function in (expectation, viterbi, k_best, sample, entropy):
            patch.setattr(_core, f"cuda_{function.__name__}_bytes", lambda *args: 256)
        for function in (expectation, viterbi, k_best, sample, entropy, reduce, weigh):
            patch.setattr(_core, f"cuda_{function.__name__}", function)

    @contextlib.contextmanager
    def working(self):
        self.active = True
        yield
        self.active = False


class Cuda:
    name, device = "cuda", torch.device("cuda", 0)

    def working(self):
        return contextlib.nullcontext()
