"""Agreement with ccrf 0.0.3, the original implementation of the paper, on small automata: log_p and MAP."""

import random

import pytest
import torch

import regccrf
from regccrf.torch import RegCCRF

automic = pytest.importorskip("automic", reason="automic is not installed: nothing to agree with")
ccrf = pytest.importorskip("ccrf", reason="ccrf is not installed: nothing to agree with")

PATTERNS = ["(O | B I*)*", "(O | B I*)* & at_most(1, B)", "(O | B I | I B O)*", "O* (B I)+ O*", "(O | B I*)* & at_least(1, I)",
            "((O | B) (B | I))* O?", "!(. B B .*) & (O | B | I)+"]


def random_pattern(seed):
    """A pattern over O, B, I, with every label in it."""
    draw = random.Random(seed)

    def item(depth):
        if depth == 0:
            return draw.choice("OBI")
        form = draw.choice(["{} {}", "({} | {})", "({} {})*", "({})+ {}?"])
        return form.format(item(depth - 1), item(depth - 1))
    return f"(O | B | I | {item(3)})*" if seed % 2 else f"{item(3)} | O B I (O | B | I)*"


def automic_automaton(constraint):
    """The same automaton, with the start state at 0, where automic has it."""
    swap = {0: constraint.start, constraint.start: 0}
    number = lambda q: swap.get(q, q)
    automaton = automic.Automaton(constraint.states, {number(q) for q in constraint.accepting})
    for q, a, r in constraint.arc_list():
        automaton.transitions[number(q)][constraint.labels[a]].add(number(r))
    return automaton


@pytest.mark.parametrize("pattern", PATTERNS + [random_pattern(seed) for seed in range(8)])
def test_log_p_and_map(pattern):
    torch.manual_seed(2)
    constraint = regccrf.compile(pattern, labels=["B", "I", "O"])  # ccrf sorts its labels
    theirs = ccrf.RegCCRF(automic_automaton(constraint))
    ours = RegCCRF(["B", "I", "O"], constraint=constraint, batch_first=True, start_end=False)
    ours.transitions.data.copy_(theirs.label_transitions.data)
    lengths = [n for n in range(1, 8) if constraint.language().count(n)]
    for T in lengths:
        emissions = torch.randn(2, T, 3)
        gold = constraint.language().random(T, many=2, seed=T)
        tags = torch.tensor([ours.labels.ids(names) for names in gold])
        encoded = torch.tensor([theirs.encode(names) for names in gold])
        assert torch.allclose(ours.log_prob(emissions, tags), theirs.log_p(emissions, encoded), atol=1e-4)
        decoded = [ours.labels.ids(theirs.decode(y)) for y in theirs.map(emissions).tolist()]
        assert ours.decode(emissions) == decoded
    assert lengths
