"""The layer on a GPU beside others: the layer alone, in a training step of RoBERTa-base's shape, in decoding, and in memory.

    PYTHONPATH=build/python python bench/cuda/step.py --output DIR [--parts table,step,memory,decode] [--competitors DIR]   # PyTorch 2

Others, where they can be imported (a folder for them: --competitors): pytorch-crf and torch-struct, which know no constraint, and the
original ccrf. Answers must agree before anything is timed. Ours: device time by replays of a captured CUDA graph, and time by the clock,
from the call to the end of the device's work, with autograd and the lists. Others: by the clock. A loss is timed
as it is, where autograd's own thread runs the backward pass, and under `torch.autograd.set_multithreading_enabled(False)`, where the
caller's does. Ours once more that way with its kernels captured by `torch.cuda.make_graphed_callables`. Beside them what PyTorch itself takes:
an autograd function that only allocates its answer and its gradients.

What is compared with an encoder takes turns step by step (batch by batch in decoding), with the device idle before and after each, so that what
disturbs the machine disturbs all of them; what counts is the difference within a turn. Python's collector leaves alone what was there before. A step's device time, where the host plays no part, is that of
a graph of the whole step. Writes step.json and step.md. What does not fit into memory or into --seconds is left out and said so.
--device cpu --quick tries the script itself.
"""

import argparse
import gc
import json
import math
import pathlib
import random
import statistics
import sys
import time

import torch
from torch import nn

import regccrf
from regccrf import _torch_cuda
from regccrf.torch import CRF, RegCCRF

LANGUAGES = pathlib.Path(__file__).resolve().parents[2] / "languages"
SIZES = [(2, 32), (8, 64), (8, 128), (64, 64), (256, 128), (1, 10000)]


