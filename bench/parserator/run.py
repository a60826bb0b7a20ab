#!/usr/bin/env python3
"""usaddress and probablepeople, theirs and ours: python3 bench/parserator/run.py [FILES] [--record]

FILES are labelled strings as parserator keeps them (XML: AddressCollection or NameCollection), or plain text with a string a line, for which
--as says whose they are. By default they are usaddress's own training and test addresses, beside the repository. For each file and each of
the two: strings, errors of `tag`, exact answers (`tag` does not raise, and every label is the labelled one), exact labels (of `parse`,
which never raises), and strings a second of processor time by `tag`, one thread, best of --repeats. Before anything is timed, ours must
give theirs' answer wherever theirs does not raise.

Needs usaddress, probablepeople and python-crfsuite: pip install usaddress==0.5.16 probablepeople==0.5.6
"""
import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import List, NamedTuple, Optional
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "build" / "python"))
from regccrf import parserator  # noqa: E402

COLLECTIONS = {"AddressCollection": "usaddress", "NameCollection": "probablepeople"}
BESIDE = ROOT.parent / "shared" / "data" / "addresses"
DEFAULT = [BESIDE / "usaddress_training_labeled.xml", BESIDE / "usaddress_measure_performance_test_data_labeled.xml"]


class Item(NamedTuple):
    text: str
    labels: Optional[List[str]]  # None: not known


def read(path, default):
    """The package that a file is for, and its strings."""
    text = Path(path).read_text(encoding="utf-8")
    if not text.lstrip().startswith("<"):
        return default, [Item(line, None) for line in text.splitlines() if line.strip()]
    collection = ElementTree.fromstring(text)
    if collection.tag not in COLLECTIONS:
        sys.exit(f"run.py: {path} is a {collection.tag}, expected {' or '.join(COLLECTIONS)}")
    return COLLECTIONS[collection.tag], [Item("".join(one.itertext()), [token.tag for token in one]) for one in collection]


def answers(package, items, error):
    """What `tag` says; None where it raises."""
    def one(text):
        try:
            return package.tag(text)
        except error:
            return None
    return [one(item.text) for item in items]


def seconds(package, items, error, repeats):
    best = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        answers(package, items, error)
        best = min(best, time.process_time() - begin)
    return best


def measure(package, items, found, error, repeats):
    exact = [item.labels == [label for _, label in package.parse(item.text)] for item in items if item.labels is not None]
    answered = [answer is not None for answer, item in zip(found, items) if item.labels is not None]
    share = lambda hits: sum(hits) / len(exact) if exact else None
    return {"strings": len(items), "errors": found.count(None), "exact answers": share([a and b for a, b in zip(exact, answered)]),
            "exact labels": share(exact), "strings a second": len(items) / seconds(package, items, error, repeats)}


def compare(path, default, repeats):
    name, items = read(path, default)
    ours = getattr(parserator, name)
    theirs, error = ours.theirs, ours.RepeatedLabelError
    their_answers, our_answers = answers(theirs, items, error), answers(ours, items, error)
    different = [item.text for item, a, b in zip(items, their_answers, our_answers) if a is not None and a != b]
    if different:
        sys.exit(f"run.py: {path}: {len(different)} answers differ, the first for {different[0]!r}")
    return [{"file": Path(path).name, "by": f"{name} {importlib.metadata.version(name)}", **measure(theirs, items, their_answers, error, repeats)},
            {"file": Path(path).name, "by": "regccrf", **measure(ours, items, our_answers, error, repeats)}]


def table(rows):
    show = {float: lambda x: f"{100 * x:.1f} %", int: str, str: str, type(None): lambda x: "–"}
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    for row in rows:
        cells = [f"{value:,.0f}" if key == "strings a second" else show[type(value)](value) for key, value in row.items()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--as", dest="default", choices=sorted(COLLECTIONS.values()), default="usaddress", help="whose strings a text file holds")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="write bench/record/parserator.md and .json")
    arguments = parser.parse_args()
    files = arguments.files or DEFAULT
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        sys.exit(f"run.py: no such file: {', '.join(missing)}")
    rows = [row for path in files for row in compare(path, arguments.default, arguments.repeats)]
    print(table(rows))
    if arguments.record:
        facts = {"date": datetime.date.today().isoformat(), "machine": platform.processor() or platform.machine(), "cores": os.cpu_count(),
                 "python": platform.python_version(), "load": os.getloadavg()[0], "command": "bench/parserator/run.py", "rows": rows}
        record = ROOT / "bench" / "record" / "parserator"
        record.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
        head = ", ".join(f"{key} {facts[key]}" for key in ("date", "machine", "cores", "python", "load"))
        record.with_suffix(".md").write_text(f"# Parsers of addresses and names\n\n{head}; `bench/parserator/run.py`\n\n{table(rows)}\n")


if __name__ == "__main__":
    main()
