#!/usr/bin/env python3
"""Decoding as an ONNX graph, in onnxruntime, against the core: python3 bench/onnx/run.py [--record]

For languages of growing automata: the model's size, and milliseconds of processor time a batch by onnxruntime on the CPU (scores added in
float64, the default, and in float32) and by `regccrf.viterbi`, both with one thread, best of --repeats. Before anything is timed, labels must
be equal. Scores are random, batches ragged.

Needs onnx and onnxruntime: pip install onnx==1.23.2 onnxruntime==1.31.1
"""
import argparse
import datetime
import json
import os
import platform
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "build" / "python"))
import regccrf  # noqa: E402
import regccrf.onnx  # noqa: E402

TYPES = " ".join(f"T{i}" for i in range(23))
LANGUAGES = {
    "none, 47 labels": lambda: regccrf.Constraint.unconstrained([f"L{i}" for i in range(47)]),
    "BIO, 23 types": lambda: regccrf.compile(f"bio({{{TYPES}}})"),
    "srl.lang": lambda: regccrf.compile(ROOT / "languages" / "srl.lang"),
    "citation-frequent.lang": lambda: regccrf.compile(ROOT / "languages" / "citation-frequent.lang"),
    "membrane.lang": lambda: regccrf.compile(ROOT / "languages" / "membrane.lang"),
}
BATCHES = [(1, 32), (8, 64), (64, 64)]


def session(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def best_of(repeats, call):
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return 1000 * min(times)


def measure(name, constraint, repeats):
    rng, K = np.random.default_rng(1), len(constraint.labels)
    transitions = rng.normal(size=(K, K)).astype(np.float32)
    models = {precision: regccrf.onnx.decoder(constraint, transitions, precision=precision).SerializeToString()
              for precision in ("float64", "float32")}
    sessions = {precision: session(model) for precision, model in models.items()}
    for B, T in BATCHES:
        emissions = rng.normal(size=(B, T, K)).astype(np.float32)
        mask = np.arange(T) < rng.integers(T // 2, T + 1, size=(B, 1))
        inputs = {"emissions": emissions, "mask": mask}
        ours = lambda: regccrf.viterbi(constraint, emissions, transitions, mask=mask)
        wanted = [path.labels for path in ours()]
        row = {"language": name, "states": constraint.states, "nodes": constraint.nodes, "products": constraint.products,
               "KiB": len(models["float64"]) / 1024, "B × T": f"{B} × {T}", "viterbi ms": best_of(repeats, ours)}
        for precision, run in sessions.items():
            labels = run.run(["labels"], inputs)[0]
            wrong = [i for i in range(B) if labels[i][mask[i]].tolist() != wanted[i]]
            if wrong and precision == "float64":
                sys.exit(f"run.py: {name}: {len(wrong)} of {B} sequences differ")
            row[f"{precision} ms"] = best_of(repeats, lambda: run.run(["labels"], inputs))
        yield row


def table(rows):
    show = lambda value: f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return "\n".join(lines + ["| " + " | ".join(map(show, row.values())) + " |" for row in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--record", action="store_true", help="write bench/record/onnx.md and .json")
    arguments = parser.parse_args()
    rows = [row for name, make in LANGUAGES.items() for row in measure(name, make(), arguments.repeats)]
    print(table(rows))
    if arguments.record:
        facts = {"date": datetime.date.today().isoformat(), "machine": platform.processor() or platform.machine(), "cores": os.cpu_count(),
                 "onnxruntime": onnxruntime.__version__, "load": os.getloadavg()[0], "command": "bench/onnx/run.py", "rows": rows}
        record = ROOT / "bench" / "record" / "onnx"
        record.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
        head = ", ".join(f"{key} {facts[key]}" for key in ("date", "machine", "cores", "onnxruntime", "load"))
        record.with_suffix(".md").write_text(f"# Decoding in onnxruntime\n\n{head}; `bench/onnx/run.py`\n\n{table(rows)}\n")


if __name__ == "__main__":
    main()
