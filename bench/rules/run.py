#!/usr/bin/env python3
"""Decoding and losses under rules that are kept beside a base: python3 bench/rules/run.py [--record]

Four tables, and a figure of the losses, docs/rules.svg. Each compares, in one run of build/bench/bench_rules (measure.cc) and
on the same scores, the base alone, which is the floor; the rules kept beside it; and all of it multiplied out, where that takes
at most a million products a step. Times are CPU time of one thread.

    number     2 to 64 rules (at_most, once_contiguous) over 64 labels, sentences of 30 words; scores of a model that was trained
               without the rules on sentences that obey them, and random scores
    addresses  usaddress's addresses, every label in one piece (languages/address-parts.lang); a model trained on its training part
    losses     a loss with its gradients at gaps of 1e-2 to 1e-6: at_most as above, addresses, roles, and the paper's roles, which could
               be multiplied out; scores of models that are sure (peaked) and of models that are not (flat), by their penalty
    roles      EWT's test part, all roles (languages/srl-full.lang); a model trained on a quarter of the training part

What needs a corpus that is not beside the repository (experiments/corpora.py) is left out.
"""
import argparse
import datetime
import importlib.util
import json
import os
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "experiments"))
import corpora  # noqa: E402
import run as experiments  # noqa: E402

FOLDER = ROOT / "build" / "bench" / "rules"
LABELS = [f"L{i}" for i in range(64)]
COUNTS = [2, 4, 8, 16, 32, 64]
LENGTH = 30
MOST_SECONDS = 20  # of CPU time, for a row
RULES = {"at_most": "at_most(1, {})", "once_contiguous": "once_contiguous({})"}


def program(*arguments):
    done = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, arguments))[:300]}\n{done.stderr}")
    return done.stdout


def train(data, model, *options):
    if not model.exists():
        program(experiments.PROGRAM, "train", data, "-m", model, "--constrain", "none", "--quiet", *options)


def measure(name, model, data, language, scores, checked):
    """A row of the table; in the place of numbers an error, past twenty seconds of CPU time too."""
    command = [ROOT / "build" / "bench" / "bench_rules", model, data, language, scores, checked]
    done = subprocess.run([str(argument) for argument in command], capture_output=True, text=True, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS)))
    if done.returncode and not done.stdout and done.returncode != -signal.SIGKILL:
        sys.exit(f"bench_rules: {done.stderr}")
    row = {"name": name, "scores": scores, **json.loads(done.stdout or f'{{"error": "not done in {MOST_SECONDS} s"}}')}
    print(line(row), flush=True)
    return row


def line(row):
    if "error" in row:
        return f"{row['name']:<22}{row['scores']:<7}{row['error'].splitlines()[0]}"
    times = [f"{row[way]['microseconds_a_position']:>10.2f}" if way in row else f"{'-':>10}" for way in ("base", "kept", "multiplied")]
    share = 100 * row["illegal_under_base"] / row["sequences"]
    return (f"{row['name']:<22}{row['scores']:<7}{row['rules']:>6}{share:>9.1f}{''.join(times)}{row['ratio']:>8.2f}"
            f"{row['kept']['sequences_a_second']:>12.0f}{row['first_seconds']:>9.3f}")


HEAD = f"{'':<22}{'scores':<7}{'rules':>6}{'broken %':>9}{'base':>10}{'kept':>10}{'multipl.':>10}{'ratio':>8}{'sentences/s':>12}{'first s':>9}"


# --- the number of rules --------------------------------------------------------------------------------------------


def sentence(draw, run):
    """Labels that obey both kinds of rules, with words of which one in five is not sure."""
    rows, label = [], draw.randrange(len(LABELS))
    used = set()
    while len(rows) < LENGTH:
        near = [(label + step) % len(LABELS) for step in (1, 2, 3, 5, 8, 13)]
        free = [one for one in near if one not in used] or [one for one in range(len(LABELS)) if one not in used]
        label = draw.choice(free)
        used.add(label)
        for _ in range(draw.randint(1, 2 * run - 1)):
            word = f"both{label // 2}" if draw.random() < 0.2 else f"w{label}-{draw.randrange(20)}"
            rows.append((word, LABELS[label]))
    return rows[:LENGTH]


