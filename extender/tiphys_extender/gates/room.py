"""Pods that carry the gate: since when, until when at the latest, and in which order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tiphys_extender.gates.needs import is_understood, needs_of
from tiphys_models.api.reasons import OpenReason
from tiphys_models.base.facts import PodFacts, pod_facts
from tiphys_models.base.quantity import timestamp_s
from tiphys_models.placement.gate import opening_patch
from tiphys_models.placement.waiting import NotYet

MOST_OF_A_FUNCTION = 200
"""Pods of one function that wait at once: so many instances do not come free within the bound."""
MOST_OF_A_NAMESPACE = 500
MOST = 1_000
_WHOLE_SECOND_S = 1.0
"""The API server cuts creation times down to whole seconds: a pod may be younger than it says by so much."""


@dataclass(slots=True)
class HeldPod:
    """A pod behind our gate. Of its spec no more is kept than a decision reads."""

    uid: str
    namespace: str
    name: str
    function: str
    patch: list[dict[str, Any]]
    """What takes the gate off."""
    version: str
    """Its resourceVersion as last seen."""
    seen_s: float
    """When this process first saw the gate, by the clock that nobody sets."""
    seen_at_s: float
    """The same since the epoch, for people."""
    until_s: float
    """When it goes at the latest, by the clock that nobody sets."""
    order: tuple[float, int]
    """Its place among those of its function: by creation, then as they were seen."""
    never: OpenReason | None
    """Why it is not held at all, as far as the pod itself says."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """What the decision is asked with."""
    needs: bytes = b""
    cpu_milli: int = 0
    memory_bytes: int = 0
    looked_s: float = -math.inf
    looked_after: int = 0
    """How many ends had been heard of when it was looked at."""
    wait: NotYet | None = None
    """What the policy said last; None before it was asked, and for those who go."""
    go_s: float = math.nan
    """Seconds after which it was expected to be done had it gone when it was first told to wait."""
    reason: OpenReason | None = None
    """Why its gate is taken off, once that is decided."""

    @property
    def held(self) -> bool:
        """Whether it was ever told to wait."""
        return self.wait is not None


def read_held(obj: Mapping[str, Any], scheduler_name: str, bound_s: float, number: int, times: tuple[float, float, float]) -> HeldPod:
    """The pod as the API server sends it; `times` are now: monotonic, since the epoch, and since the epoch by the wall clock.

    One that nobody can read is not held. Of two ends, counted from when it was seen and from when it was created, the earlier counts:
    a wall clock that goes wrong can make the wait shorter and not longer.
    """
    now_s, now_at_s, wall_s = times
    metadata = obj["metadata"]
    created_s = _created_s(metadata)
    age_s = 0.0 if created_s is None else max(wall_s - created_s - _WHOLE_SECOND_S, 0.0)
    held = HeldPod(
        uid=metadata["uid"],
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        function="",
        patch=opening_patch(obj),
        version=str(metadata.get("resourceVersion") or ""),
        seen_s=now_s,
        seen_at_s=now_at_s,
        until_s=now_s + max(bound_s - age_s, 0.0),
        order=(now_at_s if created_s is None else created_s, number),
        never=OpenReason.IN_DOUBT,
    )
    try:
        _fill(held, obj, pod_facts(obj), scheduler_name)
    except Exception:  # noqa: BLE001 - whatever cannot be read of a pod, holding it would be worse than letting it go
        held.never = OpenReason.IN_DOUBT
    return held


def _fill(held: HeldPod, obj: Mapping[str, Any], facts: PodFacts, scheduler_name: str) -> None:
    spec = obj.get("spec") or {}
    held.function, held.cpu_milli, held.memory_bytes = facts.function, facts.cpu_milli, facts.memory_bytes
    held.never = _never(spec, facts, scheduler_name)
    if held.never is None:
        held.needs, held.pod = needs_of(spec), slim(obj)


def _never(spec: Mapping[str, Any], facts: PodFacts, scheduler_name: str) -> OpenReason | None:
    if facts.scheduler_name != scheduler_name:
        return OpenReason.OTHER_SCHEDULER
    if facts.from_daemon_set:
        return OpenReason.DAEMON_SET
    if spec.get("priorityClassName") or spec.get("priority"):
        return OpenReason.PRIORITY
    # without a function nobody knows what instances it could wait for
    return None if is_understood(spec) and facts.function else OpenReason.NOT_UNDERSTOOD


def slim(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a decision reads of a pod: identity, labels, owners, images and requests; never environment, arguments or volumes."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    kept = {key: metadata[key] for key in ("uid", "namespace", "name", "labels", "ownerReferences") if key in metadata}
    containers = {
        kind: [{key: c[key] for key in ("name", "image", "resources", "restartPolicy") if key in c} for c in spec.get(kind) or ()]
        for kind in ("containers", "initContainers")
    }
    return {"metadata": kept, "spec": {**containers, **{key: spec[key] for key in ("schedulerName", "overhead") if key in spec}}}


def _created_s(metadata: Mapping[str, Any]) -> float | None:
    try:
        return timestamp_s(metadata.get("creationTimestamp"))
    except Exception:  # noqa: BLE001 - a time that cannot be read is none: then the time at which it was seen counts
        return None


class HoldingRoom:
    """Those that wait, or have not been looked at yet. First come, first served, within a function."""

    def __init__(self) -> None:
        self._pods: dict[str, HeldPod] = {}
        self._of_function: dict[str, dict[str, HeldPod]] = {}
        self._held_of_function: Counter[str] = Counter()
        self._held_of_namespace: Counter[str] = Counter()
        self.held = 0
        """How many were told to wait."""

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[HeldPod]:
        return iter(self._pods.values())

    def get(self, uid: str) -> HeldPod | None:
        """The pod of this uid, if it is here."""
        return self._pods.get(uid)

    def enter(self, pod: HeldPod) -> None:
        """A pod is here from now on."""
        self._pods[pod.uid] = pod
        self._of_function.setdefault(pod.function, {})[pod.uid] = pod

    def before(self, pod: HeldPod) -> int:
        """How many of its function come first."""
        return sum(other.order < pod.order for other in self._of_function.get(pod.function, {}).values())

    def has_room(self, pod: HeldPod) -> bool:
        """Whether another pod of its function and namespace may be told to wait."""
        return (
            self._held_of_function[pod.function] < MOST_OF_A_FUNCTION
            and self._held_of_namespace[pod.namespace] < MOST_OF_A_NAMESPACE
            and self.held < MOST
        )

    def holds(self, function: str) -> bool:
        """Whether any pod of the function was told to wait and still does."""
        return self._held_of_function[function] > 0

    def told(self, pod: HeldPod, wait: NotYet) -> None:
        """The policy said "not yet"."""
        if not pod.held:
            self._count(pod, +1)
        pod.wait = wait

    def leave(self, uid: str) -> HeldPod | None:
        """The pod waits no longer."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return None
        there = self._of_function[pod.function]
        del there[uid]
        if not there:
            del self._of_function[pod.function]
        if pod.held:
            self._count(pod, -1)
        return pod

    def in_turn(self, now_s: float, ends: int, ended: set[str], look_again_s: float) -> list[HeldPod]:
        """Who is to be looked at: those whose time is up, newcomers, those of whose function a pod has ended, and then whoever has not
        been looked at for the longest, if anything has changed since or the time has come."""
        todo = [
            (_turn(pod, now_s, ended), pod.looked_s if pod.function not in ended else 0.0, pod.order, pod)
            for pod in self._pods.values()
            if pod.until_s <= now_s or pod.looked_after < ends or now_s - pod.looked_s >= look_again_s
        ]
        return [pod for *_, pod in sorted(todo, key=lambda entry: entry[:3])]

    def _count(self, pod: HeldPod, change: int) -> None:
        self.held += change
        for counter, key in ((self._held_of_function, pod.function), (self._held_of_namespace, pod.namespace)):
            counter[key] += change
            if not counter[key]:
                del counter[key]


def _turn(pod: HeldPod, now_s: float, ended: set[str]) -> int:
    if pod.until_s <= now_s:
        return 0
    if math.isinf(pod.looked_s):
        return 1
    return 2 if pod.function in ended else 3
