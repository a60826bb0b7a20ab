"""Memory and time per step of loss and gradients on long sequences, SRL language, one thread (`make bench`)."""
import json
import subprocess

import numpy as np

import run as bench

LENGTHS = [1000, 20_000, 1_000_000]


def measure(T):
    folder = bench.BUILD / "bench" / "long" / str(T)
    folder.mkdir(parents=True, exist_ok=True)
    K = json.loads(bench.regccrf("compile", bench.SRL, "--json", "-o", folder / "constraint"))["labels"]
    rng = np.random.default_rng(1)
    rng.standard_normal((T, K), dtype=np.float32).tofile(folder / "emissions.f32")
    rng.standard_normal((K, K), dtype=np.float32).tofile(folder / "transitions.f32")
    np.array([1, T, K], dtype=np.int32).tofile(folder / "shape.i32")
    np.zeros(T, dtype=np.int32).tofile(folder / "gold.i32")  # O everywhere is legal
    done = subprocess.run(["/usr/bin/time", "-f", "%M", bench.BUILD / "bench" / "measure", folder, "nll", "1"],
                          check=True, capture_output=True, text=True)
    return {"T": T, "microseconds_per_step": json.loads(done.stdout)["seconds"] / T * 1e6, "peak_mb": int(done.stderr) / 1000,
            "everything_kept_mb": T * 1312 * 4 / 1e6}


def main():
    rows = [measure(T) for T in LENGTHS]
    for row in rows:
        print(f"T = {row['T']:>9,}: {row['microseconds_per_step']:.2f} µs a step, peak {row['peak_mb']:.0f} MB")
    record = {"machine": bench.machine(), "command": "bench/inference/long.py", "rows": rows}
    (bench.ROOT / "bench" / "record" / "long-cpu.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