def trained(rule, run):
    """A model and the sentences to try it on."""
    draw = random.Random(1)
    data, model, training = FOLDER / f"{rule}.txt", FOLDER / f"{rule}.model", FOLDER / f"{rule}-training.txt"
    experiments.write(data, [sentence(draw, run) for _ in range(100)])
    experiments.write(training, [sentence(draw, run) for _ in range(300)])
    train(training, model, "--max-iterations", 50)
    return model, data


def number_of_rules():
    rows = []
    for rule, run in (("at_most", 1), ("once_contiguous", 2)):
        model, data = trained(rule, run)
        for scores in ("model", "flat"):
            for count in COUNTS:
                language = ".* & " + " & ".join(RULES[rule].format(label) for label in LABELS[:count])
                searched = 0 if scores == "flat" and count > 16 else 20  # without a product the search is slow there
                rows.append(measure(f"{rule} {count}", model, data, language, scores, searched))
    return rows


# --- real data --------------------------------------------------------------------------------------------------------


def trained_addresses():
    training, test = experiments.addresses()
    experiments.write(FOLDER / "addresses-training.txt", training)
    experiments.write(FOLDER / "addresses.txt", training + test)
    train(FOLDER / "addresses-training.txt", FOLDER / "addresses.model")


def addresses():
    trained_addresses()
    return [measure("addresses", FOLDER / "addresses.model", FOLDER / "addresses.txt", ROOT / "languages" / "address-parts.lang", scores, 1000)
            for scores in ("model", "flat")]


def trained_roles(name, roles):
    """A model of a quarter of EWT's training part, and the sentences of its test part."""
    corpora.read("srl_ewt/ewt_srl.test.conll")  # Absent is raised before any work
    for part in ("train", "test"):
        path = FOLDER / f"{name}-{part}.txt"
        if path.exists():
            continue
        text = program(sys.executable, ROOT / "experiments" / "srl" / "features.py", part, "--roles", roles, "--output", "/dev/stdout")
        blocks = text.strip("\n").split("\n\n")
        path.write_text("\n\n".join(blocks[3::4] if part == "train" else blocks) + "\n")
    train(FOLDER / f"{name}-train.txt", FOLDER / f"{name}.model", "--max-iterations", 40)


def roles():
    trained_roles("roles", "full")
    return [measure("roles", FOLDER / "roles.model", FOLDER / "roles-test.txt", ROOT / "languages" / "srl-full.lang", "model", 1000)]


# --- losses -----------------------------------------------------------------------------------------------------------


GAPS = ["1e-2", "1e-3", "1e-4", "1e-5", "1e-6"]
# Penalties. With little of it a model is as sure as one of EWT's roles: its likeliest label has a probability of 0.98 in the mean,
# and of more than 0.99 at four of five positions. With much of it 0.89, and at hardly any position.
PENALTIES = {"peaked": 0.01, "flat": 1}


def loss_subjects():
    """(name, scores, model, data, language)"""
    trained("at_most", 1)
    trained_addresses()
    subjects = []
    for scores, penalty in PENALTIES.items():
        for name, training in (("at_most", "at_most-training.txt"), ("addresses", "addresses-training.txt")):
            train(FOLDER / training, FOLDER / f"{name}-{scores}.model", "--l2", penalty)
        subjects += [(f"at_most {count}", scores, f"at_most-{scores}.model", "at_most.txt",
                      ".* & " + " & ".join(RULES["at_most"].format(label) for label in LABELS[:count])) for count in COUNTS]
        subjects.append(("addresses", scores, f"addresses-{scores}.model", "addresses.txt", ROOT / "languages" / "address-parts.lang"))
    try:
        for name, which, language in (("roles", "full", "srl-full.lang"), ("srl", "reduced", "srl.lang")):
            trained_roles(name, which)
            subjects.append((name, "peaked", f"{name}.model", f"{name}-test.txt", ROOT / "languages" / language))
    except corpora.Absent as absent:
        print(f"losses of roles: {absent}")
    return subjects


