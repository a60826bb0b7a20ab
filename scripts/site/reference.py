#!/usr/bin/env python3
"""The API reference as Markdown: reference.py python|cpp prints a page.

Python: signatures and docstrings, of modules as their sources have them and of the compiled module as it is built (build/python).
C++: every public header, its opening comment as text and its declarations as code; what is private is left out.
"""
import ast
import inspect
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "regccrf"
HEADERS = ROOT / "include" / "regccrf"

# --- docstrings -----------------------------------------------------------------------------------------------------------


def arguments(lines):
    """`name: text` lines of an Args section, further lines indented, as a list."""
    items = []
    for line in lines:
        if re.match(r"    \S", line):
            name, _, text = line.strip().partition(": ")
            items.append(f"- `{name}`: {text}")
        else:
            items[-1] += " " + line.strip()
    return items


def markdown(docstring):
    """A docstring as Markdown: examples become code, Args a list."""
    out, paragraphs = [], re.split(r"\n\s*\n", inspect.cleandoc(docstring))
    for paragraph in paragraphs:
        lines = paragraph.splitlines()
        first = next((i for i, line in enumerate(lines) if line.startswith(">>>")), len(lines))
        text, example = lines[:first], lines[first:]
        if text and text[0] == "Args:":
            out += arguments(text[1:])
        else:
            out += text
        if example:
            out += ["", "```pycon", *example, "```"]
        out.append("")
    return out


# --- Python ---------------------------------------------------------------------------------------------------------------


def call(node):
    """`name(arguments)` as it is called: without self or cls, over several lines where it is long."""
    arguments_ = [*node.args.posonlyargs, *node.args.args]
    without = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0].args
    if arguments_ and arguments_[0].arg in ("self", "cls"):
        (without.posonlyargs or without.args).pop(0)
    each = ast.unparse(without)
    if len(each) + len(node.name) < 80:
        return f"{node.name}({each})"
    return f"{node.name}(\n    " + ",\n    ".join(at_commas(each)) + ")"


def at_commas(text):
    """Cut at the commas that are in no bracket."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def is_property(node):
    return any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)


def of_source(path, names=None):
    """The public functions and classes of a module's source that have a docstring, or `names` alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    out = []
    for node in tree.body:
        wanted = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_") and ast.get_docstring(node)
        if not wanted or (names and node.name not in names):
            continue
        if isinstance(node, ast.FunctionDef):
            out += [f"### {node.name}", "", "```python", call(node), "```", "", *markdown(ast.get_docstring(node))]
        else:
            out += of_class(node)
    return out


def of_class(node):
    methods = [m for m in node.body if isinstance(m, ast.FunctionDef)]
    made = next((call(m)[len("__init__"):] for m in methods if m.name == "__init__"), "")
    out = [f"### {node.name}", "", "```python", f"class {node.name}{made}", "```", "", *markdown(ast.get_docstring(node))]
    for m in methods:
        if m.name.startswith("_") or not ast.get_docstring(m):
            continue
        out += [f"#### {node.name}.{m.name}", "", "```python", m.name if is_property(m) else call(m), "```", "", *markdown(ast.get_docstring(m))]
    return out


def of_compiled(names):
    """The same for classes of the compiled module: docstrings as it is built, signatures from its stub."""
    import regccrf
    stub = {node.name: node for node in ast.parse((PACKAGE / "_core.pyi").read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)}
    out = []
    for name in names:
        cls = getattr(regccrf, name)
        methods = {m.name: m for m in stub[name].body if isinstance(m, ast.FunctionDef) and not is_property(m)} if name in stub else {}
        out += [f"### {name}", "", *markdown(cls.__doc__ or "")]
        for member, value in sorted(vars(cls).items()):
            doc = getattr(getattr(value, "__func__", value), "__doc__", None)
            if member.startswith("_") or isinstance(value, str) or not isinstance(doc, str) or not doc.strip():
                continue
            shown = call(methods[member]) if member in methods else member
            out += [f"#### {name}.{member}", "", "```python", shown, "```", "", *markdown(doc)]
    return out


