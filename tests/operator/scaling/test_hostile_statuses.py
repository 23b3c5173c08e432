"""No status whatever makes a workload leave its bounds, ends a window, or keeps a policy from acting for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.operator.scaling.harness import World, exactly
from tests.operator.scaling.small import NOW_S
from tiphys_models.api.scaling_reasons import DecisionPhase, MaskReason
from tiphys_models.base.quantity import rfc3339

_INTS = st.one_of(st.integers(-3, 12), st.sampled_from([0, 2**31, 2**53, 2**63 - 1, 9999, -(2**63)]))
_TIMES = st.sampled_from([NOW_S, NOW_S - 1, NOW_S - 20, NOW_S + 5, NOW_S + 7200, 0.0, -1e18, 1e18, 1e300])
_JSON = st.recursive(
    st.none() | st.booleans() | _INTS | st.floats(allow_nan=False) | st.text(max_size=8), lambda c: st.lists(c, max_size=3), max_leaves=4
)
_SIZE = st.fixed_dictionaries({"replicas": _INTS}, optional={"cpuMilli": st.one_of(_INTS, st.sampled_from([50, 100, 400, 10_000]))})
_MARKS = st.lists(st.fixed_dictionaries({"at": _TIMES, "value": _INTS}), max_size=4)
_LIMITS = st.fixed_dictionaries({}, optional={"lowest": _MARKS, "highest": _MARKS, "changes": _MARKS})
_BLOCKED = st.fixed_dictionaries(
    {
        "move": st.sampled_from(["replicas-up", "replicas-down", "cpu-up", "cpu-down", "sideways"]),
        "bound": _INTS.map(abs),
        "reason": st.sampled_from([*map(str, MaskReason), "Nonsense"]),
        "until": _TIMES,
    },
    optional={"tries": st.sampled_from([1, 3, 2**62])},
)
_DECISION = st.fixed_dictionaries(
    {"at": st.sampled_from([rfc3339(NOW_S), "x", "0001-01-01T00:00:00z", "9999-12-31T23:59:59Z"]), "from": _SIZE, "applied": _SIZE},
    optional={"number": _INTS, "phase": st.sampled_from([*map(str, DecisionPhase), "?"]), "mac": st.text(max_size=20), "window": _JSON},
).map(lambda d: {"phase": "Intended"} | d)
_NUMBERS = st.one_of(st.floats(-5, 5), st.sampled_from([0.0, -1.0, 1e300, 1e15, 30.0, 6000.0]))
_LEARNED = st.fixed_dictionaries(
    {},
    optional={
        "until": _TIMES,
        "measured": st.booleans(),
        **dict.fromkeys(("requests", "usedMilliseconds", "variance", "lastRequests", "lastUsedMilliseconds", "headroom"), _NUMBERS),
        **dict.fromkeys(("excused", "startSeconds", "lagSeconds"), _NUMBERS),
        **dict.fromkeys(("lastOff", "exemptWindows"), _INTS),
        "formerHeadroom": st.lists(_NUMBERS, max_size=4),
    },
)
_MEMORY = st.fixed_dictionaries(
    {},
    optional={
        "replicas": _LIMITS,
        "cpu": _LIMITS,
        "blocked": st.lists(_BLOCKED, max_size=4),
        "overridden": st.lists(_TIMES, max_size=8),
        "requestCpuMicroseconds": _INTS,
        "learned": _LEARNED,
        "rolledBack": st.fixed_dictionaries({"digest": st.text(max_size=4), "at": _TIMES}),
    },
)
_STATUS = st.one_of(
    st.fixed_dictionaries(
        {"observedGeneration": st.sampled_from([0, 1, 2])},
        optional={
            "lastDecision": _DECISION,
            "memory": _MEMORY,
            "desired": _SIZE,
            "current": _SIZE,
            "agent": _JSON,
            "conditions": st.sampled_from([[], [{"type": "Conflict", "status": "False", "reason": "NoConflict"}]]),
        },
    ),
    st.dictionaries(st.sampled_from(["lastDecision", "memory", "desired", "conditions", "agent"]), _JSON, max_size=3),
)


class Watched(World):
    """Keeps every size that was written."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(**spec)
        self.replicas: list[int] = []
        self.cpu: list[str] = []
        former = self.kube.request

        async def request(method: str, path: str, *, body: Any = None, **rest: Any) -> Any:
            if path.endswith("/scale"):
                self.replicas.append(body["spec"]["replicas"])
            elif not rest.get("params", {}).get("dryRun"):
                self.cpu.append(body["spec"]["containers"][0]["resources"]["limits"]["cpu"])
            return await former(method, path, body=body, **rest)

        self.kube.request = request  # type: ignore[method-assign]

    def kept_its_bounds(self) -> bool:
        return all(2 <= n <= 4 for n in self.replicas) and all(50 <= int(size.removesuffix("m")) <= 400 for size in self.cpu)


async def _lived(world: Watched, first: dict[str, Any], second: dict[str, Any]) -> None:
    world.kube.policy["status"] = first
    life = world.life()
    await life.window()
    await life.align()
    world.kube.policy["status"] = second
    await life.align()
    world.clock.advance(15)
    await life.window()
    await life.align()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_STATUS, _STATUS, st.integers(2, 4), st.sampled_from(["rule", "rule+"]))
