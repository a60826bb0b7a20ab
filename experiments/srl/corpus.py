"""Corpora with PropBank roles: sentences, and one instance per predicate, whose roles are BIO labels.

Two formats, each with a column of bracketed spans per predicate:
- `ewt`: the English Web Treebank as one token a line, tab-separated: index, form, lemma, UPOS, XPOS, PropBank POS,
  parse bit, frame, roleset, then the predicates' columns; files ewt_srl.{train,dev,test}.conll, also gzipped;
- `conll2012`: CoNLL-2012's files, `*gold_conll` or `*_skel`, anywhere below a folder named as the part (train,
  development, test): document, part, index, form, POS, parse bit, lemma, frameset, sense, speaker, entities,
  predicates' columns, coreference.

V, the predicate's own span, is given with the sentence: it is O. A span inside another one cannot be written as BIO:
the outer one stays.
"""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from score import Span, phrases_of_brackets

PARTS = ("train", "dev", "test")


class Absent(Exception):
    """A corpus that is not there; the message names the file that was looked for."""


@dataclass
class Sentence:
    name: str
    forms: List[str]
    lemmas: List[str]
    pos: List[str]  # PropBank's part of speech
    parse: List[str]  # bits of the tree: `(S(NP*`
    rolesets: List[str]  # `say.01`, or `-`


@dataclass
class Instance:
    """A predicate of a sentence, with its roles."""

    sentence: Sentence
    predicate: int  # position
    spans: List[Span]  # without V, none inside another, by start
    name: str  # sentence and column, for messages


# --- BIO --------------------------------------------------------------------------------------------------------------


def flat(spans: Iterable[Span]) -> List[Span]:
    """Spans by start, without those inside another."""
    result: List[Span] = []
    for span in sorted(spans, key=lambda s: (s[0], -s[1])):
        if not result or span[0] > result[-1][1]:
            result.append(span)
    return result


def bio_of_spans(spans: Iterable[Span], length: int, keep: Optional[Callable[[str], bool]] = None) -> List[str]:
    """One label a word. Roles that `keep` refuses are O."""
    labels = ["O"] * length
    for start, end, role in spans:
        if keep is None or keep(role):
            labels[start : end + 1] = ["B-" + role] + ["I-" + role] * (end - start)
    return labels


def spans_of_bio(labels: Sequence[str]) -> List[Span]:
    """Also of labels that break BIO: an I-X that continues no X begins one."""
    spans: List[Span] = []
    for t, label in enumerate(labels):
        if label == "O":
            continue
        role = label[2:]
        if label[0] == "I" and spans and spans[-1][1:] == (t - 1, role):
            spans[-1] = spans[-1][0], t, role
        else:
            spans.append((t, t, role))
    return spans


def brackets_of_spans(spans: Iterable[Span], length: int) -> List[str]:
    """The column that a scorer reads."""
    cells = ["*"] * length
    for start, end, role in spans:
        cells[start] = f"({role}" + cells[start]
        cells[end] += ")"
    return cells


# --- files ------------------------------------------------------------------------------------------------------------


def read(folder: Path, corpus_format: str, part: str) -> List[Instance]:
    """All instances of a part of a corpus."""
    if part not in PARTS:
        raise ValueError(f"no part {part!r} (expected {', '.join(PARTS)})")
    if corpus_format not in _FORMATS:
        raise ValueError(f"no corpus format {corpus_format!r} (expected {', '.join(_FORMATS)})")
    files, rows_to_instances = _FORMATS[corpus_format]
    return [instance for file in files(Path(folder), part) for instance in rows_to_instances(file)]


def _ewt_files(folder: Path, part: str) -> List[Path]:
    plain = folder / f"ewt_srl.{part}.conll"
    zipped = plain.with_name(plain.name + ".gz")
    for file in (plain, zipped):
        if file.is_file():
            return [file]
    raise Absent(f"there is no {plain} (the folder of the English Web Treebank with PropBank roles goes with --data)")


def _conll2012_files(folder: Path, part: str) -> List[Path]:
    name = {"train": "train", "dev": "development", "test": "test"}[part]
    files = sorted(
        file
        for below in folder.rglob(name)
        if below.is_dir()
        for file in below.rglob("*")
        if file.is_file() and file.name.endswith(("gold_conll", "_skel"))
    )
    # A test part has gold twice where the words are there too: the skeletons are then the same instances again.
    with_words = {file.with_suffix("") for file in files if file.name.endswith("gold_conll")}
    files = [file for file in files if file.name.endswith("gold_conll") or file.with_suffix("") not in with_words]
    if not files:
        raise Absent(f"there is no *gold_conll and no *_skel file in a folder {name!r} below {folder}")
    return files


