"""What several tests share: languages, random batches, and inference by enumeration (the oracle: no dynamic programme in it)."""

import contextlib
import itertools
import math
import random

import torch

from regccrf import compile
from regccrf.torch import RegCCRF

LABELS = ["O", "B", "I"]
PATTERNS = ["(O | B I*)*", "(O | B I*)* & at_most(1, B)", "(O | B I | I B O)*", "!(. B B .*)", ".*"]

# Gold under (O | B I*)*, "-" for masked. All scores are 0: e to the sum of the losses, where gold outside the language is skipped, and what
# the sum is divided by in mean and token_mean. (There are 1, 2, 5, 13 sequences of length 0, 1, 2, 3.)
REDUCTION_CASES = {
    "none outside": (["BIO", "OB-"], 13 * 5, 2, 5),
    "some outside": (["OIO", "OB-"], 5, 1, 2),
    "all outside": (["OIO", "I--"], 1, 1, 1),
    "holes, some outside": (["B-I", "-IO", "OO-"], 5 * 5, 2, 4),
    "an empty sequence": (["---", "BIO"], 13, 2, 3),
    "all masked": (["---", "---"], 1, 2, 1),
    "an empty batch": ([], 1, 1, 1),
}
OUTSIDE_CASES = [case for case in REDUCTION_CASES if case.endswith(("some outside", "all outside"))]


def module(pattern="(O | B I*)*", dtype=torch.double, **options):
    torch.manual_seed(7)
    return RegCCRF(LABELS, constraint=pattern, **options).to(dtype)


def zero_module(**options):
    """A module whose scores are all 0."""
    crf = module(**options)
    for parameter in crf.parameters():
        torch.nn.init.zeros_(parameter)
    return crf


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


def reduction_case(case, reduction, outside):
    """Tags and mask [T, B], and their loss."""
    gold, product, sequences, positions = REDUCTION_CASES[case]
    ids = torch.tensor([["OBI-".index(label) for label in sequence] for sequence in gold], dtype=torch.long).view(len(gold), 3).t()
    loss = math.log(product) / {"sum": 1, "mean": sequences, "token_mean": positions}[reduction]
    return ids % 3, ids != 3, math.inf if outside == "inf" and case in OUTSIDE_CASES else loss


def reduced_losses(crf, tags, mask, reduction):
    """The loss by the three ways that there are: gold, sets of labels, several constraints. All emissions are 0."""
    emissions = torch.zeros(*tags.shape, 3, dtype=torch.double, device=tags.device)
    each = [crf.constraint if i % 2 else compile("(O | B I*)* & .*", LABELS) for i in range(tags.shape[1])]
    sets = torch.nn.functional.one_hot(tags, 3).bool()
    return {"gold": crf.nll(emissions, tags, mask, reduction), "sets": crf.nll(emissions, sets, mask, reduction),
            "constraints": crf.nll(emissions, tags, mask, reduction, constraint=each)}


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