def test_no_status_whatever_makes_a_workload_leave_its_bounds(
    first: dict[str, Any], second: dict[str, Any], replicas: int, kind: str
) -> None:
    agent = {"kind": kind, "requestCpuMicroseconds": 2000}
    world = Watched(replicas=replicas, horizontal={"minReplicas": 2, "maxReplicas": 4}, agent=agent)
    asyncio.run(_lived(world, first, second))
    assert world.kept_its_bounds(), (world.replicas, world.cpu)
    assert world.status["lastDecision"]["agent"], "a window was decided or held, and told"


def blocked(move: str, bound: int, until_s: float = NOW_S + 600, **changes: Any) -> dict[str, Any]:
    return {"memory": {"blocked": [{"move": move, "bound": bound, "reason": "Quota", "until": until_s} | changes]}}


@pytest.mark.parametrize(
    "status",
    [blocked("replicas-up", 0), blocked("cpu-up", 0), blocked("replicas-down", 9999), blocked("cpu-down", 9999)],
    ids=["up-0", "cpu-up-0", "down-9999", "cpu-down-9999"],
)
async def test_a_block_in_a_status_keeps_from_moving_and_never_moves(status: dict[str, Any]) -> None:
    world = Watched(replicas=3, horizontal={"minReplicas": 2, "maxReplicas": 4})
    world.kube.policy["status"] = status
    await world.life().window()
    assert set(world.replicas) <= {3, 4}
    assert world.kept_its_bounds()


@pytest.mark.parametrize("until_s", [1e12, 1e300])
async def test_a_block_without_an_end_lasts_no_longer_than_our_own_longest(until_s: float) -> None:
    world = World(**exactly(3, 100))
    world.kube.policy["status"] = blocked("replicas-up", 2, until_s, tries=2**62)
    life = world.life()
    await life.window()
    assert world.kube.deployment["spec"]["replicas"] == 2
    world.clock.advance(1801)
    await life.window()
    assert world.kube.deployment["spec"]["replicas"] == 3


async def test_wishes_and_steps_from_the_future_hold_no_longer_than_a_window() -> None:
    marks = [{"at": 1e15, "value": 9}]
    for name in ("replicas", "cpu"):
        world = World(replicas=4, **exactly(2, 100) | {"horizontal": {"minReplicas": 2, "maxReplicas": 4}})
        world.kube.policy["status"] = {"memory": {name: {"highest": marks, "lowest": marks, "changes": marks}}}
        life = world.life()
        for _ in range(40):
            await life.window()
            world.clock.advance(15)
        assert world.kube.deployment["spec"]["replicas"] == 2, name


async def test_a_reason_that_nobody_knows_does_not_end_a_window() -> None:
    world = World(**exactly(3, 100))
    world.kube.policy["status"] = blocked("replicas-up", 1, reason="Nonsense")
    await world.life().window()
    assert world.kube.deployment["spec"]["replicas"] == 3


async def test_overrides_from_the_future_are_none() -> None:
    world = World(**exactly(3, 100))
    world.kube.policy["status"] = {"memory": {"overridden": [1e15] * 8}}
    await world.life().window()
    assert world.kube.deployment["spec"]["replicas"] == 3


async def test_a_count_of_decisions_that_the_server_could_not_keep_begins_anew() -> None:
    world = World(**exactly(3, 100))
    last = {"number": 2**63 - 1, "at": rfc3339(NOW_S), "phase": "Done", "from": {"replicas": 2}, "applied": {"replicas": 2}}
    world.kube.policy["status"] = {"lastDecision": last}
    await world.life().window()
    assert world.decision["number"] == 1


async def test_former_weights_that_no_name_can_be_do_not_end_a_window() -> None:
    world = World(agent={"kind": "dqn-vertical", "model": "m", "learning": "Frozen", "requestCpuMicroseconds": 2000})
    world.kube.policy["status"] = {"agent": {"model": "m", "digest": "../..", "configMap": "../../secrets/x"}}
    life = world.life()
    await life.window()
    assert world.reason("ModelLoaded") in {"ModelRefused", "ModelMissing"}


def _paths(status: Any, depth: int = 2) -> list[tuple[str, ...]]:
    """Every field of a status, and of what stands in it."""
    if not isinstance(status, dict) or not depth:
        return []
    return [path for name in status for path in ((name,), *((name, *rest) for rest in _paths(status[name], depth - 1)))]


async def test_what_an_older_schema_pruned_from_a_status_is_there_again_after_a_window() -> None:
    """After `helm rollback` the API server drops fields that it does not know at the next write of anybody."""
    begun = World(**exactly(3, 200))
    await begun.life().window()
    whole = _paths(begun.status)
    assert ("lastDecision", "mac") in whole
    assert ("memory", "replicas") in whole
    for path in (path for path in whole if len(path) == 1 or path[0] == "memory" or path[1] in ("mac", "phase", "from", "applied")):
        world = World(**exactly(3, 200))
        await world.life().window()
        status = world.kube.policy["status"]
        for name in path[:-1]:
            status = status[name]
        del status[path[-1]]
        world.clock.advance(15)
        await world.life().window()
        assert set(_paths(world.status)) >= set(whole), path
        assert (world.kube.deployment["spec"]["replicas"], set(world.sizes())) == (3, {"200m"}), path
