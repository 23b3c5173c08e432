"""PlacementPlans into the world: the operator's published plans, one a SchedulingPolicy with `select`."""

from __future__ import annotations

from typing import Any

from tiphys_extender.decide import World
from tiphys_models.api.placement_plan import PlacementPlanSpec
from tiphys_models.api.scheduling_policy import parse
from tiphys_models.domain.quantity import timestamp_s
from tiphys_models.placement.slots import SlotPlan


def slot_plan(spec: PlacementPlanSpec) -> SlotPlan:
    """As decisions read it."""
    return SlotPlan(
        policy_uid=spec.policy_uid,
        policy_generation=spec.policy_generation,
        planner=spec.planner,
        interval=spec.interval,
        valid_until_s=timestamp_s(spec.valid_until) or 0.0,
        slots={f.function: {n.node: n.slots for n in f.nodes} for f in spec.functions},
    )


class PlanSink:
    """An object that cannot be read leaves the plan before it in force until that expires."""

    def __init__(self, world: World) -> None:
        self._plans: dict[str, SlotPlan] = {}
        world.plans = self._plans  # as it is at any time: a copy for each change would cost with their square
        self._uids: dict[str, str] = {}

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed."""
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        plan = slot_plan(parse(PlacementPlanSpec, obj, "is missing"))
        self._plans[key], self._uids[key] = plan, obj["metadata"]["uid"]

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted."""
        self._forget(f"{obj['metadata']['namespace']}/{obj['metadata']['name']}")

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for key in [key for key, uid in self._uids.items() if uid not in uids]:
            self._forget(key)

    def __len__(self) -> int:
        return len(self._plans)

    def _forget(self, key: str) -> None:
        self._plans.pop(key, None)
        self._uids.pop(key, None)
