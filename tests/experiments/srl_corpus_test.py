"""The SRL experiment's corpora, roles and languages: small files written here, and the English Web Treebank where it
is."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

import corpora
import needs
from needs import PROGRAM

EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments" / "srl"
sys.path.insert(0, str(EXPERIMENT))

import corpus  # noqa: E402
from configuration import CONFIGURATIONS  # noqa: E402
from models import MODELS, Languages, gold_labels, is_bio, judge, outside  # noqa: E402

EWT = """\
# sent_id = small-1
1	Peter	Peter	PROPN	NNP	NNP	(TOP(S(NP*)	-	-	(ARG0*)	(ARG0*)
2	saw	see	VERB	VBD	VBD	(VP*	see	see.01	(V*)	*
3	Paul	Paul	PROPN	NNP	NNP	(NP*)	-	-	(ARG1*	*
4	leave	leave	VERB	VB	VB	(VP*)))	leave	leave.01	*)	(V*)

# sent_id = small-2
1	Yes	yes	INTJ	UH	UH	(TOP(INTJ*))	-	-

"""

CONLL2012 = """\
#begin document (bc/small/00/small_0001); part 000
bc/small/00/small_0001  0  0  What  WP  (TOP(S(NP(SBAR(WHNP*)  -  -  -  Speaker  *  (ARG1*  (R-ARG1*)  -
bc/small/00/small_0001  0  1  we  PRP  (S(NP*)  -  -  -  Speaker  *  *  (ARG0*)  (1)
bc/small/00/small_0001  0  2  want  VBP  (VP*))))  want  01  1  Speaker  *  *)  (V*)  -
bc/small/00/small_0001  0  3  matters  VBZ  (VP*)))  matter  01  1  Speaker  *  (V*)  *  -

#end document
"""


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


# --- files ------------------------------------------------------------------------------------------------------------


def test_reads_the_web_treebank(tmp_path):
    write(tmp_path, "ewt_srl.dev.conll", EWT)
    first, second = corpus.read(tmp_path, "ewt", "dev")
    assert first.sentence is second.sentence and first.sentence.forms == ["Peter", "saw", "Paul", "leave"]
    assert (first.predicate, first.spans) == (1, [(0, 0, "ARG0"), (2, 3, "ARG1")])
    assert (second.predicate, second.spans) == (3, [(0, 0, "ARG0")])
    assert first.sentence.rolesets[1] == "see.01" and second.name == "small-1, predicate 2"


def test_reads_the_same_from_a_gzipped_file(tmp_path):
    with gzip.open(tmp_path / "ewt_srl.dev.conll.gz", "wt", encoding="utf-8") as file:
        file.write(EWT)
    assert [i.spans for i in corpus.read(tmp_path, "ewt", "dev")] == [
        [(0, 0, "ARG0"), (2, 3, "ARG1")],
        [(0, 0, "ARG0")],
    ]


@pytest.mark.parametrize("ending", ["gold_conll", "gold_skel"])
def test_reads_conll2012(tmp_path, ending):
    write(tmp_path, f"train/data/english/annotations/bc/small/00/small_0001.{ending}", CONLL2012)
    write(tmp_path, f"development/data/other.{ending}", CONLL2012)
    want, matter = corpus.read(tmp_path, "conll2012", "train")
    assert want.predicate == 2 and matter.predicate == 3
    assert want.spans == [(0, 2, "ARG1")]
    assert matter.spans == [(0, 0, "R-ARG1"), (1, 1, "ARG0")]
    assert want.sentence.rolesets == ["-", "-", "want.01", "matter.01"]


def test_skeletons_are_not_read_beside_the_same_files_with_words(tmp_path):
    for ending in ("gold_conll", "gold_skel"):
        write(tmp_path, f"test/a.{ending}", CONLL2012)
    assert len(corpus.read(tmp_path, "conll2012", "test")) == 2


@pytest.mark.parametrize(
    "change, message",
    [
        (("(ARG1*\t", "(ARG1\t"), r"dev.conll:2: column 1 of the predicates: word 3"),
        (("see\tsee.01", "-\t-"), r"dev.conll:2: 1 predicates, and 2 columns of spans"),
        (("\t*)\t(V*)", "\t*)"), r"dev.conll:5: 10 columns, and 11 in the line before"),
    ],
)
def test_says_where_a_file_is_wrong(tmp_path, change, message):
    assert change[0] in EWT
    write(tmp_path, "ewt_srl.dev.conll", EWT.replace(*change))
    with pytest.raises(ValueError, match=message):
        corpus.read(tmp_path, "ewt", "dev")


def test_says_what_is_absent(tmp_path):
    with pytest.raises(corpus.Absent, match="ewt_srl.train.conll"):
        corpus.read(tmp_path, "ewt", "train")
    with pytest.raises(corpus.Absent, match="gold_conll"):
        corpus.read(tmp_path, "conll2012", "train")


# --- BIO --------------------------------------------------------------------------------------------------------------


def test_spans_and_labels():
    spans = [(0, 0, "A"), (1, 2, "A"), (4, 4, "B")]
    labels = "B-A B-A I-A O B-B".split()
    assert corpus.bio_of_spans(spans, 5) == labels and corpus.spans_of_bio(labels) == spans
    assert corpus.bio_of_spans(spans, 5, {"B"}.__contains__) == "O O O O B-B".split()
    assert corpus.brackets_of_spans(spans, 5) == "(A*) (A* *) * (B*)".split()


def test_labels_that_break_bio_still_have_spans():
    assert corpus.spans_of_bio("I-A I-A I-B O I-B".split()) == [(0, 1, "A"), (2, 2, "B"), (4, 4, "B")]
    assert not is_bio("O I-A".split()) and not is_bio("B-A I-B".split()) and is_bio("B-A I-A B-A O".split())


def test_of_embedded_spans_the_outer_one_stays():
    assert corpus.flat([(1, 1, "B"), (0, 3, "A"), (4, 4, "C")]) == [(0, 3, "A"), (4, 4, "C")]


def test_props_can_be_scored(tmp_path):
    from score import score_files

    write(tmp_path, "ewt_srl.dev.conll", EWT)
    instances = corpus.read(tmp_path, "ewt", "dev")
    corpus.write_props(tmp_path / "gold", instances, [i.spans for i in instances])
    corpus.write_props(tmp_path / "predicted", instances, [instances[0].spans[:1], [(3, 3, "ARG0")]])
    with open(tmp_path / "gold") as gold, open(tmp_path / "predicted") as predicted:
        result = score_files(gold, predicted)
    assert (result.sentences, result.predicates) == (1, 2)
    assert (result.overall.correct, result.overall.excess, result.overall.missed) == (1, 1, 2)


# --- languages --------------------------------------------------------------------------------------------------------

needs_program = pytest.mark.usefixtures("program")


def facts(path):
    return json.loads(
        subprocess.run([PROGRAM, "compile", path, "--json"], capture_output=True, text=True, check=True).stdout
    )


@needs_program
def test_the_reduced_language_is_as_large_as_the_papers():
    ours, theirs = facts(EXPERIMENT / "languages" / "reduced.lang"), facts(corpora.ROOT / "languages" / "srl.lang")
    assert all(ours[key] == theirs[key] for key in ("labels", "states", "arcs", "nodes", "products"))
    assert (theirs["labels"], theirs["states"], theirs["arcs"]) == (47, 672, 2592)


LEGAL = [
    "B-ARG0 I-ARG0 O B-ARG1",
    "B-ARG1 O B-C-ARG1",
    "B-R-ARG0 B-ARG0",
    "B-ARG0 O B-R-ARG0 I-R-ARG0",
    "B-ARGM-TMP B-ARGM-TMP",
]
ILLEGAL = ["B-ARG0 O B-ARG0", "B-C-ARG2 B-ARG2", "O I-ARG1", "B-R-ARG0 O", "B-ARG0 O B-R-ARG1"]


@pytest.fixture(scope="module")
def languages():
    needs.package("regccrf")
    return Languages(CONFIGURATIONS["ewt"])


def test_the_rich_language_knows_continuations_and_references(languages):
    rich = languages["rich"]
    assert outside(rich, [sequence.split() for sequence in LEGAL]) == []
    assert outside(rich, [sequence.split() for sequence in ILLEGAL]) == list(range(len(ILLEGAL)))


def test_the_reduced_language_leaves_references_free(languages):
    assert outside(languages["reduced"], ["B-R-ARG0 O".split(), "B-C-ARG1 O".split()]) == [1]


def test_roles_that_a_language_does_not_know_count_as_o(languages, tmp_path):
    write(tmp_path, "ewt_srl.dev.conll", EWT)
    instances = corpus.read(tmp_path, "ewt", "dev")
    predicted = [["B-ARG5", "B-ARG5", "O", "O"], ["I-ARG0", "O", "O", "O"]]
    figures = judge(instances, predicted, languages["reduced"])
    assert (figures["outputs"], figures["violations"], figures["malformed"]) == (2, 1, 1)
    assert (figures["correct"], figures["excess"], figures["missed"]) == (1, 2, 2)


def test_every_language_of_a_configuration_compiles(languages):
    for configuration in CONFIGURATIONS.values():
        for name in ("reduced", "rich"):
            assert Languages(configuration)[name].states > 0
    assert {t.roles for t in MODELS.values()} == {"full", "reduced", "rich"}


# --- the corpus itself ------------------------------------------------------------------------------------------------


def test_the_web_treebank_obeys_the_languages(languages):
    folder = corpora.DATA / "srl_ewt"
    if not (folder / "ewt_srl.dev.conll").is_file():
        pytest.skip(f"there is no corpus at {folder} (REGCCRF_DATA names the folder that holds srl_ewt/)")
    instances = corpus.read(folder, "ewt", "dev")
    assert len(instances) == 4963
    for name in ("reduced", "rich"):
        gold = gold_labels(instances, languages.labels(name, instances))
        left = outside(languages[name], gold)
        assert len(left) <= 1, [instances[i].name for i in left]
        by_gold = judge(instances, gold_labels(instances, languages.labels("full", instances)), languages[name])
        assert by_gold["f1"] == 100 and by_gold["violations"] == len(left)
