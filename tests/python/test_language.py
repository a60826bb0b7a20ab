"""The language layer from Python: operators, questions, errors, pickling."""

import copy
import pickle
import threading

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
