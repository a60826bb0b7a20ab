"""`regccrf eval` on files: what it prints, and what it refuses.

REGCCRF_PROGRAM names the program, build/regccrf by default.
"""
import gzip
import json
import random
import subprocess

import pytest

from needs import PROGRAM

pytestmark = pytest.mark.usefixtures("program")

GOLD = "Ada B-PER\nLovelace I-PER\nmet O\nBabbage B-PER\n\nin O\nLondon B-LOC\n"
PREDICTED = GOLD.replace("Babbage B-PER", "Babbage O").replace("B-LOC", "I-LOC")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "gold").write_text(GOLD)
    (tmp_path / "predicted").write_text(PREDICTED)
    joined = [f"{g} {p.split()[-1]}" if g else "" for g, p in zip(GOLD.split("\n"), PREDICTED.split("\n"))]
    (tmp_path / "joined").write_text("\n".join(joined))
    return tmp_path


def run(folder, *arguments, text=None):
    return subprocess.run([PROGRAM, "eval", *map(str, arguments)], cwd=folder, input=text, capture_output=True,
                          text=True, timeout=60, check=False)


def evaluate(folder, *arguments):
    done = run(folder, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def f1(folder, *arguments):
    return evaluate(folder, *arguments)["systems"][0]["f1"]


def refused(folder, *arguments):
    done = run(folder, *arguments)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("regccrf: error: ")
    return done.stderr


def test_two_files_and_one_file_say_the_same(files):
    two, one = evaluate(files, "gold", "predicted"), evaluate(files, "joined")
    del two["systems"][0]["name"], one["systems"][0]["name"]
    assert two == one
    system = two["systems"][0]
    assert system["spans"] == {"gold": 3, "predicted": 2, "correct": 2}
    assert system["types"]["PER"]["f1"] == pytest.approx(200 / 3)
    assert (system["correct_tokens"], system["tokens"], system["exact_sequences"]) == (4, 6, 0)


def test_crlf_tabs_and_a_missing_last_newline_change_nothing(files):
    (files / "other").write_bytes(PREDICTED.rstrip("\n").replace(" ", "\t").replace("\n", "\r\n").encode())
    assert f1(files, "gold", "other") == f1(files, "gold", "predicted")


def test_gzip_is_read_as_it_is(files):
    (files / "zipped.gz").write_bytes(gzip.compress(PREDICTED.encode()))
    assert f1(files, "gold", "zipped.gz") == f1(files, "gold", "predicted")


def test_conlleval_prints_its_report(files):
    assert run(files, "joined", "--conlleval").stdout == (
        "processed 6 tokens with 3 phrases; found: 2 phrases; correct: 2.\n"
        "accuracy:  66.67%; precision: 100.00%; recall:  66.67%; FB1:  80.00\n"
        "              LOC: precision: 100.00%; recall: 100.00%; FB1: 100.00  1\n"
        "              PER: precision: 100.00%; recall:  50.00%; FB1:  66.67  1\n")


def test_violations_are_counted(files):
    system = evaluate(files, "gold", "predicted", "-e", "bio({PER LOC})")["systems"][0]
    assert (system["violations"], system["violation_rate"]) == (1, 50)
    assert "1 of 2 sequences are outside the language" in run(files, "gold", "predicted", "-e", "bio({PER LOC})").stdout


def test_a_pattern_may_leave_labels_of_the_data_unsaid(files):
    system = evaluate(files, "gold", "predicted", "-e", "at_most(0, I-LOC)")["systems"][0]
    assert system["violations"] == 1


def test_several_systems_are_compared_with_the_first(files):
    result = evaluate(files, "gold", "predicted", "gold")
    assert [system["name"] for system in result["systems"]] == ["predicted", "gold"]
    comparison = result["comparisons"][0]
    assert (comparison["first"], comparison["second"]) == ("predicted", "gold")
    assert comparison["exact"]["difference"] == 100
    assert 0 < comparison["f1"]["p"] <= 1


def test_show_prints_sequences_side_by_side_the_illegal_ones_first(files):
    text = run(files, "gold", "predicted", "gold", "-e", "bio({PER LOC})", "--show", 2).stdout
    rows = [line.split() for line in text[text.index("sequence 2"):].splitlines()]
    assert rows[1] == ["gold", "predicted", "gold"]
    assert rows[3:5] == [["London", "B-LOC", "I-LOC", "✗", "B-LOC"], ["in", "the", "language?", "no", "yes"]]
    assert ["Babbage", "B-PER", "O", "✗", "B-PER"] in rows


def test_tabs_keep_blanks_in_labels(files):
    (files / "blanks").write_text("New York\tplace name\nis\tother\n")
    assert list(evaluate(files, "blanks", "blanks")["systems"][0]["types"]) == ["other", "place name"]


def test_labels_without_prefixes_make_runs(files):
    (files / "plain").write_text("1 street\nMain street\nSt street\nParis place\n")
    result = evaluate(files, "plain", "plain")
    assert result["scheme"] == "runs"
    assert result["systems"][0]["spans"]["gold"] == 2
    assert evaluate(files, "plain", "plain", "--scheme", "tokens")["systems"][0]["spans"]["gold"] == 4


def test_unknown_gold_is_left_out(files):
    (files / "partly").write_text("a 1\nb U\nc H\n")
    (files / "tagged").write_text("a 1\nb 1\nc H\n")
    system = evaluate(files, "partly", "tagged", "--unknown", "U", "-e", "1+ H")["systems"][0]
    assert (system["tokens"], system["exact_sequences"], system["violations"]) == (2, 1, 0)


def test_what_cannot_be_compared_is_refused(files):
    (files / "short").write_text("Ada B-PER\n\nin O\nLondon B-LOC\n")
    message = refused(files, "gold", "short")
    assert "sequence 1 has 4 tokens in 'gold' (line 1) and 1 tokens in 'short' (line 1)" in message
    (files / "fewer").write_text(GOLD.split("\n\n", maxsplit=1)[0] + "\n")
    assert "'gold' has 2 sequences and 'fewer' has 1" in refused(files, "gold", "fewer")
    assert "cannot open absent" in refused(files, "gold", "absent")
    assert "look like words and labels" in refused(files, "gold")
    (files / "untagged").write_text("volume volume\n" + "".join(f"word{i} title\n" for i in range(200)))  # a word is a label, too
    assert "look like words and labels" in refused(files, "untagged")
    (files / "wrong").write_text("A B\nB A\n")  # all wrong, but labels
    assert f1(files, "wrong") == 0
    assert "'gold', line 1: 2 columns, but column 5 was requested" in refused(files, "gold", "gold", "--gold-column", 5)
    (files / "broken").write_text("(((")
    assert "error" in refused(files, "gold", "gold", "-c", "broken")
    assert "there is no file 'bio(X)'" in refused(files, "gold", "gold", "-c", "bio(X)")


def test_docstart_counts_as_for_conlleval_where_it_is_complete(files):
    joined = (files / "joined").read_text()
    (files / "complete").write_text("-DOCSTART- O O\n\n" + joined)
    assert evaluate(files, "complete")["systems"][0]["tokens"] == 7
    (files / "lacking").write_text("-DOCSTART- O\n\n" + joined + "\n-DOCSTART- O\n")
    assert evaluate(files, "lacking")["systems"][0]["tokens"] == 6
    (files / "document").write_text("-DOCSTART- O\n\n" + GOLD)
    assert evaluate(files, "document", "predicted")["systems"][0]["tokens"] == 6


def test_rows_of_different_width_are_an_error(files):
    (files / "cut").write_text("flu\tB-D\tB-D\nhe\tO\tO\nhas\tO\n")
    assert "'cut', line 3: 2 columns, and the file's first row has 3" in refused(files, "cut")


def test_gold_that_the_language_has_no_place_for_is_told(files):
    (files / "chem").write_text("flu\tB-D\tB-D\nhe\tO\tO\n")
    assert "no sequence of the language has: B-D" in run(files, "chem", "-e", "bio({C})").stderr
    assert run(files, "chem", "-e", "bio({C D})").stderr == ""


def test_bioes_is_noticed(files):
    (files / "single").write_text("x S-A S-A\ny S-A O\n")
    assert evaluate(files, "single")["systems"][0]["spans"]["gold"] == 2
    assert "spans are BIOES" in run(files, "single").stdout
    assert "FB1:   0.00" in run(files, "single", "--conlleval").stdout


def test_nothing_to_evaluate_is_an_error(files):
    (files / "empty").write_text("\n\n")
    assert "'empty' contains no sequence" in refused(files, "empty", "empty")


def test_standard_input(files):
    done = run(files, "-", "--json", text=(files / "joined").read_text())
    assert json.loads(done.stdout)["systems"][0]["spans"]["gold"] == 3


# --- models ---------------------------------------------------------------------------------------------------------

LANGUAGE = "first (middle)* last"


def program(*arguments, text=None):
    done = subprocess.run([PROGRAM, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Words that do not tell their labels well, and two models of them."""
    folder = tmp_path_factory.mktemp("models")
    draw = random.Random(1)
    for name, count in (("train", 60), ("test", 40)):
        text = ""
        for _ in range(count):
            labels = ["first", *["middle"] * draw.randrange(4), "last"]
            words = [draw.choice("abc") if draw.random() < 0.5 else label[0] for label in labels]
            text += "".join(f"{word} {label}\n" for word, label in zip(words, labels)) + "\n"
        (folder / name).write_text(text)
    program("train", folder / "train", "-m", folder / "plain")
    program("train", folder / "train", "-m", folder / "legal", "-e", LANGUAGE)
    return folder


def test_models_are_compared_in_the_three_ways(models):
    result = evaluate(models, "-m", "plain", "-m", "legal", "test")
    assert [s["name"] for s in result["systems"]] == ["unconstrained", "constrained decoding", "constrained training"]
    assert [s["violations"] for s in result["systems"]][1:] == [0, 0]
    assert len(result["comparisons"]) == 2


def test_models_say_what_tag_says(models):
    """Each row is what `tag` and `eval` on files make of it."""
    systems = evaluate(models, "-m", "plain", "-m", "legal", "test")["systems"]
    for system, options in zip(systems, (["-m", "plain"], ["-m", "plain", "-e", LANGUAGE], ["-m", "legal"])):
        tagged = program("tag", options[0], models / options[1], *options[2:], models / "test").stdout
        (models / "tagged").write_text(tagged)
        expected = evaluate(models, "tagged", "-e", LANGUAGE)["systems"][0]
        assert {**system, "name": ""} == {**expected, "name": ""}


def test_a_plain_model_alone_needs_no_language(models):
    system, = evaluate(models, "-m", "plain", "test")["systems"]
    assert system["name"] == "unconstrained" and "violations" not in system


def test_models_of_one_kind_are_told_apart(models):
    systems = evaluate(models, "-m", "legal", "-m", "legal", "-m", "plain", "test")["systems"]
    trained = "constrained training (legal)"
    assert [system["name"] for system in systems] == [trained, trained, "unconstrained", "constrained decoding"]


def test_sequences_that_are_too_short_are_decoded_freely_and_noted(models):
    (models / "short").write_text("a first\n\na first\nb last\n")
    done = run(models, "-m", "legal", "short", "--json")
    assert json.loads(done.stdout)["systems"][0]["violations"] == 1
    assert "no sequence of the length of 1 of 2 sequences" in done.stderr


def test_gold_that_the_model_does_not_know_is_a_wrong_column(models):
    (models / "other").write_text("a x\nb y\n")
    assert "no correct label, such as 'x', is a label of the model" in refused(models, "-m", "plain", "other")
    assert "there is no column 7" in refused(models, "-m", "plain", "other", "--gold-column", 7)


def test_threads_change_nothing(models):
    one, three = (evaluate(models, "-m", "legal", "test", "--threads", threads) for threads in (1, 3))
    assert one == three
