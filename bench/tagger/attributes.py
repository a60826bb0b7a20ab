"""Makes a CRFsuite attribute file of a CoNLL file: one token a line, its label, then attributes for the word, its
shape, affixes and neighbours. What both programs of the benchmark read.

    attributes.py CONLL > ATTRIBUTES
"""

import re
import sys


def sentences(path):
    """Lists of (word, label); the word is the first column, the label the last."""
    rows = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            columns = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
            if len(columns) >= 2 and columns[0].strip():
                rows.append((columns[0].strip(), columns[-1].strip()))
            elif rows:
                yield rows
                rows = []
    if rows:
        yield rows


def shape(word):
    return re.sub(r"(.)\1+", r"\1", re.sub(r"[a-z]", "x", re.sub(r"[A-Z]", "X", re.sub(r"[0-9]", "d", word))))


def escape(text):
    return text.replace("\\", "\\\\").replace(":", "\\:")


def attributes(words, t):
    word = words[t]
    yield "bias"
    yield f"w={word}"
    yield f"l={word.lower()}"
    yield f"s={shape(word)}"
    for n in range(1, 5):
        yield f"p{n}={word[:n]}"
        yield f"e{n}={word[-n:]}"
    for d in (-2, -1, 1, 2):
        at = t + d
        inside = 0 <= at < len(words)
        yield f"w{d}={words[at].lower()}" if inside else f"w{d}=<>"
        if inside and abs(d) == 1:
            yield f"s{d}={shape(words[at])}"
            yield f"w{min(d, 0)}|{max(d, 0)}={words[min(t, at)].lower()}|{words[max(t, at)].lower()}"


def write(path, out):
    for sentence in sentences(path):
        words = [word for word, _ in sentence]
        for t, (_, label) in enumerate(sentence):
            out.write("\t".join([escape(label)] + [escape(a) for a in attributes(words, t)]) + "\n")
        out.write("\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.reconfigure(encoding="utf-8")
    write(sys.argv[1], sys.stdout)
