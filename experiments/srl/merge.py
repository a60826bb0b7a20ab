#!/usr/bin/env python3
"""Adds the jobs of a neural run to a report that has others: a run can end before all seeds are trained.

    experiments/srl/merge.py experiments/results/srl-neural.json OUTPUT/neural.json

The first file becomes the report of both. They must agree in everything that decides about results; a job that both
have is an error.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Dict

sys.path.insert(0, str(Path(__file__).resolve().parent))

from models import MODELS


class Differ(Exception):
    """Two reports that do not belong together."""


def key(job: Dict) -> tuple:
    return job["model"], job["seed"]


def merged(a: Dict, b: Dict) -> Dict:
    for name in ("experiment", "settings", "instances", "too_long"):
        if a[name] != b[name]:
            raise Differ(f"{name} differ: {json.dumps(a[name])} and {json.dumps(b[name])}")
    for model in a["labels"].keys() & b["labels"].keys():
        if a["labels"][model] != b["labels"][model]:
            raise Differ(f"the labels of {model} differ")
    both = {key(job) for job in a["jobs"]} & {key(job) for job in b["jobs"]}
    if both:
        raise Differ("both have " + ", ".join(f"{model} seed {seed}" for model, seed in sorted(both)))
    jobs = sorted(a["jobs"] + b["jobs"], key=lambda job: (list(MODELS).index(job["model"]), job["seed"]))
    done = {key(job) for job in jobs}
    failed = [job for job in a["failed"] + b["failed"] if key(job) not in done]
    labels = {**a["labels"], **b["labels"]}
    return {**a, "runs": a["runs"] + b["runs"], "labels": labels, "jobs": jobs, "failed": failed}


def main() -> int:
    parser = argparse.ArgumentParser(description="Adds the jobs of a neural run to a report.")
    parser.add_argument("report", type=Path)
    parser.add_argument("run", type=Path, help="neural.json of another run")
    options = parser.parse_args()
    try:
        result = merged(*(json.loads(file.read_text()) for file in (options.report, options.run)))
    except (OSError, ValueError, KeyError, Differ) as error:
        print(f"merge: error: {error}", file=sys.stderr)
        return 2
    part = options.report.with_name(options.report.name + ".part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    part.replace(options.report)
    print(f"{len(result['jobs'])} jobs, of {len(result['runs'])} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
