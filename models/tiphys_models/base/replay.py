"""A ring of rows in named columns: what agents that learn from transitions remember."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tiphys_models.base.arrays import IntArray

Array = np.ndarray[Any, Any]
Column = tuple[tuple[int, ...], type[np.generic]]
"""Shape of one row, and its type."""


class Replay:
    """The newest `size` rows; the oldest are overwritten."""

    def __init__(self, size: int, columns: Mapping[str, Column]) -> None:
        self.size, self.count = size, 0
        """`count`: how many rows ever came."""
        self._columns = {name: np.zeros((size, *shape), kind) for name, (shape, kind) in columns.items()}

    def __len__(self) -> int:
        return min(self.count, self.size)

    def add(self, **rows: Array) -> None:
        """Several rows of every column; more than `size` would overwrite each other."""
        number = len(next(iter(rows.values())))
        at = (self.count + np.arange(number)) % self.size
        for name, values in rows.items():
            self._columns[name][at] = values
        self.count += number

    def clear(self) -> None:
        """Forget all rows that were added."""
        self.count = 0

    def draw(self, number: int, rng: np.random.Generator) -> IntArray:
        """Places of so many rows, drawn with replacement."""
        return rng.integers(0, len(self), number)

    def __getitem__(self, name: str) -> Array:
        """A column, in the order of places."""
        return self._columns[name]

    def in_order(self, name: str) -> Array:
        """A column from the oldest row to the newest."""
        return self._columns[name][(self.count - len(self) + np.arange(len(self))) % self.size]
