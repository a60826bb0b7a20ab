#!/usr/bin/env python3
"""What each language of the SRL experiment costs, which roles it keeps, and which training instances lie outside it.

experiments/srl/languages.py --output experiments/results/srl-languages.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import corpus
from configuration import CONFIGURATIONS, HERE, ROOT
from models import Languages, gold_labels


def facts(program: Path, file: Path) -> dict:
    done = subprocess.run([program, "compile", file, "--rules", "none", "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return json.loads(done.stdout)


def outside(constraint, instances) -> list:
    """Name, place and labels of every instance that is not in the language."""
    result = []
    labels = list(constraint.labels)
    for instance, gold in zip(instances, gold_labels(instances, labels)):
        membership = constraint.accepts([labels.index(label) for label in gold])
        if not membership:
            at = membership.position
            result.append(
                {
                    "instance": instance.name,
                    "word": at + 1,
                    "label": gold[at] if at < len(gold) else "the end",
                    "spans": [f"{role} {start + 1}-{end + 1}" for start, end, role in instance.spans],
                }
            )
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description="Costs and coverage of the languages.")
    parser.add_argument("--configuration", choices=CONFIGURATIONS, default="ewt")
    parser.add_argument("--data", type=Path, help="folder of the corpus")
    parser.add_argument("--program", type=Path, default=ROOT / "build" / "regccrf")
    parser.add_argument("--output", type=Path, help="a JSON file")
    options = parser.parse_args()
    configuration = CONFIGURATIONS[options.configuration]
    try:
        training = corpus.read(options.data or configuration.folder, configuration.corpus_format, "train")
    except (corpus.Absent, ValueError) as error:
        print(f"languages: error: {error}", file=sys.stderr)
        return 2
    counts = corpus.role_counts(training)
    languages = Languages(configuration)
    report = {"configuration": configuration.name, "instances": len(training), "role_counts": counts, "languages": {}}
    for name, file in [*languages.files.items()] + [("all-core", HERE / "languages" / "all-core.lang")] * (
        configuration.name == "ewt"
    ):
        cost = facts(options.program, file)
        entry = {"file": str(file.relative_to(ROOT)), **cost}
        if name in languages.files:
            roles = set(corpus.roles_of_labels(languages[name].labels))
            entry["roles"] = sorted(roles)
            entry["spans_dropped"] = sum(n for role, n in counts.items() if role not in roles)
            entry["outside"] = outside(languages[name], training)
        report["languages"][name] = entry
    text = json.dumps(report, indent=1) + "\n"
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text)
    for name, entry in report["languages"].items():
        print(
            f"{name}: {entry['labels']} labels, {entry['states']} states, {entry['products']} products a step"
            + (
                f"; drops {entry['spans_dropped']} spans; {len(entry['outside'])} training instances outside"
                if "outside" in entry
                else ""
            )
        )
        for case in entry.get("outside", []):
            print(f"  {case['instance']}: {case['label']} at word {case['word']} ({', '.join(case['spans'])})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
