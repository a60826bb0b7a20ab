"""Second derivatives and entropy: ours on the device beside ours on the CPU of the same machine, whose answers must agree first."""

import torch

from clock import attempt, middle
from layers import Layers, close


def tasks(crf, h, tags):
    """By name, calls that give gradients for h and the parameters."""
    wanted = [h, *crf.parameters()]

    def of(value):
        return torch.autograd.grad(value, wanted, allow_unused=True)

    def penalty():
        return of(torch.autograd.grad(crf.nll(h, tags), h, create_graph=True)[0].pow(2).sum())

    return {"entropy": lambda: of(crf.entropy(h).sum()), "marginals": lambda: of(crf.marginals(h).pow(2).sum()), "gradient penalty": penalty}


def same(found, expected):
    return all(x is None and y is None or close(x, y, 1e-3) for x, y in zip(found, expected))


def second(options, clock):
    layers, rows = Layers("srl", options.device), []
    here = layers.on_cpu()
    for B, T in [(2, 6)] if options.quick else [(8, 64), (64, 64)]:
        h, tags = layers.batch(B, T)
        there, cpu = tasks(layers.crf, h.requires_grad_(), tags), tasks(here, h.detach().cpu().requires_grad_(), tags.cpu())
        for name, call in there.items():
            row = {"task": name, "B": B, "T": T}
            if clock.late():
                rows.append({**row, "left_out": "time"})
                continue
            if not same(call(), cpu[name]()):
                raise SystemExit(f"{name}: the device does not agree with the CPU: nothing was timed")
            rows.append({**row, "device_us": attempt(lambda: clock.device(call)), **middle("clock_us", clock.sample(call)),
                         **middle("cpu_us", clock.sample(cpu[name]))})
    return rows
