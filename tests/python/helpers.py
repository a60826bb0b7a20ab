"""What several tests share: languages, random batches, and inference by enumeration (the oracle: no dynamic programme in it)."""

import contextlib
import itertools
import random

import torch

from regccrf.torch import RegCCRF

LABELS = ["O", "B", "I"]
PATTERNS = ["(O | B I*)*", "(O | B I*)* & at_most(1, B)", "(O | B I | I B O)*", "!(. B B .*)", ".*"]


def module(pattern="(O | B I*)*", dtype=torch.double, **options):
    torch.manual_seed(7)
    return RegCCRF(LABELS, constraint=pattern, **options).to(dtype)


def ragged(lengths, K=3, dtype=torch.double, seed=1, batch_first=False):
    """Random emissions [T, B, K] and a mask of right padding."""
    torch.manual_seed(seed)
    T = max(lengths)
    emissions = torch.randn(T, len(lengths), K, dtype=dtype)
    mask = torch.arange(T).unsqueeze(1) < torch.tensor(lengths)
    return (emissions.transpose(0, 1), mask.t()) if batch_first else (emissions, mask)


def legal_tags(crf, lengths, seed=3):
    """Random gold in the language, −100 after its end: [T, B]."""
    language = crf.constraint.language()
    tags = torch.full((max(lengths), len(lengths)), -100)
    for i, length in enumerate(lengths):
        names = random.Random(seed + i).choice(language.of_length(length, most=500))
        tags[:length, i] = torch.tensor(crf.labels.ids(names), dtype=torch.long)
    return tags


def all_scores(crf, emissions):
    """{label ids: score} for one sequence [T, K] and every sequence of the language, by adding up."""
    T = len(emissions)
    scores = {}
    for y in itertools.product(range(crf.num_tags), repeat=T):
        if not crf.constraint.accepts(list(y)).accepted:
            continue
        score = sum(emissions[t, a] for t, a in enumerate(y)) + sum(crf.transitions[a, b] for a, b in zip(y, y[1:]))
        if crf.start_transitions is not None and T:
            score = score + crf.start_transitions[y[0]] + crf.end_transitions[y[-1]]
        scores[y] = score
    return scores


def functional(crf, method):
    """The method as a function of emissions and of the parameters that the module has."""
    names = [name for name, _ in crf.named_parameters()]

    class Method(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.crf = crf

        def forward(self, *args):
            return method(self.crf, *args)

    if hasattr(torch, "func"):
        call = torch.func.functional_call
    else:
        from torch.nn.utils.stateless import functional_call as call
    wrapped = Method()
    return lambda emissions, *parameters: call(wrapped, {f"crf.{n}": p for n, p in zip(names, parameters)}, (emissions,))


def inputs(crf, emissions):
    return (emissions.detach().clone().requires_grad_(), *(p.detach().clone().requires_grad_() for p in crf.parameters()))


@contextlib.contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)
