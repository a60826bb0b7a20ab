"""The training script runs with either CRF, and its losses are the same."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "wnut17_bilstm_crf.py"
DATA = pathlib.Path(os.environ.get("REGCCRF_DATA", ROOT.parent / "shared" / "data")) / "ner"


def losses(*arguments):
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, str(SCRIPT), "--steps", "8", "--data", str(DATA), *arguments]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)["losses"]


@pytest.mark.skipif(not (DATA / "wnut17_wnut17train.conll").exists(), reason=f"no WNUT-17 at {DATA}")
def test_replacing_the_import_keeps_the_loss_curve():
    pytest.importorskip("torchcrf", reason="pytorch-crf is not installed: nothing to compare with")
    ours, theirs = losses("--crf", "regccrf"), losses("--crf", "pytorch-crf")
    assert ours == pytest.approx(theirs, rel=1e-4)
    constrained = losses("--crf", "regccrf", "--constraint")
    assert constrained[0] < ours[0]  # the same scores, but illegal sequences have no share
