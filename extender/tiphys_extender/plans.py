"""PlacementPlans into the world: the operator's published plans, one a SchedulingPolicy with `select`."""

from __future__ import annotations

from typing import Any

from tiphys_extender.decide import World
from tiphys_models.api.placement_plan import MAX_FUNCTIONS, MAX_SLOTS, PlacementPlanSpec
from tiphys_models.api.scheduling_policy import parse
from tiphys_models.domain.errors import InvalidInput
from tiphys_models.domain.quantity import timestamp_s
from tiphys_models.placement.slots import SlotPlan

MOST_LINES = 100_000
"""Of all plans together, some 150 bytes each: two dozen plans as long as can be, or thousands of ordinary ones."""


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
    """An object that cannot be read leaves the plan before it in force until that expires.

    Whoever may write plans may write many, and long ones. One longer than the operator makes is no plan; and of more lines than are kept,
    those of the namespace that has the most go first, the ones that changed longest ago.
    """

    def __init__(self, world: World, most_lines: int = MOST_LINES) -> None:
        self._plans: dict[str, SlotPlan] = {}
        world.plans = self._plans  # as it is at any time: a copy for each change would cost with their square
        self._uids: dict[str, str] = {}
        self._lines: dict[str, dict[str, int]] = {}
        """Of each plan that is kept, by namespace; the latest change last."""
        self._total, self._most_lines = 0, most_lines

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed."""
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        spec = parse(PlacementPlanSpec, obj, "is missing")
        lines = 1 + len(spec.functions) + sum(len(function.nodes) for function in spec.functions)
        if lines > 1 + MAX_FUNCTIONS + MAX_SLOTS:
            raise InvalidInput(f"a plan of {lines} lines is none of the operator's, which have {MAX_SLOTS} at most")
        plan = slot_plan(spec)
        self._forget(namespace, name)
        self._plans[f"{namespace}/{name}"], self._uids[f"{namespace}/{name}"] = plan, obj["metadata"]["uid"]
        self._lines.setdefault(namespace, {})[name] = lines
        self._total += lines
        while self._total > self._most_lines:
            largest = max(self._lines, key=lambda each: sum(self._lines[each].values()))
            self._forget(largest, next(iter(self._lines[largest])))

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted."""
        self._forget(obj["metadata"]["namespace"], obj["metadata"]["name"])

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for key in [key for key, uid in self._uids.items() if uid not in uids]:
            self._forget(*key.split("/", 1))

    def __len__(self) -> int:
        return len(self._plans)

    def _forget(self, namespace: str, name: str) -> None:
        self._plans.pop(f"{namespace}/{name}", None)
        self._uids.pop(f"{namespace}/{name}", None)
        here = self._lines.get(namespace, {})
        self._total -= here.pop(name, 0)
        if not here:
            self._lines.pop(namespace, None)