def loss_row(name, scores, model, data, language, gap):
    command = [ROOT / "build" / "bench" / "bench_rules", FOLDER / model, FOLDER / data, language, "losses", gap]
    limit = MOST_SECONDS
    done = subprocess.run([str(argument) for argument in command], capture_output=True, text=True, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)))
    if done.returncode and not done.stdout and done.returncode != -signal.SIGKILL:
        sys.exit(f"bench_rules: {done.stderr}")
    row = json.loads(done.stdout or f'{{"error": "not done in {limit} s"}}')
    return {"name": f"loss, {name}, {gap}", "scores": scores, "task": "loss", "subject": name, "max_gap": float(gap), **row}


def losses():
    """A loss with its gradients against the number of rules and the gap, beside the base alone."""
    rows = []
    for subject in loss_subjects():
        for gap in GAPS:
            row = loss_row(*subject, gap)
            rows.append(row)
            print(f"{row['name']:<28}{row['scores']:<7}" + (row["error"] if "error" in row else
                  f"rules {row['rules']:>3}  ÷ base {row['ratio']:>9.2f}  µs a sequence {1e6 * row['kept_seconds'] / row['sequences']:>9.1f}  "
                  f"median gap {'none' if row['median_gap'] is None else format(row['median_gap'], '.1e')}  "
                  f"not certified {row['uncertified']} of {row['sequences']}"), flush=True)
            if "error" in row:
                break  # a smaller gap takes longer
    return rows


def draw(rows):
    """Time of a loss over that of the base alone, against the number of rules, a line for each gap: docs/rules.svg."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "rules"
    import matplotlib.pyplot as plt
    done = [row for row in rows if row.get("task") == "loss" and "error" not in row]
    colours = dict(zip(map(float, GAPS), ["#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#084594"]))
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True)
    for axis, scores in zip(axes, PENALTIES):
        for gap, colour in colours.items():
            points = sorted((row["rules"], row["ratio"]) for row in done
                            if row["scores"] == scores and row["max_gap"] == gap and row["subject"].startswith("at_most"))
            axis.loglog(*zip(*points), "o-", color=colour, label=f"max_gap {gap:.0e}") if points else None
        exact = sorted({(row["rules"], row["multiplied_seconds"] / row["base_seconds"]) for row in done
                        if row["scores"] == scores and "multiplied_seconds" in row and row["max_gap"] == 1e-2
                        and row["subject"].startswith("at_most")})
        axis.loglog(*zip(*exact), "s--", color="#b2182b", label="multiplied out") if exact else None
        axis.axhline(1, color="#999999", linewidth=0.8, label="base alone")
        axis.set_xscale("log", base=2)
        axis.set_xticks(COUNTS, [str(count) for count in COUNTS])
        axis.set_xlabel(f"rules; {scores} scores")
        axis.grid(True, which="major", color="#eeeeee")
    axes[0].set_ylabel("loss with gradients, ÷ base alone")
    axes[1].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "rules.svg", metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help="number, addresses, roles, losses; all of them without one")
    parser.add_argument("--record", action="store_true", help="write the rows into bench/record/rules-cpu.json, and docs/rules.svg")
    parser.add_argument("--draw", action="store_true", help="run nothing, draw docs/rules.svg from the record")
    arguments = parser.parse_args()
    path = ROOT / "bench" / "record" / "rules-cpu.json"
    if arguments.draw:
        return draw(json.loads(path.read_text())["rows"])
    tables = {"number": number_of_rules, "addresses": addresses, "roles": roles, "losses": losses}
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(HEAD)
    rows = []
    for name in arguments.tables or tables:
        try:
            rows += tables[name]()
        except corpora.Absent as absent:
            print(f"{name}: {absent}")
    if arguments.record:
        facts = Path("/proc/cpuinfo").read_text().splitlines()
        model_name = next((one.split(":", 1)[1].strip() for one in facts if one.startswith("model name")), "CPU")
        made = {(row["name"], row["scores"]): row for row in (json.loads(path.read_text())["rows"] if path.exists() else []) + rows}
        facts = {"date": datetime.date.today().isoformat(), "machine": f"{model_name}, {os.cpu_count()} cores",
                 "command": "python3 bench/rules/run.py --record", "rows": list(made.values())}
        path.write_text(json.dumps(facts, indent=1) + "\n")
        if importlib.util.find_spec("matplotlib"):
            draw(facts["rows"])
        else:
            print("rules: no matplotlib here, so no figure")


if __name__ == "__main__":
    main()
