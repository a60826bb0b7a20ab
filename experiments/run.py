#!/usr/bin/env python3
"""Where a constraint helps, on real data: python3 experiments/run.py citations addresses membrane wnut17

Each experiment trains two models on a fixed split, one without the language and one under it, and compares three systems on the
test part: unconstrained; constrained decoding (the first model's weights, decoded under the language); constrained training.
Each is done with a tenth of the training part and with all of it. Results go to experiments/results/NAME.json, a table to
standard output; `--table` prints the tables of all results as they stand in experiments/README.md. The corpora lie beside the
repository: see corpora.py.

REGCCRF_PROGRAM names the program, build/regccrf by default.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import corpora
import membrane
from corpora import ROOT

PROGRAM = Path(os.environ.get("REGCCRF_PROGRAM", ROOT / "build" / "regccrf"))
RESULTS = ROOT / "experiments" / "results"
SHARES = [0.1, 1.0]
SEED = 1

UNCONSTRAINED, DECODING, TRAINING = "unconstrained", "constrained decoding", "constrained training"


# --- the data: each gives (train, test), lists of sequences of rows, the label last ------------------------------------------


def shuffled(sequences):
    sequences = list(sequences)
    random.Random(SEED).shuffle(sequences)
    return sequences


def cut(sequences, test_share):
    sequences = shuffled(sequences)
    size = round(test_share * len(sequences))
    return sequences[size:], sequences[:size]


def tokens(sequence):
    return tuple(row[0] for row in sequence)


def distinct(sequences):
    """One of those that have the same tokens."""
    return list({tokens(sequence): sequence for sequence in sequences}.values())


def as_given(training, test):
    """The corpus's own split, without what stands in both parts."""
    known = set(map(tokens, test))
    return shuffled(sequence for sequence in training if tokens(sequence) not in known), test


def citations():
    return cut(distinct(corpora.citations("gold") + corpora.citations("core")), 0.2)


def addresses():
    return as_given(corpora.addresses("training"), corpora.addresses("measure_performance_test_data"))


def proteins():
    return cut([membrane.rows(protein) for protein in corpora.proteins("alpha")], 0.2)


def wnut17():
    return as_given(corpora.ner("wnut17_wnut17train.conll"), corpora.ner("wnut17_emerging.test.annotated"))


WNUT_TYPES = "corporation creative-work group location person product"

# `language`: a file of languages/, or a pattern. `train`: options of `regccrf train`. `evaluate`: options of `regccrf eval`.
EXPERIMENTS = {
    "citations": {"data": citations, "language": "citation.lang"},
    "addresses": {"data": addresses, "language": "address.lang"},
    "membrane": {"data": proteins, "language": "membrane.lang", "train": ["--template", membrane.TEMPLATE, "--unknown", "U"],
                 "evaluate": ["--unknown", "U"], "further": membrane.topologies},
    "wnut17": {"data": wnut17, "language": f"bio({{{WNUT_TYPES}}})"},
}


# --- one experiment ----------------------------------------------------------------------------------------------------------


def write(path, sequences):
    text = "".join("".join("\t".join(row) + "\n" for row in sequence) + "\n" for sequence in sequences)
    path.write_text(text, encoding="utf-8")


