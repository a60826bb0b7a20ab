"""`regccrf train` is killed at random moments, also while it saves: the model file is always the old one or the new
one, and resuming gives the weights of a run that nobody killed.

REGCCRF_PROGRAM names the program, build/regccrf by default; REGCCRF_KILLS says how often it is killed (6).
"""
import json
import os
import random
import struct
import subprocess
import time

import pytest

from needs import PROGRAM

ITERATIONS = 40
KILLS = int(os.environ.get("REGCCRF_KILLS", "6"))

pytestmark = pytest.mark.usefixtures("program")


def corpus(sentences, seed):
    """Words whose endings tell their labels, mostly."""
    chance = random.Random(seed)
    text = []
    for _ in range(sentences):
        label = "O"
        for _ in range(chance.randint(3, 25)):
            label = chance.choice(["O", "O", "B-X", "B-Y"] + (["I" + label[1:]] if label != "O" else []))
            ending = label[-1] if chance.random() < 0.8 else chance.choice("OXY")
            text.append(f"w{chance.randint(0, 3000)}{ending}\t{label}")
        text.append("")
    return "\n".join(text)


def tensors(path):
    """What a model holds, without its metadata."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__")
    data = content[8 + length :]
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


class Trainer:
    def __init__(self, folder, optimizer):
        self.folder = folder
        self.model, self.checkpoint = folder / "model", folder / "checkpoint"
        self.options = ["--optimizer", optimizer, "--tolerance", "0", "--threads", "1", "-e", "bio({X Y})", "--quiet"]

    def command(self, iterations, model, *more):
        return [PROGRAM, "train", self.folder / "train.conll", "-m", model, "--max-iterations", str(iterations),
                *self.options, *more]

    def run(self, iterations, model, *more):
        subprocess.run(self.command(iterations, model, *more), check=True, timeout=300)

    def start(self):
        return subprocess.Popen(
            self.command(ITERATIONS, self.model, "--checkpoint", self.checkpoint, "--every", "2", "--resume"),
            stderr=subprocess.PIPE)

    def begin_anew(self, old):
        self.checkpoint.unlink(missing_ok=True)
        self.model.write_bytes(old)


def kill_with(process, checkpoint):
    """As soon as there is a checkpoint."""
    while process.poll() is None and not checkpoint.exists():
        time.sleep(0.001)
    process.kill()
    process.wait()


def kill(process, folder, chance, seconds):
    """At a random moment, or as soon as the checkpoint or the model is being written. False if it was done before."""
    moment = chance.choice(["any", "checkpoint.part", "model.part"])
    end = time.monotonic() + chance.uniform(0, seconds)
    while moment != "model.part" and time.monotonic() < end and process.poll() is None:
        time.sleep(0.001)
    while moment != "any" and process.poll() is None and not any(moment in name for name in os.listdir(folder)):
        pass
    process.kill()
    return process.wait() != 0


@pytest.mark.parametrize("optimizer", ["lbfgs", "adagrad"])
def test_killing_loses_nothing(tmp_path, optimizer):
    chance = random.Random(1)
    (tmp_path / "train.conll").write_text(corpus(800, 1))
    trainer = Trainer(tmp_path, optimizer)
    trainer.run(1, tmp_path / "old")
    old = (tmp_path / "old").read_bytes()
    begin = time.monotonic()
    trainer.run(ITERATIONS, tmp_path / "whole", "--checkpoint", tmp_path / "whole.checkpoint", "--every", "2")
    seconds = time.monotonic() - begin
    new = tensors(tmp_path / "whole")

    trainer.begin_anew(old)
    kill_with(trainer.start(), trainer.checkpoint)
    assert trainer.checkpoint.exists()
    for _ in range((KILLS + 1) // 2):
        process = trainer.start()
        killed = kill(process, tmp_path, chance, 0.4 * seconds)
        for part in tmp_path.glob("*.part*"):
            part.unlink()
        content = trainer.model.read_bytes()
        assert content == old or tensors(trainer.model) == new
        if not killed:
            assert process.returncode == 0, process.stderr.read().decode()
            assert tensors(trainer.model) == new
            trainer.begin_anew(old)
    trainer.run(ITERATIONS, trainer.model, "--checkpoint", trainer.checkpoint, "--every", "2", "--resume")
    assert tensors(trainer.model) == new
