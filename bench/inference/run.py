"""Inference on the CPU, ours against the others, in one run on one machine (`make bench`).

Every case is one set of random scores that all competitors read. A competitor's answer must agree with ours before its
time counts. Times are medians over repeated calls. Prints a table and keeps it in bench/record/.

Competitors: the paper's dense construction in our C++ (every arc a tag); pytorch-crf 0.7.2 without any constraint, on the
same labels; the original ccrf 0.0.3, where one call ends within a minute, and with --all where it takes minutes.
"""
import argparse
import datetime
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore", module="torchcrf")  # it uses what newer PyTorch calls deprecated

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
TASKS = ("nll", "log_z", "viterbi")
DENSE_LIMIT = 3000  # tags: above this the dense construction is not run
BIO = "bio({A B C D})"
GENE = ROOT / "languages" / "gene.lang"
SRL = ROOT / "languages" / "srl.lang"

CASES = [  # name, language, B, T, whether by the original too: not, with --all, or always
    ("srl 2x32", SRL, 2, 32, "always"),
    ("srl 8x64", SRL, 8, 64, "all"),
    ("srl 64x64", SRL, 64, 64, "not"),
    ("srl 1x1000", SRL, 1, 1000, "not"),
    ("none-47 8x64", None, 8, 64, "not"),
    ("bio-9 8x64", BIO, 8, 64, "always"),
    ("gene 1x10000", GENE, 1, 10000, "not"),
]