class Clock:
    """How time is taken on a device, and how much of it is left."""

    def __init__(self, device, seconds):
        self.cuda, self.end = device == "cuda", time.perf_counter() + seconds

    def late(self):
        return time.perf_counter() > self.end

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()

    def once(self, call):
        """Microseconds of a call, the device's work included."""
        self.wait()
        begin = time.perf_counter()
        call()
        self.wait()
        return 1e6 * (time.perf_counter() - begin)

    def warm_up(self, call, seconds=2):
        """Processors take a while to reach their speed."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self.once(call)

    def sample(self, *calls, seconds=0.25, most=300):
        """Microseconds of each of some calls, one after the other: what a call does to the machine (a sleeping thread lets its processor sleep
        too) does not meet the next. As often as fits; what is slow is timed the first way only."""
        first = self.once(calls[0])
        if first > 2e6 * seconds:
            return [[first], *([] for _ in calls[1:])]
        some = calls[:1] if first > 2e4 else calls
        count, times = max(3, min(most, int(1e6 * seconds / first))), [[] for _ in calls]
        for call, all in zip(some, times):
            self.warm_up(call, seconds=0.1)
            all.extend(self.once(call) for _ in range(count))
        return times

    def device(self, call, inside=5, repeats=15):
        """Median microseconds of device time: replays of a graph that holds several calls."""
        if not self.cuda:
            return None
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(inside):
                call()
        graph.replay()
        times = []
        for _ in range(repeats):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(1e3 * begin.elapsed_time(end) / inside)
        return statistics.median(times)


# --- layers: each has loss(h, tags) → mean negative log-likelihood, and decode(h) → lists ------------------------------------------


class Ours(nn.Module):
    captured = True

    def __init__(self, crf):
        super().__init__()
        self.crf = crf

    def prepare(self, tags):
        return tags

    def loss(self, h, tags, mask=None):
        return -self.crf(h, tags, mask=mask, reduction="mean")

    def decode(self, h, mask=None):
        return self.crf.decode(h, mask=mask)

    def enqueue_decode(self, h):
        return _torch_cuda.enqueue_viterbi(*self.crf._frozen(h, None, None), self.crf.batch_first, self.crf._handle)


class PytorchCrf(Ours):
    captured = False


class TorchStruct(nn.Module):
    """log_potentials[b, t, to, from]; emissions and start in with the first, end with the last."""
    captured = False

    def __init__(self, crf, library):
        super().__init__()
        self.library, self.crf = library, crf

    def prepare(self, tags):
        return self.library.LinearChainCRF.struct.to_parts(tags.cpu(), self.crf.num_tags).to(tags.device).float()

    def distribution(self, h):
        potentials = self.crf.transitions.t() + h[:, 1:].unsqueeze(3)
        first = (h[:, 0] + self.crf.start_transitions).unsqueeze(1)
        potentials = torch.cat([potentials[:, :1] + first.unsqueeze(2), potentials[:, 1:]], 1)
        potentials = torch.cat([potentials[:, :-1], potentials[:, -1:] + self.crf.end_transitions.view(1, 1, -1, 1)], 1)
        return self.library.LinearChainCRF(potentials)

    def loss(self, h, parts):
        distribution = self.distribution(h)
        return (distribution.partition - (parts * distribution.log_potentials).sum((1, 2, 3))).mean()

    def decode(self, h):
        best = self.distribution(h).argmax
        labels = self.library.LinearChainCRF.struct.from_parts(best)[0]
        return labels.tolist()


class Original(nn.Module):
    """ccrf.RegCCRF, its tables made in one go: its constructor takes minutes for them."""
    captured = False

    def __init__(self, constraint, transitions, ccrf):
        super().__init__()
        arcs, labels = constraint.arc_list(), list(constraint.labels)
        tags = sorted({(a, r) for _, a, r in arcs})
        number = {tag: i for i, tag in enumerate(tags)}
        follows = torch.full((len(tags), len(tags)), -1e4)
        leaving = {}
        for q, a, r in arcs:
            leaving.setdefault(q, []).append(number[a, r])
        for i, (_, state) in enumerate(tags):
            follows[i, leaving.get(state, [])] = 0.0
        model = ccrf.RegCCRF.__new__(ccrf.RegCCRF)
        nn.Module.__init__(model)
        self.accepting = accepting = set(constraint.accepting)
        model.n_tags, model.n_labels, model.labels = len(tags), len(labels), labels
        model.start_tags = set(leaving.get(constraint.start, []))
        model.end_tags = {i for i, (_, r) in enumerate(tags) if r in accepting}
        model.register_buffer("tag2label", torch.tensor([a for a, _ in tags]))
        model.register_buffer("transition_constraints", follows)
        model.register_buffer("indices", model.tag2label.unsqueeze(1) * len(labels) + model.tag2label)
        model.label_transitions = nn.Parameter(transitions.detach().clone())
        self.model, self.constraint, self.number, self.by_source = model, constraint, number, {}
        for q, a, r in arcs:
            self.by_source.setdefault((q, a), []).append(r)

    def encode(self, labels):
        """The tags of a legal sequence: forward over sets of states, then back along one accepting path."""
        sets = [{self.constraint.start}]
        for a in labels:
            sets.append({r for q in sets[-1] for r in self.by_source.get((q, a), ())})
        state = next(q for q in sets[-1] if q in self.accepting)
        tags = []
        for a, before in zip(reversed(labels), reversed(sets[:-1])):
            tags.append(self.number[a, state])
            state = next(q for q in before if state in self.by_source.get((q, a), ()))
        return tags[::-1]

    def prepare(self, tags):
        return torch.tensor([self.encode(row) for row in tags.tolist()], device=tags.device)

    def loss(self, h, y):
        return self.model.loss(h, y)

    def decode(self, h):
        return self.model.tag2label[self.model.map(h)].tolist()


class Graphed(nn.Module):
    """Ours, its forward and its backward kernels in a graph each, for inputs of one shape."""

    def __init__(self, crf, h, tags):
        super().__init__()
        self.layer = Ours(crf)
        self.layer.forward = self.layer.loss
        self.loss = torch.cuda.make_graphed_callables(self.layer, (h.detach().clone().requires_grad_(), tags.clone()))


class Nothing(torch.autograd.Function):
    """Memory for an answer and for gradients, and nothing in it."""

    @staticmethod
    def forward(ctx, *scores):
        ctx.save_for_backward(*scores)
        return scores[0].new_empty(())

    @staticmethod
    def backward(ctx, weight):
        return tuple(map(torch.empty_like, ctx.saved_tensors))


class NoLayer(nn.Module):
    """What PyTorch takes for a layer with our inputs and parameters that has no work to do."""

    def __init__(self, crf):
        super().__init__()
        self.crf = crf

    def loss(self, h, _):
        return -Nothing.apply(h, *self.crf.parameters())


def imported(name):
    try:
        return __import__(name)
    except ImportError:
        return None


class Layers:
    """The layers of one language, on the device, with the same weights."""

    def __init__(self, name, device):
        torch.manual_seed(0)
        self.name, self.device = name, device
        self.constraint = None if name.isdigit() else regccrf.compile(LANGUAGES / f"{name}.lang")
        labels = [str(i) for i in range(int(name))] if self.constraint is None else list(self.constraint.labels)
        self.free = CRF(labels, batch_first=True)
        self.crf = self.free if self.constraint is None else self.free.with_constraint(self.constraint)
        self.K = len(labels)
        self.all = {"ours": Ours(self.crf)}
        torchcrf, struct, ccrf = imported("torchcrf"), imported("torch_struct"), imported("ccrf")
        if torchcrf is not None:
            theirs = torchcrf.CRF(self.K, batch_first=True)
            theirs.load_state_dict(self.free.state_dict())
            self.all["pytorch-crf, no constraint"] = PytorchCrf(theirs)
        if struct is not None:
            self.all["torch-struct, no constraint"] = TorchStruct(self.free, struct)
        if ccrf is not None and self.constraint is not None:
            self.all["original"] = Original(self.constraint, self.crf.transitions, ccrf)
        for layer in self.all.values():
            layer.to(device)

    def batch(self, B, T):
        """Emissions and legal gold."""
        torch.manual_seed(B * T)
        h = torch.randn(B, T, self.K)
        with torch.no_grad():
            tags = self.on_cpu().sample(torch.zeros(B, T, self.K), 1, seed=B * T)
        return h.to(self.device), torch.tensor([paths[0] for paths in tags], device=self.device)

    def on_cpu(self):
        copy = RegCCRF(list(self.crf.labels), self.crf.constraint, batch_first=True)
        copy.load_state_dict({k: v.cpu() for k, v in self.crf.state_dict().items()}, strict=False)
        return copy


def close(x, y, tolerance=1e-4):
    return torch.allclose(torch.as_tensor(x).float().cpu(), torch.as_tensor(y).float().cpu(), rtol=tolerance, atol=tolerance)


def check(layers, B=3, T=12):
    """The layers agree: ours with ours on the CPU, with pytorch-crf and torch-struct under no constraint, and with the original."""
    h, tags = layers.batch(B, T)
    h.requires_grad_()
    here, at = layers.on_cpu(), h.detach().cpu().requires_grad_()
    value, expected = layers.all["ours"].loss(h, tags), -here(at, tags.cpu(), reduction="mean")
    same = [("CPU", close(value, expected) and close(torch.autograd.grad(value, h)[0], torch.autograd.grad(expected, at)[0])
             and layers.crf.decode(h) == here.decode(at))]
    free = -layers.free(h, tags, reduction="mean")
    for name in ("pytorch-crf, no constraint", "torch-struct, no constraint"):
        if name in layers.all:
            layer = layers.all[name]
            same.append((name, close(layer.loss(h, layer.prepare(tags)), free) and layer.decode(h) == layers.free.decode(h)))
    if "original" in layers.all:  # it has no start and end scores
        plain = RegCCRF(list(layers.crf.labels), layers.constraint, batch_first=True, start_end=False).to(h.device)
        plain.transitions.data.copy_(layers.crf.transitions.data)
        layer = layers.all["original"]
        same.append(("original", close(layer.loss(h, layer.prepare(tags)), -plain(h, tags, reduction="mean"), 1e-3)
                     and layer.decode(h) == plain.decode(h)))
    wrong = [name for name, good in same if not good]
    if wrong:
        raise SystemExit(f"{layers.name}: ours does not agree with {', '.join(wrong)}: nothing was timed")
    return [name for name, _ in same]


def middle(name, values):
    """The median, and beside it the quartiles."""
    values = sorted(values)
    return {name: statistics.median(values), f"{name}_quartiles": [values[len(values) // 4], values[-1 - len(values) // 4]]} if values else {}


def interval(values):
    """95 % for the median of whatever the values are drawn from: two of them, by their ranks."""
    values, n = sorted(values), len(values)
    low = max(0, int((n - 1.96 * math.sqrt(n)) / 2) - 1)
    return [values[low], values[n - 1 - low]]


def in_the_callers_thread(call):
    """The call, its backward pass in the thread that asks for it."""
    def run():
        with torch.autograd.set_multithreading_enabled(False):
            return call()
    return run


def attempt(call):
    """The call's answer, or why there is none."""
    try:
        return call()
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return "out of memory"
    except Exception as error:  # another library's limits
        return f"{type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"


