"""More than one process: a saved model elsewhere, another hash seed, a fork, two ranks of DistributedDataParallel."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from helpers import legal_tags, module, ragged, threads
from regccrf.torch import CRF

TRAIN = """
import sys, torch
from regccrf.torch import RegCCRF
torch.manual_seed(0)
labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
model = torch.nn.Sequential(torch.nn.Linear(4, 5))
crf = RegCCRF(labels, constraint="(O | B-PER I-PER* | B-LOC I-LOC*)* & at_most(1, B-PER)", batch_first=True, save_constraint=True)
x = torch.randn(8, 6, 4)
tags = torch.tensor([labels_ids for labels_ids in map(crf.labels.ids, crf.constraint.language().random(6, many=8, seed=1))])
optimizer = torch.optim.Adam([*model.parameters(), *crf.parameters()], lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    (-crf(model(x), tags)).backward()
    optimizer.step()
torch.save({"model": model.state_dict(), "crf": crf.state_dict(), "x": x}, sys.argv[1])
print(crf.decode(model(x)))
"""

LOAD = """
import sys, torch
from regccrf.torch import RegCCRF
saved = torch.load(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(4, 5))
crf = RegCCRF(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"], constraint=".*", batch_first=True)
model.load_state_dict(saved["model"]); crf.load_state_dict(saved["crf"])
print(crf.decode(model(saved["x"])))
"""


def run(script, *args, hash_seed="0", timeout=None):
    environment = dict(os.environ, PYTHONHASHSEED=hash_seed, PYTHONPATH=os.pathsep.join(sys.path))
    return subprocess.run([sys.executable, "-c", script, *args], env=environment, check=True, capture_output=True, text=True,
                          timeout=timeout).stdout


def test_a_model_decodes_the_same_in_another_process(tmp_path):
    trained = run(TRAIN, str(tmp_path / "model.pt"), hash_seed="1")
    assert len(trained) > 50
    assert all(run(LOAD, str(tmp_path / "model.pt"), hash_seed=seed) == trained for seed in ("2", "77"))


@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_may_use_the_layer():
    crf = CRF(40)
    emissions = torch.randn(100, 32, 40)
    with threads(2):
        crf.decode(emissions)
        child = os.fork()
        if child == 0:
            os._exit(0 if len(crf.decode(emissions)) == 32 else 1)
        assert os.waitpid(child, 0)[1] == 0


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3).double()
        self.crf = module("(O | B I*)* & at_most(2, B)")

    def forward(self, x, tags, mask):
        return -self.crf(self.linear(x), tags, mask)


def batches():
    crf = module("(O | B I*)* & at_most(2, B)")
    lengths = [5, 3, 4, 2]
    return (*ragged(lengths), legal_tags(crf, lengths))


def rank(number, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=number, world_size=2)
    x, mask, tags = batches()
    mine = slice(2 * number, 2 * number + 2)
    model = torch.nn.parallel.DistributedDataParallel(Model())
    model(x[:, mine], tags[:, mine], mask[:, mine]).backward()
    if number == 0:
        torch.save([p.grad for p in model.parameters()], results)
    torch.distributed.destroy_process_group()
    os._exit(0)  # the model's destructor may wait for a thread that waits for this one


def test_two_ranks_have_the_gradients_of_one(tmp_path):
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this PyTorch has no gloo")
    results = str(tmp_path / "gradients.pt")
    torch.multiprocessing.spawn(rank, args=(29500 + os.getpid() % 1000, results), nprocs=2)
    x, mask, tags = batches()
    model = Model()
    model(x, tags, mask).backward()
    for two, one in zip(torch.load(results), model.parameters()):
        assert torch.allclose(2 * two, one.grad)


def test_without_pytorch_the_error_says_what_to_install():
    script = ("import sys; sys.modules['torch'] = None; import regccrf; regccrf.compile('A*')\n"
              "try: import regccrf.torch\nexcept ImportError as e: print(e)")
    assert "pip install regccrf[torch]" in run(script)


BOTH = """
import sys, tempfile, pathlib
for name in sys.argv[1:]:
    __import__(name)
import pynini, regccrf
symbols = pynini.SymbolTable()
for i, name in enumerate(["<eps>", "A", "B"]):
    symbols.add_symbol(name, i)
path = pathlib.Path(tempfile.mkdtemp()) / "a.fst"
regular = pynini.accep("A B", token_type=symbols).set_input_symbols(symbols).set_output_symbols(symbols)
regular.write(str(path))
print(list(regccrf.Language.load(path)), regccrf.compile("(A | B)* A (A | B){3}").states > 0, pynini.compose(regular, regular).num_states())
"""


@pytest.mark.parametrize("order", [("pynini", "regccrf"), ("regccrf", "pynini")])
def test_another_openfst_may_be_in_the_process(order):
    if importlib.util.find_spec("pynini") is None:
        pytest.skip("pynini is not installed")
    assert run(BOTH, *order, timeout=60) == "[['A', 'B']] True 3\n"
