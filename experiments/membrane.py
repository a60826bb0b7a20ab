"""Membrane proteins: what a residue's features are, and when a predicted topology is right.

A residue's row is: the amino acid, its group, and the mean hydropathy (Kyte and Doolittle's scale) of the 7 and the 19 residues
around it, rounded; 19 is about a helix's way through a membrane.
"""
import random
from itertools import groupby
from pathlib import Path

HYDROPATHY = {"A": 1.8, "R": -4.5, "N": -3.5, "D": -3.5, "C": 2.5, "Q": -3.5, "E": -3.5, "G": -0.4, "H": -3.2, "I": 4.5, "L": 3.8,
              "K": -3.9, "M": 1.9, "F": 2.8, "P": -1.6, "S": -0.8, "T": -0.7, "W": -0.9, "Y": -1.3, "V": 4.2}
GROUPS = {acid: name for name, acids in {"positive": "KRH", "negative": "DE", "polar": "NQST", "small": "GAPC", "aromatic": "FWY",
                                         "aliphatic": "ILVM"}.items() for acid in acids}
WINDOWS = [7, 19]
LEAST_OVERLAP = 5  # residues that a predicted helix shares with its gold helix

TEMPLATE = "experiments/membrane.template"


def mean_hydropathy(residues, at, window):
    around = residues[max(0, at - window // 2):at + window // 2 + 1]
    return sum(HYDROPATHY.get(residue, 0) for residue in around) / len(around)


def rows(protein):
    """protein: [(residue, label)]"""
    residues = [residue for residue, _ in protein]
    return [(residue, GROUPS.get(residue, "other"), *(str(round(2 * mean_hydropathy(residues, at, window))) for window in WINDOWS), label)
            for at, (residue, label) in enumerate(protein)]


# --- topology ------------------------------------------------------------------------------------------------------------------


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
    pairs = list(zip(runs([gold[at] for at in known]), runs([predicted[at] for at in known])))
    same_outline = [run[0] for run in runs([gold[at] for at in known])] == [run[0] for run in runs([predicted[at] for at in known])]
    return same_outline and all(len(g & p) >= min(LEAST_OVERLAP, len(g)) for (label, g), (_, p) in pairs if label == "H")


def topologies(gold_path, predicted_path, samples=1000, seed=1):
    """The share of proteins whose topology is right, with its bootstrap interval."""
    right = [is_right(gold, predicted) for gold, predicted in zip(label_sequences(gold_path), label_sequences(predicted_path), strict=True)]
    draw = random.Random(seed)
    shares = sorted(100 * sum(draw.choices(right, k=len(right))) / len(right) for _ in range(samples))
    tail = round(0.025 * (samples - 1))
    return {"exact topology": {"value": 100 * sum(right) / len(right), "interval": [shares[tail], shares[-1 - tail]]}}