def gradient_call(layer, h, gold):
    parameters = [p for p in layer.parameters() if p.requires_grad]
    return lambda: torch.autograd.grad(layer.loss(h, gold), [h, *parameters], allow_unused=True)


def hopeless(name, B, T, quick):
    """Sizes at which another layer takes longer than it is worth: one kernel launch after another, or too much memory."""
    return (T > 1000 and name in ("pytorch-crf, no constraint", "original")) or (name == "original" and (B * T > 1024 or quick))


def table(options, clock):
    """Ours first, so that all of it is there when the time is up."""
    languages = [Layers(name, options.device) for name in ("srl", "47", "bio")]
    sizes = [(2, 8), (3, 5)] if options.quick else SIZES
    agreed = {layers.name: check(layers) for layers in languages}
    rows = {}
    (B, T), crf = sizes[1], languages[0].crf
    h, tags = languages[0].batch(B, T)
    clock.warm_up(gradient_call(Ours(crf), h.requires_grad_(), tags), 0.1 if options.quick else 2)
    nothing = {"language": "srl", "B": B, "T": T, "layer": "an autograd function that does nothing",
               **both_threads(clock, gradient_call(NoLayer(crf), h, tags))}
    for mine in (True, False):
        for layers in languages:
            for B, T in sizes:
                h, tags = layers.batch(B, T)
                h.requires_grad_()
                for label, layer in layers.all.items():
                    if layer.captured == mine:
                        row = {"language": layers.name, "B": B, "T": T, "layer": label, "agrees_with": agreed[layers.name] if mine else None}
                        row.update(times(clock, layer, h, tags, hopeless(label, B, T, options.quick)))
                        rows[layers.name, B, T, label] = row
                del h
    return [nothing, *(rows[layers.name, B, T, label] for layers in languages for B, T in sizes for label in layers.all)]


