"""What happened to services, window by window, and the figures that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.scaling.reward import POD_PRICE


@dataclass(frozen=True, slots=True)
class WindowRecords:
    """What happened, [services, windows]."""

    arrived: FloatArray
    late: FloatArray
    never: FloatArray
    replicas: IntArray
    """Pods at the beginning of each window, and the size of one."""
    cpu_m: FloatArray
    pods: FloatArray
    """Means over each window: pods, and the limits of all of them together. Sizes may change between two windows."""
    paid_m: FloatArray
    rps: FloatArray
    p90_s: FloatArray
    """90th percentile of latency, in seconds, of the requests completed in each window."""
    played: IntArray
    """[services]: windows of each; later ones are empty."""
    window_s: float
    percentile: float

    def kept(self) -> BoolArray:
        """Windows within the objective; one without arrivals is."""
        return np.asarray(self.late <= (1 - self.percentile) * self.arrived + 1e-9)

    def _over(self, values: FloatArray) -> FloatArray:
        there = np.arange(values.shape[1]) < self.played[:, None]
        return np.asarray((values * there).sum(axis=1))

    def attained(self) -> FloatArray:
        """Share of windows that kept the objective, by service."""
        return self._over(self.kept().astype(np.float64)) / self.played

    def requests_attained(self) -> FloatArray:
        """Share of requests in time."""
        return 1 - self._over(self.late) / np.maximum(self._over(self.arrived), 1)

    def never_served(self) -> FloatArray:
        """Share of requests that were never served, by service."""
        return self._over(self.never) / np.maximum(self._over(self.arrived), 1)

    def cpu_hours(self) -> FloatArray:
        """Limits of all pods, starting ones included."""
        return self._over(self.paid_m) * self.window_s / 3.6e6

    def replica_hours(self) -> FloatArray:
        """Pods, starting ones included."""
        return self._over(self.pods) * self.window_s / 3600

    def cost(self) -> FloatArray:
        """CPU-hours, pods at their price."""
        return self.cpu_hours() + POD_PRICE * self.replica_hours()

    def switches(self) -> FloatArray:
        """Windows that begin with another size or number."""
        changed = (np.diff(self.replicas, axis=1) != 0) | (np.diff(self.cpu_m, axis=1) != 0)
        there = np.arange(1, self.replicas.shape[1]) < self.played[:, None]
        return np.asarray((changed & there).sum(axis=1).astype(np.float64))
