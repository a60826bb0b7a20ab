"""regccrf.parserator against usaddress and probablepeople themselves."""

import pathlib
import pickle
import random
import subprocess
import sys
import types
from xml.etree import ElementTree

import pytest

import regccrf
from regccrf import parserator

for name in ("usaddress", "probablepeople"):
    pytest.importorskip(name, reason=f"{name} is not installed (make test-torch-latest installs it)")

import probablepeople as their_names  # noqa: E402
import usaddress as their_addresses  # noqa: E402

from regccrf.parserator import probablepeople, usaddress  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "addresses"
ADDRESSES = ["Room 12, 50 Main St, Room 13", "State St & Lake St, Chicago", "PO Box 7, Elgin IL 60120", "9 Elm Rd Elgin IL 12 Oak Ave", "&", "#"]
NAMES = ["Mr. and Mrs. John Smith", "Bob and Ann Jones and Tim Smith", "Acme Inc. c/o Bob Jones Acme", "Smith, John Smith, Ann", "Ann"]
# As a form has fields: two lines, a place, and the rest by its labels.
MAPPING = {**{label: "line1" for label in their_addresses.LABELS if label.startswith(("Address", "Street"))}, "SecondStreetName": "line2",
           "OccupancyType": "line2", "OccupancyIdentifier": "line2", "IntersectionSeparator": "line1", "PlaceName": ""}


def their_answer(package, text, *arguments):
    try:
        return package.tag(text, *arguments)
    except package.RepeatedLabelError:
        return None


def counts(package, labels, *arguments):
    """Whether their `tag` can count these labels. The code is theirs, and `parse` is put in its place."""
    names = {**vars(package), "parse": lambda *_: [(str(i), label) for i, label in enumerate(labels)]}
    tag = types.FunctionType(package.tag.__code__, names, "tag", package.tag.__defaults__)
    try:
        tag("", *arguments)
    except package.RepeatedLabelError:
        return False
    return True


def sequences(labels, often, many):
    """Random ones, most of few labels, so that many are legal and many are not."""
    generator = random.Random(7)
    for _ in range(many):
        few = generator.sample(labels, generator.choice([1, 2, 3, len(labels)])) + generator.sample(often, generator.choice([0, 1, 2]))
        yield [generator.choice(few) for _ in range(generator.randrange(9))]


def agrees(constraint, package, often, *arguments):
    seen = set()
    for labels in sequences(list(constraint.labels), often, 20_000):
        legal = counts(package, labels, *arguments)
        assert constraint.accepts(constraint.labels.ids(labels)).accepted == legal, labels
        seen.add(legal)
    assert seen == {True, False}


@pytest.mark.parametrize("mapping", [{}, MAPPING])
def test_the_language_of_addresses_is_what_their_tag_counts(mapping):
    labels = usaddress._model.labels
    constraint = regccrf.compile(parserator._one_piece(list(labels), mapping), labels, rules="all")
    agrees(constraint, their_addresses, ["IntersectionSeparator", "StreetName"], mapping)


def test_the_ready_language_of_addresses_is_what_their_tag_counts():
    agrees(regccrf.compile(ROOT / "languages" / "address-parts.lang", rules="all"), their_addresses, ["IntersectionSeparator", "StreetName"])


def test_the_language_of_names_is_what_their_tag_counts():
    often = ["And", "AKA", "ProxyFor", "CorporationNameOrganization", "CorporationNameBranchType", "CorporationNameBranchIdentifier"]
    agrees(probablepeople._constraint, their_names, often)


@pytest.mark.parametrize("text", ["", " , ", *ADDRESSES])
@pytest.mark.parametrize("mapping", [None, {}, MAPPING])
def test_addresses(text, mapping):
    theirs, ours = their_answer(their_addresses, text, mapping), usaddress.tag(text, mapping)
    assert theirs is None or ours == theirs


@pytest.mark.parametrize("text", ["", " , ", *NAMES])
@pytest.mark.parametrize("kind", [None, "generic", "person", "company"])
def test_names(text, kind):
    theirs, ours = their_answer(their_names, text, kind), probablepeople.tag(text, kind)
    assert theirs is None or ours == theirs


