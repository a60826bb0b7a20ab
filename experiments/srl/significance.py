"""A permutation test over the seeds of two systems: how often would a difference of means so large arise by chance?

The scores of both are pooled and dealt out anew in every way (exact), or in random ways where there are too many.
Two-tailed.
"""
from __future__ import annotations

from itertools import combinations, islice
from math import comb
from typing import Sequence, Tuple

import numpy as np


def permutation_test(
    a: Sequence[float], b: Sequence[float], most: int = 3_000_000, seed: int = 0
) -> Tuple[float, bool]:
    """The p-value, and whether it is exact: at most `most` ways are tried."""
    if not a or not b:
        raise ValueError("a permutation test needs scores of both systems")
    pooled = np.array([*a, *b], float)
    pooled -= pooled.mean()  # the difference of means is then proportional to the sum of either group
    observed = abs(pooled[:len(a)].sum()) - 1e-9
    ways = comb(len(pooled), len(a))
    if ways <= most:
        extreme, dealt = 0, combinations(range(len(pooled)), len(a))
        while chunk := list(islice(dealt, 100_000)):
            extreme += int((np.abs(pooled[np.array(chunk)].sum(axis=1)) >= observed).sum())
        return extreme / ways, True
    random = np.random.default_rng(seed)
    draws = 100_000
    sums = np.array([random.permutation(pooled)[:len(a)].sum() for _ in range(draws)])
    return (1 + int((np.abs(sums) >= observed).sum())) / (1 + draws), False
