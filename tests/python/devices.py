"""Devices for tests: a real one, or an emulator on which CPU tensors take the same way; and the layer there beside the layer on the CPU.

    REGCCRF_EMULATED=1 PYTHONPATH=build/tests/python python3 -m pytest tests/python/test_cuda*.py
"""

import contextlib
import copy
import os

import pytest
import torch

from regccrf import _core, _torch_cuda

EMULATED = "REGCCRF_EMULATED" in os.environ
HERE = torch.cuda.is_available() and _core.cuda_built() and not EMULATED


class Cuda:
    device = torch.device("cuda", 0)

    def working(self):
        return contextlib.nullcontext()


class Emulated:
    """The package's own kernels on tests/emulated. CPU tensors count as a device's inside `working()`."""
    device = torch.device("cpu")

    def __init__(self, patch):
        self.active = False
        patch.setattr(_torch_cuda, "on_device", lambda x: self.active)
        patch.setattr(_torch_cuda, "device_guard", lambda device: contextlib.nullcontext())
        patch.setattr(_torch_cuda, "current_stream", lambda device: 0)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)

    @contextlib.contextmanager
    def working(self):
        self.active = True
        yield
        self.active = False


needs_device = pytest.mark.skipif(not HERE, reason="needs a device and a build with CUDA")


@pytest.fixture(params=[pytest.param("cuda", marks=needs_device),
                        pytest.param("emulated", marks=pytest.mark.skipif(not EMULATED, reason="needs the package on the emulator"))])
def device(request, monkeypatch):
    return Cuda() if request.param == "cuda" else Emulated(monkeypatch)


def to(device, x):
    return x.to(device.device) if isinstance(x, torch.Tensor) else x


def answers(crf, call, tensors, weights=None):
    """call(crf, *tensors), and the gradients of its weighted sum for every tensor of scores and parameter."""
    crf.zero_grad(set_to_none=True)
    tensors = [x.detach().clone().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in tensors]
    value = call(crf, *tensors)
    if not isinstance(value, torch.Tensor):
        return [value]
    weights = torch.ones_like(value) if weights is None else weights.to(value)
    value.backward(weights)
    gradients = [x.grad for x in tensors if isinstance(x, torch.Tensor) and x.requires_grad]
    return [value.detach(), *gradients, *(p.grad for p in crf.parameters())]


def agree(device, crf, call, *tensors, weights=None, tolerance=None):
    """The same answers and gradients on the device as on the CPU, on the device they belong to."""
    expected = answers(crf, call, tensors, weights)
    there = copy.deepcopy(crf).to(device.device)
    with device.working():
        found = answers(there, call, [to(device, x) for x in tensors], weights)
        there.raise_pending()
    assert len(found) == len(expected)
    for x, y in zip(found, expected):
        if not isinstance(y, torch.Tensor):
            assert x == y
            continue
        if y is None:
            assert x is None
            continue
        assert x.device.type == device.device.type and x.dtype == y.dtype and x.shape == y.shape
        bound = tolerance or (1e-9 if y.dtype == torch.double else 1e-4)
        assert torch.allclose(x.cpu(), y, rtol=bound, atol=bound, equal_nan=True), (x, y)


def transposed(batch_first, *tensors):
    return [x.transpose(0, 1) if batch_first else x for x in tensors]
