"""Reports of several neural runs become one; those that do not belong together do not."""

import copy
import json
import subprocess
import sys
from pathlib import Path

EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments" / "srl"


def report(*jobs, failed=()):
    return {
        "experiment": "srl, neural",
        "settings": {"epochs": 4},
        "instances": {"train": 3},
        "too_long": 0,
        "runs": [{"command": f"run with {len(jobs)} jobs"}],
        "labels": {model: ["O", model] for model, _ in jobs},
        "jobs": [{"model": model, "seed": seed} for model, seed in jobs],
        "failed": [{"model": model, "seed": seed} for model, seed in failed],
    }


def merge(folder, a, b):
    files = folder / "a.json", folder / "b.json"
    for file, content in zip(files, (a, b)):
        file.write_text(json.dumps(content))
    done = subprocess.run(
        [sys.executable, EXPERIMENT / "merge.py", *files], capture_output=True, text=True, check=False
    )
    return done, json.loads(files[0].read_text())


def test_jobs_of_both_by_model_and_seed(tmp_path):
    a = report(("crf-full", 2), ("regccrf", 1), failed=[("crf-full", 1)])
    b = report(("crf-full", 1), ("crf-reduced", 1))
    done, result = merge(tmp_path, a, b)
    assert done.returncode == 0, done.stderr
    jobs = [(job["model"], job["seed"]) for job in result["jobs"]]
    assert jobs == [("crf-full", 1), ("crf-full", 2), ("crf-reduced", 1), ("regccrf", 1)]
    assert result["runs"] == a["runs"] + b["runs"] and not result["failed"]
    assert set(result["labels"]) == {"crf-full", "crf-reduced", "regccrf"}


def test_what_does_not_belong_together_is_refused_and_left_alone(tmp_path):
    a = report(("crf-full", 1))
    other_settings, other_labels = copy.deepcopy(report(("crf-full", 2))), copy.deepcopy(report(("crf-full", 2)))
    other_settings["settings"]["epochs"] = 5
    other_labels["labels"]["crf-full"] = ["O"]
    for b, message in ((a, "both have crf-full seed 1"), (other_settings, "settings differ"), (other_labels, "labels")):
        done, after = merge(tmp_path, a, b)
        assert done.returncode == 2 and message in done.stderr and done.stderr.startswith("merge: error: ")
        assert after == a
