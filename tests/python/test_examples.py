"""The training script runs with either CRF, and its losses are the same; the scripts for transformers run, with tiny random models."""

import json
import os
import pathlib
import runpy
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "wnut17_bilstm_crf.py"
DATA = pathlib.Path(os.environ.get("REGCCRF_DATA", ROOT.parent / "shared" / "data")) / "ner"


def run(script, *arguments):
    """What it prints."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, str(script), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(*arguments):
    return json.loads(run(SCRIPT, "--steps", "8", "--data", DATA, *arguments))["losses"]


@pytest.mark.skipif(not (DATA / "wnut17_wnut17train.conll").exists(), reason=f"no WNUT-17 at {DATA}")
def test_replacing_the_import_keeps_the_loss_curve():
    pytest.importorskip("torchcrf", reason="pytorch-crf is not installed: nothing to compare with")
    ours, theirs = losses("--crf", "regccrf"), losses("--crf", "pytorch-crf")
    assert ours == pytest.approx(theirs, rel=1e-4)
    constrained = losses("--crf", "regccrf", "--constraint")
    assert constrained[0] < ours[0]  # the same scores, but illegal sequences have no share


def run_here(capsys, monkeypatch, script, *arguments):
    """What it prints, in this process, which has transformers already."""
    monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
    capsys.readouterr()
    try:
        runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    except SystemExit as done:
        assert not done.code
    return capsys.readouterr().out


@pytest.fixture
def tiny_models():
    for package in ("transformers", "accelerate"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    import tiny_models
    return tiny_models


def saved(model, tokenizer, folder):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("kind", ["bert", "roberta", "privacy-filter"])
def test_a_pipeline_is_constrained(tiny_models, kind, tmp_path, capsys, monkeypatch):
    folder = saved(*tiny_models.ALL[kind](), tmp_path / "model")
    said = run_here(capsys, monkeypatch, "constrain_pipeline.py", folder, "Ada Lovelace met Alan.", "London", "--aggregation", "first")
    lines = said.splitlines()
    assert lines[0].startswith("labels are " + ("bioes" if kind == "privacy-filter" else "bio, types PER LOC"))
    assert [line.split()[0] for line in lines[1:]] == ["pipeline", "constrained"] * 2
    if kind != "privacy-filter":
        none = run_here(capsys, monkeypatch, "constrain_pipeline.py", folder, "London", "--language", "O*").splitlines()
        assert none[-1] == "constrained  nothing"


def test_personal_data_is_hidden(tiny_models, tmp_path, capsys, monkeypatch):
    folder = saved(*tiny_models.privacy_filter(), tmp_path / "model")
    text = tmp_path / "letter.txt"
    text.write_text("My name is Ada Lovelace, my number 555 0100.", encoding="utf-8")
    hide = lambda *arguments: run_here(capsys, monkeypatch, "privacy_filter.py", folder, text, *arguments)
    spans = [json.loads(line) for line in hide("--json").splitlines()]
    assert spans and all(0 < span["probability"] <= 1 for span in spans)
    hidden = hide()
    assert hidden.count("[") == len(spans)
    biases = {f"transition_bias_{name}": 0.0 for name in ("background_to_start", "end_to_background", "end_to_start", "inside_to_continue",
                                                          "inside_to_end")}
    calibration = tmp_path / "viterbi_calibration.json"
    calibration.write_text(json.dumps({"operating_points": {"default": {"biases": {**biases, "transition_bias_background_stay": 100.0}}}}))
    assert hide("--calibration", calibration) == text.read_text()  # once in the background, it stays there
    assert hide("--least", "1.1") == text.read_text()
    assert len(hide("--json", "--bias", "end_to_start=-100", "--bias", "background_stay=3").splitlines()) < len(spans)


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("kind", ["bert", "roberta", "privacy-filter"])
def test_a_token_classifier_is_trained(tiny_models, kind, tmp_path, capsys, monkeypatch):
    model, tokenizer = tiny_models.ALL[kind]()
    folder = saved(model.base_model, tokenizer, tmp_path / "encoder")
    data = tmp_path / "names.conll"
    data.write_text("ada B-PER\nlovelace I-PER\nmet O\nalan B-PER\n\nthey O\nsaw O\nnew B-LOC\nyork I-LOC\n\n", encoding="utf-8")
    said = run_here(capsys, monkeypatch, "train_token_classifier.py", folder, "--train", data, "--dev", data, "--output", tmp_path / "out",
                    "--epochs", 40, "--rate", 0.02, "--cpu")
    scores = json.loads(said.splitlines()[-1])
    assert scores["f1"] == scores["accuracy"] == 1.0 and scores["loss"] < 0.5
    from regccrf.transformers import constrain
    found = constrain(str(tmp_path / "out"), aggregation_strategy="first")("ada lovelace met alan")
    if kind == "bert":  # the others' tokenizers do not say where words begin in the way that the pipeline asks for
        assert [(x["entity_group"], x["word"]) for x in found] == [("PER", "ada lovelace"), ("PER", "alan")]
