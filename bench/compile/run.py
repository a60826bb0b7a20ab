#!/usr/bin/env python3
"""What compiling costs: python3 bench/compile/run.py [--before PROGRAM] [--limits] [--record]

Compiles the patterns of patterns.py, each in a process of its own, and gives processor time and peak memory against the states of what
comes out; with --before, those of another build of the program beside them. With --limits, hostile patterns instead, once under
--max-seconds and once under --max-memory: how much of the limit each took.

Time is that of the processor: it hardly depends on what else the machine does. The whole process counts, which takes some 8 MB before
anything is compiled. --record writes bench/record/compile-cpu.json and .md.
"""
import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from patterns import HOSTILE, REALISTIC
from process import compiled, with_file

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "bench" / "record"
MOST_STATES, MOST_SECONDS, MOST_MEGABYTES = 10_000, 1, 300  # the goal: within the latter two where there are at most so many states
LIMIT_SECONDS, LIMIT_MEGABYTES, TOLERANCE = 5, 200, 1.2
BEFORE_SECONDS = 20  # --max-seconds of the build before, which does not always hold


def meets_goal(row):
    return row["states"] is not None and (row["states"] > MOST_STATES or
                                          (row["seconds"] < MOST_SECONDS and row["megabytes"] < MOST_MEGABYTES))


def cell(row):
    return f"{row['seconds']:.2f} s, {row['megabytes']:.0f} MB" + ("" if row["states"] is not None else ", error")


def realistic(program, before):
    rows = []
    for name, pattern in REALISTIC.items():
        now = with_file(pattern, lambda path: compiled(program, path))
        old = with_file(pattern, lambda path: compiled(before, path, "--max-seconds", str(BEFORE_SECONDS))) if before else None
        if old and old["states"] is not None and not now["rules"] and (old["states"], old["arcs"]) != (now["states"], now["arcs"]):
            print(f"{name}: {old['states']} states and {old['arcs']} arcs before, {now['states']} and {now['arcs']} now", file=sys.stderr)
        rows.append({"name": name, "now": now, "before": old})
        print(f"{name}: {cell(now)}" + (f"; before {cell(old)}" if old else ""), file=sys.stderr)
    return rows


def realistic_table(rows):
    lines = ["| pattern | states | arcs | rules kept | now | before |", "|---|---|---|---|---|---|"]
    for row in rows:
        now, old = row["now"], row["before"]
        lines.append(f"| {row['name']} | {now['states']:,} | {now['arcs']:,} | {now['rules'] or ''} | {cell(now)} | {cell(old) if old else '–'} |")
    missed = [row["name"] for row in rows if not meets_goal(row["now"])]
    lines.append(f"\n{len(rows)} patterns; with at most {MOST_STATES:,} states and not under {MOST_SECONDS} s and {MOST_MEGABYTES} MB: "
                 + (", ".join(missed) or "none") + ".")
    return lines


def limits(program):
    large = ["--max-states", "1000000000", "--max-arcs", "1000000000"]
    rows = []
    for name, pattern in HOSTILE.items():
        timed = with_file(pattern, lambda path: compiled(program, path, *large, "--max-memory", "16000", "--max-seconds", str(LIMIT_SECONDS)))
        spaced = with_file(pattern, lambda path: compiled(program, path, *large, "--max-memory", str(LIMIT_MEGABYTES), "--max-seconds", "20"))
        rows.append({"name": name, "time": timed, "memory": spaced})
        print(f"{name}: {timed['elapsed']:.2f} s of {LIMIT_SECONDS}, {spaced['megabytes']:.0f} MB of {LIMIT_MEGABYTES}", file=sys.stderr)
    return rows


def limits_table(rows):
    lines = [f"| pattern | by the clock, of {LIMIT_SECONDS} s | ratio | peak, of {LIMIT_MEGABYTES} MB | ratio |", "|---|---|---|---|---|"]
    passed = []
    for row in rows:
        elapsed, megabytes = row["time"]["elapsed"], row["memory"]["megabytes"]
        lines.append(f"| {row['name']} | {elapsed:.2f} s | {elapsed / LIMIT_SECONDS:.2f} | {megabytes:.0f} MB | {megabytes / LIMIT_MEGABYTES:.2f} |")
        if elapsed > TOLERANCE * LIMIT_SECONDS or megabytes > TOLERANCE * LIMIT_MEGABYTES:
            passed.append(row["name"])
    lines.append(f"\n{len(rows)} patterns; past {TOLERANCE} times a limit: " + (", ".join(passed) or "none") + ".")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build" / "regccrf", type=Path, help="the program that is measured")
    parser.add_argument("--before", type=Path, help="another build of it, to compare with")
    parser.add_argument("--limits", action="store_true", help="hostile patterns and their limits instead")
    parser.add_argument("--record", action="store_true", help="write bench/record")
    options = parser.parse_args()
    rows = limits(options.program) if options.limits else realistic(options.program, options.before)
    lines = limits_table(rows) if options.limits else realistic_table(rows)
    print("\n".join(lines))
    if not options.record:
        return
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    stem = RECORD / ("compile-limits" if options.limits else "compile-cpu")
    head = {"date": str(datetime.date.today()),
            "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, load average {os.getloadavg()[1]:.0f}",
            "commit": commit, "command": "bench/compile/run.py" + (" --limits" if options.limits else "")}
    stem.with_suffix(".json").write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")
    title = "# Limits of compiling" if options.limits else "# Compiling"
    stem.with_suffix(".md").write_text("\n".join([title, "", f"{head['date']}, {head['machine']}, commit {commit}, `{head['command']}`", "",
                                                  *lines]) + "\n")


if __name__ == "__main__":
    main()
