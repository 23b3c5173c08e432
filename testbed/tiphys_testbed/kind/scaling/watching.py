"""What pods had while a lane was played: looked up every second, and what follows from it. The looks are thin, the sums pure."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError
from tiphys_models.base.quantity import cpu_milli
from tiphys_models.scaling.reward import POD_PRICE

EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class PodsLook:
    """All pods of a namespace at one moment."""

    at_s: float
    """Seconds since the epoch."""
    limits_m: Mapping[str, int]
    """Pod → the larger of what it should have and what its kubelet says it has: what the node cannot give to others."""
    restarts: int


@dataclass(frozen=True, slots=True)
class LaneUse:
    """What a lane's pods used, summed over looks at them."""

    cpu_hours: float
    pod_hours: float
    switches: int
    """Looks at which number or size of the pods differed from the one before."""
    most_pods: int
    restarts: int

    @property
    def cost(self) -> float:
        """The cost of CPU and pods, with the simulator's prices."""
        return self.cpu_hours + POD_PRICE * self.pod_hours


class LaneWatcher(threading.Thread):
    """Looks until it is left."""

    def __init__(self, api: ApiClient, namespace: str) -> None:
        super().__init__(name=f"watch-{namespace}", daemon=True)
        self.looks: list[PodsLook] = []
        self.failed = 0
        self._api, self._path, self._ended = api, f"/api/v1/namespaces/{namespace}/pods", threading.Event()

    def run(self) -> None:
        """A look a second; one that fails is left out and counted."""
        while not self._ended.wait(EVERY_S):
            try:
                self.looks.append(look(self._api.items(self._path), time.time()))
            except ClusterError:
                self.failed += 1

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self.join(10)


def look(pods: Iterable[Mapping[str, Any]], at_s: float) -> PodsLook:
    """Pods that hold resources: those that start and those that end, too."""
    held = [pod for pod in pods if (pod.get("status") or {}).get("phase") in ("Pending", "Running")]
    return PodsLook(at_s, {pod["metadata"]["name"]: _limit_m(pod) for pod in held}, sum(map(_restarts, held)))


def use(looks: Sequence[PodsLook], begin_s: float, end_s: float) -> LaneUse:
    """Between two moments; each look holds until the next."""
    inside = [each for each in looks if begin_s <= each.at_s < end_s]
    if not inside:
        raise ClusterError("nobody looked at the pods while the load was played")
    cpu = pods = 0.0
    for now, after in zip(inside, [*(each.at_s for each in inside[1:]), end_s], strict=True):
        cpu += sum(now.limits_m.values()) / 1000 * (after - now.at_s)
        pods += len(now.limits_m) * (after - now.at_s)
    switches = sum(a.limits_m != b.limits_m for a, b in pairwise(inside))
    most = max(len(each.limits_m) for each in inside)
    return LaneUse(cpu / 3600, pods / 3600, switches, most, max(each.restarts for each in inside))


Samples = Mapping[str, Sequence[tuple[float, float]]]
"""Pod → (time, cores that its cgroup grants), as it was scraped."""


def grown_after_s(samples: Samples, jump_s: float, *, in_place: bool) -> float | None:
    """Seconds from a jump until cgroups granted a fifth more; in place: to a pod that was there before. None: never."""
    before = {pod: found[-1] for pod, series in samples.items() if (found := [cores for at, cores in series if at <= jump_s])}
    if not before:
        return None
    moments = sorted({at for series in samples.values() for at, _ in series if at > jump_s})
    for at in moments:
        latest = {pod: found[-1] for pod, series in samples.items() if (found := [cores for when, cores in series if when <= at])}
        if in_place and any(latest[pod] > 1.2 * cores for pod, cores in before.items()):
            return at - jump_s
        if not in_place and sum(latest.values()) > 1.2 * sum(before.values()):
            return at - jump_s
    return None


def samples_of(answer: Mapping[str, Any]) -> Samples:
    """Samples by pod from a matrix that Prometheus answers."""
    return {series["metric"]["pod"]: [(float(at), float(cores)) for at, cores in series["values"]] for series in answer["data"]["result"]}


def _limit_m(pod: Mapping[str, Any]) -> int:
    wanted = sum(_milli(container.get("resources")) for container in pod["spec"]["containers"])
    given = sum(_milli(status.get("resources")) for status in pod["status"].get("containerStatuses") or ())
    return max(wanted, given)


def _milli(resources: Mapping[str, Any] | None) -> int:
    return cpu_milli(((resources or {}).get("limits") or {}).get("cpu") or 0)


def _restarts(pod: Mapping[str, Any]) -> int:
    return sum(int(status.get("restartCount", 0)) for status in pod["status"].get("containerStatuses") or ())