def python_page():
    shown = {"__init__", "inference", "tagger"}  # as part of regccrf, or no library
    modules = sorted(path for path in PACKAGE.glob("*.py") if path.stem not in shown and not path.stem.startswith("_"))
    out = ["# Python reference", "", "Made from the docstrings. Their examples run in the tests.", "", "## regccrf", ""]
    out += markdown(ast.get_docstring(ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))))
    out += of_source(PACKAGE / "__init__.py")
    out += of_compiled(["Language", "Constraint", "Labels", "Membership", "Limits", "Error", "LimitError", "Model"])
    for heading, stem in [("Inference on arrays", "inference"), ("Training and tagging", "tagger")]:
        out += [f"### {heading}", "", *markdown(docstring_of(PACKAGE / f"{stem}.py")), *of_source(PACKAGE / f"{stem}.py")]
    for path in modules:
        out += [f"## regccrf.{path.stem}", "", *markdown(docstring_of(path)), *of_source(path)]
        for private, names in imported(path):
            out += of_source(private, names)
    return out


def docstring_of(path):
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def imported(path):
    """What a module has in its __all__ from private modules: (path, names) for each."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    shown = next((ast.literal_eval(node.value) for node in tree.body
                  if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)), [])
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (PACKAGE / f"{node.module}.py").exists() and node.module.startswith("_"):
            names = {alias.name for alias in node.names} & set(shown)
            if names:
                yield PACKAGE / f"{node.module}.py", names


# --- C++ ------------------------------------------------------------------------------------------------------------------

# In reading order; headers that are not named here come last.
ORDER = ["language", "constraint", "labels", "automaton", "automaton_file", "scores", "inference", "loss", "torch", "cuda", "error",
         "sentences", "extract", "names", "dataset", "model", "tagger", "trainer", "evaluate", "crfsuite", "bigram_fst"]


def opening(lines):
    """The opening comment as Markdown, and how many lines it has."""
    out, code = [], False
    for number, line in enumerate(lines):
        if not line.startswith("//"):
            return [*out, *(["```"] if code else []), ""], number
        text = line[2:]
        if text.startswith("   ") != code and (text.strip() or code):
            out += ["```", ""] if code else ["", "```cpp"]
            code = not code
        out.append(text[3:] if code else text.strip())
    return out, len(lines)


def public(lines):
    """Declarations without includes, forward declarations, and what is private: members, and the inner namespace of torch.h."""
    out, end = [], None  # end: what ends a private part
    for line in lines:
        end = {" private:": "};", "namespace torch_layer {": "}  // namespace torch_layer"}.get(line, end)
        if end and line.startswith(end):
            end = None
        is_named = re.match(r"#|}  // namespace|namespace |(struct|class) \w+;", line)
        if not end and not is_named and not re.search(r"\bImpl\b|// internal", line):
            out.append(line)
    return re.sub(r"\n+(\n\n|\n};)", r"\1", "\n".join(out)).strip()


def cpp_page():
    stems = {path.stem for path in HEADERS.glob("*.h")} - {"regccrf"}
    out = ["# C++ reference", "", "Made from the public headers, `#include <regccrf/…>`; `<regccrf/regccrf.h>` includes all but `torch.h` "
           "and `cuda.h`. Everything is in the namespace `regccrf`. The examples are compiled and run by the tests.", ""]
    for stem in [*(s for s in ORDER if s in stems), *sorted(stems - set(ORDER))]:
        lines = (HEADERS / f"{stem}.h").read_text(encoding="utf-8").splitlines()
        text, used = opening(lines)
        text = [re.sub(r"\bdocs/(\w+)\.md", r"[\1.md](../\1.md)", line) for line in text]
        out += [f"## {stem}.h", "", *text, "```cpp", public(lines[used:]), "```", ""]
    return out


if __name__ == "__main__":
    print("\n".join({"python": python_page, "cpp": cpp_page}[sys.argv[1]]()))
