"""docs/cuda.svg from bench/record/cuda-h200.json: loss with gradients, by the clock, ours beside the others.

    python bench/cuda/figure.py
"""

import json
import pathlib

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = {"ours": "ours, constrained", "pytorch-crf, no constraint": "pytorch-crf, no constraint",
         "torch-struct, no constraint": "torch-struct, no constraint", "original": "the original, constrained"}
SIZES = ["2×32", "8×64", "8×128", "64×64", "256×128"]


def main() -> None:
    rows = [row for row in json.loads((ROOT / "bench/record/cuda-h200.json").read_text())["table"] if row["language"] == "srl"]
    figure, axes = plt.subplots(figsize=(8.5, 3.6))
    width = 0.2
    for n, (key, name) in enumerate(NAMES.items()):
        points = []
        for i, size in enumerate(SIZES):
            found = [r for r in rows if f"{r['B']}×{r['T']}" == size and r["layer"] == key]
            clock = found[0].get("nll_us") if found else None
            if isinstance(clock, (int, float)):
                points.append((i + (n - 1.5) * width, clock / 1000))
        bars = axes.bar([x for x, _ in points], [y for _, y in points], width, label=name)
        axes.bar_label(bars, [f"{y:.2g}" if y < 10 else f"{y:.0f}" for _, y in points], fontsize=7, padding=1)
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.1)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xticks(range(len(SIZES)), SIZES)
    axes.set_xlabel("B×T")
    axes.set_ylabel("ms by the clock")
    axes.set_title("Loss and gradients on an H200, semantic-role language", fontsize=10)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncol=4, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(ROOT / "docs/cuda.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
