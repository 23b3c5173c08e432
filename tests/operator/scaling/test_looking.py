"""Looks between two windows with hands: what a jump leads to, who may not be raised, and what a death leaves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.scaling.harness import Killed, Life, Prometheus, World
from tests.operator.scaling.test_learning_windows import publish
from tiphys_models.api.scaling_reasons import DecisionPhase
from tiphys_models.kube.client import ApiError
from tiphys_operator.scaling.raising import RAISE

OBJECTIVE = {"latencyMilliseconds": 400, "metrics": {"inFlight": "requests_in_flight"}}


class Jumping(Prometheus):
    """Twenty requests a second on four pods, all good; since a jump far more come than are answered."""

    jumped_s: float | None = None
    arriving, answered = 100.0, 40.0
    """Of every pod, a second, after the jump."""

    async def ranges(self, promql: str, *_: Any) -> Any:
        found = await super().ranges(promql)
        if self.down or self.frozen_s or not (promql.startswith("requests_in_flight") or "+Inf" in promql):
            return found
        for row in found["data"]["result"]:
            waiting = promql.startswith("requests_in_flight")
            row["values"] = [[t, str(self._at(t, float(value), waiting=waiting))] for t, value in row["values"]]
        return found

    def _at(self, time_s: float, counted: float, *, waiting: bool) -> float:
        since_s = max(time_s - self.jumped_s, 0.0) if self.jumped_s is not None else 0.0
        if waiting:
            return (self.arriving - self.answered) * since_s
        return counted + (self.answered - 10.0) * since_s


class Jumpy(World):
    """A ScalingPolicy that may be raised, whose load can jump."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(**{"objective": OBJECTIVE, "horizontal": {"minReplicas": 2, "maxReplicas": 2}} | spec)
        self.prometheus: Jumping = Jumping(self.clock)

    async def settled(self, windows: int = 1) -> Life:
        life = self.life()
        for _ in range(windows):
            await life.window()
            self.clock.advance(3)
        self.kube.writes.clear()
        return life

    def jump(self) -> None:
        """Six seconds ago, by now: the newest samples have it."""
        self.prometheus.jumped_s = self.clock.now_s() - 2
        self.clock.advance(6)

    async def glance(self, life: Life) -> None:
        life.look()
        await life.runner.look(life.cluster.policies["p"], life.running)


def counted(life: Life) -> dict[str, float]:
    shown = life.metrics.render().decode()
    return {r: float(shown.split(f'scaling_raises_total{{result="{r}"}} ')[1].split()[0]) for r in ("done", "hindered")}


async def test_a_jump_raises_cpu_before_the_window_is_over_intent_first() -> None:
    world = Jumpy()
    life = await world.settled()
    before = world.decision
    world.jump()
    await world.glance(life)
    assert world.kube.writes == ["status", "resize", "resize", "status"]
    decision = world.decision
    assert (decision["number"], decision["phase"], decision["agent"]) == (before["number"] + 1, DecisionPhase.DONE, RAISE)
    assert decision["reasons"][0] == "Backlog"
    assert world.sizes() == [f"{decision['applied']['cpuMilli']}m"] * 2
    assert decision["applied"]["cpuMilli"] > before["applied"]["cpuMilli"]
    assert world.kube.deployment["spec"]["replicas"] == 2
    assert counted(life) == {"done": 1, "hindered": 0}
    assert [e.reason for e in life.writer.events].count("Scaled") == 1


async def test_a_raise_is_not_repeated_for_what_it_has_already_met() -> None:
    world = Jumpy()
    life = await world.settled()
    world.jump()
    await world.glance(life)
    world.kube.writes.clear()
    await world.glance(life)
    assert world.kube.writes == []


async def test_a_calm_look_writes_nothing_and_asks_the_api_server_nothing() -> None:
    world = Jumpy()
    life = await world.settled()
    world.kube.missing = True
    world.clock.advance(6)
    await world.glance(life)
    assert world.kube.writes == []
    assert counted(life) == {"done": 0, "hindered": 0}


@pytest.mark.parametrize(
    "spec",
    [
        {"mode": "Recommend"},
        {"vertical": {"minCpuMilli": 50, "maxCpuMilli": 400, "betweenWindows": "Wait"}},
        {"objective": {"latencyMilliseconds": 400}},
        {"vertical": None},
    ],
)
async def test_who_did_not_ask_for_it_waits_for_the_window(spec: dict[str, Any]) -> None:
    world = Jumpy(**spec)
    life = await world.settled()
    world.jump()
    await world.glance(life)
    assert world.kube.writes == []


