"""The SRL scorer against numbers that the CoNLL-2005 script srl-eval.pl gave for the same files."""
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments" / "srl"
sys.path.insert(0, str(EXPERIMENT))

from score import Score, phrases_of_brackets, score_files  # noqa: E402
from significance import permutation_test  # noqa: E402


def text(content, name):
    file = io.StringIO(content)
    file.name = name
    return file


def score(gold, predicted):
    return score_files(text(gold, "gold"), text(predicted, "predicted"))


def columns(*cells):
    """A file of one sentence: columns as strings, the predicates first."""
    return "".join(" ".join(row) + "\n" for row in zip(*(cell.split() for cell in cells))) + "\n"


# --- files as they come: continuations without heads, embedded spans, wrong predicates --------------------------------

ROLES = "A0 A1 A2 C-A0 C-A1 R-A0 AM-TMP V C-V C-AM-TMP C-C-A0".split()


class Random:
    """A generator of its own, so that the files are the same everywhere."""

    def __init__(self, seed):
        self.state = seed * 2 + 1

    def below(self, n):
        self.state = self.state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        return (self.state >> 33) % n


def random_column(random, length, embed):
    opening, closing = [""] * length, [""] * length

    def fill(i, last, depth):
        while i <= last:
            if random.below(2):
                end = min(last, i + random.below(4))
                role = ROLES[random.below((3, 5, len(ROLES))[random.below(3)])]
                opening[i] += "(" + role
                if depth < embed:
                    fill(i, end, depth + 1)
                closing[end] += (role if random.below(5) == 0 else "") + ")"
                i = end
            i += 1

    fill(0, length - 1, 0)
    return [a + "*" + b for a, b in zip(opening, closing)]


def random_files(seed):
    random = Random(seed)
    gold, predicted = "", ""
    for _ in range(20):
        length = 1 + random.below(12)
        targets = [("-", "-", "go", "be")[random.below(4)] for _ in range(length)]
        wanted = [random_column(random, length, seed % 3) for target in targets if target != "-"]
        given = [column if random.below(2) else random_column(random, length, seed % 3) for column in wanted]
        renamed = [target + "x" if target != "-" and random.below(15) == 0 else target for target in targets]
        gold += "".join(" ".join(row) + "\n" for row in zip(targets, *wanted)) + "\n"
        predicted += "".join(" ".join(row) + "\n" for row in zip(renamed, *given)) + "\n"
    return gold, predicted


# By seed: predicates, correct, excess, missed, and precision, recall, F1 and perfect predicates as printed.
FROM_THE_SCRIPT = [
    (47, 42, 49, 53, "46.15", "44.21", "45.16", "44.68"),
    (65, 113, 103, 113, "52.31", "50.00", "51.13", "44.62"),
    (55, 93, 67, 71, "58.12", "56.71", "57.41", "52.73"),
    (58, 68, 36, 44, "65.38", "60.71", "62.96", "65.52"),
    (75, 135, 144, 145, "48.39", "48.21", "48.30", "45.33"),
    (55, 65, 90, 104, "41.94", "38.46", "40.12", "36.36"),
    (72, 103, 75, 89, "57.87", "53.65", "55.68", "51.39"),
    (88, 148, 164, 185, "47.44", "44.44", "45.89", "38.64"),
    (78, 141, 112, 126, "55.73", "52.81", "54.23", "55.13"),
    (69, 51, 95, 94, "34.93", "35.17", "35.05", "33.33"),
    (84, 115, 142, 176, "44.75", "39.52", "41.97", "39.29"),
    (66, 144, 102, 109, "58.54", "56.92", "57.72", "53.03"),
    (52, 49, 56, 62, "46.67", "44.14", "45.37", "42.31"),
    (60, 104, 90, 86, "53.61", "54.74", "54.17", "51.67"),
    (67, 92, 102, 138, "47.42", "40.00", "43.40", "44.78"),
    (59, 67, 56, 74, "54.47", "47.52", "50.76", "47.46"),
    (49, 78, 73, 90, "51.66", "46.43", "48.90", "42.86"),
    (62, 103, 128, 143, "44.59", "41.87", "43.19", "35.48"),
    (62, 58, 67, 82, "46.40", "41.43", "43.77", "40.32"),
    (72, 104, 137, 127, "43.15", "45.02", "44.07", "44.44"),
    (72, 109, 150, 135, "42.08", "44.67", "43.34", "38.89"),
    (72, 59, 84, 90, "41.26", "39.60", "40.41", "37.50"),
    (65, 112, 102, 111, "52.34", "50.22", "51.26", "46.15"),
    (58, 113, 88, 86, "56.22", "56.78", "56.50", "50.00"),
    (63, 70, 50, 54, "58.33", "56.45", "57.38", "53.97"),
    (59, 94, 72, 86, "56.63", "52.22", "54.34", "44.07"),
    (81, 138, 156, 147, "46.94", "48.42", "47.67", "40.74"),
    (41, 33, 35, 43, "48.53", "43.42", "45.83", "46.34"),
    (65, 119, 80, 90, "59.80", "56.94", "58.33", "47.69"),
    (58, 94, 71, 90, "56.97", "51.09", "53.87", "51.72"),
]


