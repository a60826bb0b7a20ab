"""The API reference that the site is built with: what a docstring and a header become."""
import sys

from needs import ROOT

sys.path.insert(0, str(ROOT / "scripts" / "site"))
import reference


def test_a_docstring_becomes_text_a_list_and_code():
    text = reference.markdown("What it does.\n\n    Args:\n        x: [T]\n        y: a number\n            of some kind.\n\n"
                              "    >>> f(1)\n    2\n    ")
    assert text == ["What it does.", "", "- `x`: [T]", "- `y`: a number of some kind.", "", "", "```pycon", ">>> f(1)", "2", "```", ""]


def test_an_opening_comment_becomes_text_and_code():
    text, used = reference.opening(["// Scores.", "//", "//   int x = 1;", "//", "// More.", "#pragma once"])
    assert used == 5
    assert [line for line in text if line] == ["Scores.", "```cpp", "int x = 1;", "```", "More."]


def test_a_signature_is_as_one_calls_it():
    source = "class C:\n    def f(self, x: int, *, y: Dict[str, int] = {}) -> int:\n        '''Doc.'''\n"
    node = reference.ast.parse(source).body[0].body[0]
    assert reference.call(node) == "f(x: int, *, y: Dict[str, int]={})"
    node.name = "f" * 60
    assert reference.call(node) == "f" * 60 + "(\n    x: int,\n    *,\n    y: Dict[str, int]={})"


def test_every_public_header_is_in_the_reference_without_what_is_private():
    page = "\n".join(reference.cpp_page())
    for path in reference.HEADERS.glob("*.h"):
        assert path.stem == "regccrf" or f"## {path.name}\n" in page
    assert "impl_" not in page and "torch_layer {" not in page and "#include <vector>" not in page
    assert "struct Topology;" not in page and "[language.md](../language.md)" in page
    assert "class Tagger" in page and "Layout::padded(8, 64)" in page


def test_what_a_module_takes_from_private_ones_is_in_its_reference():
    found = {path.name: names for path, names in reference.imported(reference.PACKAGE / "transformers.py")}
    assert found["_decoder.py"] == {"FoundSpan", "SpanDecoder"} and "RegCCRFForTokenClassification" in found["_transformers_model.py"]
    assert list(reference.imported(reference.PACKAGE / "inference.py")) == []
