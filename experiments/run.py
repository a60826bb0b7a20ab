#!/usr/bin/env python3
"""Where a constraint helps, on real data: python3 experiments/run.py citations addresses membrane wnut17

Each experiment trains two models on a fixed split, one without the language and one under it, and compares three
systems on the test part: unconstrained; constrained decoding (the first model's weights, decoded under the language);
constrained training. Where a language has more rules than one automaton can hold, a fourth one decodes under all of
them. Each is done with a tenth of the training part and with all of it. Results go to
experiments/results/NAME.json, a table to standard output; `--table` prints the tables of all results as they stand in
experiments/README.md. The corpora lie beside the repository: see corpora.py.

REGCCRF_PROGRAM names the program, build/regccrf by default.
"""
import argparse
import json
import math
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import corpora
import membrane
from corpora import ROOT

PROGRAM = Path(os.environ.get("REGCCRF_PROGRAM", ROOT / "build" / "regccrf"))
RESULTS = ROOT / "experiments" / "results"
SHARES = [0.1, 1.0]
SEED = 1

UNCONSTRAINED, DECODING, TRAINING = "unconstrained", "constrained decoding", "constrained training"
ALL_RULES = "constrained decoding, all rules"


# --- the data: each gives (train, test), lists of sequences of rows, the label last ---------------------------------


def shuffled(sequences, seed=SEED):
    sequences = list(sequences)
    random.Random(seed).shuffle(sequences)
    return sequences


def cut(sequences, test_share, seed=SEED):
    sequences = shuffled(sequences, seed)
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


VECTORS = ROOT / "build" / "experiments" / "glove.txt"
WNUT_TYPES = "corporation creative-work group location person product"

# `language`: a file of languages/, or a pattern. `all_rules`: one with rules that are kept beside a base.
# `train`, `evaluate`: options of `regccrf train` and `regccrf eval`.
# `measures`: what the table shows. `prepare`: makes files that training needs. `further`: a measure of its own, as a
# name and a function (gold file, predicted file) → right or wrong for each sequence. The strength of membrane's l2
# was chosen on a part of its training proteins.
EXPERIMENTS = {
    "citations": {"data": citations, "language": "citation-frequent.lang", "all_rules": "citation.lang", "measures": ["accuracy", "f1", "exact"]},
    "addresses": {"data": addresses, "language": "address.lang", "all_rules": "address-parts.lang", "measures": ["accuracy", "f1", "exact"]},
    "membrane": {"data": proteins, "language": "membrane.lang", "measures": ["accuracy"],
                 "evaluate": ["--unknown", "U"],
                 "train": ["--template", membrane.TEMPLATE, "--unknown", "U", "--l2", 100, "--max-iterations", 200],
                 "further": ("exact topology", membrane.topologies)},
    "wnut17": {"data": wnut17, "language": f"bio({{{WNUT_TYPES}}})", "measures": ["accuracy", "f1", "exact"],
               "train": ["--embeddings", VECTORS], "prepare": lambda: corpora.write_vectors(VECTORS)},
}


# --- one experiment -------------------------------------------------------------------------------------------------


def write(path, sequences):
    text = "".join("".join("\t".join(row) + "\n" for row in sequence) + "\n" for sequence in sequences)
    path.write_text(text, encoding="utf-8")


