#!/usr/bin/env python3
"""Scores a neural run's predictions again, from files, and says whether the figures are those that the run reported.

    experiments/srl/rescore.py FOLDER [--script srl-eval.pl]

FOLDER holds neural.json and predictions.npz. With `--script` the CoNLL-2005 scorer scores the same files, and its
table must be ours, digit for digit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import corpus
from configuration import CONFIGURATIONS
from score import score_files


def main() -> int:
    parser = argparse.ArgumentParser(description="Scores predictions.npz again and compares with neural.json.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, help="folder of the corpus")
    parser.add_argument("--script", type=Path, help="srl-eval.pl, run by perl on the same files")
    options = parser.parse_args()
    try:
        report = json.loads((options.folder / "neural.json").read_text())
        predictions = np.load(options.folder / "predictions.npz")
        configuration = CONFIGURATIONS[report["settings"]["configuration"]]
        parts = {
            part: corpus.read(options.data or configuration.folder, configuration.corpus_format, part)[
                : report["instances"][part]
            ]
            for part in ("dev", "test")
        }
    except (OSError, corpus.Absent) as error:
        print(f"rescore: error: {error}", file=sys.stderr)
        return 2
    different = 0
    for job in report["jobs"]:
        for system, figures in job["systems"].items():
            for part, reported in figures.items():
                ids = predictions[f"{job['model']}/{job['seed']}/{system}/{part}"]
                text, score, theirs = score_again(parts[part], ids, report["labels"][job["model"]], options.script)
                same = all(getattr(score.overall, name) == reported[name] for name in ("correct", "excess", "missed"))
                same &= theirs is None or theirs == text
                different += not same
                print(
                    f"{job['model']} {job['seed']} {system} {part}: F1 {score.overall.f1:.2f}"
                    + ("" if same else "  DIFFERENT")
                )
    print(f"{different} different" + (f"; compared with {options.script.name}" if options.script else ""))
    return 1 if different else 0


def score_again(instances, ids, labels, script):
    """Our table, our score, and the script's table if there is one."""
    spans, at = [], 0
    for instance in instances:
        length = len(instance.sentence.forms)
        spans.append(corpus.spans_of_bio([labels[i] for i in ids[at : at + length]]))
        at += length
    if at != len(ids):
        raise SystemExit(f"rescore: error: predictions for {len(ids)} words, and the corpus has {at}")
    with tempfile.TemporaryDirectory() as folder:
        gold, predicted = Path(folder) / "gold.props", Path(folder) / "predicted.props"
        corpus.write_props(gold, instances, [instance.spans for instance in instances])
        corpus.write_props(predicted, instances, spans)
        with open(gold, encoding="utf-8") as g, open(predicted, encoding="utf-8") as p:
            score = score_files(g, p)
        theirs = None
        if script:
            theirs = subprocess.run(
                ["perl", script, gold, predicted], capture_output=True, text=True, check=True
            ).stdout
    return score.table(), score, theirs


if __name__ == "__main__":
    sys.exit(main())
