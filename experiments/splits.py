#!/usr/bin/env python3
"""Does a constraint help, over random splits of a corpus? python3 experiments/splits.py citations addresses

`run.py` looks at one split. Here the whole corpus is shuffled anew for every split, a fifth of it is the test part, and all
systems see the same split, so that their differences are paired. Five systems: unconstrained; constrained decoding and
constrained training under the language that is multiplied out; the same two under all rules, which are kept beside a base.
Each with a tenth of the training part and with all of it.

Every (split, share) is one unit of work and leaves a file in build/experiments/splits/NAME; a run that was cut off goes on
with those that lack. When all ten splits are there, experiments/results/NAME-splits.json and docs/splits.svg are written (with
matplotlib) and the tables are printed; `--table` prints them again. A training run is one thread.

    python3 experiments/splits.py citations addresses                    ten splits of each
    python3 experiments/splits.py addresses --splits 2 --shares 0.1      what does it cost?
"""
import argparse
import importlib.util
import json
import math
import os
import statistics
import sys
import time

import corpora
import run
from corpora import ROOT

WORK = ROOT / "build" / "experiments" / "splits"
FIGURE = ROOT / "docs" / "splits.svg"
SPLITS = 10
TEST_SHARE = 0.2
MEASURES = ["accuracy", "f1", "exact"]
ALL_RULES_TRAINING = "constrained training, all rules"
SYSTEMS = [run.UNCONSTRAINED, run.DECODING, run.TRAINING, run.ALL_RULES, ALL_RULES_TRAINING]
# What is compared: (system, with which other one).
PAIRS = [*((system, run.UNCONSTRAINED) for system in SYSTEMS[1:]),
         (run.TRAINING, run.DECODING), (ALL_RULES_TRAINING, run.ALL_RULES), (ALL_RULES_TRAINING, run.TRAINING)]
# Two-sided 95 % points of Student's t, by degrees of freedom.
STUDENT = [math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
           2.120, 2.110, 2.101, 2.093]

CORPORA = {
    "citations": lambda: corpora.citations("gold") + corpora.citations("core"),
    "addresses": lambda: corpora.addresses("training") + corpora.addresses("measure_performance_test_data"),
}


# --- one split --------------------------------------------------------------------------------------------------------


def parts(sequences, split, share):
    """(training, test) of a split; a smaller share has a part of the larger one's sequences."""
    training, test = run.cut(sequences, TEST_SHARE, seed=split)
    return training[:round(share * len(training))], test


def train(data, model, options):
    """What the trainer says of its work, and the CPU time that it took."""
    begin = os.times()
    facts = run.train({}, data, model, [*options, "--threads", 1])
    end = os.times()
    cpu = end.children_user + end.children_system - begin.children_user - begin.children_system
    return {**facts, "cpu_seconds": round(cpu, 2)}


def one_split(name, sequences, split, share, folder, systems_asked):
    """Trains the models, tags the test part by every system, and judges them."""
    training, test = parts(sequences, split, share)
    train_file, test_file = folder / "train.txt", folder / "test.txt"
    run.write(train_file, training)
    run.write(test_file, test)
    experiment = run.EXPERIMENTS[name]
    language, all_rules = run.constraint(experiment["language"]), run.constraint(experiment["all_rules"])
    under = ["--constrain", "train", "--outside", "skip"]
    options = {run.UNCONSTRAINED: ["--constrain", "none"], run.TRAINING: [*language, *under],
               ALL_RULES_TRAINING: [*all_rules, *under]}
    facts = {system: train(train_file, folder / f"{system}.model", some) for system, some in options.items()
             if system in systems_asked}
    tagged = {system: folder / system for system in systems_asked}
    for system in systems_asked:
        model = folder / f"{system if system in options else run.UNCONSTRAINED}.model"
        decode = {run.DECODING: language, run.ALL_RULES: all_rules}.get(system, ())
        run.tag(model, test_file, tagged[system], decode)
    judged = json.loads(run.regccrf("eval", test_file, *tagged.values(), "--json"))["systems"]
    systems = {system: {measure: one[measure] for measure in MEASURES} for system, one in zip(systems_asked, judged)}
    for key, rules in (("violations", language), ("violations_all_rules", all_rules)):
        counts = run.violations(test_file, [*tagged.values(), test_file], rules)
        for system, count in zip(systems_asked, counts):
            systems[system][key] = count
        facts[f"test_gold_{key}"] = counts[-1]
    return {"split": split, "share": share, "training_sequences": len(training), "test_sequences": len(test),
            "training": facts, "systems": systems}


