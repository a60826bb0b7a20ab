"""Runs the examples in the documents: what a ```console block shows is what the program prints.

In such a block a line `$ command` is run by bash in the repository's root, with the built program on PATH; the lines
up to the next command or the block's end are its output, standard error included. … in an expected line matches anything
on that line. A command goes on over lines that end in a backslash or open a quote that is closed further down. All
blocks of a document share one scratch folder, $TMPDIR, so that an example may write a file and a later one read it.

REGCCRF_PROGRAM names the program, build/regccrf by default.
"""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["docs/language.md", "README.md", "docs/tutorial.md"]
PROGRAM = Path(os.environ.get("REGCCRF_PROGRAM", ROOT / "build" / "regccrf"))
SECONDS = 120


def console_blocks(text):
    """(line number of its first line, its lines) for every ```console block. In a list a block is indented as a whole."""
    block, start, indent = None, 0, 0
    for number, line in enumerate(text.splitlines(), 1):
        if block is None and line.strip() == "```console":
            block, start, indent = [], number + 1, len(line) - len(line.lstrip())
        elif block is not None and line.strip() == "```":
            yield start, block
            block = None
        elif block is not None:
            block.append(line[indent:] if line[:indent].isspace() else line)
    if block is not None:
        raise ValueError(f"the ```console block of line {start - 1} is never closed")


def is_open(command):
    quoted = command.count("'") % 2 == 1
    return quoted or command.endswith("\\")


def examples(text):
    """(line number, command, expected lines) for every `$ command` of the document."""
    for start, lines in console_blocks(text):
        current = None
        for number, line in enumerate(lines, start):
            if current and is_open(current[1]):
                current[1] += "\n" + line
            elif line.startswith("$ "):
                if current:
                    yield tuple(current)
                current = [number, line[2:], []]
            elif current:
                current[2].append(line)
            else:
                raise ValueError(f"line {number}: a console block starts with `$ command`")
        if current:
            yield tuple(current)


def matches(expected, line):
    return re.fullmatch(".*".join(re.escape(piece) for piece in expected.split("…")), line.rstrip()) is not None


def difference(expected, printed):
    """None, or what the document says beside what was printed."""
    while expected and not expected[-1].strip():
        expected = expected[:-1]
    same = len(expected) == len(printed) and all(map(matches, expected, printed))
    return None if same else "\n".join(["the document says:", *expected, "the program printed:", *printed])


def run(command, folder):
    environment = dict(os.environ, PATH=f"{PROGRAM.parent}:{os.environ['PATH']}", TMPDIR=str(folder), LC_ALL="C.UTF-8")
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
    return done.stdout.decode().rstrip("\n").split("\n") if done.stdout.strip() else []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_examples_print_what_the_document_says(document, tmp_path):
    path = ROOT / document
    if not path.is_file():
        pytest.skip(f"there is no {document}")
    if not PROGRAM.is_file():
        pytest.skip(f"there is no program at {PROGRAM}")
    wrong = []
    for number, command, expected in examples(path.read_text(encoding="utf-8")):
        problem = difference(expected, run(command, tmp_path))
        if problem:
            wrong.append(f"{document}:{number}: $ {command}\n{problem}")
    assert not wrong, "\n\n".join(wrong)


def test_a_wrong_output_is_noticed():
    text = "```console\n$ printf 'a\\nb\\n'\na\n…\n$ echo one \\\n  two\none …\n```\n"
    found = list(examples(text))
    assert [(number, expected) for number, _, expected in found] == [(2, ["a", "…"]), (5, ["one …"])]
    assert difference(["a", "…"], ["a", "b"]) is None
    assert difference(["a", "c"], ["a", "b"]) is not None
    assert difference(["a"], ["a", "b"]) is not None
