"""What the experiments rest on: the demo's corpus, the splits, the topology of a protein; and that README shows the
results.

REGCCRF_PROGRAM names the program, build/regccrf by default.
"""
import json
import subprocess
import sys

import pytest

import corpora
import membrane
import run
from corpora import ROOT
from needs import PROGRAM

needs_program = pytest.mark.usefixtures("program")


# --- the demo's corpus ----------------------------------------------------------------------------------------------


def make_corpus(folder, *options):
    script = ROOT / "experiments" / "demo" / "corpus.py"
    subprocess.run([sys.executable, script, folder, *map(str, options)], check=True)
    return (folder / "train.txt").read_text(), (folder / "test.txt").read_text()


def test_the_same_seed_makes_the_same_corpus(tmp_path):
    one = make_corpus(tmp_path / "one", "--seed", 3)
    assert one == make_corpus(tmp_path / "two", "--seed", 3)
    assert one != make_corpus(tmp_path / "three", "--seed", 4)
    assert one[0].count("\n\n") == 200


@needs_program
def test_every_reference_is_in_the_language(tmp_path):
    make_corpus(tmp_path, "--train", 300, "--test", 300)
    sequences = membrane.label_sequences(tmp_path / "train.txt") + membrane.label_sequences(tmp_path / "test.txt")
    lines = "".join(" ".join(sequence) + "\n" for sequence in sequences)
    language = ROOT / "experiments" / "demo" / "reference.lang"
    done = subprocess.run([PROGRAM, "accept", language], input=lines, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["yes"] * 600


# --- proteins -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gold, predicted, right", [
    ("111HHHHHH222", "111HHHHHH222", True),
    ("111HHHHHH222", "11HHHHHHH222", True),      # ends may differ
    ("111HHHHHH222", "111hhhhhh222", True),      # both letters are helices
    ("111HHHHHH222", "222HHHHHH111", False),     # upside down
    ("111HHHHHH222", "111111111111", False),     # a helix too few
    ("111HHHHHH222222222222", "111HHHHHH222HHHHHH111", False),
    ("111HHHHHH222222222", "111111111HHHHHH222", False),  # elsewhere
    ("111UUUUUU222", "111HHHHHH222", True),      # what is not known cannot be wrong
    ("UUUHHHHHH222", "222HHHHHH222", True),
    ("SS1HHHHHH222", "111HHHHHH222", False),
])
def test_topology(gold, predicted, right):
    assert membrane.is_right(list(gold), list(predicted)) == right


def test_a_residue_sees_its_surroundings():
    rows = membrane.rows([("I", "H")] * 30 + [("K", "1")] * 30)
    assert rows[0] == ("I", "aliphatic", "9", "9", "0", "0", "N0", "H")
    assert rows[-1] == ("K", "positive", "-8", "-8", "8", "0", "C0", "1")
    assert rows[30][:6] == ("K", "positive", "-1", "0", "8", "0")
    assert len({row[3] for row in rows}) > 5


def test_one_system_wins_by_chance_or_not():
    assert run.sign_test([True, False] * 5, [True, False] * 5) == 1
    assert run.sign_test([False] * 10, [True] * 10) == pytest.approx(2 / 2**10)
    assert run.sign_test([False] * 3 + [True], [True] * 3 + [False]) == pytest.approx(2 * 5 / 16)


# --- splits and results ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", run.EXPERIMENTS)
def test_training_and_test_share_nothing(name):
    try:
        training, test = run.EXPERIMENTS[name]["data"]()
    except corpora.Absent as absent:
        pytest.skip(str(absent))
    again, _ = run.EXPERIMENTS[name]["data"]()
    assert training == again
    assert not set(map(run.tokens, training)) & set(map(run.tokens, test))


@pytest.mark.parametrize("name", run.EXPERIMENTS)
def test_readme_shows_the_results(name):
    results = json.loads((run.RESULTS / f"{name}.json").read_text())
    assert run.table(results) in (ROOT / "experiments" / "README.md").read_text()
