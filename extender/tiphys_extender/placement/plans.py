"""PlacementPlans into the world: the operator's published plans, one a SchedulingPolicy with `select`."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from tiphys_extender.placement.decide import World
from tiphys_models.api.placement_plan import MAX_FUNCTIONS, MAX_SLOTS, PlacementPlanSpec
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.quantity import timestamp_s
from tiphys_models.kube.kinds import PLACEMENT_PLANS
from tiphys_models.kube.objects import ObjectLimits, Objects
from tiphys_models.placement.slots import SlotPlan

MOST_LINES = 100_000
"""Most lines of all plans together, some 150 bytes each: two dozen plans as long as can be, or thousands of ordinary ones."""


class _Plan(NamedTuple):
    uid: str
    namespace: str
    key: str
    lines: int
    plan: SlotPlan


def slot_plan(spec: PlacementPlanSpec) -> SlotPlan:
    """The plan in the form that decisions read."""
    return SlotPlan(
        policy_uid=spec.policy_uid,
        policy_generation=spec.policy_generation,
        planner=spec.planner,
        interval=spec.interval,
        valid_until_s=timestamp_s(spec.valid_until) or 0.0,
        slots={f.function: {n.node: n.slots for n in f.nodes} for f in spec.functions},
    )


class PlanObjects(Objects[_Plan]):
    """An object that cannot be read leaves the plan before it in force until that expires.

    Whoever may write plans may write many, and long ones. One longer than the operator makes is no plan; and of more lines than are kept,
    those of the namespace that has the most go first, the ones that changed longest ago.
    """

    def __init__(self, world: World, most_lines: int = MOST_LINES) -> None:
        super().__init__(_read, self._take, limits=ObjectLimits(objects=most_lines, total_bytes=0))
        self._plans: dict[str, SlotPlan] = {}
        world.plans = self._plans  # as it is at any time: a copy for each change would cost with their square
        self._newest: dict[str, dict[str, _Plan]] = {}
        """Plans by namespace and uid; the latest change last."""
        self._lines: Counter[str] = Counter()
        self._most_lines = most_lines

    def _take(self, former: _Plan | None, now: _Plan | None) -> None:
        if former is not None:
            self._plans.pop(former.key, None)
            self._lines[former.namespace] -= former.lines
            here = self._newest[former.namespace]
            del here[former.uid]
            if not here:
                del self._newest[former.namespace], self._lines[former.namespace]
        if now is not None:
            self._plans[now.key] = now.plan
            self._newest.setdefault(now.namespace, {})[now.uid] = now
            self._lines[now.namespace] += now.lines
            while self._lines.total() > self._most_lines:
                largest, _ = max(self._lines.items(), key=lambda item: item[1])
                self.forget(next(iter(self._newest[largest])))


def _read(obj: dict[str, Any]) -> _Plan:
    metadata, spec = obj["metadata"], PLACEMENT_PLANS.parse(obj)
    lines = 1 + len(spec.functions) + sum(len(function.nodes) for function in spec.functions)
    if lines > 1 + MAX_FUNCTIONS + MAX_SLOTS:
        raise InvalidInput(f"a plan of {lines} lines is none of the operator's, which have {MAX_SLOTS} at most")
    return _Plan(metadata["uid"], metadata["namespace"], f"{metadata['namespace']}/{metadata['name']}", lines, slot_plan(spec))
