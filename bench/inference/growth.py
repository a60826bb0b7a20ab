"""How the cost of inference grows with length, batch and products (`make bench`): a figure and its numbers.

Each series changes one of the three over three decades and keeps the others. A straight line of slope 1 is linear growth.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import run as bench

LENGTHS = [10, 30, 100, 300, 1000, 3000, 10000]
BATCHES = [1, 3, 10, 30, 100, 300, 1000]
TYPES = [2, 4, 8, 16, 32, 64]  # of entities in a BIO language: the products grow with their square


def bio(types):
    return "bio({" + " ".join(f"T{i}" for i in range(types)) + "})"


def seconds(name, language, B, T):
    folder = bench.BUILD / "bench" / "growth" / name
    facts, _ = bench.write_case(folder, language, B, T)
    return facts["products"], bench.ours(folder, "nll", 1)["seconds"]


def main():
    series = {
        "length T (SRL language, B = 1)": [(T, seconds(f"T{T}", bench.SRL, 1, T)[1]) for T in LENGTHS],
        "batch B (SRL language, T = 10)": [(B, seconds(f"B{B}", bench.SRL, B, 10)[1]) for B in BATCHES],
        "products (BIO languages, B = 1, T = 1,000)": [seconds(f"K{n}", bio(n), 1, 1000) for n in TYPES],
    }
    record = {"machine": bench.machine(), "command": "bench/inference/growth.py", "task": "nll, 1 thread, seconds", "series": series}
    (bench.ROOT / "bench" / "record" / "growth-cpu.json").write_text(json.dumps(record, indent=1) + "\n")
    for title, points in series.items():
        print(title)
        for x, y in points:
            print(f"  {x:>8,}  {y * 1e3:10.3f} ms")
    if bench.importable("matplotlib"):
        draw(series)
    else:
        print("growth: no matplotlib here, so no figure")


def draw(series):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), sharey=False)
    for axis, (title, points) in zip(axes, series.items()):
        x, y = [p[0] for p in points], [p[1] * 1e3 for p in points]
        axis.loglog(x, y, "o-", color="#1b7837", label="loss and gradients, 1 thread")
        axis.loglog(x, [y[-1] * v / x[-1] for v in x], "--", color="#999999", label="linear")
        axis.set_xlabel(title)
        axis.set_ylabel("ms")
        axis.grid(True, which="major", color="#eeeeee")
        axis.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(bench.ROOT / "docs" / "growth.svg", metadata={"Date": None})
    figure.savefig(bench.BUILD / "bench" / "growth.png", dpi=120)


if __name__ == "__main__":
    main()
