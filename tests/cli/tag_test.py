"""regccrf tag, inspect and import, driven as a user drives them.

Models are made by `import` from dumps that the tests write.
"""

import gzip
import itertools
import json
import math
import os
import random
import subprocess

import pytest

from needs import PROGRAM

pytestmark = pytest.mark.usefixtures("program")

LABELS = ["O", "B", "I"]
# Weights with six digits, as a dump has them, such that no two sequences score alike.
GENERATOR = random.Random(5)
TRANSITIONS = {(a, b): round(GENERATOR.gauss(0, 1), 6) for a in LABELS for b in LABELS}
FEATURES = {(f"w={word}", label): round(GENERATOR.gauss(0, 1), 6) for word in "abcd" for label in LABELS}
FEATURES |= {("x:y\\z", "I"): 5.0, ("n --> B: 2", "B"): 3.5}


def run(*arguments, input="", code=0):
    done = subprocess.run(
        [PROGRAM, *map(str, arguments)],
        input=input.encode() if isinstance(input, str) else input,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode() if code == 0 else done.stderr.decode()


def dump(labels=LABELS, transitions=TRANSITIONS, features=FEATURES):
    """As `crfsuite dump` prints."""
    attributes = list(dict.fromkeys(name for name, _ in features))
    lines = [
        "FILEHEADER = {",
        "  magic: lCRF",
        "}",
        "",
        "LABELS = {",
        *(f"  {i:5}: {name}" for i, name in enumerate(labels)),
        "}",
        "",
        "ATTRIBUTES = {",
        *(f"  {i:5}: {name}" for i, name in enumerate(attributes)),
        "}",
        "",
        "TRANSITIONS = {",
        *(f"  (1) {a} --> {b}: {w:.6f}" for (a, b), w in transitions.items()),
        "}",
        "",
        "STATE_FEATURES = {",
        *(f"  (0) {a} --> {b}: {w:.6f}" for (a, b), w in features.items()),
        "}",
        "",
    ]
    return "\n".join(lines) + "\n"


def score(words, labels):
    return sum(FEATURES.get((word, label), 0) for word, label in zip(words, labels)) + sum(
        TRANSITIONS.get(pair, 0) for pair in zip(labels, labels[1:])
    )


def is_legal(labels):
    return all(label != "I" or (i > 0 and labels[i - 1] in "BI") for i, label in enumerate(labels))


def ranked(words, legal=is_legal):
    """(probability, labels) of every legal sequence, best first."""
    all_ = [(math.exp(score(words, y)), y) for y in itertools.product(LABELS, repeat=len(words)) if legal(y)]
    total = sum(weight for weight, _ in all_)
    return sorted(((weight / total, y) for weight, y in all_), reverse=True)


def attribute_file(sentences):
    return "".join("".join(f"O\t{word}\n" for word in sentence) + "\n" for sentence in sentences)


@pytest.fixture
def model(tmp_path):
    """Attributes as they are, decoded under BIO."""
    run("import", "-m", tmp_path / "model", "-e", "(O | B I*)*", input=dump())
    return tmp_path / "model"


@pytest.fixture
def words(tmp_path):
    """A model for columns, trained on a few sentences."""
    (tmp_path / "train").write_text("Ann B\nLee I\nsleeps O\n\nJo B\nsings O\n\nhe O\nsaw O\nAnn B\nLee I\n\n" * 3)
    run("train", tmp_path / "train", "-m", tmp_path / "words", "-e", "(O | B I*)*", "--quiet")
    return tmp_path / "words"


def random_sentences(seed, many=50, longest=6):
    generator = random.Random(seed)
    return [
        [generator.choice(["w=a", "w=b", "w=c", "w=d"]) for _ in range(generator.randint(1, longest))]
        for _ in range(many)
    ]


@pytest.mark.parametrize("threads", [1, 3])
def test_best_sequences_are_those_of_the_model(model, threads):
    sentences = random_sentences(1)
    printed = run("tag", "-m", model, "--threads", threads, input=attribute_file(sentences))
    expected = "".join("".join(label + "\n" for label in ranked(words)[0][1]) + "\n" for words in sentences)
    assert printed == expected
    free = run("tag", "-m", model, "--unconstrained", input=attribute_file(sentences))
    assert free == "".join(
        "".join(label + "\n" for label in ranked(words, lambda y: True)[0][1]) + "\n" for words in sentences
    )
    assert free != printed


def test_probabilities_marginals_and_mass(model):
    sentences = random_sentences(2, many=20)
    lines = run(
        "tag", "-m", model, "--scores", "--language-mass", "--k-best", 3, input=attribute_file(sentences)
    ).splitlines()
    rows = iter(line.split("\t") for line in lines if line)
    for words in sentences:
        best = ranked(words)
        everything = ranked(words, lambda y: True)
        mass = sum(p for p, y in everything if is_legal(y))
        for t in range(len(words)):
            row = next(rows)
            assert row[:3] == [best[k][1][t] if k < len(best) else "_" for k in range(3)]
            numbers = [float(x) for x in row[3:]]
            marginal = sum(p for p, y in best if y[t] == best[0][1][t])
            expected = [marginal, *(best[k][0] if k < len(best) else 0 for k in range(3)), mass]
            assert numbers == pytest.approx(expected, rel=1e-5, abs=1e-9)
    as_json = [
        json.loads(line)
        for line in run(
            "tag", "-m", model, "--scores", "--k-best", 2, "--json", input=attribute_file(sentences)
        ).splitlines()
    ]
    assert [tuple(sentence["labels"]) for sentence in as_json] == [ranked(words)[0][1] for words in sentences]
    for words, sentence in zip(sentences, as_json):
        assert sentence["probability"] == pytest.approx(ranked(words)[0][0])
        assert sentence["k_best"][0]["labels"] == sentence["labels"]


def test_forced_labels_stay(model, words):
    printed = run(
        "tag",
        "-m",
        words,
        "--forced",
        2,
        input="Ann _\nLee O\n\nzzz B\nzzz \n".replace("zzz ", "zzz\t").replace(" ", "\t"),
    )
    rows = [line.split("\t") for line in printed.splitlines()]
    assert rows[1] == ["Lee", "O", "O"]
    assert rows[3] == ["zzz", "B", "B"]
    message = run("tag", "-m", words, "--forced", 2, input="Ann b\n", code=2)
    assert "line 1: the forced label 'b' is not a label of the model" in message
    message = run("tag", "-m", words, "--forced", 2, input="Ann B\n\nAnn O\nLee I\n", code=2)
    assert (
        "standard input, line 3" in message
        and "agrees with the forced labels" in message
        and "--no-sequence" in message
    )


def test_sentences_without_a_legal_sequence(model):
    two = ["tag", "-m", model, "-e", "B I+"]
    text = attribute_file([["w=a", "w=b"], ["w=a"], ["w=b", "w=a"]])
    message = run(*two, input=text, code=2)
    assert (
        "standard input, line 4: the sentence has length 1, and the language has no sequence of that length" in message
    )
    assert "(shortest: 2" in message
    done = subprocess.run([PROGRAM, *map(str, two)], input=text.encode(), capture_output=True, check=False)
    assert done.stdout == b"B\nI\n\n", "what came before the error is there"
    assert run(*two, "--no-sequence", "free", input=text) == "B\nI\n\nB\n\nB\nI\n\n"
    assert run(*two, "--no-sequence", "empty", input=text) == "B\nI\n\n_\n\nB\nI\n\n"


def test_lines_out_are_lines_in(words):
    text = "\n-DOCSTART- O\n\nAnn x\r\nLee x\r\n\r\n\n \nhe\ty z\nsaw\tx\n\nAnn x"
    text = text.replace("he\ty z", "he y").replace("saw\tx", "saw x")
    printed = run("tag", "-m", words, "--unconstrained", input=text)
    assert printed == "\n-DOCSTART- O\n\nAnn x B\r\nLee x I\r\n\r\n\n \nhe y O\nsaw x O\n\nAnn x B\n"
    assert run("tag", "-m", words, "--labels-only", input="Ann\tx y\nLee\tz\n\n") == "B\nI\n\n"
    assert run("tag", "-m", words, input="Ann\tx y\n") == "Ann\tx y\tB\n"
    assert run("tag", "-m", words, input="") == ""
    assert run("tag", "-m", words, input=gzip.compress(b"Ann\nLee\n")) == "Ann B\nLee I\n"


def test_a_filter_answers_when_its_input_pauses(words):
    for threads in ["1", "2"]:
        with subprocess.Popen(
            [PROGRAM, "tag", "-m", words, "--threads", threads], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            for _ in range(3):
                process.stdin.write(b"Ann\nLee\n\nJo\n")
                process.stdin.flush()
                answer = b""
                while answer.count(b"\n") < 3:
                    answer += os.read(process.stdout.fileno(), 1000)
                assert answer == b"Ann B\nLee I\n\n"
                process.stdin.write(b"\n")
                process.stdin.flush()
                answer = b""
                while answer.count(b"\n") < 2:
                    answer += os.read(process.stdout.fileno(), 1000)
                assert answer == b"Jo B\n\n"
            process.stdin.close()
            assert process.wait(20) == 0


def test_memory_does_not_grow_with_the_input(words, tmp_path):
    def peak(sentences):
        (tmp_path / "long").write_text("Ann\nLee\nsaw\nhim\n\n" * sentences)
        code = (
            "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        return int(
            subprocess.run(
                ["python3", "-c", code, PROGRAM, "tag", "-m", words, tmp_path / "long"], capture_output=True, check=True
            ).stdout
        )

    small, large = peak(10_000), peak(200_000)
    assert large < small + 4096


def test_errors_say_what_to_do(model, words, tmp_path):
    assert "line 2: has 1 column" in run("tag", "-m", words, input="a b\nc\n", code=2)
    assert "line 1: 'w:b'" in run("tag", "-m", model, input="O\tw:b\n", code=2)
    assert "cannot open" in run("tag", "-m", tmp_path / "absent", code=2)
    run("compile", "-e", "O*", "-o", tmp_path / "constraint")
    assert "not a model" in run("tag", "-m", tmp_path / "constraint", code=2)
    assert "check how the labels are spelled" in run("tag", "-m", model, "-e", "X+", code=2)
    cut = tmp_path / "cut"
    cut.write_bytes(model.read_bytes()[:-5])
    assert "truncated" in run("tag", "-m", cut, code=2)
    assert (
        "cannot write"
        in subprocess.run(
            f"{PROGRAM} tag -m {words} {tmp_path / 'train'} > /dev/full", shell=True, check=False, capture_output=True
        ).stderr.decode()
    )


def test_input_of_the_other_format_is_noted(model, words):
    def said(name, text):
        return subprocess.run([PROGRAM, "tag", "-m", name], input=text, capture_output=True, text=True, check=True).stderr

    assert "knows no attribute of the input" in said(model, "Ann B\nLee I\n")
    assert "looks like CRFsuite's attributes" in said(words, attribute_file([["w=a", "w=b"]]))
    for name, text in ((model, attribute_file([["w=a", "w=new"]])), (words, "new\nwords\n"), (model, ""), (words, "\n")):
        assert not said(name, text)


def test_columns_are_no_sequences():
    said = run("accept", "-e", "(O | B I*)*", input="Ann B\nLee I\n\nhe O\n", code=1)
    assert "a line is a sequence here" in said
    assert "a line is a sequence here" not in run("accept", "-e", "(O | B I*)*", input="O B\nI\nX\n", code=1)
    assert "there is no file 'O B'; sequences are read" in run("accept", "-e", "(O | B I*)*", "O B", code=2)


def test_inspect_shows_the_model(model):
    printed = run("inspect", model)
    assert "(O | B I*)*" in printed and "labels       3   (O B I)" in printed
    assert "+5.0000  x:y\\z" in printed and f"{TRANSITIONS['B', 'I']:+10.4f}  B → I" in printed
    facts = json.loads(run("inspect", model, "--json"))
    assert (
        facts["labels"] == LABELS and facts["constrain"] == "decode" and facts["constraint"]["pattern"] == "(O | B I*)*"
    )
    assert facts["heaviest_features"]["B"][0] == {"name": "n --> B: 2", "weight": 3.5}
    dumped = [line.split("\t") for line in run("inspect", model, "--dump").splitlines()]
    assert {(f[1], f[2]): float(f[3]) for f in dumped if f[0] == "feature"} == FEATURES
    assert {(f[1], f[2]): float(f[3]) for f in dumped if f[0] == "transition"} == TRANSITIONS


def test_a_dump_that_is_none_is_refused(tmp_path):
    good = dump()
    for bad in [
        "",
        "hello\n",
        good[: len(good) // 2],
        good.replace("(0) w=a", "(0) w=q"),
        good.replace("5.000000", "nan"),
        good.replace("    1: B", "    7: B"),
        good.replace("    2: I", "    2: B"),
    ]:
        assert "[import]" in run("import", "-m", tmp_path / "new", input=bad, code=2)
        assert not (tmp_path / "new").exists()
    message = run("import", "-m", tmp_path / "new", input=good.replace("(0) w=a", "(0) w=q"), code=2)
    assert "standard input" in message or "-, line" in message


def test_the_line_of_a_feature_that_is_none(tmp_path):
    bad = dump().replace("(0) w=a", "(0) w=q", 1)
    line = 1 + next(i for i, text in enumerate(bad.splitlines()) if "w=q" in text)
    assert f"line {line}: '  (0) w=q" in run("import", "-m", tmp_path / "new", input=bad, code=2)


def test_a_model_file_of_crfsuite(tmp_path):
    (tmp_path / "their.model").write_bytes(b"lCRF" + bytes(range(100)))
    for command in (["tag", "-m"], ["inspect"], ["import", "-m", tmp_path / "new"]):
        message = run(*command, tmp_path / "their.model", code=2)
        assert f"crfsuite dump {tmp_path / 'their.model'} | regccrf import" in message


def test_input_that_is_not_utf8(model):
    assert "standard input, line 2, byte 1: 0xFF" in run("tag", "-m", model, input=b"O\tw=a\n\xff\tw=b\n", code=2)
    assert "a NUL byte" in run("tag", "-m", model, input=b"O\tw=a\0\n", code=2)


def test_marginals_of_every_label(model):
    words = ["w=a", "w=c", "w=b"]
    total = sum(p for p, _ in ranked(words))
    expected = [{x: sum(p for p, y in ranked(words) if y[t] == x) / total for x in LABELS} for t in range(3)]
    text = "".join(f"O\t{word}\n" for word in words)
    for row, wanted in zip(run("tag", "-m", model, "--marginals", input=text).splitlines(), expected):
        label, *columns = row.split("\t")
        pairs = [column.rsplit(":", 1) for column in columns]
        assert [name for name, _ in pairs] == LABELS and label in LABELS
        assert {name: float(p) for name, p in pairs} == pytest.approx(wanted, rel=1e-5, abs=1e-9)
    answer = json.loads(run("tag", "-m", model, "--marginals", "--json", input=text))
    assert [pytest.approx(wanted) for wanted in expected] == answer["all_marginals"]


def test_marginals_are_the_last_columns_and_zero_where_nothing_is_legal(model):
    text = "O\tw=a\n"
    label, *rest = run("tag", "-m", model, "--scores", "--marginals", input=text).rstrip("\n").split("\t")
    assert [":" in column for column in rest] == [False, False, True, True, True]
    none = run("tag", "-m", model, "-e", "B I+", "--no-sequence", "empty", "--marginals", input=text)
    assert none == "_\tO:0\tB:0\tI:0\n"
