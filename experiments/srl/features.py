#!/usr/bin/env python3
"""Attributes of a word with respect to a predicate, for a feature-based tagger: a file in CRFsuite's attribute format.

They are those of classical role labelling: the words, lemmas and parts of speech around; the predicate, its sense and
voice; the side and distance; and from the constituency tree the largest constituent that holds the word and not the
predicate, where in it the word stands, and the path from it to the predicate. The tree and the parts of speech are
the corpus's own, by hand.

    experiments/srl/features.py train --roles reduced --output train.txt       roles: full, reduced, rich
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Iterator, List, Optional, Sequence, TextIO

sys.path.insert(0, str(Path(__file__).resolve().parent))

import corpus
from configuration import CONFIGURATIONS
from corpus import Instance, Sentence

BE = {"be", "get"}


@dataclass
class Node:
    """A constituent."""

    label: str
    parent: Optional[Node]
    depth: int
    start: int
    end: int = -1


def leaves(parse: Sequence[str]) -> List[Node]:
    """The smallest constituent around every word. Bits that do not make a tree give a flat one."""
    root = Node("TOP", None, 0, 0, len(parse) - 1)
    at, result = root, []
    for t, bit in enumerate(parse):
        before, _, behind = bit.partition("*")
        for label in re.findall(r"\(([^()*\s]+)", before):
            at = Node(label, at, at.depth + 1, t)
        result.append(at)
        for _ in range(behind.count(")")):
            at.end = t
            at = at.parent or root
    while at is not root:
        at.end, at = len(parse) - 1, at.parent
    return result


def ancestors(node: Node) -> Iterator[Node]:
    at: Optional[Node] = node
    while at is not None:
        yield at
        at = at.parent


def bucket(distance: int) -> str:
    return str(distance) if distance <= 3 else "4-6" if distance <= 6 else "7-12" if distance <= 12 else "13"


def is_passive(sentence: Sentence, predicate: int) -> bool:
    """A participle with a form of `be` or `get` shortly before it, or none at all before it in its noun phrase."""
    if sentence.pos[predicate] != "VBN":
        return False
    for t in range(predicate - 1, max(-1, predicate - 5), -1):
        if sentence.lemmas[t] in BE:
            return True
        if sentence.lemmas[t] == "have" or not sentence.pos[t].startswith(("RB", "TO", "MD", "V")):
            return sentence.lemmas[t] != "have"
    return True


class SentenceView:
    """What all predicates of a sentence share."""

    def __init__(self, sentence: Sentence) -> None:
        self.sentence = sentence
        self.forms = [form.lower() for form in sentence.forms]
        self.leaves = leaves(sentence.parse)

    def at(self, column: Sequence[str], t: int) -> str:
        return "<" if t < 0 else ">" if t >= len(column) else column[t]


def attributes(view: SentenceView, predicate: int) -> List[List[str]]:
    """Of every word: what holds there."""
    s, p = view.sentence, predicate
    lemma, sense, voice = s.lemmas[p], s.rolesets[p], "pas" if is_passive(s, p) else "act"
    above_predicate = list(ancestors(view.leaves[p]))
    depth_of = {id(node): i for i, node in enumerate(above_predicate)}
    result = []
    for t, form in enumerate(view.forms):
        side = "=" if t == p else "<" if t < p else ">"
        largest, common = view.leaves[t], None
        for node in ancestors(view.leaves[t]):
            if id(node) in depth_of:
                common = node
                break
            largest = node
        alone = common is view.leaves[t]  # the word hangs at a node above the predicate
        phrase = s.pos[t] if alone else largest.label
        start, end = (t, t) if alone else (largest.start, largest.end)
        place = "B" if t == start else "I"
        up = depth_of[id(common)]
        path = side + phrase + "^" + "!".join(node.label for node in reversed(above_predicate[: up + 1]))
        head = s.lemmas[start] if phrase in ("PP", "SBAR", "WHPP", "S") else s.lemmas[end]
        far = bucket(abs(t - p))
        pos = s.pos[t]
        result.append(
            [
                "w=" + form,
                "l=" + s.lemmas[t],
                "p=" + pos,
                "w-=" + view.at(view.forms, t - 1),
                "w+=" + view.at(view.forms, t + 1),
                "p-=" + view.at(s.pos, t - 1),
                "p+=" + view.at(s.pos, t + 1),
                f"p--={view.at(s.pos, t - 2)}|{view.at(s.pos, t - 1)}|{pos}",
                f"p++={pos}|{view.at(s.pos, t + 1)}|{view.at(s.pos, t + 2)}",
                f"d={side}{far}",
                f"dp={side}{far}|{pos}",
                f"dv={side}{far}|{lemma}",
                f"sv={side}{voice}|{sense}|{place}",
                f"lp={lemma}|{s.lemmas[t]}",
                f"c={side}{phrase}|{place}",
                f"path={path}|{place}",
                f"pathv={path}|{voice}|{place}",
                f"pathl={path}|{lemma}|{place}",
                f"senses={sense}|{side}{phrase}|{voice}|{place}",
                f"up={side}{phrase}|{up}|{place}",
                f"hc={phrase}|{head}|{place}",
                f"hl={lemma}|{phrase}|{head}|{place}",
                f"first={phrase}|{view.forms[start]}|{place}",
                f"last={phrase}|{view.forms[end]}|{place}",
                f"leaf={view.leaves[t].label}|{pos}|{side}{place}",
                f"len={side}{phrase}|{min(end - start, 8)}|{place}",
                f"pp={s.pos[p]}|{path}|{place}",
                f"wv={form}|{side}|{view.forms[p]}",
            ]
        )
    return result


def escape(attribute: str) -> str:
    """The format's own signs, written as it wants them."""
    return attribute.replace("\\", "\\\\").replace(":", "\\:")


