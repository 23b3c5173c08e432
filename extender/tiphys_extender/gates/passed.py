"""What is remembered of pods that have come past their gate, and what waiting brought those that have run since."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tiphys_extender.gates.metrics import GateMetrics
from tiphys_extender.gates.room import HeldPod
from tiphys_extender.placement.waited import Waited

_REMEMBERED = 5_000
"""Pods, oldest out first."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A pod that has come past its gate."""

    namespace: str
    name: str
    seen_s: float
    """When the gate was first seen, by the clock that nobody sets."""
    go_s: float
    """Seconds from then after which it was expected to be done, had it gone at once; NaN where nobody knew, or it was not held."""
    since_s: float
    """When the gate was first seen, since the epoch."""
    waited: Waited

    def story(self) -> dict[str, Any]:
        """What explain says of it."""
        return {"state": "opened", "since": round(self.since_s, 3), **self.waited.as_json()}


class PassedPods:
    """The last pods that came past their gate, by uid."""

    def __init__(self, metrics: GateMetrics, monotonic_s: Callable[[], float]) -> None:
        self._metrics, self._monotonic_s = metrics, monotonic_s
        self._passed: OrderedDict[str, Passed] = OrderedDict()

    def __contains__(self, uid: object) -> bool:
        return uid in self._passed

    def get(self, uid: str) -> Passed | None:
        """What is remembered of this pod."""
        return self._passed.get(uid)

    def named(self, namespace: str, name: str) -> Passed | None:
        """The newest pod of that name."""
        return next((p for p in reversed(self._passed.values()) if (p.namespace, p.name) == (namespace, name)), None)

    def passes(self, pod: HeldPod) -> None:
        """Its gate has been taken off."""
        waited = Waited(self._monotonic_s() - pod.seen_s, str(pod.reason or ""))
        go_s = pod.go_s if pod.held else math.nan
        self._passed[pod.uid] = Passed(pod.namespace, pod.name, pod.seen_s, go_s, pod.seen_at_s, waited)
        while len(self._passed) > _REMEMBERED:
            self._passed.popitem(last=False)

    def ran(self, uid: str) -> None:
        """A pod has run to its end: what waiting brought it is the difference to what was expected of it without."""
        passed = self._passed.get(uid)
        if passed is None or math.isnan(passed.go_s):
            return
        gain_s = passed.go_s - (self._monotonic_s() - passed.seen_s)
        (self._metrics.gain_s if gain_s >= 0 else self._metrics.lost_s).inc(abs(gain_s))