def regccrf(*arguments):
    return subprocess.run([BUILD / "regccrf", *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def write_case(folder, language, B, T, seed=1):
    """Constraint, scores and gold of a case; returns its facts and label names."""
    folder.mkdir(parents=True, exist_ok=True)
    if language is None:  # no constraint, the labels of the SRL language
        regccrf("compile", SRL, "--fst", folder / "srl.att")
        names = [line.split("\t")[0] for line in (folder / "srl.att.syms").read_text().splitlines()][1:]
        source = ["-e", ".*", "--labels", ",".join(names)]
    else:
        source = ["-e", language] if isinstance(language, str) else [language]
    facts = json.loads(regccrf("compile", *source, "--json", "-o", folder / "constraint", "--fst", folder / "automaton.att"))
    names = [line.split("\t")[0] for line in (folder / "automaton.att.syms").read_text().splitlines()][1:]
    K = len(names)
    rng = np.random.default_rng(seed)
    rng.standard_normal((B, T, K), dtype=np.float32).tofile(folder / "emissions.f32")
    rng.standard_normal((K, K), dtype=np.float32).tofile(folder / "transitions.f32")
    np.array([B, T, K], dtype=np.int32).tofile(folder / "shape.i32")
    gold = [json.loads(line) for line in regccrf("random", *source, "--length", T, "--count", B, "--json").splitlines()]
    np.array([[names.index(a) for a in y] for y in gold], dtype=np.int32).tofile(folder / "gold.i32")
    return facts, names


def ours(folder, task, threads):
    out = subprocess.run([BUILD / "bench" / "measure", folder, task, str(threads)], check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def read_case(folder):
    B, T, K = np.fromfile(folder / "shape.i32", dtype=np.int32)
    return (np.fromfile(folder / "emissions.f32", dtype=np.float32).reshape(B, T, K),
            np.fromfile(folder / "transitions.f32", dtype=np.float32).reshape(K, K),
            np.fromfile(folder / "gold.i32", dtype=np.int32).reshape(B, T).astype(np.int64))


def median_time(run, once=False):
    """Seconds of a call, and its answer."""
    seconds, total = [], 0.0
    while not seconds or (not once and (total < 1.0 or len(seconds) < 5) and total < 20):
        start = time.perf_counter()
        answer = run()
        seconds.append(time.perf_counter() - start)
        total += seconds[-1]
    return statistics.median(seconds), answer


def pytorch_crf(folder, task, threads):
    """Unconstrained, over the same labels. Its start and end scores are zero, as ours are absent."""
    import torch
    import torchcrf
    torch.set_num_threads(threads)
    emissions, transitions, gold = (torch.from_numpy(x) for x in read_case(folder))
    crf = torchcrf.CRF(emissions.shape[2], batch_first=True)
    with torch.no_grad():
        crf.transitions.copy_(transitions)
        crf.start_transitions.zero_()
        crf.end_transitions.zero_()
    emissions.requires_grad_(task == "nll")

    def loss():
        emissions.grad = None
        crf.zero_grad()
        value = -crf(emissions, gold, reduction="sum")
        value.backward()
        return value.item()

    def log_z():
        with torch.no_grad():
            mask = torch.ones(emissions.shape[:2], dtype=torch.bool).transpose(0, 1)
            return float(crf._compute_normalizer(emissions.transpose(0, 1), mask).sum())

    def viterbi():
        with torch.no_grad():
            paths = torch.tensor(crf.decode(emissions))
            score = torch.gather(emissions, 2, paths.unsqueeze(-1)).sum()
            return float(score + transitions[paths[:, :-1], paths[:, 1:]].sum())

    return median_time({"nll": loss, "log_z": log_z, "viterbi": viterbi}[task])


def read_automaton(automic, path):
    """Our AT&T text as an automaton of theirs, whose start state is 0; ours is the state of the first line."""
    number, arcs, accepting = {}, [], set()
    for line in path.read_text().splitlines():
        fields = line.split("\t")
        states = [number.setdefault(q, len(number)) for q in fields[:2]]
        arcs.append((*states, fields[2])) if len(fields) == 3 else accepting.add(states[0])
    automaton = automic.Automaton(len(number), accepting)
    for source, target, label in arcs:
        automaton.transitions[source][label].add(target)
    return automaton


def original(folder, task, names):
    """The authors' ccrf: dense over its tags. One call."""
    import automic
    import ccrf
    import torch
    torch.set_num_threads(2)
    emissions, transitions, gold = read_case(folder)
    model = ccrf.RegCCRF(read_automaton(automic, folder / "automaton.att"))
    order = [names.index(label) for label in model.labels]
    with torch.no_grad():
        model.label_transitions.copy_(torch.from_numpy(transitions[np.ix_(order, order)]))
    x = torch.from_numpy(np.ascontiguousarray(emissions[:, :, order]))

    def viterbi():
        with torch.no_grad():
            paths = [[names.index(label) for label in model.decode(row)] for row in model.map(x)]
        return float(sum(emissions[b, range(len(y)), y].sum() + transitions[y[:-1], y[1:]].sum() for b, y in enumerate(paths)))

    if task == "viterbi":
        return median_time(viterbi, once=True)
    tags = torch.tensor([model.encode([names[a] for a in row]) for row in gold])
    x.requires_grad_(True)

    def loss():
        value = -model.log_p(x, tags).sum()
        value.backward()
        return value.item()
    return median_time(loss, once=True)


def agree(ours_value, other, what):
    if abs(ours_value - other) > 1e-4 * max(1.0, abs(ours_value)):
        sys.exit(f"bench: the answers differ: {what}: ours {ours_value}, theirs {other}")


def importable(*names):
    import importlib.util
    return all(importlib.util.find_spec(name) for name in names)


def measure(case, peak, originals):
    name, language, B, T, by_original = case
    folder = BUILD / "bench" / "cases" / name.replace(" ", "_")
    facts, names = write_case(folder, language, B, T)
    free = BUILD / "bench" / "cases" / (name.replace(" ", "_") + "_free")
    write_free(folder, free, names)
    rows = []
    for task in TASKS:
        one, two = ours(folder, task, 1), ours(folder, task, 2)
        agree(one["answer"], two["answer"], f"{name} {task}, 1 and 2 threads")
        row = {"case": name, "task": task, "ours_1": one["seconds"], "ours_2": two["seconds"], "ours_1_best": one["best"],
               "products": facts["products"], "fallbacks": one["doubled"] + one["wide"], "passes": one["passes"]}
        passes = 3 if task == "nll" else 1
        row["limit"] = passes * facts["products"] * B * T / peak
        if facts["arcs"] <= DENSE_LIMIT:
            dense = ours(folder, task + "-dense", 1)
            agree(one["answer"], dense["answer"], f"{name} {task}, dense")
            row["dense"] = dense["seconds"]
        if importable("torchcrf", "torch"):
            row["pytorch_crf"], answer = pytorch_crf(folder, task, 2)
            agree(ours(free, task, 1)["answer"], answer, f"{name} {task}, pytorch-crf without constraint")
        if by_original in originals and task != "log_z" and importable("ccrf", "automic"):
            row["original"], answer = original(folder, task, names)
            agree(one["answer"], answer, f"{name} {task}, the original")
        rows.append(row)
        print(format_row(row), flush=True)
    return rows


def write_free(folder, free, names):
    """The same scores without a constraint, to check pytorch-crf's answer."""
    free.mkdir(parents=True, exist_ok=True)
    regccrf("compile", "-e", ".*", "--labels", ",".join(names), "-o", free / "constraint")
    for file in ("emissions.f32", "transitions.f32", "shape.i32", "gold.i32"):
        (free / file).write_bytes((folder / file).read_bytes())


HEADER = ("| case | task | ours, 1 thread | ours, 2 threads | limit | × limit | dense C++ | pytorch-crf (free) | original | "
          "pytorch-crf ÷ ours | original ÷ ours |\n|---|---|---|---|---|---|---|---|---|---|---|")


def format_row(row):
    def ms(key):
        return f"{row[key] * 1e3:.3f} ms" if key in row else "–"

    def ratio(key):
        return f"{row[key] / row['ours_2']:,.0f}" if key in row else "–"
    return (f"| {row['case']} | {row['task']} | {ms('ours_1')} | {ms('ours_2')} | {ms('limit')} | {row['ours_1'] / row['limit']:.2f} | "
            f"{ms('dense')} | {ms('pytorch_crf')} | {ms('original')} | {ratio('pytorch_crf')} | {ratio('original')} |")


def machine():
    model = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    return f"{model[0] if model else platform.processor()}, {len(model)} cores"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-original", action="store_true", help="leave out ccrf")
    parser.add_argument("--all", action="store_true", help="ccrf on srl 8x64 too, which takes minutes")
    parser.add_argument("--case", action="append", help="only these cases, by name")
    arguments = parser.parse_args()
    measured = subprocess.run([BUILD / "bench" / "measure", "--peak"], check=True, capture_output=True, text=True).stdout
    peak = json.loads(measured)["products_per_second"]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    command = " ".join(["bench/inference/run.py"] + sys.argv[1:])
    head = f"{datetime.date.today()}, {machine()}, commit {commit}, `{command}`; peak {peak / 1e9:.1f} G products/s on one thread"
    print(head, "", HEADER, sep="\n", flush=True)
    rows = []
    for case in CASES:
        if not arguments.case or case[0] in arguments.case:
            rows += measure(case, peak, [] if arguments.no_original else ["always", "all"] if arguments.all else ["always"])
    record = ROOT / "bench" / "record" / "inference-cpu"
    record.with_suffix(".md").write_text("\n".join(["# Inference on the CPU", "", head, "", HEADER, *map(format_row, rows), ""]))
    record.with_suffix(".json").write_text(json.dumps({"head": head, "peak": peak, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
