"""Which pods are held, since when, and whom to let go now: pure, the clock is an argument."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.quantity import timestamp_s
from tiphys_models.kube.held_pods import brief
from tiphys_models.placement.gate import is_held


@dataclass(frozen=True, slots=True)
class Held:
    """A pod that is held, by its clocks."""

    pod: Mapping[str, Any]
    """As much of it as opening needs."""
    seen_s: float
    """When we first saw it held, by the monotonic clock."""
    due_s: float
    """When to let it go, by the same clock; later after a try that failed."""
    failures: int = 0

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return str(self.pod["metadata"]["uid"])


def created_s(pod: Mapping[str, Any]) -> float | None:
    """When the API server made the pod, by its clock; None if that cannot be read."""
    try:
        return timestamp_s(pod["metadata"].get("creationTimestamp"))
    except InvalidInput:
        return None


def wait_left_s(longest_s: float, made_s: float | None, now_s: float) -> float:
    """How much longer a pod may be held that we see for the first time.

    A creation in the future tells that one of two clocks is wrong, and nothing of the pod: it counts as made just now.
    """
    age_s = max(0.0, now_s - made_s) if made_s is not None else 0.0
    return max(0.0, longest_s - age_s)


@dataclass(slots=True)
class HeldPods:
    """What the watch has shown; a sink."""

    clock: Clock
    longest_s: float
    """After so long a pod is let go."""
    _held: dict[str, Held] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._held)

    def put(self, pod: dict[str, Any]) -> None:
        """A pod that may wait was added or changed; one without our gate is held no more."""
        uid = pod["metadata"]["uid"]
        if not is_held(pod):
            self._held.pop(uid, None)
            return
        if (known := self._held.get(uid)) is not None:
            self._held[uid] = replace(known, pod=brief(pod))
            return
        now_s = self.clock.monotonic_s()
        left_s = wait_left_s(self.longest_s, created_s(pod), self.clock.now_s())
        self._held[uid] = Held(brief(pod), now_s, now_s + left_s)

    def drop(self, pod: dict[str, Any]) -> None:
        """A pod is gone, or has lost the label by which we see it: only a try to open it tells which."""
        self._due_now(pod["metadata"]["uid"])

    def listed(self, uids: set[str]) -> None:
        """All pods that may wait were listed; those we know and did not see are gone, or without the label."""
        for uid in self._held.keys() - uids:
            self._due_now(uid)

    def due(self, besides: Collection[str] = ()) -> list[Held]:
        """Whom to let go now, longest overdue first; not those who are being let go already."""
        now_s = self.clock.monotonic_s()
        return sorted((one for uid, one in self._held.items() if one.due_s <= now_s and uid not in besides), key=lambda one: one.due_s)

    def opened(self, uid: str) -> None:
        """The gate is off, or there is nobody any more to open it for."""
        self._held.pop(uid, None)

    def failed(self, uid: str, again_in_s: float) -> None:
        """A try to let this pod go came to nothing."""
        if (known := self._held.get(uid)) is not None:
            self._held[uid] = replace(known, due_s=self.clock.monotonic_s() + again_in_s, failures=known.failures + 1)

    def oldest_s(self) -> float:
        """How long we have seen the one held that we have seen longest; 0 if nobody is."""
        now_s = self.clock.monotonic_s()
        return max((now_s - one.seen_s for one in self._held.values()), default=0.0)

    def _due_now(self, uid: str) -> None:
        if (known := self._held.get(uid)) is not None:
            self._held[uid] = replace(known, due_s=min(known.due_s, self.clock.monotonic_s()))
