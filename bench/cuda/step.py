"""The layer on a GPU beside others: alone, in a training step of RoBERTa-base's shape, in decoding, and in memory; and second derivatives.

    PYTHONPATH=build/python python bench/cuda/step.py --output DIR [--parts table,host,step,memory,decode,second] [--competitors DIR]   # PyTorch 2

What is measured, and how: alone.py, encoder.py, second.py. Other packages: those that can be imported (a folder for them: --competitors). Answers
must agree before anything is timed. Writes step.json and step.md. What does not fit into memory or into --seconds is left out and said
so. --device cpu --quick tries the script itself.
"""

import argparse
import gc
import json
import pathlib
import sys
import time

import torch

import regccrf
from alone import BESIDE, host, memory, table
from clock import Clock
from encoder import decode, step
from second import second


def cell(row, key, form="{:,.0f}", of=None):
    """A number, where there are any with its `quartiles` or its `interval`; or why there is none."""
    value = row.get(key, row.get("left_out", ""))
    if not isinstance(value, (int, float)):
        return str("" if value is None else value)
    ends = row.get(f"{key}_{of}") if of else None
    return form.format(value) + (f" ({form.format(ends[0])} to {form.format(ends[1])})" if ends else "")


def markdown(report):
    lines = [f"# The layer on {report['device']}", "",
             f"`{report['command']}`; PyTorch {report['torch']}, regccrf {report['regccrf']}, {report['date']}."]

    def section(title, part, heads, line):
        if part in report:
            lines.extend(["", f"## {title}", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)])
            lines.extend("| " + " | ".join(line(row)) + " |" for row in report[part])
    where_ours = lambda r, key: cell(r, key, "{:,.1f}") if key in r else ""
    by_clock = lambda r, key: cell(r, key, of="quartiles" if r["layer"] in ("ours", *BESIDE) else None)
    section("The layer alone, µs", "table", ["language", "B×T", "layer", "NLL+gradient, device", "… by the clock (quartiles)",
                                            "… backward in the caller's thread", "… and captured", "Viterbi, device", "… by the clock (quartiles)"],
            lambda r: [r["language"], f"{r['B']}×{r['T']}", r["layer"], where_ours(r, "nll_device_us"), by_clock(r, "nll_us"),
                       *(by_clock(r, key) if key in r else "" for key in ("nll_caller_us", "nll_graphed_us")),
                       where_ours(r, "viterbi_device_us"), by_clock(r, "viterbi_us")])
    section("The loss at 8×64, srl, by the clock, µs", "host", ["layer", "by the clock (quartiles)", "… backward in the caller's thread"],
            lambda r: [r["layer"], by_clock(r, "nll_us"), by_clock(r, "nll_caller_us")])
    section("A training step with an encoder", "step", ["B×T", "precision", "layer", "turns", "step, µs", "over cross-entropy, % (95 %)",
                                                        "device, µs", "… over cross-entropy, %"],
            lambda r: [f"{r['B']}×{r['T']}", r["precision"], r["layer"], cell(r, "turns"), cell(r, "step_us"),
                       cell(r, "overhead_percent", "{:.1f}", "interval" if r.get("turns", 0) > 9 else None),
                       cell(r, "device_us"), cell(r, "device_overhead_percent", "{:.1f}") if "device_overhead_percent" in r else ""])
    section("Decoding with an encoder", "decode", ["precision", "sentences", "turns", "constrained, s", "unconstrained, s", "ratio (95 %)",
                                                    "… in a turn, median (95 %)"],
            lambda r: [r["precision"], cell(r, "sentences"), cell(r, "turns"), cell(r, "constrained_s", "{:.2f}"),
                       cell(r, "unconstrained_s", "{:.2f}"), cell(r, "ratio", "{:.3f}", "interval"), cell(r, "turn_ratio", "{:.3f}", "interval")])
    section("Peak memory, MiB", "memory", ["B×T", "layer", "NLL+gradient", "Viterbi"],
            lambda r: [f"{r['B']}×{r['T']}", r["layer"], cell(r, "nll_mib", "{:,.1f}"), cell(r, "viterbi_mib", "{:,.1f}")])
    section("Entropy and second derivatives with gradients, srl", "second", ["task", "B×T", "device, µs", "by the clock, µs", "on the CPU, µs"],
            lambda r: [r["task"], f"{r['B']}×{r['T']}", *(cell(r, key) for key in ("device_us", "clock_us", "cpu_us"))])
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="table,step,memory,decode,second")
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
        report[part] = {"table": table, "host": host, "step": step, "decode": decode, "memory": memory, "second": second}[part](options, clock)
        print(f"{part}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
        (options.output / "step.json").write_text(json.dumps(report, indent=1) + "\n")
        (options.output / "step.md").write_text(markdown(report))
    print(markdown(report))


main()
