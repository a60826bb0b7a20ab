"""How each corpus of the data folder becomes labelled sequences: one function a corpus, each gives lists of
(token, label).

The folder is ../shared/data beside the repository, or $REGCCRF_DATA. A corpus that is absent raises Absent, which names
the file that was looked for.
"""
import os
import re
import struct
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("REGCCRF_DATA", ROOT.parent / "shared" / "data"))


class Absent(Exception):
    pass


def read(name):
    path = DATA / name
    if not path.is_file():
        raise Absent(f"no corpus at {path} (set REGCCRF_DATA to the folder that holds {name.split('/')[0]}/)")
    return path.read_text(encoding="utf-8")


def blocks(text):
    """Runs of lines between blank lines, without # comments."""
    block = []
    for line in text.splitlines():
        if not line.strip():
            if block:
                yield block
            block = []
        elif not line.startswith("# "):
            block.append(line)
    if block:
        yield block


def bio_of_brackets(cells):
    """`(ARG0*`, `*`, `*)` become B-ARG0, I-ARG0, I-ARG0. The verb's own span V is O: the predicate is given."""
    labels, role = [], None
    for cell in cells:
        opening = re.match(r"\(([^*()]+)\*", cell)
        if opening:
            if role:
                raise ValueError(f"{cell} opens inside {role}")
            role = opening.group(1)
        is_verb = role == "V"
        labels.append("O" if role is None or is_verb else ("B-" if opening else "I-") + role)
        if cell.endswith(")"):
            role = None
    return labels


def labels(sequences):
    return [[label for _, label in sequence] for sequence in sequences]


def srl(split):
    """One sequence a predicate: BIO over its roles."""
    sequences = []
    for block in blocks(read(f"srl_ewt/ewt_srl.{split}.conll")):
        rows = [line.split("\t") for line in block]
        words = [row[1] for row in rows]
        for column in range(9, len(rows[0])):
            sequences.append(list(zip(words, bio_of_brackets([row[column] for row in rows]))))
    return sequences


def ner(name):
    """One sequence a sentence: the first and the last column."""
    cells = [[line.split("\t") for line in block] for block in blocks(read(f"ner/{name}"))]
    return [[(row[0].strip(), row[-1].strip()) for row in rows] for rows in cells]


def citations(name):
    """The label of a token is the name of its field. A field's tokens are its words between blanks."""
    dataset = ElementTree.fromstring(read(f"citations/anystyle_{name}.xml"))
    return [[(word, field.tag) for field in entry for word in "".join(field.itertext()).split()] for entry in dataset]


def addresses(name):
    """One label for each token."""
    collection = ElementTree.fromstring(read(f"addresses/usaddress_{name}_labeled.xml"))
    return [[((token.text or "").strip(), token.tag) for token in address] for address in collection]


def proteins(name):
    """One label for each residue. U, unknown, stays as it is."""
    lines = read(f"protein/tmbed_{name}.fasta").split()
    return [list(zip(residues, labels)) for residues, labels in zip(lines[1::3], lines[2::3])]


def genes():
    """One label for each base."""
    lines = read("genes/celegans_smallgenes.labels.txt").splitlines()
    return [list(zip(lines[i + 1], lines[i + 2])) for i in range(0, len(lines), 3) if lines[i].startswith(">")]


def write_vectors(path):
    """Word vectors as text: the word, then its numbers."""
    name, dimensions = "embeddings/glove6B_100d_subset", 100
    words = read(f"{name}.words.txt").split("\n")
    rows = struct.iter_unpack(f"<{dimensions}e", (DATA / f"{name}.f16").read_bytes())
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as out:
        for word, row in zip(words, rows):
            out.write(word + "".join(f" {number:.4g}" for number in row) + "\n")
