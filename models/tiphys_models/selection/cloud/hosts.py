"""Hosts: price, power, size. Host types are those of the MetaNet test bed, as collected from the public COSCO and CILP repositories."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, HashArray, IntArray

THREADS = 2.0
"""Cores one task can use: every application of the mix runs two threads, so equal shares below this cap are the exact processor sharing."""


@dataclass(frozen=True, slots=True)
class HostType:
    """What hosts of one kind have in common."""

    name: str
    cores: float
    ram_mib: float
    disk_mib: float
    usd_per_hour: float
    power_w: tuple[float, ...]
    """Power at 0, 10, .. 100 % CPU, linear in between; a hibernating host draws nothing."""
    latency_s: float
    """Latency between broker and host: a task starts that much later."""


B2S = HostType("B2s", 2, 4096, 30720, 0.0472, (75.2, 78.2, 84.1, 89.6, 94.9, 100.0, 105.0, 109.0, 112.0, 115.0, 117.0), 0.003)
B4MS = HostType("B4ms", 4, 16384, 30720, 0.166, (71.0, 77.9, 83.4, 89.2, 95.6, 102.0, 108.0, 114.0, 119.0, 123.0, 126.0), 0.076)
B8MS = HostType("B8ms", 8, 32768, 30720, 0.333, (68.7, 78.3, 84.0, 88.4, 92.5, 97.3, 104.0, 111.0, 121.0, 131.0, 137.0), 0.076)
PAPER_FLEET: tuple[tuple[HostType, int], ...] = ((B2S, 60), (B4MS, 20), (B8MS, 20))
"""The 100 machines of the MetaNet paper."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Hosts as arrays, one entry a host. Hosts of one type and pool that run nothing are interchangeable."""

    types: tuple[HostType, ...]
    type_of: IntArray
    pool: IntArray
    """0..63: what placement constraints speak of. A task's bit mask `pools` must have the bit of its host's pool."""

    def __len__(self) -> int:
        return len(self.type_of)

    def column(self, name: str) -> FloatArray:
        """One number of the type (`cores`, `ram_mib`, ..) for every host."""
        return np.array([getattr(kind, name) for kind in self.types], np.float64)[self.type_of]

    def usd_per_s(self) -> FloatArray:
        """Price of every host while it is awake."""
        return self.column("usd_per_hour") / 3600.0

    def power_curves(self) -> FloatArray:
        """Watts, one row of eleven a host."""
        return np.array([kind.power_w for kind in self.types], np.float64)[self.type_of]

    def allowed(self, pools: np.uint64) -> BoolArray:
        """The hosts whose pool is in the mask."""
        bits: HashArray = np.left_shift(np.uint64(1), self.pool.astype(np.uint64))
        return np.asarray((bits & pools) != 0)


def make_fleet(kinds: tuple[tuple[HostType, int], ...] = PAPER_FLEET, pools: int = 1) -> Fleet:
    """So many hosts of each type; pools are dealt out in turn within every type."""
    type_of = np.repeat(np.arange(len(kinds)), [count for _, count in kinds])
    pool = np.concatenate([np.arange(count) % pools for _, count in kinds])
    return Fleet(tuple(kind for kind, _ in kinds), type_of.astype(np.int64), pool.astype(np.int64))


def power_w(curve: FloatArray | tuple[float, ...], utilisation: float) -> float:
    """Watts of one host at a mean CPU utilisation 0..1."""
    place = min(max(utilisation, 0.0), 1.0) * (len(curve) - 1)
    below = min(int(place), len(curve) - 2)
    return float(curve[below] + (curve[below + 1] - curve[below]) * (place - below))
