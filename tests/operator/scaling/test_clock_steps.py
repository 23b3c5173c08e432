"""A wall clock that is set by two hours moves no stabilisation, no rate, no waiting time and no intent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.scaling.harness import World, exactly
from tests.operator.scaling.small import policy_object

TWO_HOURS_S = 7200.0
BOTH = pytest.mark.parametrize("step_s", [TWO_HOURS_S, -TWO_HOURS_S])


class Stepped(World):
    """Prometheus keeps pace: whoever disagrees with it holds, and would hide what is looked at here."""

    async def windows(self, life: Any, count: int) -> list[int]:
        seen = []
        for _ in range(count):
            await life.window()
            seen.append(self.kube.deployment["spec"]["replicas"])
            self.clock.advance(15)
        return seen


async def shrinking(step_s: float) -> list[int]:
    """Replicas window by window: four pods that are wanted no longer, behind a stabilisation of 300 s."""
    world = Stepped(replicas=4, **exactly(1, 100) | {"horizontal": {"minReplicas": 1, "maxReplicas": 4}})
    life = world.life()
    seen = await world.windows(life, 4)
    world.clock.set_forward(step_s)
    return seen + await world.windows(life, 30)


@BOTH
async def test_stabilisation_lasts_as_long_as_without_the_step(step_s: float) -> None:
    plain = await shrinking(0.0)
    assert plain[0] == 4
    assert plain[-1] < 4
    assert await shrinking(step_s) == plain


@BOTH
async def test_a_move_that_must_wait_waits_as_long_as_without_the_step(step_s: float) -> None:
    world = World(**exactly(3, 100))
    memory = {"blocked": [{"move": "replicas-up", "bound": 2, "reason": "Quota", "until": world.clock.now_s() + 600}]}
    world.kube.policy["status"] = {"memory": memory}
    life = world.life()
    await life.window()
    world.clock.advance(300)
    world.clock.set_forward(step_s)
    await life.window()
    assert world.kube.deployment["spec"]["replicas"] == 2, "after half of the time"
    world.clock.advance(301)
    await life.window()
    assert world.kube.deployment["spec"]["replicas"] == 3


@BOTH
async def test_several_steps_add_up_and_drift_is_none(step_s: float) -> None:
    world = World(**exactly(3, 100))
    memory = {"blocked": [{"move": "replicas-up", "bound": 2, "reason": "Quota", "until": world.clock.now_s() + 600}]}
    world.kube.policy = policy_object(**exactly(3, 100)) | {"status": {"memory": memory}}
    life = world.life()
    for _ in range(39):
        await life.window()
        world.clock.advance(15)
        world.clock.set_forward(step_s if step_s > 0 else 0.2)
        step_s = -step_s
        assert world.kube.deployment["spec"]["replicas"] == 2
    world.clock.advance(30)
    await life.window()
    assert world.kube.deployment["spec"]["replicas"] == 3
