"""Training and tagging against CRFsuite, in one run on one machine (`make bench`).

From each corpus an attribute file is made (attributes.py) that both programs read as it is. Both train by L-BFGS with
l2 = 1 on the features seen in the data, in float64, until the same test says that they have converged. First their
answers are compared: the objective to 5 digits, the accuracy on held-out data to 0.1 points. Then times count. A
program's seconds an iteration are those of the whole run less those of a run of one iteration, over the iterations
between; runs of the programs alternate, and the best of `--repeats` counts. Peak memory is the process's, as the
kernel reports it. Tagging is of the held-out file several times over, less the time for an empty file.

CRFsuite is the program that `--crfsuite` names, or python-crfsuite where it is installed. Prints a table and keeps it
in bench/record/.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

import attributes

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "regccrf"
CORPORA = ROOT.parent / "shared" / "data" / "ner"
CASES = {  # name: training file, held-out file
    "WNUT-17": ("wnut17_wnut17train.conll", "wnut17_emerging.dev.conll"),
    "BC5CDR": ("BC5CDR-IOB_train.tsv", "BC5CDR-IOB_devel.tsv"),
}
COPIES = 5  # of the held-out file, for tagging

# python-crfsuite with the program's arguments.
PYTHON_CRFSUITE = """
import sys, pycrfsuite
def sequences(path):
    labels, items = [], []
    for line in open(path, encoding="utf-8"):
        fields = line.rstrip("\\n").split("\\t")
        if len(fields) > 1:
            labels.append(fields[0])
            items.append([f.replace("\\\\:", ":").replace("\\\\\\\\", "\\\\") for f in fields[1:]])
        elif labels:
            yield items, labels
            labels, items = [], []
if sys.argv[1] == "learn":
    trainer = pycrfsuite.Trainer(algorithm="lbfgs")
    trainer.set_params({"c2": 1.0, "max_iterations": int(sys.argv[4])})
    for items, labels in sequences(sys.argv[3]):
        trainer.append(items, labels)
    trainer.train(sys.argv[2])
else:
    tagger = pycrfsuite.Tagger()
    tagger.open(sys.argv[2])
    for items, labels in sequences(sys.argv[3]):
        print("\\n".join(tagger.tag(items)) + "\\n")
