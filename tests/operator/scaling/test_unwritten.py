"""When a window is written into the status: at once if there is news in it, seldom if only figures moved, never if only time passed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.scaling.harness import Life, Prometheus, World, exactly
from tests.operator.scaling.small import policy
from tiphys_models.api.scaling_status import ScalingPolicyStatus
from tiphys_operator.scaling.unwritten import has_moved, is_news

WINDOW = {"until": "2026-01-01T00:00:00Z", "requests": 1000, "good": 1000, "latencyMilliseconds": 100, "usedMilli": 200}
DECISION: dict[str, Any] = {
    "number": 4, "at": "2026-01-01T00:00:00Z", "phase": "Done", "agent": "rule", "window": WINDOW,
    "from": {"replicas": 2, "cpuMilli": 100}, "wanted": {"replicas": 2, "cpuMilli": 100}, "applied": {"replicas": 2, "cpuMilli": 100},
}  # fmt: skip
MARK = {"at": 100.0, "value": 5}
MEMORY: dict[str, Any] = {"replicas": {"highest": [{"at": 50.0, "value": 6}, MARK], "lowest": [MARK]}, "requestCpuMicroseconds": 2000}
READY = {"type": "Ready", "status": "True", "reason": "Active", "message": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def status(decision: dict[str, Any] | None = None, memory: dict[str, Any] | None = None, **changes: Any) -> ScalingPolicyStatus:
    parts = {"lastDecision": DECISION | (decision or {}), "memory": MEMORY | (memory or {}), "conditions": [READY]}
    return ScalingPolicyStatus.model_validate(parts | changes)


NEWS = {
    "another size": status({"applied": {"replicas": 3, "cpuMilli": 100}}),
    "another phase": status({"phase": "Held"}),
    "another agent": status({"agent": "combined"}),
    "an objective that is missed": status({"window": WINDOW | {"good": 900}}),
    "a condition of another reason": status(conditions=[READY | {"reason": "Paused"}]),
    "a larger wish than the status remembers": status(memory={"replicas": {"highest": [{"at": 110.0, "value": 7}], "lowest": [MARK]}}),
    "a smaller wish than the status remembers": status(memory={"replicas": {"highest": [MARK], "lowest": [{"at": 110.0, "value": 4}]}}),
    "a move that failed": status(memory={"blocked": [{"move": "cpu-up", "bound": 100, "reason": "Quota", "until": 1e9}]}),
    "another generation": status(observedGeneration=2),
}
MOVED = {
    "a tenth more requests": status({"window": WINDOW | {"requests": 1200, "good": 1200}}),
    "another wish": status({"wanted": {"replicas": 2, "cpuMilli": 120}}),
    "a request that takes more CPU": status(memory={"requestCpuMicroseconds": 3000}),
    "a late request": status({"window": WINDOW | {"good": 999}}),
}
SAME = {
    "the number and the time": status({"number": 9, "at": "2026-01-01T01:00:00Z", "window": WINDOW | {"until": "2026-01-01T01:00:00Z"}}),
    "a few requests more": status({"window": WINDOW | {"requests": 1003, "good": 1003}}),
    "the time of the newest wish": status(
        memory={"replicas": {"highest": [{"at": 50.0, "value": 6}, {"at": 115.0, "value": 5}], "lowest": [{"at": 115.0, "value": 5}]}}
    ),
}


@pytest.mark.parametrize("what", NEWS)
def test_news_are_written_at_once(what: str) -> None:
    assert is_news(status(), NEWS[what], 0.05)


@pytest.mark.parametrize("what", MOVED)
def test_figures_that_moved_wait_for_the_refresh(what: str) -> None:
    assert not is_news(status(), MOVED[what], 0.05)
    assert has_moved(status(), MOVED[what])


@pytest.mark.parametrize("what", SAME)
def test_what_moves_with_every_window_is_not_written_at_all(what: str) -> None:
    assert not is_news(status(), SAME[what], 0.05)
    assert not has_moved(status(), SAME[what])


async def windows(world: World, life: Life, count: int) -> int:
    """How many statuses were written within so many windows."""
    before = world.kube.writes.count("status")
    for _ in range(count):
        await life.window()
        world.clock.advance(15)
    return world.kube.writes.count("status") - before


async def test_a_steady_load_writes_nothing_and_goes_on_deciding() -> None:
    world = World(**exactly(2, 100))
    life = world.life()
    await windows(world, life, 30)  # until the wishes of the beginning are forgotten
    assert await windows(world, life, 40) == 0
    assert 'tiphys_operator_scaling_decisions_total{phase="Done"} 70.0' in life.metrics.render().decode()


class Load(Prometheus):
    """So many times as many requests."""

    times = 1.0

    async def ranges(self, promql: str, *_: Any) -> Any:
        answer = await super().ranges(promql)
        for series in answer["data"]["result"]:
            series["values"] = [[t, str(float(v) * self.times)] for t, v in series["values"]]
        return answer


async def test_a_successor_shrinks_no_sooner_than_if_every_window_had_been_written() -> None:
    world = World(horizontal={"minReplicas": 1, "maxReplicas": 10}, vertical=None)
    world.prometheus = load = Load(world.clock)
    load.times = 20.0
    await windows(world, life := world.life(), 50)
    before = world.kube.deployment["spec"]["replicas"]
    assert before > 2
    assert await windows(world, life, 10) == 0, "steady"
    load.times = 1.0
    heir = world.life()
    await windows(world, heir, 18)
    assert world.kube.deployment["spec"]["replicas"] == before, "five minutes have not passed"
    await windows(world, heir, 6)
    assert world.kube.deployment["spec"]["replicas"] < before


async def test_what_somebody_else_writes_into_the_status_counts_for_more_than_what_was_not_written() -> None:
    world = World(**exactly(2, 100))
    life = world.life()
    await windows(world, life, 40)
    world.kube.policy["status"]["memory"]["overridden"] = [world.clock.now_s() - 1] * 3
    await windows(world, life, 1)
    assert world.reason("Conflict") == "Overridden"


async def test_an_edited_label_loses_nothing_that_was_not_written() -> None:
    world = World(**exactly(2, 100))
    life = world.life()
    await windows(world, life, 40)
    decided = life.running.unwritten.status
    assert decided is not None
    world.kube.policy["metadata"]["resourceVersion"] = "999"
    await windows(world, life, 1)
    after = life.running.unwritten.status
    assert after is not None
    assert after.last_decision is not None
    assert decided.last_decision is not None
    assert after.last_decision.number == decided.last_decision.number + 1


def test_a_policy_says_what_stands_in_it() -> None:
    assert policy().stands is None
