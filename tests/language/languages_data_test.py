"""The shipped languages: that they compile, what they promise, and how many gold sequences of real corpora they accept.

The corpora lie beside the repository (experiments/corpora.py says where and how each becomes label sequences); where one is
absent its test is skipped. For every corpus a line of a table is printed: sequences, those all of whose labels the
language knows, and those that it accepts.

REGCCRF_PROGRAM names the program, build/regccrf by default.
"""
import json
import re
import subprocess

import pytest

import corpora
from corpora import ROOT
from needs import PROGRAM

LANGUAGES = sorted((ROOT / "languages").glob("*.lang"))

WITH_RULES = {"address-parts": (29, 29), "citation": (27, 24), "name-parts": (23, 23), "srl-full": (37, 20)}  # rules and memories that are kept

pytestmark = pytest.mark.usefixtures("program")


def language(name):
    return ROOT / "languages" / f"{name}.lang"


def regccrf(*arguments, lines=(), status=0):
    """The lines that the program prints. `lines` are its standard input."""
    text = "".join(line + "\n" for line in lines)
    done = subprocess.run([PROGRAM, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in ({status} if status is not None else {0, 1}), done.stderr
    return done.stdout.splitlines()


def facts(path):
    return json.loads(regccrf("compile", path, "--json")[0])


def answers(path, sequences):
    """For every sequence, what `accept` says about it."""
    lines = regccrf("accept", path, lines=map(" ".join, sequences), status=None)
    assert len(lines) == len(sequences)
    return lines


# --- without data --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LANGUAGES, ids=lambda path: path.stem)
def test_compiles_within_modest_bounds(path):
    size = facts(path)
    assert 0 < size["nodes"] <= 5000
    assert size["products"] <= 100_000


@pytest.mark.parametrize("path", LANGUAGES, ids=lambda path: path.stem)
def test_accepts_its_own_random_sequences(path):
    if path.stem in WITH_RULES:
        pytest.skip("random sequences are drawn from one automaton")
    length = 40
    drawn = regccrf("random", path, "--length", length, "--count", 20, "--seed", 3)
    assert len(drawn) == 20
    assert all(len(line.split()) == length for line in drawn)
    assert set(regccrf("accept", path, lines=drawn)) == {"yes"}


@pytest.mark.parametrize("path", LANGUAGES, ids=lambda path: path.stem)
def test_counts(path):
    if path.stem in WITH_RULES:
        assert regccrf("count", path, "--length", 3, status=2) == []
        return
    labels = facts(path)["labels"]
    assert 0 < int(regccrf("count", path, "--length", 30)[0]) < labels**30


@pytest.mark.parametrize("path", LANGUAGES, ids=lambda path: path.stem)
def test_keeps_rules_where_they_would_multiply(path):
    size = facts(path)
    assert (size["rules"], size["memories"]) == WITH_RULES.get(path.stem, (0, 0))


def test_base_and_rules_are_drawn_side_by_side(tmp_path):
    regccrf("compile", language("srl-full"), "--dot", tmp_path / "drawing.dot")
    text = (tmp_path / "drawing.dot").read_text()
    assert text.count("subgraph cluster_") == 1 + 20
    assert 'label="base"' in text and "at_most(1, B-{r})" in text


def test_even_spans_is_figure_1():
    path = language("even-spans")
    assert answers(path, ["B O B I".split()]) == ["yes"]
    assert answers(path, ["B O O".split()])[0].startswith("no")
    assert facts(path)["states"] <= 4


def test_srl_is_as_small_as_the_papers():
    size = facts(language("srl"))
    assert size["labels"] == 47
    assert size["states"] <= 672
    assert size["arcs"] <= 2592
    assert size["nodes"] <= 1312
    assert size["products"] <= 28768


PROMISES = {
    "bio": ("O B-PER I-PER B-PER O", ["I-PER", "B-PER I-ORG", "O I-LOC"]),
    "bioes": ("S-PER B-ORG I-ORG E-ORG O B-LOC E-LOC", ["B-PER", "I-PER E-PER", "B-PER E-ORG", "B-PER O"]),
    "srl": ("B-ARG0 O B-ARG1 I-ARG1 B-C-ARG1", ["B-ARG0 O B-ARG0", "B-C-ARG1 B-ARG1", "I-ARG0"]),
    "srl-ewt": ("B-ARG0 B-ARG2 O B-C-ARG2 B-ARGM-PRR", ["B-ARG0 O B-ARG0", "B-C-ARG2 B-ARG2", "B-C-ARG1"]),
    "citation-frequent": ("citation-number author author date title journal volume pages doi",
                 ["author citation-number title", "title title date title", "title author", "author title journal container-title",
                  "title pages volume", "title location date publisher"]),
    "address": ("Recipient AddressNumber StreetName StreetName StreetNamePostType OccupancyIdentifier PlaceName StateName ZipCode",
                ["StreetName AddressNumber", "PlaceName StreetName", "USPSBoxID USPSBoxType", "ZipCode PlaceName",
                 "AddressNumber StreetName OccupancyType StreetName"]),
    "address-parts": ("AddressNumber StreetName IntersectionSeparator StreetName PlaceName PlaceName",
                      ["StreetName PlaceName StreetName", "AddressNumber StreetName AddressNumber",
                       "StreetName IntersectionSeparator StreetName PlaceName StreetName"]),
    "citation": ("author title note journal volume url",
                      ["author title note journal note", "url title url", "author citation-number title"]),
    "srl-full": ("B-R-ARG0 B-ARG0 I-ARG0 B-ARGM-TMP B-C-ARG0 B-ARGM-TMP",
                 ["B-ARG5 O B-ARG5", "B-C-ARGM-EXT B-ARGM-EXT", "B-R-ARGM-ADJ", "I-ARG0"]),
    "membrane": ("S S 2 2 H H H H H 1 h h h h h h 2", ["1 S", "1 H H H H 2", "1 H H H H H 1", "1 2", "1 H H H h h h 2", "S"]),
    "gene": ("N U I U 0 1 I I 2 I 0 1 2 U I U N", ["N 0 1 N", "N 0 I 2 N", "N 0 1 I 0 1 2 N", "0 1 2", "N U N", "N I 0 1 2 N"]),
}


@pytest.mark.parametrize("name", PROMISES)
def test_keeps_what_its_comment_promises(name):
    legal, illegal = PROMISES[name]
    assert answers(language(name), [legal.split()]) == ["yes"]
    for line in illegal:
        assert answers(language(name), [line.split()])[0].startswith("no: "), line


# --- on real corpora -----------------------------------------------------------------------------------------------------


def with_types(name, types, folder):
    """The language adapted as its comment says: other types."""
    text, changes = re.subn(r"(?m)^types = .*$", f"types = {{{types}}}", language(name).read_text())
    assert changes == 1
    path = folder / f"{name}.lang"
    path.write_text(text)
    return path


def bioes_of(sequence):
    """BIO rewritten as BIOES."""
    result = []
    for label, following in zip(sequence, sequence[1:] + ["O"]):
        goes_on = following.startswith("I-")
        changed = {"B": "B" if goes_on else "S", "I": "I" if goes_on else "E", "O": "O"}
        result.append(changed[label[0]] + label[1:])
    return result


def report(capsys, name, path, sequences):
    """Prints the table's line and gives (sequences, with known labels only, accepted)."""
    lines = answers(path, sequences)
    unknown = sum("is not a label of the language" in line for line in lines)
    accepted = lines.count("yes")
    with capsys.disabled():
        known, total = len(lines) - unknown, len(lines)
        counts = f"{total:6} sequences, {known:6} known, {accepted:6} accepted ({accepted / total:.2%})"
        print(f"\n  {path.name:15} {name:32} {counts}", end=" ")
    return total, known, accepted


def gold(read, *arguments):
    try:
        return corpora.labels(read(*arguments))
    except corpora.Absent as absent:
        pytest.skip(str(absent))


NER = {
    "BC5CDR-IOB_train.tsv": "Chemical Disease",
    "BC5CDR-IOB_devel.tsv": "Chemical Disease",
    "BC5CDR-IOB_test.tsv": "Chemical Disease",
    "NCBI-disease-IOB_train.tsv": "Disease",
    "NCBI-disease-IOB_devel.tsv": "Disease",
    "NCBI-disease-IOB_test.tsv": "Disease",
    "wnut17_wnut17train.conll": "corporation creative-work group location person product",
    "wnut17_emerging.dev.conll": "corporation creative-work group location person product",
    "wnut17_emerging.test.annotated": "corporation creative-work group location person product",
}


@pytest.mark.parametrize("corpus", NER)
def test_bio_accepts_every_sentence(corpus, capsys, tmp_path):
    total, _, accepted = report(capsys, corpus, with_types("bio", NER[corpus], tmp_path), gold(corpora.ner, corpus))
    assert accepted == total


@pytest.mark.parametrize("corpus", NER)
def test_bioes_accepts_every_sentence_rewritten(corpus, capsys, tmp_path):
    sequences = [bioes_of(sequence) for sequence in gold(corpora.ner, corpus)]
    total, _, accepted = report(capsys, corpus, with_types("bioes", NER[corpus], tmp_path), sequences)
    assert accepted == total


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_srl_ewt_accepts_nearly_all_predicates(split, capsys):
    total, known, accepted = report(capsys, f"srl_ewt {split}", language("srl-ewt"), gold(corpora.srl, split))
    assert accepted == known  # what is refused has a rare role
    assert accepted >= 0.99 * total


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_srl_accepts_the_predicates_whose_roles_it_knows(split, capsys):
    _, known, accepted = report(capsys, f"srl_ewt {split}", language("srl"), gold(corpora.srl, split))
    assert accepted == known


@pytest.mark.parametrize("name, part, floor", [("citation-frequent", "gold", 0.98), ("citation-frequent", "core", 0.955),
                                               ("citation", "gold", 0.97), ("citation", "core", 0.95)])
def test_citation_accepts_most_entries(name, part, floor, capsys):
    total, known, accepted = report(capsys, f"anystyle {part}", language(name), gold(corpora.citations, part))
    assert known == total
    assert accepted >= floor * total


@pytest.mark.parametrize("part, floor", [("training", 0.96), ("measure_performance_test_data", 0.97)])
def test_address_accepts_most_addresses(part, floor, capsys):
    total, known, accepted = report(capsys, f"usaddress {part[:20]}", language("address"), gold(corpora.addresses, part))
    assert known == total
    assert accepted >= floor * total


def test_gene_accepts_all_but_the_eight_incomplete_genes(capsys):
    total, known, accepted = report(capsys, "C. elegans", language("gene"), gold(corpora.genes))
    assert (total, known, accepted) == (1034, 1034, 1026)


def automaton(path, folder):
    """The compiled automaton, by way of its AT&T text: arcs[state] = [(label, state)], start, accepting states."""
    text = folder / "automaton.att"
    regccrf("compile", path, "--fst", text)
    arcs, start, accepting = {}, None, set()
    for line in text.read_text().splitlines():
        fields = line.split("\t")
        start = fields[0] if start is None else start
        if len(fields) == 1:
            accepting.add(fields[0])
        else:
            arcs.setdefault(fields[0], []).append((fields[2], fields[1]))
    return arcs, start, accepting


def can_be_completed(sequence, unknown, arcs, start, accepting):
    """Whether the language has a sequence that agrees with this one wherever it is not `unknown`."""
    states = {start}
    for label in sequence:
        states = {target for state in states for a, target in arcs.get(state, ()) if label in (unknown, a)}
    return bool(states & accepting)


def test_membrane_accepts_all_proteins_when_unknown_may_be_anything(capsys, tmp_path):
    proteins = gold(corpora.proteins, "alpha")
    path = language("membrane")
    whole = [protein for protein in proteins if "U" not in protein]
    report(capsys, "TMbed alpha, without U", path, whole)
    assert set(answers(path, whole)) == {"yes"}
    graph = automaton(path, tmp_path)
    completed = sum(can_be_completed(protein, "U", *graph) for protein in proteins)
    with capsys.disabled():
        name = "TMbed alpha, U may be anything"
        print(f"\n  {path.name:15} {name:32} {len(proteins):6} sequences, {'':13} {completed:6} accepted", end=" ")
    assert completed == len(proteins) == 593


def test_partial_labels_are_checked_against_the_language(tmp_path):
    graph = automaton(language("membrane"), tmp_path)
    assert can_be_completed("1UUUUU2", "U", *graph)
    assert not can_be_completed("1UUUU2", "U", *graph)
    assert not can_be_completed("1HUUUUUS", "U", *graph)
