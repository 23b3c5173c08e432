"""Successive halving: what clearly loses on one episode is not played on six."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

Candidate = TypeVar("Candidate")
_KEPT, _LEAST = 3, 3
"""One of so many goes on, but so many at least."""


def best_by_halving(
    candidates: Sequence[Candidate], value: Callable[[Candidate, int], float], seeds: Sequence[int]
) -> tuple[Candidate, float]:
    """The best candidate and its mean over all seeds. All play the first seed; the better third of those left plays twice as many, until
    the rest have played every seed. Of equals the first is taken; with one seed nothing is left out."""
    found: list[list[float]] = [[] for _ in candidates]
    left, count = list(range(len(candidates))), 1
    while True:
        for i in left:
            found[i] += [value(candidates[i], seed) for seed in seeds[len(found[i]) : count]]
        left.sort(key=lambda i: -float(np.mean(found[i])))
        if count >= len(seeds):
            return candidates[left[0]], float(np.mean(found[left[0]]))
        left = sorted(left[: max(len(left) // _KEPT, _LEAST)])
        count *= 2
