"""regccrf.onnx: graphs of plain operators, run by onnxruntime, against `decode`."""

import json
import pathlib
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

import regccrf
from helpers import LABELS, PATTERNS, module
from regccrf.torch import CRF, RegCCRF

for name in ("onnx", "onnxruntime"):
    pytest.importorskip(name, reason=f"{name} is not installed (make test-torch-latest installs it)")

import onnx  # noqa: E402
import onnxruntime  # noqa: E402

import regccrf.onnx  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
NAMES = ["A", "B", "C", "D", "E"]
FILL = -7


def session(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def random_pattern(generator, depth):
    if depth == 0:
        return generator.choice([*NAMES, ".", "[A B]", "[^C]", "[^A D E]"])
    x, y = random_pattern(generator, depth - 1), random_pattern(generator, depth - 1)
    forms = [f"({x} {y})", f"({x} | {y})", f"({x})*", f"({x})* {y}", f"({x} {y})+ ", f"({x} | {y})* & !(.* {x} {x})", f"({x})? ({y})*"]
    return generator.choice(forms)


def random_layers(many):
    """Layers under languages of all sorts, with and without start and end scores, in both layouts."""
    generator = random.Random(11)
    while many:
        pattern = random_pattern(generator, generator.choice([1, 2, 3]))
        try:
            constraint = regccrf.compile(pattern, NAMES, limits=regccrf.Limits(states=3000, arcs=30_000, seconds=5), rules="none")
        except regccrf.Error:  # empty, or too large
            continue
        layer = RegCCRF(NAMES, constraint, batch_first=generator.random() < 0.5, start_end=generator.random() < 0.7)
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter)
        yield layer
        many -= 1


def random_batch(layer, rng):
    """Emissions, some of them −inf, and a mask: none, right padding, or holes."""
    B, T, K = rng.integers(1, 7), rng.integers(0, 12), layer.num_tags
    emissions = rng.normal(size=(B, T, K), scale=rng.choice([0.3, 3, 30])).astype(np.float32)
    emissions[rng.random((B, T, K)) < rng.choice([0, 0.1])] = -np.inf
    kind = rng.integers(3)
    mask = np.ones((B, T), bool) if kind == 0 else np.arange(T) < rng.integers(0, T + 1, size=(B, 1)) if kind == 1 else rng.random((B, T)) < 0.7
    return (emissions, mask) if layer.batch_first else (emissions.transpose(1, 0, 2).copy(), mask.T.copy())


def best(layer, emissions, mask):
    """(labels, score) of every sequence by the core; None where nothing is legal."""
    if not layer.batch_first:
        emissions, mask = emissions.transpose(1, 0, 2), mask.T
    s, e = (None if x is None else x.detach().numpy() for x in (layer.start_transitions, layer.end_transitions))
    found = []
    for h, k in zip(emissions, mask):
        try:
            found.append(regccrf.viterbi(layer.constraint, h, layer.transitions.detach().numpy(), s, e, mask=k))
        except regccrf.Error as error:
            assert error.kind == "impossible", error
            found.append(None)
    return found


def agrees(layer, run, emissions, mask):
    labels, scores = run.run(None, {"emissions": emissions, "mask": mask})
    assert labels.dtype == np.int64
    if not layer.batch_first:
        labels, mask = labels.T, mask.T
    wanted = best(layer, emissions, mask if layer.batch_first else mask.T)
    for y, score, here, path in zip(labels, scores, mask, wanted):
        if path is None:
            assert (y == FILL).all() and score == -np.inf
        else:
            assert y[here].tolist() == path.labels and (y[~here] == FILL).all()
            assert score == pytest.approx(path.score, rel=1e-6, abs=1e-6)
    return sum(path is None for path in wanted)


def test_a_thousand_random_ragged_batches():
    rng, impossible = np.random.default_rng(5), 0
    for layer in random_layers(50):
        run = session(regccrf.onnx.decoder(layer, fill=FILL))
        for _ in range(20):
            impossible += agrees(layer, run, *random_batch(layer, rng))
    assert 20 < impossible < 2000


