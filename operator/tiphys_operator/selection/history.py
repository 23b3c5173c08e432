"""Utilisation of nodes over the last intervals, for forecasters: small enough to be kept with everything else that must survive."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.hashing import stable_hash
from tiphys_models.selection.cloud.state import HISTORY

CELLS_MAX = 150_000
"""Nodes x intervals, a byte each: 1,500 nodes for 100 intervals; with more nodes fewer intervals."""
_STEPS = 200
"""Half a percent is finer than any forecast."""

_Bytes = npt.NDArray[np.uint8]
_Hashes = npt.NDArray[np.uint32]


class History(BaseModel):
    """Nodes are known by 32 bits of their names' hashes: as good as the names, and a tenth of their length."""

    model_config = ConfigDict(extra="ignore")

    nodes: str = ""
    """Base64 of the hashes, in the order of the columns."""
    shares: str = ""
    """Base64 of used shares in steps of half a percent, interval after interval, oldest first."""

    def of(self, names: Sequence[str]) -> FloatArray:
        """Intervals x these nodes; one that was not there yet was idle."""
        return self._columns(_hashes(names)) / _STEPS

    def after(self, names: Sequence[str], used: FloatArray) -> History:
        """The history with one more interval. Nodes that are gone leave; if half of a fleet is replaced, the other half keeps its past."""
        hashes = _hashes(names)
        row = np.round(np.clip(used, 0.0, 1.0) * _STEPS).astype(np.uint8)
        most = max(min(HISTORY, CELLS_MAX // max(len(names), 1)), 1)
        rows = np.vstack([self._columns(hashes), row])[-most:]
        return History(nodes=_text(hashes.astype("<u4").tobytes()), shares=_text(rows.tobytes()))

    def _columns(self, wanted: _Hashes) -> _Bytes:
        known, rows = self._read()
        place = {node: column for column, node in enumerate(known.tolist())}
        columns = np.array([place.get(node, -1) for node in wanted.tolist()], np.int64)
        found = np.zeros((len(rows), len(wanted)), np.uint8)
        found[:, columns >= 0] = rows[:, columns[columns >= 0]]
        return found

    def _read(self) -> tuple[_Hashes, _Bytes]:
        """What nobody can read is no history: forecasters start anew, and that is all."""
        try:
            known = np.frombuffer(b64decode(self.nodes, validate=True), "<u4").astype(np.uint32)
            rows = np.frombuffer(b64decode(self.shares, validate=True), np.uint8).reshape(-1, len(known))
        except ValueError:
            return np.zeros(0, np.uint32), np.zeros((0, 0), np.uint8)
        return known, np.minimum(rows, _STEPS)


def _hashes(names: Sequence[str]) -> _Hashes:
    return np.array([stable_hash(name) & 0xFFFFFFFF for name in names], np.uint32)


def _text(raw: bytes) -> str:
    return b64encode(raw).decode("ascii")
