"""The layer alone: a table of times beside others', and of memory.

Ours: device time by replays of a captured CUDA graph, and time by the clock, from the call to the end of the device's work, with
autograd and the lists, in rounds over all sizes. Others: by the clock, once. Our loss is timed as PyTorch comes, where autograd's own
thread runs the backward pass; under `torch.autograd.set_multithreading_enabled(False)`, where the caller's does; and that way with its
kernels captured by `torch.cuda.make_graphed_callables`. At one size beside it: a plain autograd function that only allocates its answer and
its gradients, for what PyTorch itself takes on this host at this time.
"""

import torch

from clock import attempt, middle
from layers import Graphed, Layers, NoLayer, Ours, check, gradient_call, in_the_callers_thread

BESIDE = {"an autograd function that does nothing": NoLayer}
SIZES = [(2, 32), (8, 64), (8, 128), (64, 64), (256, 128), (1, 10000)]


def hopeless(name, B, T, quick):
    """Sizes at which another layer takes longer than it is worth: one kernel launch after another, or too much memory."""
    return (T > 1000 and name in ("pytorch-crf, no constraint", "original")) or (name == "original" and (B * T > 1024 or quick))


def table(options, clock):
    """Ours first, so that all of it is there when the time is up."""
    languages, sizes = [Layers(name, options.device) for name in ("srl", "47", "bio")], [(2, 8), (3, 5)] if options.quick else SIZES
    agreed = {layers.name: check(layers) for layers in languages}
    rows = {(layers.name, B, T, label): {"language": layers.name, "B": B, "T": T, "layer": label}
            for layers in languages for B, T in sizes
            for label in (*(BESIDE if layers is languages[0] and (B, T) == sizes[1] else ()), *layers.all)}
    calls = {}  # by row and column
    for layers in languages:
        for B, T in sizes:
            key = layers.name, B, T, "ours"
            rows[key].update(agrees_with=agreed[layers.name], **device_times(clock, layers, B, T))
            for column, call in calls_by_the_clock(clock, layers, B, T).items():
                if callable(call):
                    calls[key, column] = call
                else:
                    rows[key][column] = call
    h, tags = languages[0].batch(*sizes[1])
    for label, layer in BESIDE.items():
        both = both_threads(gradient_call(layer(languages[0].crf), h.requires_grad_(), tags))
        calls.update({((languages[0].name, *sizes[1], label), column): call for column, call in both.items()})
    for (key, column), times in clock.rounds(calls, **(dict(count=2, each=3) if options.quick else {})).items():
        rows[key].update(middle(column, times))
    for layers in languages:
        for B, T in sizes:
            h, tags = layers.batch(B, T)
            for label, layer in layers.all.items():
                if label != "ours":
                    rows[layers.name, B, T, label].update(of_another(clock, layer, h.requires_grad_(), tags, hopeless(label, B, T, options.quick)))
    return list(rows.values())


def host(options, clock):
    """Ours and what stands beside it at 8×64, by the clock, in rounds: what the host takes in this process, within seconds."""
    layers = Layers("srl", options.device)
    check(layers)
    h, tags = layers.batch(*SIZES[1])
    rows = {label: {"layer": label} for label in (*BESIDE, "ours")}
    calls = {(label, column): call for label in rows for column, call in
             both_threads(gradient_call(BESIDE.get(label, Ours)(layers.crf), h.requires_grad_(), tags)).items()}
    for (label, column), times in clock.rounds(calls).items():
        rows[label].update(middle(column, times))
    return list(rows.values())


def both_threads(call):
    return {"nll_us": call, "nll_caller_us": in_the_callers_thread(call)}


def device_times(clock, layers, B, T):
    layer, (h, tags) = layers.all["ours"], layers.batch(B, T)
    if not clock.cuda:
        return {}
    return {"nll_device_us": attempt(lambda: clock.device(gradient_call(layer, h.requires_grad_(), tags))),
            "viterbi_device_us": attempt(lambda: clock.device(lambda: layer.enqueue_decode(h)))}


def calls_by_the_clock(clock, layers, B, T):
    """Ours: loss, loss in the caller's thread, the same captured (or why not), Viterbi."""
    layer, (h, tags) = layers.all["ours"], layers.batch(B, T)
    calls = both_threads(gradient_call(layer, h.requires_grad_(), tags))
    if clock.cuda and B * T <= 4096:
        calls["nll_graphed_us"] = attempt(lambda: in_the_callers_thread(gradient_call(Graphed(layer.crf, h, tags), h, tags)))
    return {**calls, "viterbi_us": lambda: layer.decode(h)}


def of_another(clock, layer, h, tags, too_large):
    if too_large or clock.late():
        return {"left_out": "size" if too_large else "time"}
    row = middle("nll_us", attempt(lambda: clock.sample(gradient_call(layer, h, layer.prepare(tags)))))
    with torch.no_grad():
        return {**row, **middle("viterbi_us", attempt(lambda: clock.sample(lambda: layer.decode(h))))}


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