@pytest.mark.parametrize("name", ["bio", "bioes", "citation-frequent", "gene", "membrane", "srl"])
def test_the_ready_languages(name):
    constraint = regccrf.compile(ROOT / "languages" / f"{name}.lang")
    layer, rng = RegCCRF(list(constraint.labels), constraint, batch_first=True), np.random.default_rng(3)
    run = session(regccrf.onnx.decoder(layer, fill=FILL))
    for _ in range(3):
        agrees(layer, run, *random_batch(layer, rng))


def test_it_is_what_decode_gives():
    layer = module(PATTERNS[1], torch.float, batch_first=True)
    emissions, mask = torch.randn(4, 9, 3), torch.rand(4, 9) > 0.3
    found = session(regccrf.onnx.decoder(layer)).run(["labels"], {"emissions": emissions.numpy(), "mask": mask.numpy()})[0]
    assert found.tolist() == layer.decode_tensor(emissions, mask).tolist()


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_equal_scores_give_a_legal_sequence_with_the_best_score(precision):
    rng = np.random.default_rng(1)
    for pattern in PATTERNS:
        constraint = regccrf.compile(pattern, LABELS)
        g, h = rng.integers(-2, 3, size=(3, 3)), rng.integers(-2, 3, size=(30, 8, 3)).astype(np.float32)
        labels, scores = session(regccrf.onnx.decoder(constraint, g, mask=False, precision=precision)).run(None, {"emissions": h})
        wanted = regccrf.viterbi(constraint, h, g)
        assert scores.tolist() == [path.score for path in wanted]
        for y, x, score in zip(labels.tolist(), h, scores):
            assert constraint.accepts(y) and score == sum(x[t, a] for t, a in enumerate(y)) + sum(g[a, b] for a, b in zip(y, y[1:]))


def test_long_sequences():
    layer = module(PATTERNS[1], torch.float, batch_first=True)
    emissions = torch.randn(1, 5000, 3)
    for precision in ("float64", "float32"):
        found = session(regccrf.onnx.decoder(layer, mask=False, precision=precision)).run(["labels"], {"emissions": emissions.numpy()})[0]
        assert precision == "float32" or found.tolist() == layer.decode(emissions)


@pytest.mark.parametrize("opset", range(13, 27))
def test_every_opset_gives_the_same(opset):
    layer, rng = module("(O | B I*)* & at_most(2, B)", torch.float, batch_first=True), np.random.default_rng(2)
    model = regccrf.onnx.decoder(layer, fill=FILL, opset=opset)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", opset)]
    agrees(layer, session(model), *random_batch(layer, rng))