def both_threads(clock, call):
    threads, caller = clock.sample(call, in_the_callers_thread(call))
    return {**middle("nll_us", threads), **middle("nll_caller_us", caller)}


def times(clock, layer, h, tags, too_large):
    if too_large or clock.late():
        return {"left_out": "size" if too_large else "time"}
    row = {}

    def gradients():
        row.update(both_threads(clock, gradient_call(layer, h, layer.prepare(tags))))

    def viterbi():
        with torch.no_grad():
            row.update(middle("viterbi_us", *clock.sample(lambda: layer.decode(h))))
    for key, task in (("nll_us", gradients), ("viterbi_us", viterbi)):
        why_not = attempt(task)
        if why_not:
            row[key] = why_not
    if layer.captured and clock.cuda and h.shape[0] * h.shape[1] <= 4096:
        call = attempt(lambda: in_the_callers_thread(gradient_call(Graphed(layer.crf, h, tags), h, tags)))
        row.update(middle("nll_graphed_us", *clock.sample(call)) if callable(call) else {"nll_graphed_us": call})
    if layer.captured:
        row["nll_device_us"] = attempt(lambda: clock.device(gradient_call(layer, h, tags)))
        row["viterbi_device_us"] = attempt(lambda: clock.device(lambda: layer.enqueue_decode(h)) if clock.cuda else None)
    return row


# --- with an encoder -----------------------------------------------------------------------------------------------------------------


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
            self.body, self.name = nn.TransformerEncoder(layer, small.get("num_hidden_layers", 12), enable_nested_tensor=False), "torch.nn.TransformerEncoder"
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
        loss = layer.loss(h if isinstance(layer, Ours) and layer.captured else h.float(), gold)
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
            del calls
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


def memory(options, clock):
    """Peak device memory above what inputs and weights take."""
    if not clock.cuda:
        return []
    layers, rows = Layers("srl", options.device), []
    for B, T in [(8, 64), (64, 64), (256, 128)]:
        h, tags = layers.batch(B, T)
        h.requires_grad_()
        for label, layer in layers.all.items():
            row = {"B": B, "T": T, "layer": label}
            if clock.late() or hopeless(label, B, T, options.quick):
                rows.append({**row, "left_out": "time" if clock.late() else "size"})
                continue
            gold = attempt(lambda: layer.prepare(tags))
            for task, call in (("nll", lambda: gradient_call(layer, h, gold)()), ("viterbi", lambda: layer.decode(h.detach()))):
                attempt(call)
                torch.cuda.synchronize()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                failed = attempt(call)
                row[f"{task}_mib"] = failed if isinstance(failed, str) else (torch.cuda.max_memory_allocated() - before) / 2 ** 20
                del failed
            rows.append(row)
    return rows


