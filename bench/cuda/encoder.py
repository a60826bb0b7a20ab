"""The layer behind an encoder: a training step of RoBERTa-base's shape, and decoding.

What is compared takes turns step by step (batch by batch in decoding), with the device idle before and after each, so that what
disturbs the machine disturbs all of them; what counts is the difference within a turn. Python's collector leaves alone what was
there before. A step's device time, where the host plays no part, is that of a graph of the whole step.
"""

import gc
import math
import random
import statistics
import time

import torch
from torch import nn

from clock import attempt, interval, middle
from layers import Layers, Ours


class Encoder(nn.Module):
    """RoBERTa-base's shape with random weights, and a linear map to the labels."""

    def __init__(self, K, quick):
        super().__init__()
        small = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64) if quick else {}
        try:
            from transformers import RobertaConfig, RobertaModel
            config = RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, **small)
            self.body, self.name = RobertaModel(config, add_pooling_layer=False), "transformers.RobertaModel"
            width = config.hidden_size
        except ImportError:
            width = small.get("hidden_size", 768)
            layer = nn.TransformerEncoderLayer(width, small.get("num_attention_heads", 12), small.get("intermediate_size", 3072),
                                               activation="gelu", batch_first=True)
            self.body = nn.TransformerEncoder(layer, small.get("num_hidden_layers", 12), enable_nested_tensor=False)
            self.name = "torch.nn.TransformerEncoder"
            self.embed = nn.Embedding(50265, width)
        self.emit = nn.Linear(width, K)

    def forward(self, x, mask):
        if hasattr(self, "embed"):
            return self.emit(self.body(self.embed(x), src_key_padding_mask=~mask))
        return self.emit(self.body(input_ids=x, attention_mask=mask.long()).last_hidden_state)


class CrossEntropy(nn.Module):
    def prepare(self, tags):
        return tags

    def loss(self, h, tags):
        return nn.functional.cross_entropy(h.flatten(0, 1), tags.flatten())


def training_call(encoder, layer, x, gold, mask, half, device):
    cuda = device == "cuda"
    optimizer = torch.optim.AdamW([*encoder.parameters(), *layer.parameters()], lr=1e-5, fused=cuda, capturable=cuda)

    def call():
        with torch.autocast(device, dtype=torch.bfloat16, enabled=half):
            h = encoder(x, mask)
        loss = layer.loss(h if type(layer) is Ours else h.float(), gold)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return call


def step(options, clock):
    layers = Layers("srl", options.device)
    encoder = Encoder(layers.K, options.quick).to(options.device)
    choices = {"cross-entropy": CrossEntropy(), "ours": layers.all["ours"], "ours, no constraint": Ours(layers.free),
               **{k: v for k, v in layers.all.items() if k in ("pytorch-crf, no constraint", "original")}}
    if options.quick:
        choices.pop("original", None)
    rows = []
    for B, T in [(2, 6)] if options.quick else [(8, 64), (8, 128)]:
        _, tags = layers.batch(B, T)
        x, mask = torch.randint(5, 50000, (B, T), device=options.device), torch.ones(B, T, dtype=torch.bool, device=options.device)
        for half in (False, True):
            calls = {name: training_call(encoder, layer, x, layer.prepare(tags), mask, half, options.device)
                     for name, layer in choices.items()}
            times = turns(clock, calls, 4 if options.quick else 80)
            device = {name: attempt(lambda: clock.device(calls[name], inside=1)) for name in calls if name not in SLOW and not clock.late()}
            rows.extend({"B": B, "T": T, "precision": "bf16" if half else "fp32", "layer": name, "encoder": encoder.name,
                         **beside(times["cross-entropy"], all), **on_device(device, name)} for name, all in times.items())
            calls.clear()
    return rows


def on_device(device, name):
    """A captured step's time, and how much longer that is than with cross-entropy."""
    took, base = device.get(name), device.get("cross-entropy")
    known = isinstance(took, float) and isinstance(base, float)
    return {"device_us": took, **({"device_overhead_percent": 100 * (took / base - 1)} if known else {})}


