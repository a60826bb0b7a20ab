"""torch.export: a program brings its constraint along, into a process that knows others or none."""

import os
import subprocess
import sys

import pytest
import torch

import regccrf
from helpers import LABELS, legal_tags, module, ragged

if not hasattr(getattr(torch, "compiler", None), "is_exporting"):
    pytest.skip("programs hold constraints from PyTorch 2.7 on", allow_module_level=True)

LOAD = """
import sys, torch
from regccrf.torch import CRF, RegCCRF
others = [CRF(3), RegCCRF(["O", "B", "I"], constraint="O*")][:int(sys.argv[2])]
saved = torch.load(sys.argv[1] + ".inputs")
program = torch.export.load(sys.argv[1]).module()
answers = program(*saved["inputs"])
assert all(torch.equal(x, y) for x, y in zip(answers, saved["answers"])), (answers, saved["answers"])
"""


class Answers(torch.nn.Module):
    def __init__(self, *methods):
        super().__init__()
        self.crf, self.methods = module("(O | B I*)* & at_most(1, B)"), methods

    def forward(self, emissions, tags, mask):
        return [method(self.crf, emissions, tags, mask) for method in self.methods]


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("strict", [False, True])
def test_a_program_answers_the_same_in_another_process(strict, others, tmp_path):
    layer = Answers(lambda m, h, y, k: m.log_partition(h, k), lambda m, h, y, k: m.marginals(h, k), lambda m, h, y, k: m.entropy(h, k),
                    lambda m, h, y, k: m.nll(h, y, k, "mean"), lambda m, h, y, k: m.decode_tensor(h, k, fill=-100))
    inputs = (ragged([4, 3])[0], legal_tags(layer.crf, [4, 3]), ragged([4, 3])[1])
    path = str(tmp_path / "program.pt2")
    torch.export.save(torch.export.export(layer, inputs, strict=strict), path)
    torch.save({"inputs": inputs, "answers": [answer.detach() for answer in layer(*inputs)]}, path + ".inputs")
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    found = subprocess.run([sys.executable, "-c", LOAD, path, str(others)], env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("method, words", [
    (lambda m, h, y, k: m.decode(h), "decode_tensor can be"),
    (lambda m, h, y, k: m.log_partition(h, constraint=regccrf.compile("O*", labels=LABELS)), "with_constraint"),
])
def test_what_cannot_be_exported_says_so(method, words):
    emissions, mask = ragged([4, 3])
    with pytest.raises(regccrf.Error, match=words):
        torch.export.export(Answers(method), (emissions, mask.long(), mask), strict=False)
