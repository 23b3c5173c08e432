"""Which images are on which nodes: kept as sorted rows of four bytes each, and as a column only for the few images that requests name."""

from __future__ import annotations

from array import array
from bisect import bisect_left

import numpy as np

from tiphys_models.base.arrays import BoolArray

MOST_IMAGES = 20_000
_MOST_COLUMNS = 64


class ImageRows:
    """Rows by image name. Beyond the most names that are kept, the one that has been neither put nor asked for longest goes."""

    def __init__(self, most: int = MOST_IMAGES, most_columns: int = _MOST_COLUMNS) -> None:
        self._most, self._most_columns = most, most_columns
        self._rows: dict[str, array[int]] = {}
        """Sorted rows by image. A set of them would take twelve times the memory, and a cluster has a hundred of these numbers a node."""
        self._columns: dict[str, BoolArray] = {}
        self.evicted = 0
        """Names that were let go because there were too many: their images count as absent."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, image: str, row: int) -> None:
        """The image is on the node of this row."""
        rows = self._rows.pop(image, None)
        if rows is None:
            rows = array("i")
        at = bisect_left(rows, row)
        if at == len(rows) or rows[at] != row:
            rows.insert(at, row)
        self._rows[image] = rows
        if (column := self._columns.get(image)) is not None:
            column[row] = True
        while len(self._rows) > self._most:
            self._forget(next(iter(self._rows)))
            self.evicted += 1

    def remove(self, image: str, row: int) -> None:
        """Note that an image is no longer on a node."""
        rows = self._rows.get(image)
        if rows is None:
            return
        at = bisect_left(rows, row)
        if at < len(rows) and rows[at] == row:
            del rows[at]
        if (column := self._columns.get(image)) is not None:
            column[row] = False
        if not rows:
            self._forget(image)

    def column(self, image: str, length: int) -> BoolArray | None:
        """Whether it is there, for every row of the table; None where it is nowhere."""
        column = self._columns.get(image)
        if column is not None:
            return column
        rows = self._rows.pop(image, None)
        if rows is None:
            return None
        self._rows[image] = rows  # asked for: the last to go
        column = np.zeros(length, np.bool_)
        column[np.array(rows, np.int64)] = True
        if len(self._columns) >= self._most_columns:
            del self._columns[next(iter(self._columns))]
        self._columns[image] = column
        return column

    def table_grew(self) -> None:
        """Columns are of the former length: they are made anew when asked for."""
        self._columns.clear()

    def _forget(self, image: str) -> None:
        self._rows.pop(image, None)
        self._columns.pop(image, None)
