"""The feature-based SRL experiment: attributes of a small sentence, and all its models on a corpus written here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import needs
from needs import PROGRAM

EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments" / "srl"
sys.path.insert(0, str(EXPERIMENT))

import features  # noqa: E402
from corpus import Sentence  # noqa: E402

needs_program = pytest.mark.usefixtures("program")

SENTENCES = [
    ("Peter saw Paul", "ARG0 V ARG1"),
    ("Yesterday Paul saw Peter", "ARGM-TMP ARG0 V ARG1"),
    ("Peter left", "ARG0 V"),
]


# --- attributes -------------------------------------------------------------------------------------------------------


def sentence():
    return Sentence(
        "small",
        "The book was given away".split(),
        "the book be give away".split(),
        "DT NN VBD VBN RB".split(),
        "(TOP(S(NP* *) (VP* (VP* (ADVP*)))))".split(),
        ["-", "-", "-", "give.01", "-"],
    )


def test_a_word_belongs_to_the_largest_constituent_without_the_predicate():
    rows = features.attributes(features.SentenceView(sentence()), 3)
    assert "path=<NP^S!VP!VP|B" in rows[0] and "path=<NP^S!VP!VP|I" in rows[1]
    assert "path=>ADVP^VP|B" in rows[4]
    assert "senses=give.01|<NP|pas|B" in rows[0]


@pytest.mark.parametrize("parse", [["(S*", "*"], ["*", "*)"], ["*", "*"]])
def test_bits_that_make_no_tree_still_give_every_word_a_node(parse):
    assert len(features.leaves(parse)) == len(parse)


def test_voice():
    assert features.is_passive(sentence(), 3)
    active = sentence()
    active.lemmas[2] = "have"
    assert not features.is_passive(active, 3)


# --- all of it --------------------------------------------------------------------------------------------------------


def make_corpus(folder):
    text = ""
    for i in range(12):
        words, roles = (column.split() for column in SENTENCES[i % len(SENTENCES)])
        for t, (word, role) in enumerate(zip(words, roles)):
            frame = "see\tsee.01" if role == "V" else "-\t-"
            text += f"{t + 1}\t{word}\t{word}\tX\tX\tX\t*\t{frame}\t({role}*)\n"
        text += "\n"
    for part in ("train", "dev", "test"):
        (folder / f"ewt_srl.{part}.conll").write_text(text)


def run_experiment(folder, *options):
    command = [sys.executable, EXPERIMENT / "run", "--data", folder, "--work", folder / "work", "--program", PROGRAM]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, check=False)


@needs_program
def test_all_models_run(tmp_path):
    needs.package("regccrf")
    make_corpus(tmp_path)
    done = run_experiment(tmp_path, "--iterations", "20", "--l2", "0.01", "--output", tmp_path / "report.json")
    assert done.returncode == 0, done.stdout + done.stderr
    systems = json.loads((tmp_path / "report.json").read_text())["systems"]
    assert list(systems) == [
        "CRF-full",
        "CRF-reduced",
        "RegCCRF, constrained decoding",
        "RegCCRF, constrained training",
    ]
    for system, figures in systems.items():
        assert figures["test"]["outputs"] == 12 and figures["test"]["f1"] == 100, system
        assert figures["training"]["iterations"] <= 20 and figures["training"]["cpu_seconds"] > 0
        assert figures["test"]["tagging"]["seconds"] > 0
    assert all(figures["test"]["violations"] == 0 for system, figures in systems.items() if "RegCCRF" in system)


def test_says_what_is_missing(tmp_path):
    done = run_experiment(tmp_path)
    assert done.returncode == 2 and "run: error: there is no " in done.stderr