# --- report ----------------------------------------------------------------------------------------------------------------------------


def cell(row, key, form="{:,.0f}", of=None):
    """A number, where there are any with its `quartiles` or its `interval`; or why there is none."""
    value = row.get(key, row.get("left_out", ""))
    if not isinstance(value, (int, float)):
        return str("" if value is None else value)
    ends = row.get(f"{key}_{of}") if of else None
    return form.format(value) + (f" ({form.format(ends[0])} to {form.format(ends[1])})" if ends else "")


def markdown(report):
    lines = [f"# The layer on {report['device']}", "", f"`{report['command']}`; PyTorch {report['torch']}, regccrf {report['regccrf']}, {report['date']}."]

    def section(title, part, heads, line):
        if part in report:
            lines.extend(["", f"## {title}", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)])
            lines.extend("| " + " | ".join(line(row)) + " |" for row in report[part])
    where_ours = lambda r, key: cell(r, key, "{:,.1f}") if key in r else ""
    by_clock = lambda r, key: cell(r, key, of="quartiles" if r["layer"] == "ours" else None)
    section("The layer alone, µs", "table", ["language", "B×T", "layer", "NLL+gradient, device", "… by the clock (quartiles)",
                                            "… backward in the caller's thread", "… and captured", "Viterbi, device", "… by the clock (quartiles)"],
            lambda r: [r["language"], f"{r['B']}×{r['T']}", r["layer"], where_ours(r, "nll_device_us"), by_clock(r, "nll_us"),
                       *(by_clock(r, key) if key in r else "" for key in ("nll_caller_us", "nll_graphed_us")), where_ours(r, "viterbi_device_us"), by_clock(r, "viterbi_us")])
    section("A training step with an encoder", "step", ["B×T", "precision", "layer", "turns", "step, µs", "over cross-entropy, % (95 %)", "device, µs",
                                                        "… over cross-entropy, %"],
            lambda r: [f"{r['B']}×{r['T']}", r["precision"], r["layer"], cell(r, "turns"), cell(r, "step_us"),
                       cell(r, "overhead_percent", "{:.1f}", "interval" if r.get("turns", 0) > 9 else None),
                       cell(r, "device_us"), cell(r, "device_overhead_percent", "{:.1f}") if "device_overhead_percent" in r else ""])
    section("Decoding with an encoder", "decode", ["precision", "sentences", "turns", "constrained, s", "unconstrained, s", "ratio (95 %)",
                                                    "… in a turn, median (95 %)"],
            lambda r: [r["precision"], cell(r, "sentences"), cell(r, "turns"), cell(r, "constrained_s", "{:.2f}"), cell(r, "unconstrained_s", "{:.2f}"),
                       cell(r, "ratio", "{:.3f}", "interval"), cell(r, "turn_ratio", "{:.3f}", "interval")])
    section("Peak memory, MiB", "memory", ["B×T", "layer", "NLL+gradient", "Viterbi"],
            lambda r: [f"{r['B']}×{r['T']}", r["layer"], cell(r, "nll_mib", "{:,.1f}"), cell(r, "viterbi_mib", "{:,.1f}")])
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="table,step,memory,decode")
    parser.add_argument("--competitors", help="a folder with the other packages")
    parser.add_argument("--output", default=".", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", default=170.0, type=float)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.competitors:
        sys.path.insert(0, options.competitors)
    cuda = options.device == "cuda"
    report = {"command": " ".join(["python", *sys.argv]), "device": torch.cuda.get_device_name() if cuda else "the CPU",
              "torch": torch.__version__, "regccrf": regccrf.__version__, "date": time.strftime("%Y-%m-%d")}
    options.output.mkdir(parents=True, exist_ok=True)
    clock = Clock(options.device, options.seconds)
    for part in options.parts.split(","):
        begin = time.perf_counter()
        gc.collect()
        gc.freeze()
        report[part] = {"table": table, "step": step, "decode": decode, "memory": memory}[part](options, clock)
        print(f"{part}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
        (options.output / "step.json").write_text(json.dumps(report, indent=1) + "\n")
        (options.output / "step.md").write_text(markdown(report))
    print(markdown(report))


main()
