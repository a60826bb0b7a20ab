"""The language layer from Python: operators, questions, errors, pickling."""

import copy
import pickle
import threading

import numpy
import pytest

import regccrf
from regccrf import Constraint, Labels, Language


def test_operators_are_the_algebra():
    a, b = Language("A*", labels=["A", "B"]), Language("B*", labels=["A", "B"])
    assert ["A"] in a | b and ["A", "B"] not in a | b
    assert [] in a & b and ["A"] not in a & b
    assert ["A", "B"] in a + b
    assert ["B"] in ~a and ["A"] not in ~a
    assert ["A"] in a - b and [] not in a - b


def test_labels_are_joined_by_name():
    joined = Language("A B") | Language("C")
    assert list(joined.labels) == ["A", "B", "C"]
    assert ["C"] in joined


def test_an_intersection_needs_the_same_labels():
    spans = Language("(O | B I*)*")
    with pytest.raises(regccrf.Error, match=r"the right one does not know O, I\. .*Give both patterns the same labels"):
        spans & Language("at_most(1, B)")
    with pytest.raises(regccrf.Error, match="the right one does not know I, the left one does not know X"):
        spans & Language("(O | B X)*")
    assert ["B", "O"] in spans & Language("at_most(1, B)", labels=["I", "O", "B"])  # in any order
    assert ["O"] in spans & Language("O*").with_labels(spans.labels)
    assert ["B"] in spans - Language("O*") and ["X"] in spans | Language("X")


def test_languages_pickle_and_copy():
    spans = Language("(O | B I*)*")
    languages = [spans, spans & Language("at_most(1, B)", labels=spans.labels), ~spans, Language("[^A]*").with_labels(["A", "B"]),
                 Language("A & A A"),
                 Language.everything(["A", "B"]), Language("()")]
    for language in languages:
        again = pickle.loads(pickle.dumps(language))
        assert again.equals(language) and again.labels == language.labels and again.text == language.text
        assert copy.deepcopy(language) is language
    assert regccrf.compile(pickle.loads(pickle.dumps(spans))).language().equals(spans)


def test_iteration_is_by_length():
    sequences = iter(Language("(A | B)*"))
    assert [next(sequences) for _ in range(4)] == [[], ["A"], ["B"], ["A", "A"]]
    assert list(Language("A | B A")) == [["A"], ["B", "A"]]


def test_counting_is_exact():
    assert Language("(A | B | C)*").count(200) == 3 ** 200


def test_random_sequences_are_legal_and_repeatable():
    language = Language("(O | B I*)*")
    assert all(sequence in language for sequence in language.random(12, many=20, seed=5))
    assert language.random(12, many=3, seed=5) == language.random(12, many=3, seed=5)


def test_questions_about_languages():
    assert Language("A | A A").shortest() == ["A"]
    assert Language("A & A A").shortest() is None
    assert Language("A*").includes(Language("A A")) and not Language("A A").includes(Language("A*"))
    assert Language("A B").reverse().equals(Language("B A"))


def test_membership_says_where_and_what():
    membership = Language("A (B | C)").accepts(["A", "A"])
    assert not membership and membership.position == 1 and membership.possible == [1, 2]


def test_errors_keep_the_message():
    with pytest.raises(regccrf.Error, match="did you mean"):
        Language("B-AGR0", labels=["B-ARG0", "I-ARG0"])
    with pytest.raises(ValueError, match="empty|no sequence"):
        regccrf.compile("A & A A")


def test_limits_are_their_own_error():
    with pytest.raises(regccrf.LimitError, match="limit|states"):
        regccrf.compile("(A | B)* A (A | B){14}", limits=regccrf.Limits(states=5))


def test_languages_pickle_without_the_files_they_came_from(tmp_path):
    part, whole = tmp_path / "part.lang", tmp_path / "whole.lang"
    part.write_text("language = B I*\n")
    whole.write_text('include "part.lang"\nlanguage = (O | part)*\n')
    language = Language.load(str(whole))
    part.unlink()
    again = pickle.loads(pickle.dumps(language))
    assert again.equals(language) and again.labels == language.labels
    assert copy.deepcopy(language) is language
    assert pickle.loads(pickle.dumps(Language.nothing(["A"]))).empty()


def test_constraint_facts_and_bytes(tmp_path):
    bio = regccrf.compile("(O | B I*)*")
    assert (bio.states, bio.products, list(bio.labels)) == (2, 8, ["O", "B", "I"])
    assert pickle.loads(pickle.dumps(bio)) == bio
    bio.save(str(tmp_path / "bio"))
    assert Constraint.load(str(tmp_path / "bio")) == bio
    assert Constraint.from_bytes(bio.to_bytes()).text == "(O | B I*)*"
    with pytest.raises(regccrf.Error):
        Constraint.from_bytes(b"something else")


def test_compile_takes_what_stands_for_a_language(tmp_path):
    path = tmp_path / "bio.lang"
    path.write_text("language = (O | B I*)*\n")
    expected = Language("(O | B I*)*")
    for source in ["(O | B I*)*", path, expected, regccrf.compile(expected)]:
        assert regccrf.compile(source, labels=["I", "B", "O"]).language().equals(expected)
        assert list(regccrf.compile(source, labels=["I", "B", "O"]).labels) == ["I", "B", "O"]