"""
MOST = 2**31 - 1


class Run:
    """A finished process: its output, seconds and peak memory in MiB."""

    def __init__(self, command):
        with tempfile.NamedTemporaryFile("r") as peak:
            begin = time.perf_counter()
            # time(1) is small; a process started from here would have this one's memory counted as its own.
            timed = ["/usr/bin/time", "-f", "%M", "-o", peak.name, *map(str, command)]
            done = subprocess.run(timed, capture_output=True, text=True, check=False)
            self.seconds = time.perf_counter() - begin
            if done.returncode != 0:
                sys.exit(f"{command}: status {done.returncode}\n{done.stderr}")
            self.peak, self.out = int(peak.read()) / 1024, done.stdout


class CrfSuite:
    name = "CRFsuite"

    def __init__(self, program, folder):
        self.program, self.model = program, folder / "crfsuite.model"
        self.wrapper = folder / "python_crfsuite.py"
        self.wrapper.write_text(PYTHON_CRFSUITE)

    def train(self, data, iterations):
        if self.program:
            parameters = ["-p", "c2=1", "-p", f"max_iterations={iterations}"]
            command = [self.program, "learn", "-a", "lbfgs", *parameters, "-m", self.model, data]
        else:
            command = [sys.executable, self.wrapper, "learn", self.model, data, iterations]
        run = Run(command)
        losses = re.findall(r"Loss: ([0-9.]+)", run.out)
        run.objective, run.iterations = float(losses[-1]), len(losses)
        return run

    def tag(self, data):
        command = [self.program, "tag"] if self.program else [sys.executable, self.wrapper, "tag"]
        return Run([*command, *(["-m", self.model] if self.program else [self.model]), data])


class Ours:
    def __init__(self, threads, folder):
        self.name = f"regccrf, {threads} thread{'s' if threads > 1 else ''}"
        self.threads, self.model = threads, folder / f"regccrf{threads}.model"

    def train(self, data, iterations):
        limit = [] if iterations == MOST else ["--max-iterations", iterations]
        run = Run([PROGRAM, "train", data, "-m", self.model, "--threads", self.threads, "--json", "--quiet", *limit])
        facts = json.loads(run.out)
        run.objective, run.iterations = facts["objective"], facts["iterations"]
        return run

    def tag(self, data):
        return Run([PROGRAM, "tag", "-m", self.model, "--threads", self.threads, data])


def gold_of(path):
    return [line.split("\t", 1)[0] for line in path.read_text(encoding="utf-8").splitlines() if line]


def accuracy(tagged, gold):
    labels = [line for line in tagged.splitlines() if line]
    if len(labels) != len(gold):
        sys.exit(f"{len(labels)} labels for {len(gold)} tokens")
    return 100 * sum(a == b for a, b in zip(labels, gold)) / len(gold)


def measure(case, train_file, held_out, programs, folder, repeats):
    with open(folder / "train", "w", encoding="utf-8") as out:
        attributes.write(CORPORA / train_file, out)
    with open(folder / "test", "w", encoding="utf-8") as out:
        attributes.write(CORPORA / held_out, out)
    gold = gold_of(folder / "test")
    (folder / "tests").write_bytes((folder / "test").read_bytes() * COPIES)
    (folder / "empty").write_text("")
    rows = {p.name: {"case": case, "program": p.name, "train": [], "start": [], "tag": [], "idle": []}
            for p in programs}
    for repeat in range(repeats):
        for p in programs:
            row = rows[p.name]
            row["start"].append(p.train(folder / "train", 1).seconds)
            whole = p.train(folder / "train", MOST)
            row["train"].append(whole.seconds)
            row["objective"], row["iterations"], row["peak"] = whole.objective, whole.iterations, whole.peak
            if repeat == 0:
                row["accuracy"] = accuracy(p.tag(folder / "test").out, gold)
            row["idle"].append(p.tag(folder / "empty").seconds)
            row["tag"].append(p.tag(folder / "tests").seconds)
    for row in rows.values():
        row["per_iteration"] = (min(row["train"]) - min(row["start"])) / (row["iterations"] - 1)
        row["tokens_per_second"] = COPIES * len(gold) / (min(row["tag"]) - min(row["idle"]))
    theirs = rows[programs[0].name]
    for row in rows.values():
        if abs(row["objective"] / theirs["objective"] - 1) > 1e-5:
            sys.exit(f"{case}: objectives differ: {theirs['objective']} and {row['objective']}")
        if abs(row["accuracy"] - theirs["accuracy"]) > 0.1:
            sys.exit(f"{case}: accuracies differ: {theirs['accuracy']} and {row['accuracy']}")
        row["speedup"] = theirs["per_iteration"] / row["per_iteration"]
        row["tag_speedup"] = row["tokens_per_second"] / theirs["tokens_per_second"]
        row["memory_ratio"] = row["peak"] / theirs["peak"]
    return list(rows.values())


def table(rows):
    lines = ["| corpus | program | objective | iterations | accuracy | ms an iteration | × | peak MiB | ratio | "
             "tokens tagged a second | × |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(f"| {r['case']} | {r['program']} | {r['objective']:.3f} | {r['iterations']} | "
                     f"{r['accuracy']:.2f} | {1000 * r['per_iteration']:.1f} | {r['speedup']:.2f} | "
                     f"{r['peak']:.0f} | {r['memory_ratio']:.2f} | "
                     f"{r['tokens_per_second']:,.0f} | {r['tag_speedup']:.2f} |")
    return "\n".join(lines)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip().removesuffix(" Processor")
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crfsuite", default=shutil.which("crfsuite"),
                        help="the program crfsuite; python-crfsuite without it")
    parser.add_argument("--cases", default=",".join(CASES), help="some of " + ", ".join(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-record", action="store_true", help="print only")
    options = parser.parse_args()
    if not CORPORA.is_dir():
        print(f"bench/tagger: there are no corpora in {CORPORA}; skipped")
        return
    rows, load = [], [os.getloadavg()[0]]
    for case in options.cases.split(","):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            programs = [CrfSuite(options.crfsuite, folder), Ours(1, folder), Ours(2, folder)]
            rows += measure(case, *CASES[case], programs, folder, options.repeats)
    load.append(os.getloadavg()[0])
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True,
                            check=False).stdout.strip()
    theirs = "crfsuite, built from its sources with its own flags" if options.crfsuite else "python-crfsuite"
    head = (f"{datetime.date.today()}, {processor()}, {os.cpu_count()} cores, commit {commit}, `bench/tagger/run.py`; "
            f"{theirs}; load average {load[0]:.1f} before and {load[1]:.1f} after")
    print(f"{head}\n\n{table(rows)}")
    if options.no_record:
        return
    record = ROOT / "bench" / "record"
    (record / "tagger-cpu.json").write_text(json.dumps({"what": head, "rows": rows}, indent=1) + "\n")
    (record / "tagger-cpu.md").write_text(
        f"# Training and tagging against CRFsuite\n\n{head}\n\n{table(rows)}\n\n"
        "L-BFGS, l2 = 1, features seen in the data, float64. `×` is CRFsuite's time over ours; `ratio` our peak\n"
        "memory over CRFsuite's.\n")


if __name__ == "__main__":
    main()
