"""Membrane proteins: what a residue's features are, and when a predicted topology is right.

A residue's row is: the amino acid; its group; the mean hydropathy (Kyte and Doolittle's scale) of the 7 and of the 19
residues around it, rounded (19 is about a helix's way through a membrane); how many of the 15 around it are positive,
and how many negative (loops inside the cell have more of the first: von Heijne's rule); and how far the nearer end of
the chain is, doubling.
"""
from itertools import groupby
from pathlib import Path

HYDROPATHY = {"A": 1.8, "R": -4.5, "N": -3.5, "D": -3.5, "C": 2.5, "Q": -3.5, "E": -3.5, "G": -0.4, "H": -3.2, "I": 4.5,
              "L": 3.8, "K": -3.9, "M": 1.9, "F": 2.8, "P": -1.6, "S": -0.8, "T": -0.7, "W": -0.9, "Y": -1.3, "V": 4.2}
ACIDS = {"positive": "KRH", "negative": "DE", "polar": "NQST", "small": "GAPC", "aromatic": "FWY", "aliphatic": "ILVM"}
GROUPS = {acid: name for name, acids in ACIDS.items() for acid in acids}
LEAST_OVERLAP = 5  # residues that a predicted helix shares with its gold helix

TEMPLATE = "experiments/membrane.template"


def around(residues, at, window):
    return residues[max(0, at - window // 2):at + window // 2 + 1]


def hydropathy(residues):
    return str(round(2 * sum(HYDROPATHY.get(residue, 0) for residue in residues) / len(residues)))


def charges(residues, kind):
    return str(sum(residue in kind for residue in residues))


def row(residues, at, label):
    residue, near = residues[at], around(residues, at, 15)
    end = min(at, len(residues) - 1 - at)
    side = "N" if at < len(residues) / 2 else "C"
    return (residue, GROUPS.get(residue, "other"),
            hydropathy(around(residues, at, 7)), hydropathy(around(residues, at, 19)),
            charges(near, "KR"), charges(near, "DE"), side + str(end.bit_length()), label)


def rows(protein):
    """protein: [(residue, label)]"""
    residues = [residue for residue, _ in protein]
    return [row(residues, at, label) for at, (_, label) in enumerate(protein)]


# --- topology -------------------------------------------------------------------------------------------------------


def label_sequences(path):
    sequences = [[]]
    for line in Path(path).read_text().splitlines():
        if line.strip():
            sequences[-1].append(line.split("\t")[-1])
        elif sequences[-1]:
            sequences.append([])
    return [sequence for sequence in sequences if sequence]


def runs(labels):
    """(label, positions) of each run; both kinds of helix are one."""
    numbered = [("H" if label == "h" else label, at) for at, label in enumerate(labels)]
    return [(label, {at for _, at in run}) for label, run in groupby(numbered, key=lambda pair: pair[0])]


def is_right(gold, predicted):
    """Over the residues whose gold is known: the same runs in the same order, and every helix where it should be."""
    known = [at for at, label in enumerate(gold) if label != "U"]
    gold_runs, predicted_runs = (runs([labels[at] for at in known]) for labels in (gold, predicted))
    same_outline = [label for label, _ in gold_runs] == [label for label, _ in predicted_runs]
    helices = [(g, p) for (label, g), (_, p) in zip(gold_runs, predicted_runs) if label == "H"]
    return same_outline and all(len(g & p) >= min(LEAST_OVERLAP, len(g)) for g, p in helices)


def topologies(gold_path, predicted_path):
    """Whether each protein's topology is right."""
    pairs = zip(label_sequences(gold_path), label_sequences(predicted_path), strict=True)
    return [is_right(gold, predicted) for gold, predicted in pairs]