def regccrf(*arguments):
    """Standard output of the program."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"regccrf {' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def constraint(language):
    return ["--constraint", f"languages/{language}"] if language.endswith(".lang") else ["-e", language]


def train(experiment, data, model, options):
    """What the trainer says of its work."""
    facts = json.loads(regccrf("train", data, "-m", model, *experiment.get("train", []), *options, "--json", "--quiet"))
    return {key: value for key, value in facts.items() if key not in ("model", "data")}


def tag(model, data, path, options=()):
    path.write_text(regccrf("tag", "-m", model, data, "--labels-only", *options))


def share_with_interval(right, samples=1000):
    """In percent, with its bootstrap interval."""
    draw = random.Random(SEED)
    shares = sorted(100 * sum(draw.choices(right, k=len(right))) / len(right) for _ in range(samples))
    tail = round(0.025 * (samples - 1))
    return 100 * sum(right) / len(right), [shares[tail], shares[-1 - tail]]


def sign_test(first, second):
    """Two-sided: how likely so uneven a number of sequences on which only one system is right would be by chance."""
    wins, losses = (sum(a and not b for a, b in zip(x, y)) for x, y in ((second, first), (first, second)))
    n, fewer = wins + losses, min(wins, losses)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n)


def add_further(result, name, right):
    """right: for each system, whether each sequence is right."""
    for system, answers in zip(result["systems"], right):
        system[name], system["intervals"][name] = share_with_interval(answers)
    for comparison, answers in zip(result["comparisons"], right[1:]):
        comparison[name] = {"p": sign_test(right[0], answers)}


def violations(gold, paths, language):
    """Of each file of predictions."""
    return [system["violations"] for system in json.loads(regccrf("eval", gold, *paths, *language, "--json"))["systems"]]


def compare(experiment, share, folder, sequences):
    """The systems, trained on a share of the training part."""
    training, test = sequences
    training = training[:round(share * len(training))]
    train_file, test_file = folder / "train.txt", folder / "test.txt"
    write(train_file, training)
    write(test_file, test)
    language, all_rules = constraint(experiment["language"]), experiment.get("all_rules")
    plain, constrained = folder / "plain.model", folder / "constrained.model"
    under_it = [*language, "--constrain", "train", "--outside", "skip"]
    facts = {UNCONSTRAINED: train(experiment, train_file, plain, ["--constrain", "none"]),
             TRAINING: train(experiment, train_file, constrained, under_it)}
    names = [UNCONSTRAINED, DECODING, *([ALL_RULES] if all_rules else []), TRAINING]
    tagged = {name: folder / name for name in names}
    tag(plain, test_file, tagged[UNCONSTRAINED])
    tag(plain, test_file, tagged[DECODING], language)
    if all_rules:
        tag(plain, test_file, tagged[ALL_RULES], constraint(all_rules))
    tag(constrained, test_file, tagged[TRAINING])

    options = [*language, *experiment.get("evaluate", []), "--json"]
    result = json.loads(regccrf("eval", test_file, *tagged.values(), *options))
    for system, name in zip(result["systems"], tagged):
        system["name"] = name
    for comparison, name in zip(result["comparisons"], names[1:]):
        comparison.update(first=UNCONSTRAINED, second=name)
    if all_rules:
        for system, count in zip(result["systems"], violations(test_file, tagged.values(), constraint(all_rules))):
            system["violations_all_rules"] = count
        result["test_gold_outside_all_rules"] = violations(test_file, [test_file], constraint(all_rules))[0]
    if "further" in experiment:
        name, function = experiment["further"]
        add_further(result, name, [function(test_file, path) for path in tagged.values()])
    return {"share": share, "training_sequences": len(training), "test_sequences": len(test), "training": facts,
            "test_gold_outside": violations(test_file, [test_file], language)[0], **result}


def run(name):
    experiment = EXPERIMENTS[name]
    sequences = experiment["data"]()
    experiment.get("prepare", lambda: None)()
    runs = []
    for share in SHARES:
        folder = ROOT / "build" / "experiments" / name / f"{share:g}"
        folder.mkdir(parents=True, exist_ok=True)
        runs.append(compare(experiment, share, folder, sequences))
    further = [experiment["further"][0]] if "further" in experiment else []
    result = {"experiment": name, "command": f"python3 experiments/run.py {name}", "cores": os.cpu_count(),
              "language": experiment["language"], **({"all_rules": experiment["all_rules"]} if "all_rules" in experiment else {}),
              "gold_is_partial": "--unknown" in experiment.get("evaluate", []),
              "measures": experiment["measures"] + further, "runs": runs}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


# --- the table ------------------------------------------------------------------------------------------------------


TITLES = {"accuracy": "token accuracy", "f1": "span F1", "exact": "exact sequences"}


def cell(system, measure):
    low, high = system["intervals"][measure]
    return f"{system[measure]:.2f} [{low:.2f}, {high:.2f}]"


def at_least_a_thousandth(p):
    return f"{p:.3f}" if p > 0.0015 else "≤ 0.001"


def table(result):
    """One row a system; p is against the unconstrained one."""
    measures = result["measures"]
    tested = "f1" if "f1" in measures else measures[-1]
    titles = [TITLES.get(m, m) for m in measures]
    further = ["of all rules"] if "all_rules" in result else []
    head = ["training sequences", "system", *titles, f"p ({TITLES.get(tested, tested)})", "violations", *further]
    lines = [head, ["---"] * len(head)]
    for one in result["runs"]:
        p = {comparison["second"]: at_least_a_thousandth(comparison[tested]["p"]) for comparison in one["comparisons"]}
        for system in one["systems"]:
            lines.append([str(one["training_sequences"]), system["name"], *(cell(system, m) for m in measures),
                          p.get(system["name"], ""), f"{system['violations']} of {one['test_sequences']}",
                          *([str(system["violations_all_rules"])] if further else [])])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n\n" + outside(result)


def outside(result):
    """How many sequences of the data are illegal: they are left out of constrained training, and lost in the test."""
    if result["gold_is_partial"]:
        return "All known labels agree with the language."
    runs = result["runs"]
    skipped = [f"{one['training'][TRAINING].get('skipped', 0)} of {one['training_sequences']}" for one in runs]
    last = runs[-1]
    under_all = f", {last['test_gold_outside_all_rules']} under all rules" if "all_rules" in result else ""
    text = (f"Correct labels that are illegal: in training {' and '.join(skipped)}, left out of constrained training; "
            f"in the test {last['test_gold_outside']} of {last['test_sequences']}{under_all}.")
    return textwrap.fill(text, 120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", choices=[[], *EXPERIMENTS], metavar="NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("--table", action="store_true", help="run nothing, print the tables of the results")
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
