"""Documents are programs: docstrings, README.md and the Python pages of docs/ run here."""

import doctest
import importlib
import pathlib
import re

import numpy
import pytest
import torch

import regccrf
import regccrf.inference
import regccrf.sklearn
import regccrf.tagger
import regccrf.torch
from regccrf import _core

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def documented():
    """(name, docstring) of everything public."""
    for module in (regccrf, regccrf.inference, regccrf.sklearn, regccrf.tagger, regccrf.torch):
        yield module.__name__, module.__doc__
    owners = [(name, value) for module in (_core, regccrf, regccrf.inference, regccrf.torch) for name, value in vars(module).items()
              if not name.startswith("_") and getattr(value, "__module__", "").startswith("regccrf")]
    for name, value in dict(owners).items():
        yield name, value.__doc__
        for member, inner in vars(value).items() if isinstance(value, type) else []:
            inner = getattr(inner, "__func__", inner)
            if not member.startswith("_") and isinstance(getattr(inner, "__doc__", None), str):
                yield f"{name}.{member}", inner.__doc__


EXAMPLES = {name: doc for name, doc in documented() if doc and ">>>" in doc}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_docstring(name):
    names = {**vars(regccrf), **vars(regccrf.torch), **vars(regccrf.inference), "np": numpy, "torch": torch, "regccrf": regccrf}
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], names, name, None, 0)
    failures = []
    doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=failures.append)
    assert not failures, "\n".join(failures)


def test_everything_public_is_documented():
    for name in regccrf.__all__:
        value = getattr(regccrf, name)
        assert name in ("__version__", "LanguageLike") or value.__doc__, name
    assert len(EXAMPLES) > 50


def run_page(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    exec(compile("\n".join(blocks), name, "exec"), {"__name__": name})


@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "docs/from-pytorch-crf.md", "docs/from-crfsuite.md"])
def test_a_page(page, monkeypatch, tmp_path):
    run_page(page, monkeypatch, tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_the_page_on_transformers(monkeypatch, tmp_path):
    """With tiny random models where the page names pretrained ones."""
    for package in ("transformers", "accelerate"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    import tiny_models
    named = {"dslim/bert-base-NER": tiny_models.bert(max_length=64), "openai/privacy-filter": tiny_models.privacy_filter()}
    encoder, tokenizer = tiny_models.bert()
    for name, (model, its_tokenizer) in {**named, "bert-base-cased": (encoder.base_model, tokenizer)}.items():
        model.save_pretrained(tmp_path / name)
        its_tokenizer.save_pretrained(tmp_path / name)
    run_page("docs/transformers.md", monkeypatch, tmp_path)


def run_session(name):
    """A page whose code is what one types at Python's prompt, with the answers."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.M | re.S)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name, name, 0)
    assert test.examples
    failures = []
    doctest.DocTestRunner(optionflags=FLAGS | doctest.IGNORE_EXCEPTION_DETAIL, verbose=False).run(test, out=failures.append)
    assert not failures, "\n".join(failures)


@pytest.mark.filterwarnings("ignore")
def test_labels_out_of_a_graph(monkeypatch, tmp_path):
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason=f"{package} is not installed (make test-torch-latest installs it)")
    monkeypatch.chdir(tmp_path)
    run_session("docs/onnx.md")


@pytest.mark.parametrize("name, packages", [("onnx", ["onnx", "onnxruntime"]), ("parserator", ["usaddress", "probablepeople"])])
def test_docstrings_of_parts_with_a_world_of_their_own(name, packages):
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed (make test-torch-latest installs it)")
    found = doctest.testmod(importlib.import_module(f"regccrf.{name}"), optionflags=FLAGS, extraglobs={"regccrf": regccrf, "CRF": regccrf.torch.CRF})
    assert found.attempted > 2 and not found.failed


def test_addresses_and_names():
    for package in ("usaddress", "probablepeople"):
        pytest.importorskip(package, reason=f"{package} is not installed (make test-torch-latest installs it)")
    run_session("docs/parserator.md")


def test_docstrings_of_transformers():
    pytest.importorskip("transformers", reason="transformers is not installed")
    import regccrf.transformers
    docs = [(name, value.__doc__) for name, value in vars(regccrf.transformers).items() if name in regccrf.transformers.__all__]
    docs += [(f"SpanDecoder.{name}", value.__doc__) for name, value in vars(regccrf.transformers.SpanDecoder).items()]
    examples = [(name, doc) for name, doc in docs if doc and ">>>" in doc]
    assert len(examples) > 5
    for name, doc in examples:
        test = doctest.DocTestParser().get_doctest(doc, dict(vars(regccrf.transformers)), name, None, 0)
        failures = []
        doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=failures.append)
        assert not failures, "\n".join(failures)
