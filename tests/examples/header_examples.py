#!/usr/bin/env python3
"""Makes a test of every example in a public header: header_examples.py FOLDER HEADER...

An example is a run of comment lines that are indented by three blanks or more, `//   like this;`. It is C++ if one of
its lines ends in a semicolon, a trailing comment left aside; tables, formulas and patterns have none. An example is
compiled as the body of a function, after its header and regccrf/regccrf.h; what else it needs it declares itself.

FOLDER gets a file NAME_examples.cc for each header, also for those without examples: that they compile alone is worth
knowing too.
"""
import re
import sys
from pathlib import Path

COMMENT = re.compile(r"\s*//   (?P<code>.*)")
STATEMENT = re.compile(r";\s*(//.*)?$")

# A header that is here and has no example is an error: it was lost, or is no longer recognised.
WITH_EXAMPLES = {"dataset.h", "evaluate.h", "inference.h", "language.h", "loss.h", "names.h", "scores.h", "tagger.h", "torch.h", "trainer.h"}


def examples(text):
    """(line number of its first line, its lines) for every example in C++."""
    found, block = [], []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        comment = COMMENT.fullmatch(line)
        if comment:
            block.append(comment["code"])
        elif block:
            if any(map(STATEMENT.search, block)):
                found.append((number - len(block), block))
            block = []
    return found


def source(path, found):
    """The header alone first, then a test an example. Compilers report errors at the example's place in the header."""
    lines = [f'#include "regccrf/{path.name}"', ""]
    if found:
        lines += ["#include <gtest/gtest.h>", "", "#include <cmath>", "", '#include "regccrf/regccrf.h"', ""]
    for number, code in found:
        lines += [f"TEST(HeaderExamples, {path.stem}_line_{number}) {{", "  using namespace regccrf;",
                  f'#line {number} "{path}"', *code, "}", ""]
    return "\n".join(lines)


def main(folder, *headers):
    counts = {}
    for path in map(Path, headers):
        found = examples(path.read_text(encoding="utf-8"))
        counts[path.name] = len(found)
        (Path(folder) / f"{path.stem}_examples.cc").write_text(source(path, found), encoding="utf-8")
    print("Examples in headers:", ", ".join(f"{name} {count}" for name, count in counts.items()))
    lost = [name for name, count in counts.items() if count == 0 and name in WITH_EXAMPLES]
    if lost:
        sys.exit(f"{Path(__file__).name}: no example in C++ was found in {', '.join(lost)}; its lines begin with '//   ', "
                 "and a statement ends in ';'")


if __name__ == "__main__":
    main(*sys.argv[1:])
