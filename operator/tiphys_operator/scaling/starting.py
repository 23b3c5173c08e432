"""How long pods take from their creation to their readiness, as it is seen."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from tiphys_operator.cluster.scaled import ScaledPod

LONGEST_S = 900.0
"""A pod that became ready later was ready before, or could not be placed."""


class Starts:
    """The pods of one workload that were ready already: each start counts once, also that of a pod which is ready for the second time."""

    def __init__(self) -> None:
        self._ready: frozenset[str] | None = None

    def seen(self, pods: Iterable[ScaledPod]) -> tuple[float, ...]:
        """Starts since the last look, in seconds; at the first look one for all pods that are ready: some may have been so before."""
        there = list(pods)
        known, uids = self._ready, {pod.uid for pod in there}
        self._ready = frozenset(pod.uid for pod in there if pod.ready) | ((known or frozenset()) & uids)
        took = [start_s for pod in there if pod.uid not in (known or ()) and (start_s := _start_s(pod)) is not None]
        return (statistics.median(took),) if known is None and took else tuple(took)


def _start_s(pod: ScaledPod) -> float | None:
    if not pod.ready or pod.created_s is None or pod.ready_s is None:
        return None
    start_s = pod.ready_s - pod.created_s
    return start_s if 0 <= start_s <= LONGEST_S else None