def lines(instances: Iterable[Instance], labels: Sequence[Sequence[Sequence[str]]]) -> Iterator[List[str]]:
    """For every word its line under each of several label sets, and empty lines behind a sequence."""
    view: Optional[SentenceView] = None
    for i, instance in enumerate(instances):
        if view is None or view.sentence is not instance.sentence:
            view = SentenceView(instance.sentence)
        for t, row in enumerate(attributes(view, instance.predicate)):
            text = "\t".join(map(escape, row)) + "\n"
            yield [f"{some[i][t]}\t{text}" for some in labels]
        yield ["\n"] * len(labels)


def write(files: Sequence[TextIO], instances: Sequence[Instance], labels: Sequence[Sequence[Sequence[str]]]) -> None:
    for row in lines(instances, labels):
        for file, line in zip(files, row):
            file.write(line)


def main() -> int:
    from models import Languages, gold_labels

    parser = argparse.ArgumentParser(description="Writes a part of a corpus as attributes, one word a line.")
    parser.add_argument("part", choices=corpus.PARTS)
    parser.add_argument("--configuration", choices=CONFIGURATIONS, default="ewt")
    parser.add_argument("--data", type=Path, help="folder of the corpus")
    parser.add_argument("--roles", choices=("full", "reduced", "rich"), default="reduced")
    parser.add_argument("--limit", type=int, default=0, help="so many instances; 0 for all")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    configuration = CONFIGURATIONS[options.configuration]
    try:
        folder = options.data or configuration.folder
        training = corpus.read(folder, configuration.corpus_format, "train")
        instances = (
            training if options.part == "train" else corpus.read(folder, configuration.corpus_format, options.part)
        )
    except (corpus.Absent, ValueError) as error:
        print(f"features: error: {error}", file=sys.stderr)
        return 2
    instances = instances[: options.limit or None]
    labels = Languages(configuration).labels(options.roles, training)
    with open(options.output, "w", encoding="utf-8") as file:
        write([file], instances, [gold_labels(instances, labels)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