def test_the_name_of_a_file_is_no_pattern(tmp_path):
    file = tmp_path / "a.lang"
    file.write_text("language = A B*\n")
    with pytest.raises(regccrf.Error, match="pathlib.Path"):
        regccrf.compile(str(file))
    assert list(regccrf.compile(file).labels) == ["A", "B"]


@pytest.mark.parametrize("name", ["no.lang", "no.fst", "folder/no.att"])
def test_the_name_of_a_missing_file_is_no_pattern(name):
    for read in (Language, regccrf.compile):
        with pytest.raises(regccrf.Error, match="is the name of a file, which is not there"):
            read(name)
    assert len(Language("no . lang").labels) == 2


@pytest.mark.parametrize("content", [b"", b"A B*", b"\x00garbage", b"\xd6\xfd\xb2\x7e\x06\x00\x00\x00vec"])
def test_a_damaged_fst_is_no_pattern(content, tmp_path):
    path = tmp_path / "a.fst"
    path.write_bytes(content)
    with pytest.raises(regccrf.Error, match=r"a\.fst: (not an OpenFst file|.*damaged|.*truncated)"):
        Language.load(path)


def test_errors_advise_arguments_and_not_options():
    with pytest.raises(regccrf.LimitError, match=r"limits=regccrf\.Limits\(states=…\)") as error:
        regccrf.compile("(A | B)* A (A | B){14}", limits=regccrf.Limits(states=5))
    assert "--" not in str(error.value) and "::" not in str(error.value)


BIO = regccrf.compile("(O | B I*)*")
H, G = numpy.zeros((2, 3)), numpy.zeros((3, 3))
WRONG = {
    "a str": (lambda: Language(5), r"\[Language\] text is 5 \(int\), expected a str"),
    "labels": (lambda: Language("A", labels="A B"), r"\[Language\] labels is 'A B' \(str\), expected labels, a list of names"),
    "labels of compile": (lambda: regccrf.compile("A", labels="A B"), "a list of label names"),
    "numbers for labels": (lambda: Labels([1, 2]), "a list of label names, each a str"),
    "a path": (lambda: Language.load(5), "a path, a str or pathlib.Path"),
    "a length": (lambda: Language("A").count(-1), r"\[Language.count\] length is -1 \(int\), expected a whole number that is not negative"),
    "a seed": (lambda: Language("A").random(1, seed=0.5), "seed is 0.5"),
    "a sequence": (lambda: Language("A").accepts("A"), r"\[Language.accepts\] sequence is 'A' \(str\), expected a list"),
    "a member": (lambda: "A" in Language("A"), r"\[in Language\] the argument is 'A'"),
    "ids": (lambda: BIO.accepts(["O"]), "a list of label ids"),
    "another language": (lambda: Language("A").equals("A"), "expected a Language"),
    "an unknown argument": (lambda: regccrf.Limits(foo=3), r"\[Limits\] there is no argument foo; there are states, arcs, seconds, products, memory"),
    "too many": (lambda: regccrf.Limits(1, 2, 3, 4, 5, 6), "6 arguments were given, expected at most 5"),
    "arcs": (lambda: Constraint.from_arcs(["A"], 0, [1], [(0, 0)]), "the arguments do not fit"),
    "a language": (lambda: regccrf.compile(5), "the language is a int"),
    "limits": (lambda: regccrf.compile("A", limits=5), "expected a Limits"),
    "a pattern for a constraint": (lambda: regccrf.viterbi("O*", H, G), "regccrf.compile"),
    "a language for a constraint": (lambda: regccrf.viterbi([BIO.language()], H, G), "a constraint is a Language"),
    "k": (lambda: regccrf.k_best(BIO, H, G, k="3"), r"\[k_best\] k is '3'"),
    "a count": (lambda: regccrf.sample(BIO, H, G, count=2.5), r"\[sample\] count is 2.5"),
    "threads": (lambda: regccrf.viterbi(BIO, H, G, threads="x"), r"\[Settings\] threads is 'x'"),
    "an option of train": (lambda: regccrf.train([["a"]], [["A"]], l2="x"), r"l2 is 'x' \(str\), expected a number"),
}


@pytest.mark.parametrize("case", WRONG)
def test_arguments_of_the_wrong_kind(case):
    call, words = WRONG[case]
    with pytest.raises(TypeError, match=words) as error:
        call()
    assert "incompatible" not in str(error.value) and "_core" not in str(error.value)


def test_arcs_round_trip():
    bio = regccrf.compile("(O | B I*)*")
    again = Constraint.from_arcs(bio.labels, bio.start, bio.accepting, bio.arc_list())
    assert again.language().equals(bio.language())
    with pytest.raises(regccrf.Error, match="ambiguous"):
        Constraint.from_arcs(["A"], 0, [1, 2], [(0, 0, 1), (0, 0, 2)])


def test_labels_behave_like_a_sequence():
    labels = Labels(["O", "B"])
    assert len(labels) == 2 and labels[1] == "B" and labels[-1] == "B" and "B" in labels and list(labels) == ["O", "B"]
    assert pickle.loads(pickle.dumps(labels)) == labels and hash(labels) == hash(Labels(["O", "B"]))
    with pytest.raises(IndexError):
        labels[2]


def test_threads_may_share_a_language():
    language, counts = Language("(A | B C)* & at_most(4, A)"), []
    threads = [threading.Thread(target=lambda: counts.append(language.count(40))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(counts)) == 1 and len(counts) == 4