def regccrf(*arguments, output=None):
    """Standard output of the program, or None where it goes to a file."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=ROOT, stdout=output or subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        sys.exit(f"regccrf {' '.join(map(str, arguments))}\n{done.stderr.decode()}")
    return done.stdout.decode() if output is None else None


def constraint(experiment):
    is_file = experiment["language"].endswith(".lang")
    return ["--constraint", f"languages/{experiment['language']}"] if is_file else ["-e", experiment["language"]]


def train(experiment, data, model, options):
    """Seconds, and what the model says of its training."""
    begin = time.monotonic()
    regccrf("train", data, "-m", model, *experiment.get("train", []), *options)
    seconds = time.monotonic() - begin
    return {"seconds": round(seconds, 1), **json.loads(regccrf("inspect", model, "--json"))["facts"]}


def tag(model, data, path, options=()):
    with path.open("wb") as output:
        regccrf("tag", "-m", model, data, *options, output=output)


def compare(experiment, share, folder, sequences):
    """The three systems, trained on a share of the training part."""
    training, test = sequences
    training = training[:round(share * len(training))]
    write(folder / "train.txt", training)
    write(folder / "test.txt", test)
    language = constraint(experiment)
    plain, constrained = folder / "plain.model", folder / "constrained.model"
    facts = {UNCONSTRAINED: train(experiment, folder / "train.txt", plain, ["--constrain", "none"]),
             TRAINING: train(experiment, folder / "train.txt", constrained, [*language, "--constrain", "train", "--outside", "skip"])}
    tag(plain, folder / "test.txt", folder / UNCONSTRAINED)
    tag(plain, folder / "test.txt", folder / DECODING, language)
    tag(constrained, folder / "test.txt", folder / TRAINING)
    names = [UNCONSTRAINED, DECODING, TRAINING]
    result = json.loads(regccrf("eval", folder / "test.txt", *(folder / name for name in names), *language,
                                *experiment.get("evaluate", []), "--json"))
    for name, system in zip(names, result["systems"]):
        system["name"] = name
        system["further"] = experiment["further"](folder / "test.txt", folder / name) if "further" in experiment else {}
    for comparison, name in zip(result["comparisons"], names[1:]):
        comparison.update(first=UNCONSTRAINED, second=name)
    gold = json.loads(regccrf("eval", folder / "test.txt", folder / "test.txt", *language, "--json"))["systems"][0]
    return {"share": share, "training_sequences": len(training), "test_sequences": len(test),
            "test_gold_outside": gold["violations"], "training": facts, **result}


def run(name):
    experiment = EXPERIMENTS[name]
    sequences = experiment["data"]()
    runs = []
    for share in SHARES:
        folder = ROOT / "build" / "experiments" / name / f"{share:g}"
        folder.mkdir(parents=True, exist_ok=True)
        runs.append(compare(experiment, share, folder, sequences))
    result = {"experiment": name, "command": f"python3 experiments/run.py {name}", "cores": os.cpu_count(),
              "language": experiment["language"], "runs": runs}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


# --- the table ---------------------------------------------------------------------------------------------------------------


def cell(value, interval):
    return f"{value:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"


def table(result):
    further = list(result["runs"][0]["systems"][0]["further"])
    head = ["training sequences", "system", "token accuracy", "span F1", "exact sequences", *further, "violations", "p (F1)"]
    lines = [head, ["---"] * len(head)]
    for one in result["runs"]:
        p = {comparison["second"]: f"{comparison['f1']['p']:.3f}" for comparison in one["comparisons"]}
        for system in one["systems"]:
            measures = [cell(system[key], system["intervals"][key]) for key in ("accuracy", "f1", "exact")]
            extra = [cell(system["further"][key]["value"], system["further"][key]["interval"]) for key in further]
            lines.append([str(one["training_sequences"]), system["name"], *measures, *extra, str(system["violations"]), p.get(system["name"], "")])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *EXPERIMENTS], metavar="NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("--table", action="store_true", help="run nothing, print the tables of the results that there are")
    arguments = parser.parse_args()
    if not arguments.table and not arguments.names:
        parser.error("name an experiment: " + ", ".join(EXPERIMENTS))
    for name in arguments.names or EXPERIMENTS:
        try:
            result = json.loads((RESULTS / f"{name}.json").read_text()) if arguments.table else run(name)
        except corpora.Absent as absent:
            sys.exit(f"{name}: {absent}")
        print(f"### {name}\n\n{table(result)}\n", flush=True)


if __name__ == "__main__":
    main()
