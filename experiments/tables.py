#!/usr/bin/env python3
"""Fills the tables of docs/results.md from the JSON in experiments/results, so that no number is typed by hand.

A table, with sentences that follow from its numbers, stands between `<!-- name -->` and `<!-- end name -->`. Where its
file is not there, it says which.

    experiments/tables.py            writes the page
    experiments/tables.py --check    status 1 if the page would change
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import textwrap
from itertools import combinations
from pathlib import Path
from typing import Callable, Dict, List, Sequence, Tuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "srl"))

from significance import permutation_test  # noqa: E402

PAGE = HERE.parent / "docs" / "results.md"
RESULTS = HERE / "results"

# What the paper reports: figure 2's plot at k = 1, 5, 10, 20; tables 1 and 2; its appendix.
PAPER_DECODING_NLL = {1: 0.5623, 5: 1.3870, 10: 2.8289, 20: 5.4018}
PAPER_TRAINING_NLL = {1: 0.5623, 5: 0.5623, 10: 0.5627, 20: 0.5624}
PAPER_TABLE1 = {"acd": (0.32, 0.40), "bcd": (0.48, 0.30), "bce": (0.20, 0.30)}
PAPER_TABLE2 = {
    "CRF-full": (86.89, 87.81, 87.35, "0.81%"),
    "CRF-reduced": (86.92, 87.35, 87.13, "0.84%"),
    "RegCCRF, constrained decoding": (87.05, 87.38, 87.21, "0"),
    "RegCCRF, constrained training": (87.31, 87.76, 87.53, "0"),
}


def load(name: str) -> Dict:
    return json.loads((RESULTS / name).read_text())


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def thousands(number: int) -> str:
    return f"{number:,}"


# --- the synthetic experiments ----------------------------------------------------------------------------------------


def figure2() -> str:
    default, printed = load("figure2.json"), load("figure2-rate-1.0.json")
    spread = lambda row, key, digits: f"{row[key]:.{digits}f} ± {row[key + '_deviation']:.{digits}f}"
    rows = []
    for row, other in zip(default["rows"], printed["rows"]):
        k = row["k"]
        rows.append(
            [
                k,
                spread(row, "decoding_nll", 3),
                spread(other, "decoding_nll", 3),
                f"{row['closed_form_nll']:.4f}",
                f"{PAPER_DECODING_NLL[k]:.4f}" if k in PAPER_DECODING_NLL else "",
                spread(row, "training_p", 3),
                spread(other, "training_p", 3),
                spread(row, "training_nll", 4),
                spread(other, "training_nll", 4),
                f"{PAPER_TRAINING_NLL[k]:.4f}" if k in PAPER_TRAINING_NLL else "",
            ]
        )
    return (
        markdown(
            [
                "k",
                "decoding NLL, rate 0.1",
                "rate 1.0",
                "closed form",
                "paper",
                "training P((ac)^k), rate 0.1",
                "rate 1.0",
                "training NLL, rate 0.1",
                "rate 1.0",
                "paper",
            ],
            rows,
        )
        + f"\n{default['seeds']} seeds, mean ± standard deviation.\n"
    )


def table1() -> str:
    default, printed = load("table1.json"), load("table1-rate-1.0.json")
    spread = lambda row, key: f"{row[key]:.3f} ± {row[key + '_deviation']:.3f}"
    rows = []
    for row, other in zip(default["rows"], printed["rows"]):
        decoding, training = PAPER_TABLE1[row["y"]]
        rows.append(
            [
                row["y"],
                row["data"],
                spread(row, "decoding"),
                spread(other, "decoding"),
                f"{decoding:.2f}",
                spread(row, "training"),
                spread(other, "training"),
                f"{training:.2f}",
            ]
        )
    return markdown(
        ["y", "data", "decoding, rate 0.1", "rate 1.0", "paper", "training, rate 0.1", "rate 1.0", "paper"], rows
    )


# --- semantic role labelling ------------------------------------------------------------------------------------------


def languages() -> str:
    report = load("srl-languages.json")
    rows = []
    for name, entry in report["languages"].items():
        covered = "spans_dropped" in entry
        rows.append(
            [
                f"[{name}](../{entry['file']})",
                entry["labels"],
                thousands(entry["states"]),
                thousands(entry["arcs"]),
                thousands(entry["nodes"]),
                thousands(entry["products"]),
                thousands(entry["arcs"] ** 2),
                thousands(entry["spans_dropped"]) if covered else "",
                len(entry["outside"]) if covered else "",
            ]
        )
    return markdown(
        [
            "language",
            "labels",
            "states",
            "arcs",
            "nodes",
            "products a step",
            "the paper's construction: arcs²",
            "training spans dropped to O",
            "training instances outside",
        ],
        rows,
    )


def percent(part: int, whole: int) -> str:
    return "0" if part == 0 else f"{100 * part / whole:.2f}%"


def features() -> str:
    rows = []
    for system, figures in load("srl-features.json")["systems"].items():
        test = figures["test"]
        paper = PAPER_TABLE2.get(system, ("", "", "", ""))
        rows.append(
            [
                system,
                *(f"{test[key]:.2f}" for key in ("precision", "recall", "f1")),
                f"{figures['dev']['f1']:.2f}",
                percent(test["violations"], test["outputs"]),
                percent(test["malformed"], test["outputs"]),
                *paper[2:],
            ]
        )
    return markdown(
        ["system", "P", "R", "F1", "dev F1", "outside the language", "of which not BIO", "paper F1", "paper outside"],
        rows,
    )


def features_full() -> str:
    systems = load("srl-features-full.json")["systems"]
    rows = []
    for system, figures in systems.items():
        test, training = figures["test"], figures["training"]
        free = systems["CRF-rich" if "rich" in system else "CRF-full"]["training"]
        rows.append(
            [
                system,
                *(f"{test[key]:.2f}" for key in ("precision", "recall", "f1")),
                f"{figures['dev']['f1']:.2f}",
                percent(test["violations"], test["outputs"]),
                training["labels"],
                f"{training['cpu_seconds']:.0f}",
                f"{training['cpu_seconds'] / free['cpu_seconds']:.2f}",
            ]
        )
    head = ["system", "P", "R", "F1", "dev F1", "outside the language", "labels", "training, CPU s", "÷ no constraint"]
    return markdown(head, rows)


def features_times() -> str:
    systems = load("srl-features.json")["systems"]
    free = systems["CRF-reduced"]
    rows = []
    for system, figures in systems.items():
        row = [system]
        for time, base in (
            (figures["training"], free["training"]),
            (figures["test"]["tagging"], free["test"]["tagging"]),
        ):
            row += [f"{time['seconds']:.1f}", f"{time['cpu_seconds']:.1f}"]
            row += [f"{time['cpu_seconds'] / base['cpu_seconds']:.2f}"]
        rows.append(row)
    rows.append(["paper: constrained ÷ unconstrained", "", "", "3.8", "", "", "20.6"])
    return markdown(
        [
            "system",
            "training, s",
            "CPU s",
            "÷ CRF-reduced",
            "tagging the test part, s",
            "CPU s",
            "÷ CRF-reduced",
        ],
        rows,
    )


def neural_systems(report: Dict) -> Dict[str, List[Dict]]:
    """By system: the test figures of every seed."""
    systems: Dict[str, List[Dict]] = {}
    for job in sorted(report["jobs"], key=lambda job: job["seed"]):
        for system, parts in job["systems"].items():
            systems.setdefault(system, []).append({**parts["test"], "seed": job["seed"], "dev_f1": parts["dev"]["f1"]})
    order = [*PAPER_TABLE2, *systems]
    return {system: systems[system] for system in sorted(systems, key=order.index)}


def mean_and_deviation(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


def enumeration(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + (" and " if len(words) > 1 else "") + words[-1]


def wrapped(text: str) -> str:
    """A paragraph of the page."""
    return "\n" + textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def neural() -> str:
    report = load("srl-neural.json")
    systems = neural_systems(report)
    rows = []
    for system, seeds in systems.items():
        paper = PAPER_TABLE2.get(system)
        violations, malformed, outputs = (
            sum(seed[key] for seed in seeds) for key in ("violations", "malformed", "outputs")
        )
        rows.append(
            [
                system,
                len(seeds),
                *(mean_and_deviation([seed[key] for seed in seeds]) for key in ("precision", "recall", "f1")),
                percent(violations, outputs),
                percent(malformed, outputs),
                *(paper or ("", "", "", "")),
            ]
        )
    head = ["system", "seeds", "P", "R", "F1", "outside the language", "of which not BIO"]
    head += ["paper P", "paper R", "paper F1", "paper outside"]
    return markdown(head, rows) + wrapped(seeds_said(report))


def seeds_said(report: Dict) -> str:
    trained: Dict[str, set] = {}
    for job in report["jobs"]:
        trained.setdefault(job["model"], set()).add(job["seed"])
    every = set().union(*trained.values())
    missing = [
        f"{model} seed {seed}" for model, seeds in sorted(trained.items()) for seed in sorted(every - seeds)
    ]
    text = "Mean ± standard deviation over the seeds. Outputs outside the language: of all seeds together."
    if not missing:
        return text + f" Every model was trained with the same {len(every)} seeds."
    return text + f" Not trained: {enumeration(missing)}; the run ended before, none is missing for its result."


def neural_seeds() -> str:
    systems = neural_systems(load("srl-neural.json"))
    seeds = sorted({seed["seed"] for values in systems.values() for seed in values})
    rows = [
        [system, *(f"{f1[seed]:.2f}" if seed in f1 else "" for seed in seeds)]
        for system, values in systems.items()
        for f1 in [{v["seed"]: v["f1"] for v in values}]
    ]
    return markdown(["F1 on the test part", *(f"seed {seed}" for seed in seeds)], rows)


def significance(first: Sequence[Dict], second: Sequence[Dict], key: str) -> Tuple[float, float]:
    """The difference of means, and p."""
    a, b = ([seed[key] for seed in seeds] for seeds in (first, second))
    return statistics.mean(a) - statistics.mean(b), permutation_test(a, b)[0]


def neural_significance() -> str:
    systems = neural_systems(load("srl-neural.json"))
    rows, below = [], 0
    for a, b in combinations(systems, 2):
        row = [f"{a} – {b}"]
        for key in ("precision", "recall", "f1"):
            difference, p = significance(systems[a], systems[b], key)
            below += p < 0.05
            row += [f"{difference:+.2f} (p = {p:.3f})" if p >= 0.05 else f"**{difference:+.2f}** (p = {p:.3f})"]
        rows.append(row)
    count = 3 * len(rows)
    text = (
        f"{below} of the {count} tests have p < 0.05; {0.05 * count:.1f} are to be expected by chance. "
        f"{order_said(systems)} {training_said(systems)}"
    )
    return markdown(["systems", "ΔP", "ΔR", "ΔF1"], rows) + wrapped(text)


def short(system: str) -> str:
    return system.replace("RegCCRF, ", "")


def order_said(systems: Dict[str, List[Dict]]) -> str:
    ours = sorted(PAPER_TABLE2.keys() & systems, key=lambda name: statistics.mean(s["f1"] for s in systems[name]))
    paper = sorted(PAPER_TABLE2.keys() & systems, key=lambda name: PAPER_TABLE2[name][2])
    said = f"By mean F1, {' < '.join(map(short, ours))}; "
    return said + ("so too in the paper." if ours == paper else f"in the paper {' < '.join(map(short, paper))}.")


def training_said(systems: Dict[str, List[Dict]]) -> str:
    training = "RegCCRF, constrained training"
    said = []
    for other in ("RegCCRF, constrained decoding", "CRF-reduced", "CRF-full"):
        difference, p = significance(systems[training], systems[other], "f1")
        said.append(
            f"{abs(difference):.2f} {'above' if difference > 0 else 'below'} {short(other)} "
            f"({'' if p < 0.05 else 'not '}significant)"
        )
    return f"Constrained training is, in mean F1, {enumeration(said)}."


def neural_runs() -> str:
    """Whole training runs, several at once."""
    report = load("srl-neural.json")

    def step_ms(model: str) -> List[float]:
        return [1e3 * job["seconds"] / job["steps"] for job in report["jobs"] if job["model"] == model]

    free = statistics.mean(step_ms("crf-reduced"))
    rows = []
    for model in dict.fromkeys(job["model"] for job in sorted(report["jobs"], key=lambda job: job["model"])):
        seconds = [job["seconds"] for job in report["jobs"] if job["model"] == model]
        mean = statistics.mean(step_ms(model))
        rows.append([model, len(seconds), mean_and_deviation(seconds), f"{mean:.1f}", f"{mean / free:.2f}"])
    workers = sorted({run["workers"] for run in report["runs"]})
    return markdown(
        ["model", "runs", "whole training, s", "ms a step", "÷ crf-reduced"], rows
    ) + wrapped(f"{' or '.join(map(str, workers))} runs share the GPU at a time.")


def neural_times() -> str:
    report = load("srl-neural-times.json")

    def cells(task: str, name: str, base: str, quantity: str, digits: int) -> List[str]:
        """Median and range over the rounds, and the median against the base's."""
        values, others = report[task][name][quantity], report[task][base][quantity]
        median = statistics.median(values)
        spread = f"{median:.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"
        return [spread, f"{median / statistics.median(others):.2f}"]

    order = [*PAPER_TABLE2, *report["decoding"]]
    rows = []
    for system in sorted(report["decoding"], key=order.index):
        model = report["decoding"][system]["model"]
        rows.append(
            [
                system,
                *cells("training", model, "crf-reduced", "step_ms", 1),
                *cells("training", model, "crf-reduced", "layer_step_ms", 2),
                *cells("decoding", system, "CRF-reduced", "ms", 0),
                *cells("decoding", system, "CRF-reduced", "layer_ms", 1),
            ]
        )
    rows.append(["paper: constrained ÷ unconstrained", "", "3.8", "", "", "", "20.6", "", ""])
    head = ["system", "training step, ms", "÷ CRF-reduced", "layer alone, ms", "÷ CRF-reduced"]
    head += ["decoding the test part, ms", "÷ CRF-reduced", "layer alone, ms", "÷ CRF-reduced"]
    machine = report["machine"]
    text = (
        f"Median [minimum, maximum] of {report['rounds']} rounds, {report['steps']} steps of "
        f"{report['settings']['batch']} instances in each round. The test part has {thousands(report['instances']['test'])} "
        f"instances. {machine['device']}, PyTorch {machine['torch']}. Outputs of constrained systems outside "
        f"the language: {sum(d['violations'] for s, d in report['decoding'].items() if s.startswith('RegCCRF'))}."
    )
    return markdown(head, rows) + wrapped(text)


TABLES: Dict[str, Callable[[], str]] = {
    "figure2": figure2,
    "table1": table1,
    "languages": languages,
    "features": features,
    "features full": features_full,
    "features times": features_times,
    "neural": neural,
    "neural seeds": neural_seeds,
    "neural significance": neural_significance,
    "neural runs": neural_runs,
    "neural times": neural_times,
}


def filled(page: str) -> str:
    for name, table in TABLES.items():
        mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->\n)", re.DOTALL)
        if not mark.search(page):
            raise SystemExit(f"tables: error: {PAGE.name} has no <!-- {name} --> … <!-- end {name} -->")
        try:
            text = table()
        except FileNotFoundError as error:
            text = f"(there is no experiments/results/{Path(error.filename).name} yet)\n"
        page = mark.sub(lambda found: found.group(1) + text + found.group(2), page)
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description="Fills docs/results.md from experiments/results.")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if the page would change")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    new = filled(page)
    if options.check:
        return 0 if new == page else 1
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