@pytest.mark.parametrize("seed", range(len(FROM_THE_SCRIPT)))
def test_gives_the_scripts_numbers(seed):
    result = score(*random_files(seed))
    o = result.overall
    printed = ["%.2f" % x for x in (o.precision, o.recall, o.f1, 100 * result.perfect / result.predicates)]
    assert (result.predicates, o.correct, o.excess, o.missed, *printed) == FROM_THE_SCRIPT[seed]


def test_prints_the_scripts_table(tmp_path):
    gold = columns("- go - - -", "(A0*) (V*) (A1* *) (C-A1*)")
    predicted = columns("- go - - -", "(A0*) (V*) (A1* *) (A2*)")
    for name, content in (("gold", gold), ("predicted", predicted)):
        (tmp_path / name).write_text(content)
    command = [sys.executable, EXPERIMENT / "score.py", tmp_path / "gold", tmp_path / "predicted"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == TABLE
    figures = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert figures["correct"] == 1 and figures["roles"]["A1"]["missed"] == 1


TABLE = """\
Number of Sentences    :           1
Number of Propositions :           1
Percentage of perfect props :   0.00

              corr.  excess  missed    prec.    rec.      F1
------------------------------------------------------------
   Overall        1       2       1    33.33   50.00   40.00
----------
        A0        1       0       0   100.00  100.00  100.00
        A1        0       1       1     0.00    0.00    0.00
        A2        0       1       0     0.00    0.00    0.00
------------------------------------------------------------
         V        1       0       0   100.00  100.00  100.00
------------------------------------------------------------
"""


# --- the conventions, one by one --------------------------------------------------------------------------------------


def counts(gold, predicted):
    result = score(columns("go - - - -", gold), columns("go - - - -", predicted)).overall
    return result.correct, result.excess, result.missed


def test_a_discontinuous_argument_is_one_and_must_match_in_all_pieces():
    assert counts("(A0*) * (C-A0*) * *", "(A0*) * (C-A0*) * *") == (1, 0, 0)
    assert counts("(A0*) * (C-A0*) * *", "(A0*) * * * *") == (0, 1, 1)


def test_a_continuation_without_a_head_is_an_argument():
    assert counts("* (A0*) * * *", "* (C-A0*) * * *") == (1, 0, 0)


def test_references_are_labels_of_their_own():
    assert counts("(A0*) (R-A0*) * * *", "(A0*) (A0*) * * *") == (1, 1, 1)


def test_the_predicate_is_excluded():
    assert counts("(V*) * (C-V*) * *", "* (V*) * * *") == (0, 0, 0)


def test_spans_and_files_agree():
    by_spans = Score()
    by_spans.add([(0, 0, "A0"), (2, 3, "C-A0"), (4, 4, "A1")], [(0, 0, "A0"), (2, 2, "C-A0"), (4, 4, "A1")])
    assert (by_spans.overall.correct, by_spans.overall.excess, by_spans.overall.missed) == counts(
        "(A0*) * (C-A0* *) (A1*)", "(A0*) * (C-A0*) * (A1*)") == (1, 1, 1)


# --- bad files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column, message", [
    ("(A0* * *", "A0, opened at word 1, is not closed"), ("* *) *", "word 2: '*)' closes a span, and none is open"),
    ("A0 * *", "word 1: 'A0' is not a bracketed cell"), ("(A0* *A1) *", "closes A1, and A0 is open"),
    ("(A0*x * *", "something other than )")])
def test_says_what_is_wrong_with_a_column(column, message):
    with pytest.raises(ValueError) as error:
        phrases_of_brackets(column.split())
    assert message in str(error.value)


def test_files_must_align(tmp_path):
    with pytest.raises(ValueError, match="ends before"):
        score(columns("- -") + columns("-"), columns("- -"))
    with pytest.raises(ValueError, match="has 2 words, and at predicted:1 3"):
        score(columns("- -"), columns("- - -"))
    command = [sys.executable, EXPERIMENT / "score.py", tmp_path / "none", tmp_path / "none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("score: error: ")


# --- significance -----------------------------------------------------------------------------------------------------


def test_the_permutation_test_counts_the_ways():
    assert permutation_test([1, 2, 3], [4, 5, 6]) == (2 / 20, True)
    assert permutation_test([1, 2], [1, 2]) == (1.0, True)
    assert permutation_test([0.3] * 4, [0.3] * 4) == (1.0, True)


def test_random_deals_come_near_the_exact_value():
    a, b = [81.2, 80.7, 81.9, 81.1, 80.2], [80.4, 80.1, 81.0, 79.9, 80.8]
    exact, is_exact = permutation_test(a, b)
    drawn, drawn_exact = permutation_test(a, b, most=10)
    assert is_exact and not drawn_exact and abs(exact - drawn) < 0.01
