"""The neural SRL experiment, small: word vectors and a corpus written here, one epoch of every model on the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import needs

np = needs.package("numpy")
needs.package("torch")
needs.package("regccrf")

EXPERIMENT = Path(__file__).resolve().parents[2] / "experiments" / "srl"
SENTENCES = [
    ("Peter saw Paul", "ARG0 V ARG1"),
    ("Yesterday Paul saw Peter", "ARGM-TMP ARG0 V ARG1"),
    ("Peter left", "ARG0 V"),
]


def make_corpus(folder):
    text = ""
    for i in range(12):
        words, roles = (column.split() for column in SENTENCES[i % len(SENTENCES)])
        for t, (word, role) in enumerate(zip(words, roles)):
            frame = "see\tsee.01" if role == "V" else "-\t-"
            text += f"{t + 1}\t{word}\t{word}\tX\tX\tX\t*\t{frame}\t({role}*)\n"
        text += "\n"
    for part in ("train", "dev", "test"):
        (folder / f"ewt_srl.{part}.conll").write_text(text)
    words = sorted({word.lower() for sentence, _ in SENTENCES for word in sentence.split()})
    (folder / "glove6B_100d_subset.words.txt").write_text("\n".join(words))
    np.random.default_rng(0).normal(size=(len(words), 100)).astype("<f2").tofile(folder / "glove6B_100d_subset.f16")


def test_all_models_run_and_their_outputs_can_be_scored_again(tmp_path):
    make_corpus(tmp_path)
    command = [
        sys.executable,
        EXPERIMENT / "neural.py",
        "--data",
        tmp_path,
        "--embeddings",
        tmp_path,
        "--encoder",
        "glove",
        "--batch",
        "4",
        "--epochs",
        "12",
        "--seeds",
        "1",
        "--device",
        "cpu",
        "--output",
        tmp_path / "out",
        "--threads",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "out" / "neural.json").read_text())
    systems = {system: parts["test"] for job in report["jobs"] for system, parts in job["systems"].items()}
    assert set(systems) == {
        "CRF-full",
        "CRF-reduced",
        "RegCCRF, constrained decoding",
        "RegCCRF, constrained training",
        "RegCCRF-rich, constrained training",
    }
    assert all(figures["violations"] == 0 for system, figures in systems.items() if system.startswith("RegCCRF"))
    assert systems["RegCCRF, constrained training"]["f1"] > 90
    assert not report["failed"] and str(tmp_path) not in report["runs"][0]["command"]
    again = subprocess.run(
        [sys.executable, EXPERIMENT / "rescore.py", tmp_path / "out", "--data", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0 and again.stdout.endswith("0 different\n"), again.stdout + again.stderr


def test_times_of_all_models_and_their_outputs_are_legal(tmp_path):
    make_corpus(tmp_path)
    options = "--encoder glove --batch 4 --device cpu --steps 2 --warm 0 --shortest 0 --rounds 3"
    folders = ["--data", tmp_path, "--embeddings", tmp_path, "--output", tmp_path / "times.json"]
    done = subprocess.run(
        [sys.executable, EXPERIMENT / "neural_times.py", *options.split(), *folders],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "times.json").read_text())
    assert len(report["training"]) == 4 and len(report["decoding"]) == 5
    for task, quantities in (("training", ("step_ms", "layer_step_ms")), ("decoding", ("ms", "layer_ms"))):
        for figures in report[task].values():
            assert all(len(figures[q]) == 3 and min(figures[q]) > 0 for q in quantities)
    decoding = report["decoding"]
    assert all(f["outputs"] == 12 for f in decoding.values())
    assert all(f["violations"] == 0 for system, f in decoding.items() if system.startswith("RegCCRF"))


def test_models_under_all_rules(tmp_path):
    make_corpus(tmp_path)
    options = "--models crf-all regccrf-full --encoder glove --batch 4 --device cpu".split()
    folders = ["--data", tmp_path, "--embeddings", tmp_path, "--output"]
    training = ["--epochs", "14", "--base-epochs", "10", "--seeds", "1", "--threads", "1"]
    timing = "--pretrain 30 --steps 2 --warm 0 --shortest 0 --rounds 3".split()
    for script, more, output in (("neural.py", training, "out"), ("neural_times.py", timing, "times.json")):
        command = [sys.executable, EXPERIMENT / script, *options, *more, *folders, tmp_path / output]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    jobs = {job["model"]: job for job in json.loads((tmp_path / "out" / "neural.json").read_text())["jobs"]}
    assert jobs["regccrf-full"]["certified"]["losses"] == 4 * 12  # of four epochs, the others know no rules
    assert "certified" not in jobs["crf-all"]
    test = jobs["regccrf-full"]["systems"]["RegCCRF-full, constrained training"]["test"]
    assert test["violations"] == 0 and test["f1"] > 90
    rules = json.loads((tmp_path / "times.json").read_text())["rules"]
    assert list(rules) == ["regccrf-full"] and rules["regccrf-full"]["losses"] == 2 * 4
    again = subprocess.run(
        [sys.executable, EXPERIMENT / "rescore.py", tmp_path / "out", "--data", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0 and again.stdout.endswith("0 different\n"), again.stdout + again.stderr


def test_says_what_is_missing(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            EXPERIMENT / "neural.py",
            "--data",
            tmp_path,
            "--embeddings",
            tmp_path,
            "--encoder",
            "glove",
            "--output",
            tmp_path / "out",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.startswith("neural: error: there are no word vectors at ")
