#!/usr/bin/env python3
"""Span precision, recall and F1 by the conventions of the CoNLL-2005 scorer, srl-eval.pl of srlconll-1.1.

An argument is a labelled span. Spans C-X are further pieces of the last argument X before them, and that argument is
right only if all its pieces are; a C-X without an X before it counts as an X. R-X is a label like any other. V, the
predicate, is counted apart and is not part of the overall figures. Embedded spans are treated as that script treats
them: the inner ones are arguments of their own and also pieces of the outer one.

    score.py GOLD PREDICTED          the script's table, digit for digit
    score.py GOLD PREDICTED --json

Both files are columns: the predicate or "-", then one column per predicate, `(A0*`, `*`, `*)`; a blank line after each
sentence. In programs: `Score().add(gold, predicted)` with spans (start, end, role), for every predicate.
"""
from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass, field
from typing import Dict, Iterable, Iterator, List, Sequence, TextIO, Tuple

Span = Tuple[int, int, str]  # first word, last word, role

EXCLUDED = "V"
_OPENING = re.compile(r"\(((?:\\\*|[^*(])+)")
_CLOSING = re.compile(r"([^)]*)\)")


@dataclass
class Argument:
    """A span; `pieces` are those of a discontinuous argument, and spans embedded in it. A continuous one has none."""
    start: int
    end: int
    role: str
    pieces: List[Argument] = field(default_factory=list)

    def continue_with(self, piece: Argument) -> None:
        if not self.pieces:
            self.pieces.append(Argument(self.start, self.end, self.role))
        self.pieces.append(piece)
        self.end = piece.end

    def equals(self, other: Argument) -> bool:
        """For arguments of the same start and end."""
        if bool(self.pieces) != bool(other.pieces) or self.role != other.role:
            return False
        left = {(piece.start, piece.end) for piece in self.pieces}
        for piece in other.pieces:
            if (piece.start, piece.end) not in left:
                return False
            left.remove((piece.start, piece.end))
        return not left


def phrases_of_brackets(cells: Sequence[str]) -> List[Argument]:
    """The spans of a column, by start, the longer first. Of two with the same words the inner one remains."""
    found: Dict[Tuple[int, int], Argument] = {}
    open_phrases: List[Argument] = []

    def keep(phrase: Argument) -> None:
        found[phrase.start, phrase.end] = phrase
        for inner in phrase.pieces:
            keep(inner)

    for position, cell in enumerate(cells):
        rest = cell
        while not rest.startswith("*"):
            opening = _OPENING.match(rest)
            if not opening:
                raise ValueError(f"word {position + 1}: {cell!r} is not a bracketed cell such as (A0*, * or *)")
            open_phrases.append(Argument(position, position, opening.group(1)))
            rest = rest[opening.end():]
        rest = rest[1:]
        while rest:
            closing = _CLOSING.match(rest)
            if not closing:
                raise ValueError(f"word {position + 1}: {cell!r} has something other than ) behind its *")
            if not open_phrases:
                raise ValueError(f"word {position + 1}: {cell!r} closes a span, and none is open")
            phrase = open_phrases.pop()
            if closing.group(1) not in ("", "0", phrase.role):
                raise ValueError(f"word {position + 1}: {cell!r} closes {closing.group(1)}, and {phrase.role} is open")
            phrase.end = position
            rest = rest[closing.end():]
            if open_phrases:
                open_phrases[-1].pieces.append(phrase)
            else:
                keep(phrase)
    if open_phrases:
        raise ValueError(f"{open_phrases[-1].role}, opened at word {open_phrases[-1].start + 1}, is not closed")
    return sorted(found.values(), key=lambda phrase: (phrase.start, -phrase.end))


def arguments(phrases: Iterable[Argument]) -> List[Argument]:
    """Joins continuations to what they continue."""
    result: List[Argument] = []
    latest: Dict[str, Argument] = {}
    for phrase in phrases:
        if phrase.role.startswith("C-"):
            head = latest.get(phrase.role[2:])
            if head is not None:
                head.continue_with(phrase)
                continue
            phrase.role = phrase.role[2:]
        result.append(phrase)
        latest[phrase.role] = phrase
    return result


def arguments_of_spans(spans: Iterable[Span]) -> List[Argument]:
    """The same for spans that do not overlap."""
    return arguments(Argument(*span) for span in sorted(spans))


@dataclass
class Counts:
    correct: int = 0
    excess: int = 0
    missed: int = 0

    @property
    def precision(self) -> float:
        return 100 * self.correct / (self.correct + self.excess) if self.correct + self.excess else 0.0

    @property
    def recall(self) -> float:
        return 100 * self.correct / (self.correct + self.missed) if self.correct + self.missed else 0.0

    @property
    def f1(self) -> float:
        p, r = self.precision, self.recall
        return (2 * p * r) / (p + r) if p + r > 0 else 0.0

    def figures(self) -> Dict[str, float]:
        return {"correct": self.correct, "excess": self.excess, "missed": self.missed,
                "precision": self.precision, "recall": self.recall, "f1": self.f1}