def test_some_of_these_raise_in_theirs():
    assert [their_answer(their_addresses, text) for text in ADDRESSES].count(None) == 2
    assert [their_answer(their_names, text) for text in NAMES].count(None) == 3


@pytest.mark.parametrize("file, strings, raised", [("training", 1513, 37), ("measure_performance_test_data", 146, 3)])
def test_their_own_addresses(file, strings, raised):
    path = DATA / f"usaddress_{file}_labeled.xml"
    if not path.is_file():
        pytest.skip(f"there is no {path}")
    texts = ["".join(one.itertext()) for one in ElementTree.parse(path).getroot()]
    theirs = [their_answer(their_addresses, text) for text in texts]
    ours = [usaddress.tag(text) for text in texts]
    assert (len(texts), theirs.count(None)) == (strings, raised)
    assert all(a is None or a == b for a, b in zip(theirs, ours))


def test_parse_gives_what_tag_counts():
    for text in ADDRESSES:
        labels = [label for _, label in usaddress.parse(text)]
        assert counts(their_addresses, labels)
        assert [token for token, _ in usaddress.parse(text)] == their_addresses.tokenize(text)
    for text in NAMES:
        assert counts(their_names, [label for _, label in probablepeople.parse(text, "person")])


class Exhausted:
    """A tagger whose search passes its limit."""

    def __init__(self, model):
        self.model = model

    def tag(self, features):
        error = regccrf.Error("too much")
        error.kind = "limit"
        raise error


@pytest.mark.parametrize("mapping", [{}, MAPPING])
def test_past_the_limit_of_the_search_there_is_an_answer_too(mapping):
    for text in [*ADDRESSES, " ".join(ADDRESSES)]:
        found = usaddress._label(text, Exhausted(usaddress._model), lambda label: mapping.get(label) or label)
        assert [token for token, _ in found] == their_addresses.tokenize(text)
        assert counts(their_addresses, [label for _, label in found], mapping)
    person = probablepeople._tagger("person").model
    for text in [*NAMES, " ".join(NAMES)]:
        assert counts(their_names, [label for _, label in probablepeople._label(text, Exhausted(person), str)])


def test_everything_else_is_theirs():
    assert usaddress.LABELS is their_addresses.LABELS and usaddress.RepeatedLabelError is their_addresses.RepeatedLabelError
    assert probablepeople.tokenize is their_names.tokenize
    assert pickle.loads(pickle.dumps(usaddress)) is usaddress
    with pytest.raises(AttributeError, match="no attribute 'no_such'"):
        _ = usaddress.no_such
    with pytest.raises(AttributeError, match="no_such"):
        _ = parserator.no_such
    with pytest.raises(KeyError, match="'generic', 'person', 'company'"):
        probablepeople.tag("Ann", "robot")


def test_what_to_install_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "usaddress", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install regccrf\[parserator\]"):
        parserator._PACKAGES["usaddress"]()


def test_it_imports_its_own_world_only():
    code = "import sys, regccrf.parserator; print([m for m in ('torch', 'sklearn', 'onnx', 'usaddress', 'probablepeople') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True).stdout == "[]\n"


def test_the_comparison(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(ADDRESSES))
    (tmp_path / "n.xml").write_text("<NameCollection><Name><GivenName>Ann</GivenName> <Surname>Lee</Surname></Name></NameCollection>")
    run = [sys.executable, str(ROOT / "bench" / "parserator" / "run.py"), "--repeats", "1", str(tmp_path / "a.txt"), str(tmp_path / "n.xml")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in subprocess.check_output(run, text=True).splitlines()[2:]]
    assert [row[1] for row in rows] == ["usaddress 0.5.16", "regccrf", "probablepeople 0.5.6", "regccrf"]
    assert [row[2:4] for row in rows] == [["6", "2"], ["6", "0"], ["1", "0"], ["1", "0"]]
    assert [row[4] for row in rows[:2]] == ["–", "–"] and rows[2][4] == rows[3][4]
