"""The hands of a window: what is written in which order, and what every death in between leaves to the successor."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.scaling.harness import Killed, World, exactly
from tests.operator.scaling.small import pod_object
from tiphys_models.api.scaling_policy import PAUSE_ANNOTATION
from tiphys_models.api.scaling_reasons import DecisionPhase
from tiphys_operator.scaling.seen import scaling_seen


async def test_the_intent_is_written_first_then_the_steps_then_what_was_done() -> None:
    world = World(**exactly(3, 200))
    await world.life().window()
    assert world.kube.writes == ["status", "scale", "resize", "resize", "status"]
    assert world.decision["phase"] == DecisionPhase.DONE
    assert world.kube.deployment["spec"]["replicas"] == 3
    assert world.sizes() == ["200m", "200m"]
    assert world.status["desired"] == {"replicas": 3, "cpuMilli": 200}


STEPS = 5


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, STEPS + 1))
async def test_whoever_dies_at_any_write_leaves_a_successor_that_makes_no_step_twice(number: int, when: str) -> None:
    world = World(**exactly(3, 200))
    world.kube.die_at = (number, when)
    with pytest.raises(Killed):
        await world.life().window()
    world.kube.die_at = None
    world.clock.advance(5)
    successor = world.life()
    await successor.window()
    await successor.align()
    assert world.kube.deployment["spec"]["replicas"] == 3
    assert world.sizes() == ["200m", "200m"]
    assert world.kube.writes.count("scale") == 1
    assert world.kube.writes.count("resize") == 2
    assert world.decision["phase"] == DecisionPhase.DONE
    assert [mark["value"] for mark in world.status["memory"]["replicas"]["changes"]] == [1], "counted once, too"


async def test_an_old_intent_is_decided_anew() -> None:
    world = World(**exactly(3, 200))
    world.kube.die_at = (1, "after")
    with pytest.raises(Killed):
        await world.life().window()
    world.kube.die_at = None
    world.kube.policy["spec"] |= {"mode": "Recommend"}
    world.clock.advance(300)
    await world.life().window()
    assert world.kube.writes == ["status", "status"]
    assert world.decision["phase"] == DecisionPhase.RECOMMENDED


async def test_an_intent_for_another_spec_is_not_carried_out() -> None:
    world = World(**exactly(3, 200))
    world.kube.die_at = (1, "after")
    with pytest.raises(Killed):
        await world.life().window()
    world.kube.die_at = None
    world.kube.policy["spec"] |= exactly(2, 100)
    world.kube.policy["metadata"]["generation"] = 2
    await world.life().window()
    assert (world.kube.deployment["spec"]["replicas"], world.sizes()) == (2, ["100m", "100m"])


async def test_a_policy_that_changed_meanwhile_is_not_acted_on() -> None:
    world = World(**exactly(3, 200))
    life = world.life()
    life.look()
    seen = scaling_seen(world.kube.policy)
    world.kube.policy["metadata"]["resourceVersion"] = "99"
    await life.runner.run(seen, life.running)
    assert world.kube.writes == []


@pytest.mark.parametrize(("change", "acted"), [({"annotations": {"x": "1"}}, True), ({"annotations": {PAUSE_ANNOTATION: "true"}}, False)])
async def test_a_policy_whose_labels_somebody_changes_in_a_loop_is_decided_all_the_same(change: dict[str, Any], acted: bool) -> None:
    world = World(**exactly(3, 200))
    life = world.life()
    life.look()
    seen = scaling_seen(world.kube.policy)
    for version in ("98", "99"):
        world.kube.policy["metadata"] |= change | {"resourceVersion": version}
    life.cluster.store.put(world.kube.policy)
    await life.runner.run(seen, life.running)
    assert bool(world.kube.writes) == acted


async def test_a_workload_that_only_changed_its_status_is_scaled_all_the_same() -> None:
    world = World(**exactly(3, 100))
    world.kube.conflicts = 2
    await world.life().window()
    assert world.kube.deployment["spec"]["replicas"] == 3
    assert world.decision["phase"] == DecisionPhase.DONE


async def test_a_pod_that_starts_later_is_brought_to_size_between_windows() -> None:
    world = World(**exactly(2, 200))
    life = world.life()
    await life.window()
    world.kube.pods["web-9"] = pod_object("web-9", actual=None)
    await life.align()
    assert world.sizes() == ["200m", "200m", "100m"]
    world.kube.pods["web-9"] = pod_object("web-9")
    await life.align()
    assert world.sizes() == ["200m", "200m", "200m"]


async def test_pods_are_left_alone_between_windows_unless_we_act() -> None:
    world = World(mode="Recommend", **exactly(2, 200))
    life = world.life()
    await life.window()
    await life.align()
    assert world.kube.writes == ["status"]


async def test_metrics_count_what_was_decided_and_done() -> None:
    world = World(**exactly(3, 200))
    life = world.life()
    await life.window()
    shown = life.metrics.render().decode()
    for line in (
        'tiphys_operator_scaling_steps_total{dimension="replicas",direction="up"} 1.0',
        'tiphys_operator_scaling_steps_total{dimension="cpu",direction="up"} 1.0',
        'tiphys_operator_scaling_resizes_total{result="done"} 2.0',
        'tiphys_operator_scaling_windows_total{verdict="good"} 1.0',
        'tiphys_operator_scaling_decisions_total{phase="Intended"} 1.0',
    ):
        assert line in shown
