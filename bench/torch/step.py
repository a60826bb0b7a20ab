"""What a user of PyTorch gets on the CPU: the layer alone, and its share in a training step (encoder forward, CRF forward and backward, encoder
backward and update).

    PYTHONPATH=build/python python bench/torch/step.py [--threads N] [--repeat N] [--json] [--record]

Alone: a loss with its gradients, and decoding, of 8 sequences of 64; the layers take turns, and the least time of many counts. Encoders: a BiLSTM and
a small transformer (two layers of width 128). Layers: pytorch-crf, and regccrf without and with a constraint. The unconstrained two must give
the same loss and gradients before anything is timed. `--record` keeps the numbers in bench/record/torch-cpu.json.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("bench/torch: there is no PyTorch here")
from torch import nn

import regccrf
from regccrf.torch import CRF, RegCCRF

try:
    import torchcrf
except ImportError:
    torchcrf = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRL = ROOT / "languages" / "srl.lang"
B, T, WIDTH, WORDS = 32, 40, 128, 5000


class BiLSTM(nn.Module):
    def __init__(self, K):
        super().__init__()
        self.embed, self.emit = nn.Embedding(WORDS, WIDTH), nn.Linear(2 * WIDTH, K)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.emit(self.lstm(self.embed(x))[0])


class Transformer(nn.Module):
    def __init__(self, K):
        super().__init__()
        self.embed, self.emit = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, K)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)

    def forward(self, x):
        return self.emit(self.layers(self.embed(x)))


def step(encoder, crf, optimizer, x, tags, mask):
    """Seconds in the encoder and in the CRF."""
    marks = [time.perf_counter()]
    emissions = encoder(x)
    marks.append(time.perf_counter())
    at_crf = emissions.detach().requires_grad_()
    (-crf(at_crf, tags, mask=mask, reduction="mean")).backward()
    marks.append(time.perf_counter())
    emissions.backward(at_crf.grad)
    optimizer.step()
    optimizer.zero_grad()
    marks.append(time.perf_counter())
    return marks[1] - marks[0] + marks[3] - marks[2], marks[2] - marks[1]


def same_answer(ours, theirs, emissions, tags, mask):
    answers = []
    for crf in (ours, theirs):
        h = emissions.clone().requires_grad_()
        value = crf(h, tags, mask=mask)
        value.backward()
        answers.append((value.detach(), h.grad, crf.transitions.grad))
        crf.zero_grad()
    close = all(torch.allclose(x, y, rtol=1e-4, atol=1e-4) for x, y in zip(*answers))
    return close and ours.decode(emissions, mask) == theirs.decode(emissions, mask)


def measure(make_encoder, crf, x, tags, mask, repeat):
    torch.manual_seed(0)
    encoder = make_encoder(crf.num_tags)
    optimizer = torch.optim.SGD([*encoder.parameters(), *crf.parameters()], lr=0.0)
    times = [step(encoder, crf, optimizer, x, tags, mask) for _ in range(repeat + 3)][3:]
    return [1e3 * statistics.median(part) for part in zip(*times)]


def alone(layers, tags, repeat):
    """Least milliseconds of a loss with gradients and of decoding, for each layer: {name: [loss, decode]}."""
    times = {name: ([], []) for name in layers}
    for _ in range(repeat):
        for name, crf in layers.items():
            emissions = torch.randn(*tags.shape, crf.num_tags, requires_grad=True)
            begin = time.perf_counter()
            (-crf(emissions, tags)).backward()
            middle = time.perf_counter()
            crf.decode(emissions)
            times[name][0].append(middle - begin)
            times[name][1].append(time.perf_counter() - middle)
            crf.zero_grad()
    return {name: [1e3 * min(part) for part in parts] for name, parts in times.items()}


def print_alone(least):
    theirs = least.get("pytorch-crf")
    for name, milliseconds in least.items():
        ratios = "" if theirs is None or name == "pytorch-crf" else "   pytorch-crf takes {:.1f} and {:.1f} times that".format(
            *(x / y for x, y in zip(theirs, milliseconds)))
        print(f"alone, 8 × 64  {name:24}loss and gradients {milliseconds[0]:7.3f} ms   decode {milliseconds[1]:7.3f} ms{ratios}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    constraint = regccrf.compile(SRL)
    labels = list(constraint.labels)
    lengths = torch.randint(T // 2, T + 1, (B,))
    lengths[0] = T
    mask = torch.arange(T).unsqueeze(0) < lengths.unsqueeze(1)
    tags = torch.zeros(B, T, dtype=torch.long)
    for i, length in enumerate(lengths.tolist()):
        tags[i, :length] = torch.tensor(constraint.labels.ids(constraint.language().random(length, seed=i)[0]))
    x = torch.randint(WORDS, (B, T))

    layers = {"regccrf": CRF(labels, batch_first=True), "regccrf, SRL language": RegCCRF(labels, constraint, batch_first=True)}
    if torchcrf is not None:
        theirs = torchcrf.CRF(len(labels), batch_first=True)
        theirs.load_state_dict(layers["regccrf"].state_dict())
        if not same_answer(layers["regccrf"], theirs, torch.randn(B, T, len(labels)), tags, mask):
            raise SystemExit("the two layers do not agree: nothing was timed")
        layers = {"pytorch-crf": theirs, **layers}

    def legal(i, length):
        return constraint.labels.ids(constraint.language().random(length, seed=i)[0])
    least = alone(layers, torch.tensor([legal(i, 64) for i in range(8)]), 5 * options.repeat)
    rows = []
    for name, encoder in (("BiLSTM", BiLSTM), ("transformer", Transformer)):
        for layer, crf in layers.items():
            rest, share = measure(encoder, crf, x, tags, mask, options.repeat)
            rows.append({"encoder": name, "layer": layer, "encoder_ms": rest, "crf_ms": share, "crf_share": share / (rest + share)})
    facts = {"date": datetime.date.today().isoformat(), "load": os.getloadavg()[0], "torch": torch.__version__, "threads": options.threads,
             "alone_8x64_ms": least, "B": B, "T": T, "K": len(labels), "rows": rows}
    if options.record:
        (ROOT / "bench" / "record" / "torch-cpu.json").write_text(json.dumps(facts, indent=1) + "\n")
    if options.json:
        print(json.dumps(facts))
        return
    print_alone(least)
    print(f"B = {B}, T = {T}, K = {len(labels)}, {options.threads} threads, PyTorch {torch.__version__}; medians of {options.repeat} steps")
    for row in rows:
        print(f"{row['encoder']:12}{row['layer']:24}encoder {row['encoder_ms']:8.2f} ms   "
              f"CRF {row['crf_ms']:8.2f} ms   share {row['crf_share']:6.1%}")


main()
