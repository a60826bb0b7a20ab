#!/usr/bin/env python3
"""Gaps and sizes of the automata that sums under kept rules make for EWT's sentences: python3 bench/rules/sizes.py --model MODEL --data FILE

MODEL is a trained model of all roles and FILE a part of the corpus as attributes: experiments/srl/run leaves both in build/srl.
build/bench/bench_rule_sizes (sizes.cc) makes the automata. Their numbers go to bench/record/rule-sizes.json, histograms to
docs/rule-sizes.svg, where matplotlib is at hand.
"""
import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD, FIGURE = ROOT / "bench" / "record" / "rule-sizes.json", ROOT / "docs" / "rule-sizes.svg"
SHARES = [0.1, 0.5, 0.9, 0.99, 1]
TITLES = {"gap": "gap ÷ max_gap", "live": "live nodes a position", "rows": "rows at the widest position", "cells": "cells a position"}


def measured(model, data, language, max_gap, sentences):
    command = [ROOT / "build" / "bench" / "bench_rule_sizes", model, data, language, max_gap, *([sentences] if sentences else [])]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench_rule_sizes: {done.stderr}")
    return json.loads(done.stdout)


def quantities(found, max_gap):
    """Of every certified sentence, what the histograms show."""
    sentences = [i for i, gap in enumerate(found["gap"]) if gap is not None]
    return {"gap": [found["gap"][i] / max_gap for i in sentences],
            "live": [found["live"][i] / found["length"][i] for i in sentences],
            "rows": [found["rows"][i] for i in sentences],
            "cells": [found["cells"][i] / found["length"][i] for i in sentences]}


def quantiles(values):
    ordered = sorted(values)
    return {f"{share:g}": ordered[round(share * (len(ordered) - 1))] for share in SHARES}


def draw(series):
    """A column for each quantity, a line for each max_gap."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "rule-sizes"
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(1, len(TITLES), figsize=(13, 3.2))
    for axis, (key, title) in zip(axes, TITLES.items()):
        most = max(max(values[key]) for values in series.values())
        bins = [i / 20 for i in range(21)] if key == "gap" else [2 ** (i / 2) for i in range(2 * int(most).bit_length() + 1)]
        for max_gap, values in series.items():
            axis.hist(values[key], bins, histtype="step", label=f"max_gap {max_gap:g}")
        if key != "gap":
            axis.set_xscale("log", base=2)
        axis.set_xlabel(title)
        axis.set_ylabel("sentences")
    axes[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(FIGURE, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "build" / "srl" / "regccrf-full.model")
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "srl" / "dev.any.txt")
    parser.add_argument("--language", type=Path, default=ROOT / "languages" / "srl-full.lang")
    parser.add_argument("--gaps", type=float, nargs="+", default=[1e-2, 1e-3, 1e-4])
    parser.add_argument("--sentences", type=int, default=0, help="so many; 0 for all")
    options = parser.parse_args()
    for path in (options.model, options.data):
        if not path.is_file():
            sys.exit(f"sizes: there is no {path}: experiments/srl/run --models crf-all regccrf-full makes it")
    series, rows = {}, []
    for max_gap in options.gaps:
        found = measured(options.model, options.data, options.language, max_gap, options.sentences)
        values = series[max_gap] = quantities(found, max_gap)
        row = {"max_gap": max_gap, "sentences": len(found["gap"]), "uncertified": sum(gap is None for gap in found["gap"]),
               **{key: {"mean": statistics.mean(some), **quantiles(some)} for key, some in values.items()}}
        rows.append(row)
        print(f"max_gap {max_gap:g}: {row['uncertified']} of {row['sentences']} not certified; " +
              "; ".join(f"{title} {row[key]['mean']:.2f} (median {row[key]['0.5']:.2f}, 99 % {row[key]['0.99']:.2f})"
                        for key, title in TITLES.items()), flush=True)
    facts = {"command": " ".join(["python3 bench/rules/sizes.py", *sys.argv[1:]]), "model": options.model.name, "data": options.data.name,
             "language": options.language.name, "rows": rows}
    RECORD.write_text(json.dumps(facts, indent=1) + "\n")
    if importlib.util.find_spec("matplotlib"):
        draw(series)
    else:
        print("sizes: no matplotlib here, so no figure")


if __name__ == "__main__":
    main()
