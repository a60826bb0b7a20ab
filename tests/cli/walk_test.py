"""Documents for newcomers that must not go stale.

The walk in CONTRIBUTING.md names functions and their files: each file is there, each function is defined in it, and none is
longer than a screen. The README.md of a room names every file that is compiled there, and no file that is gone.
"""
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from needs import ROOT

MOST_LINES = 60
STEP = re.compile(r"\d+\. (?P<functions>`[^`]+`(?:, `[^`]+`)*) in `(?P<file>[^`]+)`: ")
FILE = re.compile(r"`([\w./]+\.(?:cc|cu|h))`")


# --- C++, as far as needed

LITERAL = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
BEFORE_BODY = re.compile(r"\s*(?:const\b\s*)?(?:noexcept\b\s*)?(?:->[^;{]*|:(?!:)[^;{]*)?\{")


def without_literals(text):
    """The text without comments and literals, every character that is left in its place."""
    return LITERAL.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def closing(text, start):
    """Where the bracket at `start` is closed."""
    pairs = {"(": ")", "{": "}"}
    opening, end, depth = text[start], pairs[text[start]], 0
    for at in range(start, len(text)):
        depth += (text[at] == opening) - (text[at] == end)
        if depth == 0:
            return at
    raise ValueError("a bracket is never closed")


def bodies_at(text, pattern):
    """(first line, lines) of the bodies of what `pattern` finds, where it is defined there: name, parameters, body."""
    for match in re.finditer(pattern + r"\s*\(", text):
        body = BEFORE_BODY.match(text, closing(text, match.end() - 1) + 1)
        if body:
            start = body.end() - 1
            yield text.count("\n", 0, start) + 1, text.count("\n", start, closing(text, start)) + 1


def bodies(text, function):
    """The same of a function `f`, or `Class::f` that is defined in its class or outside."""
    text = without_literals(text)
    owner, _, name = function.rpartition("::")
    name = r"operator\s*\(\)" if name == "operator()" else re.escape(name)
    if not owner:
        return list(bodies_at(text, rf"(?<![\w.:>]){name}"))
    found = list(bodies_at(text, rf"\b{owner}(?:<[^<>]*>)?::{name}"))
    for match in re.finditer(rf"\b(?:class|struct)\s+{owner}\b[^;{{]*\{{", text):
        start = match.end() - 1
        first = text.count("\n", 0, start)
        found += [(first + line, lines) for line, lines in bodies_at(text[start:closing(text, start)], rf"\b{name}")]
    return found


def test_bodies_are_found_and_measured():
    text = """
int twice(int x);  // { not here
int twice(int x) {
  if (x > 1'000) { return f("}"); }
  return 2 * x;
}
class Box {
  Box(int a) : a_(a) {}
  int get() const { return twice(a_); }
  int more();
  int a_;
};
template <class T>
int Box<T>::more() {
  return get() + 1;
}
"""
    assert bodies(text, "twice") == [(3, 4)]
    assert bodies(text, "Box::get") == [(9, 1)]
    assert bodies(text, "Box::Box") == [(8, 1)]
    assert bodies(text, "Box::more") == [(14, 3)]
    assert bodies(text, "f") == []


# --- the walk

WALKS = {"CONTRIBUTING.md": "From a pattern to a loss",
         "src/inference/cuda/README.md": "A loss on the device, function by function"}


def walk(document="CONTRIBUTING.md"):
    """(function, file) in the order of a document's walk."""
    text = (ROOT / document).read_text()
    section = re.search(rf"^## {WALKS[document]}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    steps = [line for line in section[1].splitlines() if re.match(r"\d+\.", line)]
    for number, line in enumerate(steps, 1):
        match = STEP.match(line)
        assert match and line.startswith(f"{number}. "), f"not `N. function in file: what it does`: {line}"
        for function in re.findall(r"`([^`]+)`", match["functions"]):
            yield function, match["file"]


def test_the_walk_goes_from_pattern_to_loss():
    functions = [function for function, _ in walk()]
    assert len(functions) >= 20
    assert functions[0] == "Language::parse"
    assert functions.index("compile") < functions.index("Constraint::from_automaton") < functions.index("nll")


@pytest.mark.parametrize("function, file", [step for document in WALKS for step in walk(document)])
def test_a_function_of_a_walk_is_there_and_short(function, file):
    assert (ROOT / file).is_file(), f"a walk names {file}, which is not there"
    found = bodies((ROOT / file).read_text(), function)
    assert found, f"a walk names {function}, which {file} does not define"
    for line, lines in found:
        assert lines <= MOST_LINES, f"{file}:{line}: {function} has {lines} lines, and a screen has {MOST_LINES}"


# --- the rooms' READMEs

def check_includes():
    """scripts/check-includes, which knows the rooms."""
    loader = SourceFileLoader("check_includes", str(ROOT / "scripts" / "check-includes"))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


CHECK = check_includes()
ROOMS = [room for room in CHECK.ROOMS if (ROOT / "src" / room).is_dir()]


def files_of(room, *extensions):
    """Files of a room, those in folders of its own included, and without those of rooms within it."""
    files = sorted(path for ext in extensions for path in (ROOT / "src" / room).rglob(f"*.{ext}"))
    return [path for path in files if CHECK.room_of(str(path.relative_to(ROOT))) == room]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_names_its_files(room):
    readme = ROOT / "src" / room / "README.md"
    assert readme.is_file(), f"src/{room} has no README.md"
    named = FILE.findall(readme.read_text())
    compiled = files_of(room, "cc", "cu") or files_of(room, "h")
    missing = {path.stem for path in compiled} - {Path(name).stem for name in named}
    assert not missing, f"src/{room}/README.md does not name {', '.join(sorted(missing))}"
    places = [readme.parent, ROOT / "src", ROOT / "include", ROOT]
    gone = [name for name in named if not any((place / name).is_file() for place in places)]
    assert not gone, f"src/{room}/README.md names {', '.join(gone)}, which is not there"
