"""The WNUT-17 script with pytorch-crf and with regccrf: first that their loss curves are the same, then how long each took.

    PYTHONPATH=build/python python bench/torch/wnut17.py [--steps N] [--threads N]
"""

import argparse
import json
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "wnut17_bilstm_crf.py"

parser = argparse.ArgumentParser()
parser.add_argument("--steps", default="200")
parser.add_argument("--threads", default="1")
options = parser.parse_args()


def run(*arguments):
    command = [sys.executable, str(SCRIPT), "--steps", options.steps, "--threads", options.threads, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def difference(ours, theirs):
    """The largest relative difference of two loss curves."""
    return max(abs(x - y) / max(1, abs(y)) for x, y in zip(ours["losses"], theirs["losses"]))


# Rounding differs, and training amplifies it: in float64 the curves must be the same, in float32 they drift apart slowly.
exact = difference(run("--crf", "regccrf", "--double"), run("--crf", "pytorch-crf", "--double"))
if exact > 1e-4:
    sys.exit(f"the loss curves differ by {exact:.1e} in float64")
theirs, ours, constrained = run("--crf", "pytorch-crf"), run("--crf", "regccrf"), run("--crf", "regccrf", "--constraint")
print(f"loss curves over {options.steps} steps differ by at most {exact:.1e} in float64, {difference(ours, theirs):.1e} in float32 (relative)")
print(f"{'':24}{'train s':>9}{'decode s':>10}{'F1':>8}")
for name, result in (("pytorch-crf", theirs), ("regccrf", ours), ("regccrf, valid spans", constrained)):
    print(f"{name:24}{result['train_seconds']:9.2f}{result['decode_seconds']:10.2f}{100 * result['f1']:8.2f}")