def _blocks(
    file: Path, separator: Optional[str], is_comment: Callable[[str], bool]
) -> Iterator[Tuple[int, List[str], List[List[str]]]]:
    """Of every sentence: the first row's line number, the comments above it, the rows. All rows are equally long."""
    opened = gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else open(file, encoding="utf-8")
    comments: List[str] = []
    rows: List[List[str]] = []
    first = 0
    with opened as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\r\n")
            if not line.strip():
                if rows:
                    yield first, comments, rows
                comments, rows = [], []
            elif not rows and is_comment(line) or line.startswith("#end document"):
                comments.append(line)
            else:
                first = first if rows else number
                rows.append(line.split(separator))
                if len(rows[-1]) != len(rows[0]):
                    raise ValueError(f"{file}:{number}: {len(rows[-1])} columns, and {len(rows[0])} in the line before")
    if rows:
        yield first, comments, rows


def _ewt_instances(file: Path) -> Iterator[Instance]:
    for first, comments, rows in _blocks(file, "\t", lambda line: line.startswith("# ")):
        if len(rows[0]) < 9:
            raise ValueError(f"{file}:{first}: {len(rows[0])} columns, expected at least 9, separated by tabs")
        name = next((c.split("=", 1)[1].strip() for c in comments if c.startswith("# sent_id")), f"{file.name}:{first}")
        column = list(zip(*rows))
        sentence = Sentence(name, *(list(column[i]) for i in (1, 2, 5, 6, 8)))
        yield from _instances(file, first, sentence, column[7], column[9:])


def _conll2012_instances(file: Path) -> Iterator[Instance]:
    for first, _, rows in _blocks(file, None, lambda line: line.startswith("#begin document")):
        if len(rows[0]) < 12:
            raise ValueError(f"{file}:{first}: {len(rows[0])} columns, expected at least 12, as in CoNLL-2012")
        column = list(zip(*rows))
        rolesets = [f"{lemma}.{sense}" if sense != "-" else "-" for lemma, sense in zip(column[6], column[7])]
        lemmas = [form.lower() if lemma == "-" else lemma for form, lemma in zip(column[3], column[6])]
        sentence = Sentence(
            f"{column[0][0]}:{first}", list(column[3]), lemmas, list(column[4]), list(column[5]), rolesets
        )
        yield from _instances(file, first, sentence, column[7], column[11:-1])


def _instances(
    file: Path, first: int, sentence: Sentence, frames: Sequence[str], columns: Sequence[Sequence[str]]
) -> Iterator[Instance]:
    predicates = [t for t, frame in enumerate(frames) if frame != "-"]
    if len(predicates) != len(columns):
        raise ValueError(f"{file}:{first}: {len(predicates)} predicates, and {len(columns)} columns of spans")
    for i, (predicate, column) in enumerate(zip(predicates, columns)):
        try:
            phrases = phrases_of_brackets(column)
        except ValueError as error:
            raise ValueError(f"{file}:{first}: column {i + 1} of the predicates: {error}") from None
        spans = flat((phrase.start, phrase.end, phrase.role) for phrase in phrases if phrase.role != "V")
        yield Instance(sentence, predicate, spans, f"{sentence.name}, predicate {i + 1}")


_FORMATS = {"ewt": (_ewt_files, _ewt_instances), "conll2012": (_conll2012_files, _conll2012_instances)}


# --- roles ------------------------------------------------------------------------------------------------------------


def role_counts(instances: Iterable[Instance]) -> Dict[str, int]:
    """Spans of each role, the most frequent first."""
    return dict(Counter(role for instance in instances for _, _, role in instance.spans).most_common())


def labels_of_roles(roles: Iterable[str]) -> List[str]:
    return ["O"] + [prefix + role for role in roles for prefix in ("B-", "I-")]


def roles_of_labels(labels: Iterable[str]) -> List[str]:
    return [label[2:] for label in labels if label.startswith("B-")]


def write_props(path: Path, instances: Sequence[Instance], spans: Sequence[Sequence[Span]]) -> None:
    """A file for the scorer: instances of the same sentence side by side. The predicate gets its V where it is free."""
    with open(path, "w", encoding="utf-8") as out:
        i = 0
        while i < len(instances):
            sentence, columns, targets = instances[i].sentence, [], ["-"] * len(instances[i].sentence.forms)
            while i < len(instances) and instances[i].sentence is sentence:
                t = instances[i].predicate
                targets[t] = sentence.rolesets[t]
                taken = any(start <= t <= end for start, end, _ in spans[i])
                columns.append(brackets_of_spans([*spans[i]] + ([] if taken else [(t, t, "V")]), len(targets)))
                i += 1
            for row in zip(targets, *columns):
                out.write("\t".join(row) + "\n")
            out.write("\n")