def operators(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from operators(attribute.g)


def test_the_graph_is_plain():
    """Only operators of ONNX itself, and shapes that can be inferred."""
    for layer in (CRF(4), module(PATTERNS[2], torch.float, batch_first=True), module(PATTERNS[4], torch.float, start_end=False)):
        model = regccrf.onnx.decoder(layer)
        assert {node.domain for node in operators(model.graph)} == {""} and sum(node.op_type == "Scan" for node in operators(model.graph)) == 2
        onnx.checker.check_model(model, full_check=True)


def test_its_names():
    model = regccrf.onnx.decoder(regccrf.compile("A B*"), np.zeros((2, 2)))
    assert json.loads({one.key: one.value for one in model.metadata_props}["labels"]) == ["A", "B"]
    assert [[x.name for x in xs] for xs in (model.graph.input, model.graph.output)] == [["emissions", "mask"], ["labels", "scores"]]


# --- behind an encoder ------------------------------------------------------------------------------------------------------------

ENCODER = """<ir_version: 8, opset_import: ["" : {opset}]>
    encode (float[B, T, 3] x, int64[B, T] attention_mask) => ({type}[B, T, 3] logits, float[B, T, 3] copy)
    {{ copy = Identity(x)
       y = Neg(x)
       logits = Cast<to = {code}>(y) }}"""


def encoder(opset=17, type="float", code=1):
    return onnx.parser.parse_model(ENCODER.format(opset=opset, type=type, code=code))


@pytest.mark.parametrize("type, code", [("float", 1), ("double", 11), ("float16", 10)])
@pytest.mark.parametrize("opset", [13, 18, 21])
def test_joined_to_an_encoder(opset, type, code):
    layer = module(PATTERNS[1], torch.float, batch_first=True)
    model = regccrf.onnx.join(encoder(opset, type, code), layer, emissions="logits", mask="attention_mask")
    assert [x.name for x in model.graph.input] == ["x", "attention_mask"] and [x.name for x in model.graph.output][2:] == ["labels", "scores"]
    x, mask = torch.randn(3, 6, 3), (torch.rand(3, 6) > 0.3).long()
    found = session(model).run(["labels"], {"x": x.numpy(), "attention_mask": mask.numpy()})[0]
    emissions = -x.half().float() if type == "float16" else -x
    assert found.tolist() == layer.decode_tensor(emissions, mask).tolist()


def test_joined_with_a_mask_of_its_own_and_without(tmp_path):
    layer, x = module(PATTERNS[1], torch.float, batch_first=True), torch.randn(2, 4, 3)
    onnx.save(encoder(), tmp_path / "encoder.onnx")
    inputs = {"x": x.numpy(), "attention_mask": np.ones((2, 4), np.int64)}
    mask = np.array([[1, 0, 1, 1], [0, 1, 1, 0]], bool)
    own = session(regccrf.onnx.join(tmp_path / "encoder.onnx", layer, emissions="logits")).run(["labels"], {**inputs, "mask": mask})[0]
    assert own.tolist() == layer.decode_tensor(-x, torch.tensor(mask)).tolist()
    none = session(regccrf.onnx.join(str(tmp_path / "encoder.onnx"), layer, emissions="logits", mask=False, labels="tags", scores="best"))
    assert none.run(["tags"], inputs)[0].tolist() == layer.decode(-x)


class Model(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        torch.manual_seed(1)
        self.emit = torch.nn.Linear(4, 3)
        self.crf = RegCCRF(LABELS, constraint="(O | B I*)* & at_most(1, B)", **options)

    def forward(self, x, mask):
        emissions = self.emit(x)
        return self.crf.decode_tensor(emissions, mask), self.crf.decode_tensor(-emissions, fill=-100)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{"batch_first": True}, {"start_end": False}])
def test_exported_with_the_layer_inside(options, tmp_path):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (make test-torch-latest installs it)")
    if not hasattr(torch.library, "custom_op"):
        pytest.skip("needs PyTorch 2.7")
    layer, dims = Model(**options), {0: torch.export.Dim("one"), 1: torch.export.Dim("other")}
    inputs = (torch.randn(2, 5, 4), torch.ones(2, 5, dtype=torch.bool))
    regccrf.onnx.export(layer, inputs, tmp_path / "m.onnx", dynamic_shapes=(dims, dims), verbose=False)
    model = onnx.load(tmp_path / "m.onnx")
    assert {node.domain for node in operators(model.graph)} == {""}
    assert not any(x.data_type == onnx.TensorProto.UINT8 for x in model.graph.initializer)  # the bytes of the constraint
    run = session(model)
    for shape in ((2, 5), (3, 7), (1, 1)):
        x, mask = torch.randn(*shape, 4), torch.rand(*shape) > 0.3
        for found, wanted in zip(run.run(None, {"x": x.numpy(), "mask": mask.numpy()}), layer(x, mask)):
            assert found.tolist() == wanted.tolist()


