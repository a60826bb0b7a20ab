#!/usr/bin/env python3
"""What a training step and decoding the test part take, per model of the neural experiment.

All models are in one process, alone on the device, and take turns. A stretch is some work that is timed as a whole:
a model's training steps on the same batches as all others', or decoding the whole test part; each with the encoder,
and the CRF layer alone on emissions that lie ready. Every stretch first runs for a while untimed (the first time,
kernels are loaded and memory is asked for), then all run in rounds, each round in a new order. The clock is read only
when the device has nothing left to do. A stretch that is short is repeated within its turn.

Models start from the encoder and are trained by the very steps that are timed, so they are those of early training;
what they decode is held against the language. Sums under rules that are kept beside a base cost the less the surer a
model is: `--pretrain` trains every model for so many steps first, without such rules. For a model that has them, the
report says where a step goes: the layer alone with 1, 2, 4 … threads, the same without the rules, the copies between
device and CPU, and the gaps.

    experiments/srl/neural_times.py --output build/srl/times.json
    experiments/srl/neural_times.py --models crf-all regccrf-full --pretrain 1000 --output build/srl/times-full.json
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import math
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import corpus
from models import MODELS, outside
from neural import (
    Experiment,
    Gaps,
    OnDevice,
    base_layer,
    command_line,
    common_options,
    complete,
    decode,
    decoding_batches,
    machine_of,
    read_experiment,
    settings_of,
    shuffled_batches,
    synchronize,
    train_step,
    write_whole,
)


@dataclass
class Stretch:
    run: Callable[[], object]
    parts: int  # what it does so many times: training steps; 1 for a whole test part
    repeats: int = 1


class Subject:
    """A model with what its stretches need."""

    def __init__(self, experiment: Experiment, name: str, steps: int, pretrain: int) -> None:
        import torch

        torch.manual_seed(0)
        self.experiment, self.name = experiment, name
        self.labels, self.data, _, self.tagger = experiment.prepare(name)
        self.optimizer, self.schedule = experiment.optimizer(self.tagger, len(self.data.arrays.words))
        self.test = OnDevice(experiment.arrays["test"], experiment.options.device)
        self.layers = {system: experiment.layer(self.tagger, language) for system, language in MODELS[name].systems}
        size = min(experiment.options.batch, len(self.data.arrays.words))
        batches = shuffled_batches(self.data.arrays.subtokens, size, np.random.default_rng(0))
        batches = [batch for batch in batches if len(batch) == size]
        self.batches = batches[:steps]
        self.base = base_layer(self.tagger.crf)
        self.has_rules = self.base is not self.tagger.crf
        for step in range(pretrain):
            batch = self.data.batch(batches[step % len(batches)])
            train_step(self.tagger, batch, self.optimizer, self.schedule, self.base)

    def train(self) -> None:
        self.tagger.train()
        for which in self.batches:
            train_step(self.tagger, self.data.batch(which), self.optimizer, self.schedule)

    @functools.cached_property
    def ready_batches(self) -> List[tuple]:
        """Emissions, gold, mask."""
        import torch

        result = []
        with torch.no_grad():
            for which in self.batches:
                inputs, mask, gold = self.data.batch(which)
                result.append((self.tagger.emissions(*inputs).requires_grad_(), gold, mask))
        return result

    def train_layer(self, layer=None) -> None:
        """Loss and gradients."""
        import torch

        layer = layer or self.tagger.crf
        for emissions, gold, mask in self.ready_batches:
            loss = -layer(emissions, gold, mask, reduction="mean")
            torch.autograd.grad(loss, [emissions, layer.transitions])

    def train_layer_by(self, threads: int) -> None:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        self.train_layer()
        torch.set_num_threads(before)

    def copy(self) -> None:
        """Emissions to the CPU and back, as a loss under rules needs them."""
        for emissions, _, _ in self.ready_batches:
            emissions.detach().cpu().to(emissions.device)

    def gaps(self) -> Dict[str, object]:
        """Of all sequences of the batches."""
        every: List[float] = []
        for emissions, gold, mask in self.ready_batches:
            self.tagger.crf(emissions, gold, mask)
            every += self.tagger.crf.gaps
        account = Gaps()
        account.add(every)
        median = statistics.median(every)
        return {**account.report()["certified"], "median_gap": median if math.isfinite(median) else None}

    def decode(self, system: str) -> List[List[int]]:
        return decode(self.tagger, self.layers[system], self.test)

    @functools.cached_property
    def ready_test(self) -> List[tuple]:
        """Emissions, mask."""
        import torch

        self.tagger.eval()
        with torch.no_grad():
            batches = (self.test.batch(which) for which in decoding_batches(self.test.arrays))
            return [(self.tagger.emissions(*inputs), mask) for inputs, mask, _ in batches]

    def decode_layer(self, system: str) -> None:
        for emissions, mask in self.ready_test:
            self.layers[system].decode(emissions, mask)

    def stretches(self) -> Dict[tuple, Stretch]:
        steps = len(self.batches)
        result = {
            ("training", self.name, "step_ms"): Stretch(self.train, steps),
            ("training", self.name, "layer_step_ms"): Stretch(self.train_layer, steps),
        }
        if self.has_rules:
            result["rules", self.name, "without rules, ms"] = Stretch(functools.partial(self.train_layer, self.base), steps)
            result["rules", self.name, "copies, ms"] = Stretch(self.copy, steps)
            for threads in thread_counts():
                by = functools.partial(self.train_layer_by, threads)
                result["rules", self.name, f"{threads} threads, ms"] = Stretch(by, steps)
        for system in self.layers:
            result["decoding", system, "ms"] = Stretch(functools.partial(self.decode, system), 1)
            result["decoding", system, "layer_ms"] = Stretch(functools.partial(self.decode_layer, system), 1)
        return result

    def check(self) -> Dict[str, Dict[str, int]]:
        """By system: how many outputs of the test part there are, and how many are outside the language."""
        result = {}
        for system, _ in MODELS[self.name].systems:
            names = [[self.labels[a] for a in row] for row in self.decode(system)]
            broken = outside(self.experiment.languages[MODELS[self.name].judged_by], names)
            result[system] = {"outputs": len(names), "violations": len(broken)}
        return result


def thread_counts() -> List[int]:
    """Powers of two up to the cores."""
    cores = os.cpu_count() or 1
    return [2**i for i in range(cores.bit_length()) if 2**i <= cores]


def milliseconds(stretch: Stretch, device: str) -> float:
    """Of one of its parts."""
    synchronize(device)
    begin = time.perf_counter()
    for _ in range(stretch.repeats):
        stretch.run()
    synchronize(device)
    return 1e3 * (time.perf_counter() - begin) / (stretch.repeats * stretch.parts)


def warm_up(stretch: Stretch, options: argparse.Namespace) -> None:
    """Runs it for so long, at least three times; the last time says how often it is repeated."""
    end, runs = time.perf_counter() + options.warm, 0
    while runs < 3 or time.perf_counter() < end:
        last = milliseconds(stretch, options.device) * stretch.parts / 1e3
        runs += 1
    stretch.repeats = max(1, math.ceil(options.shortest / max(last, 1e-6)))


def rounds(stretches: Dict[tuple, Stretch], options: argparse.Namespace) -> Dict[tuple, List[float]]:
    """Of every stretch, a time per round. The first round is not counted."""
    times: Dict[tuple, List[float]] = {key: [] for key in stretches}
    random, keys = np.random.default_rng(0), list(stretches)
    end = time.perf_counter() + options.seconds
    for number in range(options.rounds + 1):
        for i in random.permutation(len(keys)):
            elapsed = milliseconds(stretches[keys[i]], options.device)
            if number:
                times[keys[i]].append(elapsed)
        if number >= 3 and time.perf_counter() > end:
            break
    return times


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Times training steps and decoding of the neural models.")
    common_options(parser)
    parser.add_argument("--pretrain", type=int, default=0, help="training steps before anything is timed")
    parser.add_argument("--steps", type=int, default=24, help="training steps of a stretch")
    parser.add_argument("--warm", type=float, default=0.6, help="seconds that each stretch runs before it is timed")
    parser.add_argument("--shortest", type=float, default=0.15, help="seconds that a stretch lasts at least")
    parser.add_argument("--rounds", type=int, default=11, help="rounds that count")
    parser.add_argument("--seconds", type=float, default=20, help="no new round after so long, once there are three")
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    return complete(parser.parse_args())


def main() -> int:
    options = parse_options()
    begin = time.time()
    try:
        experiment = read_experiment(options)
    except corpus.Absent as error:
        print(f"neural_times: error: {error}", file=sys.stderr)
        return 2
    subjects = [Subject(experiment, name, options.steps, options.pretrain) for name in options.models]
    print(f"ready after {time.time() - begin:.1f} s", flush=True)
    stretches = {key: stretch for subject in subjects for key, stretch in subject.stretches().items()}
    gc.collect()
    gc.freeze()  # or the corpus would be looked through again and again
    for stretch in stretches.values():
        warm_up(stretch, options)
    print(f"warm after {time.time() - begin:.1f} s", flush=True)
    times = rounds(stretches, options)
    report: Dict[str, object] = {
        "experiment": "srl, neural, times",
        "command": command_line(),
        "machine": machine_of(options.device),
        "settings": settings_of(options),
        "instances": {part: len(instances) for part, instances in experiment.instances.items()},
        "rounds": len(next(iter(times.values()))),
        "steps": options.steps,
        "training": {},
        "decoding": {},
        **({"rules": {}} if any(subject.has_rules for subject in subjects) else {}),
    }
    for (task, name, quantity), values in times.items():
        report[task].setdefault(name, {})[quantity] = values
        print(
            f"{task} {name}: {quantity} {statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f}), "
            f"{len(values)} rounds of {stretches[task, name, quantity].repeats}",
            flush=True,
        )
    for subject in subjects:
        if subject.has_rules:
            report["rules"][subject.name].update(subject.gaps())
            print(f"gaps of {subject.name}: {report['rules'][subject.name]}", flush=True)
        for system, checked in subject.check().items():
            report["decoding"][system].update(model=subject.name, **checked)
    report["wall_seconds"] = time.time() - begin
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_whole(options.output, lambda file: file.write(json.dumps(report, indent=1).encode()))
    broken = [
        system
        for subject in subjects
        for system, language in MODELS[subject.name].systems
        if language and report["decoding"][system]["violations"]
    ]
    for system in broken:
        print(f"neural_times: error: {system} gave outputs outside its language", file=sys.stderr)
    print(f"{time.time() - begin:.1f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