def unit_file(name, split, share):
    return WORK / name / f"{share:g}" / f"{split}.json"


def run_unit(name, sequences, split, share, systems_asked):
    """The figures of a split, from its file where it is there and has all systems."""
    path = unit_file(name, split, share)
    if path.exists():
        unit = json.loads(path.read_text())
        if set(systems_asked) <= set(unit["systems"]):
            return unit
    begin = time.time()
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    unit = one_split(name, sequences, split, share, folder, systems_asked)
    unit["seconds"] = time.time() - begin
    part = path.with_suffix(".part")
    part.write_text(json.dumps(unit, indent=1) + "\n")
    part.replace(path)
    return unit


# --- over all splits --------------------------------------------------------------------------------------------------


def mean_with_interval(values):
    """The mean and its 95 % interval by Student's t."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return {"mean": mean, "interval": [-math.inf, math.inf]}
    half = STUDENT[min(len(values) - 1, len(STUDENT) - 1)] * statistics.stdev(values) / math.sqrt(len(values))
    return {"mean": mean, "interval": [mean - half, mean + half]}


def difference(units, system, other, measure):
    values = [unit["systems"][system][measure] - unit["systems"][other][measure] for unit in units]
    return {**mean_with_interval(values), "above": sum(v > 0 for v in values), "below": sum(v < 0 for v in values)}


def summary(units):
    """Of one share: means of every system, and paired differences."""
    systems = [system for system in SYSTEMS if all(system in unit["systems"] for unit in units)]
    models = [system for system in systems if all(system in unit["training"] for unit in units)]
    return {
        "share": units[0]["share"], "training_sequences": units[0]["training_sequences"],
        "test_sequences": units[0]["test_sequences"],
        "means": {system: {key: statistics.mean(unit["systems"][system][key] for unit in units)
                           for key in (*MEASURES, "violations", "violations_all_rules")} for system in systems},
        "cpu_seconds": {model: statistics.mean(unit["training"][model]["cpu_seconds"] for unit in units)
                        for model in models},
        **({"uncertified": statistics.mean(unit["training"][ALL_RULES_TRAINING].get("uncertified", 0) for unit in units)}
           if ALL_RULES_TRAINING in models else {}),
        "differences": [{"system": system, "other": other,
                         **{measure: difference(units, system, other, measure) for measure in MEASURES}}
                        for system, other in PAIRS if system in systems]}


def run_corpus(name, splits, shares, systems_asked):
    sequences = run.distinct(CORPORA[name]())
    (WORK / name).mkdir(parents=True, exist_ok=True)
    units = []
    begin, todo = time.time(), [(share, split) for share in shares for split in range(1, splits + 1)]
    for number, (share, split) in enumerate(todo, 1):
        unit = run_unit(name, sequences, split, share, systems_asked)
        units.append(unit)
        f1 = ", ".join(f"{unit['systems'][system]['f1']:.2f}" for system in systems_asked)
        print(f"{name} {number} of {len(todo)}: share {share:g}, split {split}: span F1 {f1}; {time.time() - begin:.0f} s so far",
              file=sys.stderr, flush=True)
    experiment = run.EXPERIMENTS[name]
    return {"experiment": f"{name}, random splits", "command": " ".join(["python3 experiments/splits.py", *sys.argv[1:]]), "splits": splits,
            "language": experiment["language"], "all_rules": experiment["all_rules"],
            "summary": [summary([unit for unit in units if unit["share"] == share]) for share in shares], "units": units}


# --- tables and figure ------------------------------------------------------------------------------------------------


def cell(one):
    low, high = one["interval"]
    text = f"{one['mean']:+.2f} [{low:+.2f}, {high:+.2f}]"
    return f"**{text}**" if low > 0 or high < 0 else text


def table(result):
    head = ["training sequences", "system", *(run.TITLES[m] for m in MEASURES), "violations", "of all rules"]
    lines = [head, ["---"] * len(head)]
    for one in result["summary"]:
        for system, mean in one["means"].items():
            lines.append([str(one["training_sequences"]), system, *(f"{mean[m]:.2f}" for m in MEASURES),
                          f"{mean['violations']:.1f} of {one['test_sequences']}", f"{mean['violations_all_rules']:.1f}"])
    differences = ["training sequences", "difference", *(run.TITLES[m] for m in MEASURES), "splits above, below (span F1)"]
    more = [differences, ["---"] * len(differences)]
    for one in result["summary"]:
        for pair in one["differences"]:
            more.append([str(one["training_sequences"]), f"{pair['system']} – {pair['other']}", *(cell(pair[m]) for m in MEASURES),
                         f"{pair['f1']['above']}, {pair['f1']['below']}"])
    rows = ["\n".join("| " + " | ".join(line) + " |" for line in some) for some in (lines, more)]
    return "\n\n".join(rows) + "\n\n" + costs(result)


def costs(result):
    """CPU seconds of training, and for how many sequences rules counted."""
    said = []
    for one in result["summary"]:
        seconds = "; ".join(f"{model} {cpu:.1f} s" for model, cpu in one["cpu_seconds"].items())
        said.append(f"CPU time of training with {one['training_sequences']} sequences: {seconds}.")
        if "uncertified" in one:
            said.append(f"Under all rules {one['uncertified']:.0f} of the sequences needed a gap above 1e-3.")
    return " ".join(said + ["All numbers are means over the splits."])


def draw(results, path):
    """Differences from the unconstrained system with their intervals, a panel for each corpus and share."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "splits"
    import matplotlib.pyplot as plt
    panels = [(result, one) for result in results for one in result["summary"]]
    figure, axes = plt.subplots(1, len(panels), figsize=(3.1 * len(panels), 3.0), sharey=True, squeeze=False)
    colours = {"f1": "#1b7837", "exact": "#762a83"}
    for axis, (result, one) in zip(axes[0], panels):
        pairs = [pair for pair in one["differences"] if pair["other"] == run.UNCONSTRAINED]
        for shift, measure in ((-0.12, "f1"), (0.12, "exact")):
            for row, pair in enumerate(pairs):
                low, high = pair[measure]["interval"]
                axis.plot([low, high], [row + shift] * 2, color=colours[measure])
                axis.plot(pair[measure]["mean"], row + shift, "o", color=colours[measure], markersize=4,
                          label=run.TITLES[measure] if row == 0 else None)
        axis.axvline(0, color="#999999", linewidth=0.8)
        axis.set_title(f"{result['experiment'].split(',')[0]}, {one['training_sequences']:,} sequences", fontsize=9)
        axis.set_xlabel("points above unconstrained", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.set_yticks(range(len(pairs)), [pair["system"].replace("constrained ", "") for pair in pairs])
        axis.set_ylim(len(pairs) - 0.5, -0.5)
    axes[0][0].legend(frameon=False, fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *CORPORA], metavar="NAME", help=", ".join(CORPORA))
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--shares", type=float, nargs="+", default=run.SHARES, help="of the training part")
    parser.add_argument("--no-training-under-all-rules", action="store_true", help="leave that system out")
    parser.add_argument("--table", action="store_true", help="run nothing, print the tables of the results")
    arguments = parser.parse_args()
    systems_asked = SYSTEMS[:-1] if arguments.no_training_under_all_rules else SYSTEMS
    whole = arguments.splits == SPLITS
    results = []
    for name in arguments.names or CORPORA:
        path = run.RESULTS / f"{name}-splits.json"
        try:
            result = json.loads(path.read_text()) if arguments.table else run_corpus(name, arguments.splits, arguments.shares, systems_asked)
        except corpora.Absent as absent:
            sys.exit(f"{name}: {absent}")
        if whole and not arguments.table:
            path.write_text(json.dumps(result, indent=1) + "\n")
        results.append(result)
        print(f"### {name}\n\n{table(result)}\n", flush=True)
    if not whole or len(results) < len(CORPORA):
        return
    if importlib.util.find_spec("matplotlib"):
        draw(results, FIGURE)
    else:
        print("splits: no matplotlib here, so no figure", file=sys.stderr)


if __name__ == "__main__":
    main()