SLOW = ("pytorch-crf, no constraint", "original")


def turns(clock, calls, count, warm=5):
    """Times of steps, one of each a turn, in an order drawn anew; slow ones in three of the turns. None: not in this turn."""
    times, draw = {name: [] for name in calls}, random.Random(0)
    for turn in range(-warm, count):
        if clock.late():
            break
        for name in draw.sample(list(calls), len(calls)):
            if name not in SLOW or turn in (-1, 0, 1, 2):
                took = attempt(lambda: clock.once(calls[name]))
                if turn >= 0:
                    times[name].append(took)
            elif turn >= 0:
                times[name].append(None)
    return times


def beside(base, all):
    """A layer's steps beside those of cross-entropy in the same turns."""
    pairs = [(a, b) for a, b in zip(all, base) if isinstance(a, float) and isinstance(b, float)]
    if not pairs:
        return {"left_out": next((t for t in all if isinstance(t, str)), "time")}
    whole = statistics.median(b for _, b in pairs)
    percent = [100 * (a - b) / whole for a, b in pairs]
    return {"turns": len(pairs), **middle("step_us", (a for a, _ in pairs)), **middle("overhead_percent", percent),
            "overhead_percent_interval": interval(percent)}


def decode(options, clock):
    """Sentences through encoder and decoding, under the constraint and under none, which take turns batch by batch: all of them, in an
    order of their own, so that those that fit into the time are of all lengths."""
    layers = Layers("srl", options.device)
    encoder = Encoder(layers.K, options.quick).to(options.device).eval()
    count = 40 if options.quick else 24462
    torch.manual_seed(1)
    lengths = torch.exp(torch.randn(count) * 0.5 + math.log(21)).round().clamp(3, 120).long().sort().values
    batches = lengths.split(64)

    def one(crf, some, half):
        T = int(some[-1])
        mask = (torch.arange(T) < some.unsqueeze(1)).to(options.device, non_blocking=True)
        x = torch.full((len(some), T), 7, device=options.device)
        with torch.no_grad(), torch.autocast(options.device, dtype=torch.bfloat16, enabled=half):
            h = encoder(x, mask)
        assert list(map(len, crf.decode(h, mask))) == some.tolist()

    rows, order = [], random.Random(0).sample(range(len(batches)), len(batches))
    for half in (True, False):
        for some in [batches[-1], *batches[::8]]:
            one(layers.crf, some, half), one(layers.free, some, half)  # warms up, memory for the longest first
        gc.collect()
        gc.freeze()
        seconds, end = {}, time.perf_counter() + 24
        for turn, i in enumerate(order + order):
            if clock.late() or time.perf_counter() > end:
                break
            of = {crf: clock.once(lambda: one(crf, batches[i], half)) / 1e6 for crf in random.Random(turn).sample([layers.crf, layers.free], 2)}
            seconds.setdefault(i, []).append((of[layers.crf], of[layers.free]))
        row = {"precision": "bf16" if half else "fp32", "encoder": encoder.name, "sentences": sum(len(batches[i]) for i in seconds)}
        rows.append({**row, **ratio(list(seconds.values()))} if seconds else {**row, "left_out": "time"})
    return rows


def ratio(times):
    """Of both totals; a batch counts with the shortest of its times. 95 % by drawing batches anew. And the median over turns, which a host
    that stalls in some of them does not change."""
    seconds = torch.tensor([[min(some) for some in zip(*pairs)] for pairs in times])  # [batches, 2]
    ours, free = seconds.sum(0).tolist()
    drawn = seconds[torch.randint(len(seconds), (2000, len(seconds)), generator=torch.Generator().manual_seed(0))].sum(1)
    ends = (drawn[:, 0] / drawn[:, 1]).quantile(torch.tensor([0.025, 0.975])).tolist()
    each = [a / b for pairs in times for a, b in pairs]
    return {"turns": len(each), "constrained_s": ours, "unconstrained_s": free, "ratio": ours / free, "ratio_interval": ends,
            "turn_ratio": statistics.median(each), "turn_ratio_interval": interval(each)}
