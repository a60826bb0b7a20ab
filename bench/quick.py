"""Ours alone against the record, in a minute or two (`make bench-quick`): for every change that could cost speed.

    quick.py [--record]

Rows are least CPU times of many calls, so that a busy machine matters little: inference on the cases of inference/run.py; small languages beside
none (inference/small.cc); an iteration of training under bio and under nothing (tagger/bio.py); the PyTorch layer, where there is PyTorch. Each is
divided by the record's. Another machine is faster or slower as a whole, so each ratio is divided by the median ratio, too: what is far
above 1 there has become slower than the rest. `--record` makes this run the record, bench/record/quick-cpu.json.
"""
import argparse
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench" / "inference"), str(ROOT / "bench" / "tagger"), str(ROOT / "build" / "python")]
import bio  # noqa: E402

import run as bench  # noqa: E402

RECORD = ROOT / "bench" / "record" / "quick-cpu.json"
SLOWER = 1.15  # than the rest: worth a look


def inference():
    """Loss with gradients, log_z and Viterbi in float, one thread, µs a call."""
    for name, language, B, T, _ in bench.CASES:
        folder = bench.BUILD / "bench" / "cases" / name.replace(" ", "_")
        bench.write_case(folder, language, B, T)
        for task in bench.TASKS:
            yield f"{name} {task}", 1e6 * bench.ours(folder, task, 1)["cpu"]


def small():
    """The rows of bench_small that have a constraint."""
    out = subprocess.run([bench.BUILD / "bench" / "bench_small", "100"], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        name, *cells = (cell.strip() for cell in line.split("|"))
        found = re.match(r"(.*\d+x\d+ (?:float|double))", name)
        for task, cell in zip(bench.TASKS, cells if found else []):
            under, none, _ = map(float, cell.split())
            yield f"{found[1]} {task}", under
            yield f"{found[1]} {task}, without", none


def training():
    for name, seconds in bio.measure(bench.BUILD / "regccrf", 1000, 2).items():
        yield f"training, 23 labels, {name}", 1e6 * seconds


def layer():
    """From Python: the loss with its gradients, and decoding, 8×64, one thread."""
    import torch

    import regccrf
    from regccrf.torch import CRF, RegCCRF
    torch.set_num_threads(1)
    constraint = regccrf.compile(bench.SRL)
    labels = list(constraint.labels)
    tags = torch.tensor([constraint.labels.ids(constraint.language().random(64, seed=i)[0]) for i in range(8)])
    emissions = torch.randn(8, 64, len(labels), requires_grad=True)

    def least(call):
        times = []
        for _ in range(200):
            begin = time.process_time()
            call()
            times.append(time.process_time() - begin)
        return 1e6 * min(times)

    for name, crf in (("none", CRF(labels, batch_first=True)), ("srl", RegCCRF(labels, constraint, batch_first=True))):
        yield f"layer, {name}, loss", least(lambda: crf.nll(emissions, tags).backward())
        yield f"layer, {name}, decode", least(lambda: crf.decode(emissions))


def measured():
    yield from inference()
    yield from small()
    yield from training()
    if bench.importable("torch"):
        yield from layer()
    else:
        print("quick: no PyTorch here, so no rows of the layer")


def report(rows, record):
    ratios = {name: value / record[name] for name, value in rows.items() if name in record}
    middle = statistics.median(ratios.values()) if ratios else 1
    print(f"{'CPU time in µs':48} {'record':>10} {'now':>10} {'ratio':>7} {'÷ median':>9}")
    for name, value in rows.items():
        if name in ratios:
            mark = "  slower" if ratios[name] / middle > SLOWER else ""
            print(f"{name:48} {record[name]:10.1f} {value:10.1f} {ratios[name]:7.2f} {ratios[name] / middle:9.2f}{mark}")
        else:
            print(f"{name:48} {'–':>10} {value:10.1f}")
    print(f"median ratio to the record: {middle:.2f}")
    over_none = [value / rows[name + ", without"] for name, value in rows.items()
                 if re.match("bio(es)?-[0-9]+ ", name) and name + ", without" in rows]
    print(f"BIO and BIOES ÷ none: {min(over_none):.2f} to {max(over_none):.2f}")
    print(f"training under bio ÷ none: {rows['training, 23 labels, bio'] / rows['training, 23 labels, none']:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="keep this run as the record")
    options = parser.parse_args()
    rows = dict(measured())
    report(rows, json.loads(RECORD.read_text())["rows"] if RECORD.exists() else {})
    if options.record:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
        head = f"{datetime.date.today()}, {bench.machine()}, commit {commit}, bench/quick.py; least CPU time of a call in µs, one thread"
        RECORD.write_text(json.dumps({"head": head, "rows": {name: round(value, 2) for name, value in rows.items()}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