class Score:
    """Counts over predicates: `overall`, `roles` by role, and `perfect` of `predicates`."""

    def __init__(self) -> None:
        self.overall, self.roles = Counts(), {}
        self.sentences = self.predicates = self.perfect = 0

    def add(self, gold: Iterable[Span], predicted: Iterable[Span]) -> None:
        self.add_arguments(arguments_of_spans(gold), arguments_of_spans(predicted))

    def add_arguments(self, gold: Sequence[Argument], predicted: Sequence[Argument]) -> None:
        wanted = {(argument.start, argument.end): argument for argument in gold}
        perfect = True
        for argument in predicted:
            place = argument.start, argument.end
            if place in wanted and wanted[place].equals(argument):
                del wanted[place]
                self._count(argument.role, "correct")
            else:
                perfect &= self._count(argument.role, "excess")
        for argument in wanted.values():
            perfect &= self._count(argument.role, "missed")
        self.predicates += 1
        self.perfect += perfect

    def _count(self, role: str, what: str) -> bool:
        """Whether the role is an excluded one."""
        for counts in [self.roles.setdefault(role, Counts())] + ([] if role == EXCLUDED else [self.overall]):
            setattr(counts, what, getattr(counts, what) + 1)
        return role == EXCLUDED

    def figures(self) -> Dict[str, object]:
        return {
            **self.overall.figures(),
            "sentences": self.sentences,
            "predicates": self.predicates,
            "perfect": self.perfect,
            "roles": {role: counts.figures() for role, counts in sorted(self.roles.items())},
        }

    def table(self) -> str:
        def line(name: str, counts: Counts) -> str:
            return "%10s   %6d  %6d  %6d   %6.2f  %6.2f  %6.2f" % (
                name, counts.correct, counts.excess, counts.missed, counts.precision, counts.recall, counts.f1)

        rule = "-" * 60
        perfect = 100 * self.perfect / self.predicates if self.predicates else 0
        lines = [
            "Number of Sentences    :      %6d" % self.sentences,
            "Number of Propositions :      %6d" % self.predicates,
            "Percentage of perfect props : %6.2f" % perfect,
            "",
            "%10s   %6s  %6s  %6s   %6s  %6s  %6s" % ("", "corr.", "excess", "missed", "prec.", "rec.", "F1"),
            rule,
            line("Overall", self.overall),
            "-" * 10,
        ]
        lines += [line(role, counts) for role, counts in sorted(self.roles.items()) if role != EXCLUDED]
        lines += [rule] + [line(role, counts) for role, counts in self.roles.items() if role == EXCLUDED] + [rule]
        return "".join(text + "\n" for text in lines)


# --- files -----------------------------------------------------------------------------------------------------------


def blocks(file: TextIO) -> Iterator[Tuple[int, List[List[str]]]]:
    """Of every sentence: its first line's number, and its columns. An empty block (two blank lines) ends the file."""
    columns: List[List[str]] = []
    first = 1
    for number, line in enumerate(file, 1):
        cells = line.split()
        if not cells:
            if not columns:
                if any(rest.strip() for rest in file):
                    where = f"{file.name}:{number}"
                    print(
                        f"score: warning: {where}: a second blank line ends the file; what follows is not scored",
                        file=sys.stderr,
                    )
                return
            yield first, columns
            columns, first = [], number + 1
        for i, cell in enumerate(cells):
            if i == len(columns):
                columns.append([])
            columns[i].append(cell)
    if columns:
        yield first, columns


def propositions(name: str, first: int, columns: List[List[str]]) -> Dict[int, Tuple[str, List[Argument]]]:
    """By position: the predicate and its arguments."""
    targets, rest = columns[0], iter(columns[1:])
    result = {}
    for position, predicate in enumerate(targets):
        if predicate == "-":
            continue
        column = next(rest, None)
        if column is None:
            print(f"score: warning: {name}:{first}: no column of arguments for {predicate}", file=sys.stderr)
        try:
            result[position] = predicate, arguments(phrases_of_brackets(column or []))
        except ValueError as error:
            raise ValueError(f"{name}: sentence at line {first}, predicate {predicate}: {error}") from None
    return result


def score_files(gold: TextIO, predicted: TextIO) -> Score:
    score = Score()
    predicted_blocks = blocks(predicted)
    for first, gold_columns in blocks(gold):
        other, predicted_columns = next(predicted_blocks, (0, None))
        if predicted_columns is None:
            raise ValueError(f"{predicted.name} ends before {gold.name}, which has a sentence at line {first}")
        if len(gold_columns[0]) != len(predicted_columns[0]):
            raise ValueError(f"the sentence at {gold.name}:{first} has {len(gold_columns[0])} words, "
                             f"and at {predicted.name}:{other} {len(predicted_columns[0])}")
        wanted = propositions(gold.name, first, gold_columns)
        given = propositions(predicted.name, other, predicted_columns)
        for position, (predicate, gold_arguments) in wanted.items():
            name, predicted_arguments = given.get(position, ("", []))
            score.add_arguments(gold_arguments, predicted_arguments if name == predicate else [])
        score.sentences += 1
    return score


def main() -> int:
    parser = argparse.ArgumentParser(description="Scores predicted argument spans as srl-eval.pl does.")
    parser.add_argument("gold")
    parser.add_argument("predicted")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    try:
        with open(options.gold, encoding="utf-8") as gold, open(options.predicted, encoding="utf-8") as predicted:
            score = score_files(gold, predicted)
    except (OSError, ValueError) as error:
        print(f"score: error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(score.figures()) if options.json else score.table(), end="\n" if options.json else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
