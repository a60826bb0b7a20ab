"""What a layer's state_dict holds: weights alone, as pytorch-crf's, or the constraint, too."""

import copy
import io
import warnings

import pytest
import torch

from helpers import LABELS, module
from regccrf.torch import CRF, RegCCRF

BIO, ONE = "(O | B I*)*", "(O | B I*)* & at_most(1, B)"
WEIGHTS = ["start_transitions", "end_transitions", "transitions"]


class Model(torch.nn.Module):
    def __init__(self, pattern=BIO, **options):
        super().__init__()
        self.crf = module(pattern, **options)


def through_a_file(state):
    memory = io.BytesIO()
    torch.save(state, memory)
    memory.seek(0)
    return torch.load(memory)


def test_the_keys_are_those_of_an_ordinary_crf():
    assert list(module().state_dict()) == list(CRF(3).state_dict()) == WEIGHTS
    assert list(module(save_constraint=True).state_dict()) == [*WEIGHTS, "_extra_state"]
    assert list(module(save_constraint=True).with_constraint().state_dict()) == WEIGHTS


def test_states_may_be_averaged():
    one, other = Model(), Model(ONE)
    average = {key: (value + other.state_dict()[key]) / 2 for key, value in one.state_dict().items()}
    one.load_state_dict(average)
    assert one.crf.constraint == module(BIO).constraint


def test_a_constraint_travels_on_request():
    crf, other = Model(ONE, save_constraint=True), Model(".*")
    with pytest.warns(UserWarning, match="takes the place"):
        other.load_state_dict(through_a_file(crf.state_dict()))
    assert other.crf.constraint == crf.crf.constraint and torch.equal(other.crf.transitions, crf.crf.transitions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.load_state_dict(crf.state_dict())
    assert list(crf.crf.with_constraint(BIO).state_dict()) == [*WEIGHTS, "_extra_state"]
    assert list(copy.deepcopy(crf).state_dict()) == list(crf.state_dict())


def test_a_state_of_weights_leaves_the_constraint():
    crf, plain = module(ONE), CRF(LABELS).double()
    crf.load_state_dict(plain.state_dict())
    assert torch.equal(crf.transitions, plain.transitions) and crf.constraint == module(ONE).constraint
    plain.load_state_dict(crf.state_dict())
    with pytest.raises(RuntimeError, match="Missing"):
        crf.load_state_dict({})


def test_errors_say_that_it_is_the_constraint():
    state = Model(save_constraint=True).state_dict()
    saved = state["crf._extra_state"]
    renamed = Model()
    renamed.crf = RegCCRF(["O", "I", "B"], BIO).double()
    ordinary = Model()
    ordinary.crf = CRF(LABELS).double()
    for model, value, words in ((renamed, saved, "labels are"), (ordinary, saved, "is a CRF, which has none"), (Model(), saved[:-9], ""),
                                (Model(), saved * 0.5, "float32, expected bytes"), (Model(), 3, "int, expected bytes")):
        with pytest.raises(RuntimeError, match=f"crf._extra_state, the constraint of the saved layer, was not used: .*{words}"):
            model.load_state_dict({**state, "crf._extra_state": value})


def test_pytorch_crf_loads_it_strictly():
    torchcrf = pytest.importorskip("torchcrf", reason="pytorch-crf is not installed")
    theirs, ours = torchcrf.CRF(3).double(), module()
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(theirs.transitions, ours.transitions)
    ours.load_state_dict(theirs.state_dict())
