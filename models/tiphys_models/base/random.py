"""Random numbers by name: one stream of numbers for each string of words, the same in every process and release."""

from __future__ import annotations

import numpy as np

from tiphys_models.base.hashing import stable_hash


def stream(*words: object) -> np.random.Generator:
    """The random numbers that belong to these words and to no others."""
    return np.random.default_rng(stable_hash("/".join(map(str, words))))