@pytest.mark.filterwarnings("ignore")
def test_joined_to_what_torch_exported():
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (make test-torch-latest installs it)")
    if not hasattr(torch.library, "custom_op"):
        pytest.skip("needs PyTorch 2.7")
    layer, emit = module(PATTERNS[1], torch.float, batch_first=True), torch.nn.Linear(4, 3)
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("time")}
    program = torch.onnx.export(emit, (torch.randn(2, 5, 4),), dynamo=True, dynamic_shapes=(dims,), input_names=["x"], verbose=False)
    run = session(regccrf.onnx.join(program.model_proto, layer))
    x, mask = torch.randn(3, 7, 4), torch.rand(3, 7) > 0.3
    assert run.run(["labels"], {"x": x.numpy(), "mask": mask.numpy()})[0].tolist() == layer.decode_tensor(emit(x), mask).tolist()


# --- what it refuses --------------------------------------------------------------------------------------------------------------


def test_what_cannot_be_a_graph_says_why(monkeypatch):
    few = regccrf.compile("A B*")
    kept = regccrf.compile("[A B C]* & at_most(1, A) & at_most(1, B)", rules="all")
    with pytest.raises(regccrf.Error, match=r"keeps 2 rules .* rules=\"none\""):
        regccrf.onnx.decoder(kept, np.zeros((3, 3)))
    with pytest.raises(regccrf.Error, match=r"transitions have shape \(3, 3\), expected \(2, 2\)"):
        regccrf.onnx.decoder(few, np.zeros((3, 3)))
    with pytest.raises(regccrf.Error, match="start hold NaN"):
        regccrf.onnx.decoder(few, np.zeros((2, 2)), start=[0, np.nan])
    with pytest.raises(TypeError, match="transitions are needed"):
        regccrf.onnx.decoder(few)
    with pytest.raises(TypeError, match="a layer brings its own scores"):
        regccrf.onnx.decoder(CRF(2), np.zeros((2, 2)))
    with pytest.raises(TypeError, match="crf is a str"):
        regccrf.onnx.decoder("A B*", np.zeros((2, 2)))
    with pytest.raises(ValueError, match="precision is 'half'"):
        regccrf.onnx.decoder(CRF(2), precision="half")
    with pytest.raises(ValueError, match="opset is 12, expected 13 to 26"):
        regccrf.onnx.decoder(CRF(2), opset=12)
    monkeypatch.setattr(regccrf.onnx, "_MOST_BYTES", 100)
    with pytest.raises(regccrf.Error, match="MiB are the most"):
        regccrf.onnx.decoder(CRF(30))


@pytest.mark.parametrize("arguments, words", [
    ({}, "has several outputs: emissions= is to name one of logits, copy"),
    ({"emissions": "logit"}, "has no output 'logit'"),
    ({"emissions": "logits", "mask": "word_mask"}, "no input or output 'word_mask'"),
    ({"emissions": "logits", "labels": "y"}, "has a value 'y' already"),
])
def test_what_cannot_be_joined_says_why(arguments, words):
    with pytest.raises(regccrf.Error, match=words):
        regccrf.onnx.join(encoder(), CRF(3, batch_first=True), **arguments)


def test_an_encoder_with_other_labels():
    with pytest.raises(regccrf.Error, match=r"'logits' has shape \['\?', '\?', 3\], expected three dimensions, the last of 4 labels"):
        regccrf.onnx.join(encoder(), CRF(4), emissions="logits")
    with pytest.raises(regccrf.Error, match="opset 12, expected 13 to 26"):
        regccrf.onnx.join(encoder(12), CRF(3), emissions="logits")


def test_it_imports_its_own_world_only():
    code = "import sys, regccrf.onnx; print([m for m in ('torch', 'sklearn', 'onnxruntime', 'usaddress', 'transformers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True).stdout == "[]\n"


def test_what_to_install_where_it_is_missing():
    code = "import sys; sys.modules['onnx'] = None; import regccrf.onnx"
    found = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True)
    assert "pip install regccrf[onnx]" in found.stderr
