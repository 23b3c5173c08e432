"""ScalingPolicies as their watch shows them, and what the observed cluster keeps for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiphys_models.kube.objects import Objects
from tiphys_operator.cluster.observed import ObservedCluster, Owner
from tiphys_operator.cluster.scaled import ScaledPod
from tiphys_operator.scaling.seen import ScalingSeen, scaling_seen
from tiphys_operator.scaling.workload import Target


class ScalingCluster:
    """The policies, by uid and by namespace; the pods of their targets are kept whole."""

    def __init__(self, observed: ObservedCluster | None = None) -> None:
        self.observed = observed or ObservedCluster()
        self.policies: dict[str, ScalingSeen] = {}
        self.on_change: Callable[[str], None] = lambda uid: None
        """Told of a policy whose user wants something else of it, or that is gone."""
        self.on_listed: Callable[[], None] = lambda: None
        self.store: Objects[ScalingSeen] = Objects(scaling_seen, self._changed, listed=self._listed)
        """The sink of their watch."""
        self._uids: dict[str, set[str]] = {}

    def owned(self, target: Target) -> tuple[ScaledPod, ...]:
        """Unfinished pods of a workload that are not being deleted, oldest first."""
        found = [p for p in self.observed.owned(target.namespace, target.kind, target.name) if not p.deleting and target.owns(p)]
        return tuple(sorted(found, key=lambda p: (p.started_s or float("inf"), p.name)))

    def uids_of(self, owner: Owner) -> set[str]:
        """Policies whose target owns such pods."""
        return {uid for uid in self._uids.get(owner[0], ()) if _target(self.policies[uid]) == owner}

    def among(self, namespace: str) -> list[ScalingSeen]:
        """Policies of a namespace."""
        return [self.policies[uid] for uid in self._uids.get(namespace, ())]

    def policy_written(self, obj: dict[str, Any]) -> None:
        """Take what one of our own writes was answered with, unless the policy has gone meanwhile."""
        self.store.written(obj)

    def drop_policy(self, uid: str) -> None:
        """The policy was deleted: the store forgets it."""
        self.store.forget(uid)

    def _listed(self) -> None:
        self.on_listed()

    def _changed(self, former: ScalingSeen | None, now: ScalingSeen | None) -> None:
        before, after = (None if seen is None else _target(seen) for seen in (former, now))
        if after is not None and after != before:
            self.observed.want(*after)
        if before is not None and after != before:
            self.observed.unwant(*before)
        if now is not None:
            self.policies[now.uid] = now
            self._uids.setdefault(now.namespace, set()).add(now.uid)
        elif former is not None:
            self.policies.pop(former.uid, None)
            left = self._uids[former.namespace]
            left.discard(former.uid)
            if not left:
                del self._uids[former.namespace]
        if former is None or now is None or _wish(former) != _wish(now):
            self.on_change((now or former).uid)  # type: ignore[union-attr]


def _target(policy: ScalingSeen) -> Owner | None:
    reference = policy.spec.target_ref if policy.spec is not None else None
    return None if reference is None else (policy.namespace, reference.kind, reference.name)


def _wish(policy: ScalingSeen) -> tuple[int, bool, bool]:
    """What the user wants of it; our own statuses come back through the watch and are no news."""
    return policy.generation, policy.paused, policy.deleting
