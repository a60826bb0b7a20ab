#!/usr/bin/env python3
"""Decoding against the number of rules: python3 bench/rules/run.py [--record]

For 2 to 64 rules of two kinds (at_most, once_contiguous) over 64 labels: the base alone, which is the floor; the rules kept
beside it; and all multiplied out, where that compiles. Scores are those of a model that is sure of most labels (peaked), or
random (flat). Before anything is timed, what is multiplied out must give the scores that the rules give. Times are microseconds a
position, one thread, best of five; ratios are to the base in the same run.
"""
import argparse
import datetime
import json
import platform
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "build" / "python"))
import regccrf  # noqa: E402

LABELS = [f"L{i}" for i in range(64)]
COUNTS = [2, 4, 8, 12, 16, 32, 64]
LENGTH, SENTENCES, REPEATS = 30, 100, 5
RULES = {"at_most": "at_most(1, {})", "once_contiguous": "once_contiguous({})"}


def scores(rule, kind, rng):
    """[sentences, T, K] emissions, [K, K] transitions."""
    transitions = rng.normal(size=(len(LABELS), len(LABELS))).astype(np.float32)
    emissions = rng.normal(size=(SENTENCES, LENGTH, len(LABELS))).astype(np.float32)
    if kind == "peaked":  # sequences that obey the rules, and now and then a wrong guess
        run = 3 if rule == "once_contiguous" else 1
        for h in emissions:
            order = np.repeat(rng.permutation(len(LABELS))[: LENGTH // run], run)
            wrong = rng.random(LENGTH) < 0.02
            order[wrong] = rng.integers(len(LABELS), size=wrong.sum())
            h[np.arange(LENGTH), order] += 12
    return emissions, transitions


def decode(constraint, emissions, transitions):
    return [regccrf.viterbi(constraint, h, transitions) for h in emissions]


def seconds(constraint, emissions, transitions):
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        decode(constraint, emissions, transitions)
        best = min(best, time.perf_counter() - begin)
    return best


def compiled(text, rules):
    limits = regccrf.Limits(seconds=20)
    try:
        return regccrf.compile(text, labels=LABELS, rules=rules, limits=limits)
    except regccrf.LimitError:
        return None


def row(rule, count, kind, emissions, transitions):
    text = ".* & " + " & ".join(RULES[rule].format(label) for label in LABELS[:count])
    kept = compiled(text, "all")
    multiplied = compiled(text, "none") if count <= 12 else None
    base = regccrf.compile(".*", labels=LABELS)
    paths = decode(kept, emissions, transitions)
    if not all(kept.accepts(path.labels) for path in paths):
        sys.exit(f"{text}: an answer breaks a rule")
    if multiplied:
        for ours, theirs in zip(paths, decode(multiplied, emissions, transitions)):
            if abs(ours.score - theirs.score) > 1e-5 * max(1, abs(theirs.score)):
                sys.exit(f"{text}: the rules give a score of {ours.score}, multiplied out {theirs.score}")
    unit = 1e6 / (SENTENCES * LENGTH)
    floor = seconds(base, emissions, transitions)
    result = {"rule": rule, "rules": count, "scores": kind, "base": floor * unit, "kept": seconds(kept, emissions, transitions) * unit,
              "multiplied": seconds(multiplied, emissions, transitions) * unit if multiplied else None,
              "states": multiplied.states if multiplied else None}
    result["ratio"] = result["kept"] / result["base"]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write bench/record/rules-cpu.json")
    arguments = parser.parse_args()
    rows = []
    print(f"{'rule':<16}{'rules':>6} {'scores':<8}{'base':>8}{'kept':>9}{'ratio':>8}{'multiplied out':>16}{'states':>9}")
    for kind in ("peaked", "flat"):
        for rule in RULES:
            emissions, transitions = scores(rule, kind, np.random.default_rng(1))
            for count in COUNTS:
                try:
                    r = row(rule, count, kind, emissions, transitions)
                except regccrf.Error as error:
                    print(f"{rule:<16}{count:>6} {kind:<8} {str(error).splitlines()[0][:120]}")
                    rows.append({"rule": rule, "rules": count, "scores": kind, "error": str(error)})
                    continue
                rows.append(r)
                out = f"{r['multiplied']:.1f}" if r["multiplied"] else "-"
                print(f"{rule:<16}{count:>6} {kind:<8}{r['base']:>8.2f}{r['kept']:>9.2f}{r['ratio']:>8.2f}{out:>16}{r['states'] or '-':>9}", flush=True)
    if arguments.record:
        facts = {"date": datetime.date.today().isoformat(), "machine": f"{platform.machine()}, {platform.processor() or 'CPU'}",
                 "command": "python3 bench/rules/run.py --record", "unit": "microseconds a position", "rows": rows}
        (ROOT / "bench" / "record" / "rules-cpu.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
