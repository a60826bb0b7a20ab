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

import pytest

from needs import PROGRAM, ROOT

DOCUMENTS = ["docs/language.md", "docs/rules.md", "README.md", "docs/tutorial.md", "docs/tagging.md"]
SECONDS = 120

pytestmark = pytest.mark.usefixtures("program")


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
    wrong = []
    for number, command, expected in examples((ROOT / document).read_text(encoding="utf-8")):
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


def rows(text, heading):
    """The cells of the table below a heading, without its two head lines."""
    lines = iter(text[text.index(heading):].splitlines())
    table = []
    for line in lines:
        if line.startswith("|"):
            table.append([cell.strip().strip("`").replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif table:
            break
    return table[2:]


def are_the_same(one, other, folder):
    """Two patterns over A B C D are one language: nothing is in the one and not in the other."""
    differing = f"(({one}) & !({other})) | (({other}) & !({one}))"
    printed = run(f"regccrf compile --labels A,B,C,D,O,B-A,I-A,E-A,S-A,B-B,I-B,E-B,S-B -e '{differing}'", folder)
    return "the language is empty" in "\n".join(printed)


def test_binding_is_as_the_reference_says(tmp_path):
    table = rows((ROOT / "docs/language.md").read_text(encoding="utf-8"), "### Precedence")
    assert len(table) >= 6
    for written, read in table:
        assert are_the_same(written, read, tmp_path), f"{written} is not read as {read}"
    assert not are_the_same("!A B", "!(A B)", tmp_path)


# What the reference says in words about built-ins, as patterns.
MEANINGS = {
    "bio({A B})": "(O | any t in {A B}: B-{t} I-{t}*)*",
    "bioes({A B})": "(O | any t in {A B}: S-{t} | B-{t} I-{t}* E-{t})*",
    "at_least(2, A)": ".* A .* A .*",
    "at_most(2, A)": "!(.* A .* A .* A .*)",
    "exactly(2, A)": "at_least(2, A) & at_most(2, A)",
    "at_least(0, A)": ".*",
    "at_most(0, A)": "[^A]*",
    "at_least(2, A B | C)": ".* (A B | C) .* (A B | C) .*",
    "at_most(1, A B*)": "at_most(1, A)",
    "exactly(1, A A)": "at_least(1, A A) & at_most(1, A A)",
    "before(A, B)": "!([^A]* B .*)",
    "before(A A, B C)": "!(!(.* A A .*) B C .*)",
    "requires(A, B)": "[^A]* | .* B .*",
    "requires(A A, B C)": "!(.* A A .*) | .* B C .*",
    "ordered(A, B, C)": "!(.* B .* A .*) & !(.* C .* A .*) & !(.* C .* B .*)",
    "ordered(A B, C)": "!(.* C .* A B .*)",
    "once_contiguous(A)": "[^A]* A* [^A]*",
    "once_contiguous(A B)": "!(.* A B .*) (A B)* !(.* A B .*)",
    "once_contiguous([A B])": "[^A B]* [A B]* [^A B]*",
}


@pytest.mark.parametrize("call", MEANINGS)
def test_built_ins_mean_what_the_reference_says(call, tmp_path):
    assert are_the_same(call, MEANINGS[call], tmp_path)


def test_readme_shows_the_example_as_it_is():
    example = (ROOT / "examples" / "best_sequence.cc").read_text()
    assert "```cpp\n" + example + "```\n" in (ROOT / "README.md").read_text()