async def test_a_pause_and_another_owner_stop_a_raise() -> None:
    world = Jumpy()
    life = await world.settled()
    world.jump()
    world.kube.lists["horizontalpodautoscalers"] = [
        {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3}}
    ]
    await world.glance(life)
    assert world.kube.writes == []
    assert counted(life) == {"done": 0, "hindered": 1}
    world.kube.lists.clear()
    world.kube.policy["metadata"]["annotations"] = {"tiphys.io/paused": "true"}
    world.kube.policy["metadata"]["resourceVersion"] = "99"
    await world.glance(life)
    assert world.kube.writes == []


async def test_a_raise_that_admission_refuses_is_masked_and_not_tried_again() -> None:
    world = Jumpy()
    life = await world.settled()
    world.jump()
    world.kube.refuse["preflight"] = ApiError(403, "Forbidden", "exceeded quota: q")
    await world.glance(life)
    assert world.kube.writes == ["status"]
    assert world.decision["phase"] == DecisionPhase.REFUSED
    assert ("cpu-up", "Quota") in {(b["move"], b["reason"]) for b in world.status["memory"]["blocked"]}
    del world.kube.refuse["preflight"]
    await world.glance(life)
    await life.window()
    assert world.kube.writes == ["status", "status"]
    assert world.sizes() == ["100m"] * 2, "neither tried again nor made a bound"


async def test_bounds_that_leave_nothing_are_counted_and_ask_nobody() -> None:
    world = Jumpy(vertical={"minCpuMilli": 50, "maxCpuMilli": 100})
    life = await world.settled()
    world.jump()
    world.kube.missing = True
    await world.glance(life)
    assert world.kube.writes == []
    assert counted(life) == {"done": 0, "hindered": 1}


async def test_a_prometheus_that_is_gone_changes_nothing() -> None:
    world = Jumpy()
    life = await world.settled()
    world.jump()
    world.prometheus.down = True
    await world.glance(life)
    assert world.kube.writes == []
    assert counted(life) == {"done": 0, "hindered": 0}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 5))
async def test_whoever_dies_at_any_write_of_a_raise_leaves_a_successor_that_makes_it_once(number: int, when: str) -> None:
    world = Jumpy()
    life = await world.settled()
    world.jump()
    world.kube.die_at = (number, when)
    with pytest.raises(Killed):
        await world.glance(life)
    world.kube.die_at = None
    intended = world.decision
    successor = world.life()
    await successor.window()
    if intended["agent"] == RAISE and intended["phase"] == DecisionPhase.INTENDED:
        assert world.decision["number"] == intended["number"], "finished, not decided anew"
        assert world.sizes() == [f"{intended['applied']['cpuMilli']}m"] * 2
        assert world.kube.writes.count("resize") == 2
    raises = [mark["value"] for mark in world.status["memory"]["cpu"]["changes"]]
    assert len([value for value in raises if value > 0]) == 1, "counted once"


async def test_a_window_that_was_raised_teaches_nothing_and_is_compared_by_what_was_decided(tmp_path: Any) -> None:
    agent = {"kind": "combined", "model": "mine", "learning": "Collect", "requestCpuMicroseconds": 2000}
    world = Jumpy(agent=agent)
    life = world.life()
    publish(world, life, tmp_path, "rule x 1")
    await life.window()
    world.clock.advance(3)
    world.jump()
    await world.glance(life)
    assert world.decision["agent"] == RAISE
    world.clock.advance(6)
    await life.window()
    judge = life.running.judge
    assert judge is not None
    assert list(judge.ahead) == [0.0], "equal sizes were decided: the raise is nobody's merit"
    assert life.log.last == 0
    assert 'transitions_total{result="broken"} 1.0' in life.metrics.render().decode()
    world.clock.advance(15)
    await life.window()
    assert life.log.last == 1, "the next window has one size again"


async def test_a_jump_adds_pods_for_rule_plus_before_the_window_is_over() -> None:
    world = Jumpy(agent={"kind": "rule+"}, horizontal={"minReplicas": 2, "maxReplicas": 6})
    life = await world.settled()
    world.prometheus.arriving = 300.0
    world.jump()
    await world.glance(life)
    assert world.decision["agent"] == RAISE
    assert world.kube.writes == ["status", "scale", "resize", "resize", "status"]
    assert world.kube.deployment["spec"]["replicas"] == world.decision["applied"]["replicas"] > 2
