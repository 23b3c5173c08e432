"""All known nodes as columns. Rows are reused; `version` tells a reader what has changed since it last looked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.base.facts import NodeFacts
from tiphys_models.base.hashing import stable_hash
from tiphys_models.placement.candidates import CORES, CPU_REQUESTED_MILLI, INFLIGHT, INFLIGHT_MEMORY, MEMORY_CAPACITY, MEMORY_REQUESTED
from tiphys_models.placement.images import MOST_IMAGES, ImageRows
from tiphys_models.placement.schema import NODE_READINGS

UNKNOWN = -1
LEAST_CORES = 1e-3
_NUMBERS = 6


class _RowOf(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return UNKNOWN


@dataclass(slots=True)
class Booked:
    """Requests on one node, exactly."""

    pods: int = 0
    memory: int = 0
    cpu: int = 0
    inflight: int = 0
    inflight_memory: int = 0


class NodeTable:
    """Columns over nodes; grows by doubling. Only `PlacementState` writes to it."""

    def __init__(self, capacity: int = 64, most_images: int = MOST_IMAGES) -> None:
        self.row_of = _RowOf()
        self.names: list[str] = [""] * capacity
        self._free: list[int] = list(range(capacity - 1, -1, -1))
        self._images = ImageRows(most_images)
        self._node_images: dict[int, tuple[str, ...]] = {}
        self._clock = 0
        self._positions_current = True
        self.version = np.zeros(capacity, np.int64)
        self._position = np.zeros(capacity, np.int64)
        self.name_hash = np.zeros(capacity, np.uint64)
        self._books: list[Booked] = [Booked() for _ in range(capacity)]
        self._put_numbers(np.zeros((capacity, _NUMBERS)))
        self.readings = np.full((capacity, len(NODE_READINGS)), np.nan, np.float32)
        self.read_at_s = np.full(capacity, np.nan)
        self.pods = np.zeros(capacity, np.int64)
        """Unfinished pods and calls on each row, those of daemon sets included."""
        self.cores_at_least = np.full(capacity, LEAST_CORES)
        """Cores, of which a node has some: what is divided by. In one piece, because every decision looks at all of it."""

    def __len__(self) -> int:
        return len(self.row_of)

    @property
    def capacity(self) -> int:
        """Length of every column."""
        return len(self.version)

    def put(self, facts: NodeFacts) -> int:
        """Add or update a node; its row."""
        row = self.row_of[facts.name]
        if row == UNKNOWN:
            row = self._take_row(facts.name)
        self.cores[row] = facts.cpu_milli / 1000
        self.cores_at_least[row] = max(facts.cpu_milli / 1000, LEAST_CORES)
        self.memory_capacity[row] = facts.memory_bytes
        self._put_images(row, facts.images)
        self.touch(row)
        return row

    def drop(self, name: str) -> int:
        """Forget a node; the row it had, or UNKNOWN."""
        row = self.row_of.pop(name, UNKNOWN)
        if row != UNKNOWN:
            self._put_images(row, ())
            self.names[row] = ""
            self._free.append(row)
            self._nodes_changed()
        return row

    def book(self, row: int, sign: int, cpu_milli: int, memory_bytes: int, in_flight: bool) -> None:
        """Count a placement on this row, or take back exactly what was counted. The books are whole numbers without an end; the columns
        show them, so that whatever came and went leaves no trace."""
        booked = self._books[row]
        booked.pods += sign
        self.pods[row] = booked.pods
        booked.memory += sign * memory_bytes
        booked.cpu += sign * cpu_milli
        self.memory_requested[row], self.cpu_requested_milli[row] = booked.memory, booked.cpu
        if in_flight:
            booked.inflight += sign
            booked.inflight_memory += sign * memory_bytes
            self.inflight[row], self.inflight_memory[row] = booked.inflight, booked.inflight_memory
        self.touch(row)

    @property
    def images(self) -> ImageRows:
        """Which images are where."""
        return self._images

    def touch(self, row: int) -> None:
        """Say that something a score may read has changed on this row."""
        self._clock += 1
        self.version[row] = self._clock

    def touch_all(self) -> None:
        """Mark every row as changed."""
        self._clock += 1
        self.version[:] = self._clock

    def rows(self, names: Sequence[str]) -> IntArray:
        """Row of every name, UNKNOWN where there is none."""
        return np.fromiter(map(self.row_of.__getitem__, names), np.int64, len(names))

    @property
    def position(self) -> IntArray:
        """Rank of each row's name among all known names."""
        if not self._positions_current:
            for rank, name in enumerate(sorted(self.row_of)):
                self._position[self.row_of[name]] = rank
            self._positions_current = True
        return self._position

    def images_present(self, images: Iterable[str], rows: IntArray) -> BoolArray:
        """Whether all images are on each of these rows' nodes; no image named means no."""
        present: BoolArray | None = None
        for image in images:
            column = self._images.column(image, self.capacity)
            if column is None:
                return np.zeros(len(rows), np.bool_)
            present = column[rows] if present is None else present & column[rows]
        return np.zeros(len(rows), np.bool_) if present is None else present

    def _put_images(self, row: int, images: tuple[str, ...]) -> None:
        before = self._node_images.get(row, ())
        if before is images or before == images:
            return
        for image in set(before).difference(images):
            self._images.remove(image, row)
        for image in set(images).difference(before):
            self._images.add(image, row)
        if images:
            self._node_images[row] = images
        else:
            self._node_images.pop(row, None)

    def _take_row(self, name: str) -> int:
        if not self._free:
            self._grow()
        row = self._free.pop()
        self.row_of[name] = row
        self.names[row] = name
        self.name_hash[row] = stable_hash(name)
        self.numbers[row] = 0
        self.cores_at_least[row] = LEAST_CORES
        self._books[row] = Booked()
        self.readings[row] = np.nan
        self.read_at_s[row] = np.nan
        self.pods[row] = 0
        self._nodes_changed()
        return row

    def _nodes_changed(self) -> None:
        self._positions_current = False
        self.touch_all()  # 'first', 'next' and hash homes mean other nodes now

    def _put_numbers(self, numbers: FloatArray) -> None:
        """One block, so that a view gathers the rows of a request once; the columns are windows into it."""
        self.numbers = numbers
        self.cores, self.memory_capacity, self.memory_requested = (
            numbers[:, CORES],
            numbers[:, MEMORY_CAPACITY],
            numbers[:, MEMORY_REQUESTED],
        )
        self.cpu_requested_milli = numbers[:, CPU_REQUESTED_MILLI]
        self.inflight, self.inflight_memory = numbers[:, INFLIGHT], numbers[:, INFLIGHT_MEMORY]

    def _grow(self) -> None:
        old = self.capacity
        self._free.extend(range(2 * old - 1, old - 1, -1))
        self.names.extend([""] * old)
        self._books.extend(Booked() for _ in range(old))
        self.version = grown(self.version, 2 * old, 0)
        self._position = grown(self._position, 2 * old, 0)
        self.name_hash = grown(self.name_hash, 2 * old, 0)
        self._put_numbers(grown(self.numbers, 2 * old, 0))
        self.readings = grown(self.readings, 2 * old, np.nan)
        self.read_at_s = grown(self.read_at_s, 2 * old, np.nan)
        self.pods = grown(self.pods, 2 * old, 0)
        self.cores_at_least = grown(self.cores_at_least, 2 * old, LEAST_CORES)
        self._images.table_grew()


def grown(column: np.ndarray[Any, Any], length: int, fill: float) -> np.ndarray[Any, Any]:
    """A longer copy, the new part filled."""
    longer = np.full((length, *column.shape[1:]), fill, column.dtype)
    longer[: len(column)] = column
    return longer
