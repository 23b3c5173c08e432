"""Writes that must not win late: each names the version it replaces, or that there is none."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

import pytest

from tests.operator.selection.harness import Kube, Unfenced, selecting
from tests.operator.selection.test_checkpoint import MINE, opened
from tiphys_models.api.placement_plan import PlacementPlanSpec
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.leases import LeaseLost
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.selection.memory import Memory, load
from tiphys_operator.selection.publisher import Publisher


class Deposed(Unfenced):
    """Of a leader whose Lease ends after so many requests."""

    def __init__(self, left: int) -> None:
        self.left = left

    async def fenced(self, request: Awaitable[Any]) -> Any:
        if not self.left:
            request.close()  # type: ignore[attr-defined]
            raise LeaseLost("over")
        self.left -= 1
        return await request


def plan(interval: int) -> PlacementPlanSpec:
    return PlacementPlanSpec(
        policy_uid="u", policy_generation=1, planner="greedy", interval=interval, valid_until="2026-11-19T00:00:00Z", functions=[]
    )


def publisher(kube: Kube, writer: object | None = None) -> Publisher:
    return Publisher(cast("KubeClient", kube), cast("Writer", writer or Unfenced()), OperatorMetrics())


async def test_a_first_plan_is_made_and_later_ones_replace_the_version_that_was_written() -> None:
    kube = Kube()
    made = publisher(kube)
    for interval in (1, 2, 3):
        await made.publish(selecting(), plan(interval))
        assert kube.plan is not None
        assert kube.plan["spec"]["interval"] == interval
    assert kube.writes == ["plan"] * 3


async def test_a_plan_of_the_leader_before_is_replaced_and_its_late_write_fails() -> None:
    kube = Kube()
    former, late = publisher(kube), plan(8)
    await former.publish(selecting(), plan(7))
    assert kube.plan is not None
    version = kube.plan["metadata"]["resourceVersion"]
    await publisher(kube).publish(selecting(), plan(9))
    with pytest.raises(ApiError, match="409"):  # what the network held back
        await kube.apply("", {"metadata": {"resourceVersion": version}, "spec": late.model_dump()}, "tiphys-operator")
    deposed = publisher(kube, Deposed(1))
    deposed._versions["uid-p"] = version
    with pytest.raises(LeaseLost):
        await deposed.publish(selecting(), late)
    assert kube.plan["spec"]["interval"] == 9


async def test_a_plan_that_somebody_deleted_or_touched_is_written_on_what_is_there_now() -> None:
    kube = Kube()
    made = publisher(kube)
    await made.publish(selecting(), plan(1))
    kube.plan = None
    await made.publish(selecting(), plan(2))
    touched: Any = kube.plan
    touched["metadata"]["resourceVersion"] = "900"
    await made.publish(selecting(), plan(3))
    there: Any = kube.plan
    assert there["spec"]["interval"] == 3


async def test_a_checkpoint_that_somebody_touched_is_written_on_the_version_that_is_there_now() -> None:
    kube = Kube()
    checkpoint = await opened(kube)
    for step in range(3):
        kube.version += 5  # a chart's upgrade; the harness refuses writes without a precondition
        await checkpoint.save(MINE, Memory(interval=step), {MINE})
    assert kube.data is not None
    assert load(kube.data[MINE]).interval == 2


async def test_a_former_leaders_checkpoint_never_overwrites_its_successors() -> None:
    kube = Kube()
    former = await opened(kube)
    successor = await opened(kube)
    await successor.save(MINE, Memory(interval=5), {MINE})
    former._writer = cast("Writer", Deposed(1))
    with pytest.raises(LeaseLost):
        await former.save(MINE, Memory(interval=4), {MINE})
    assert kube.data is not None
    assert load(kube.data[MINE]).interval == 5


async def test_a_checkpoint_that_was_deleted_is_made_anew() -> None:
    kube = Kube()
    checkpoint = await opened(kube)
    kube.data = None
    await checkpoint.save(MINE, Memory(interval=1), {MINE})
    assert kube.data is not None
