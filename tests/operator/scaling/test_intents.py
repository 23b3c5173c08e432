"""Intents in statuses: only one of ours is finished, and only as far as it is allowed now; everything else is decided anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.operator.scaling.harness import Killed, World, exactly
from tests.operator.scaling.small import NOW_S, policy
from tiphys_models.api.scaling_reasons import DecisionPhase
from tiphys_models.api.scaling_status import LastDecision, Size
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.quantity import rfc3339
from tiphys_operator.scaling.intents import IntentKeys
from tiphys_operator.scaling.metrics import IntentResult

KEY, OTHER_KEY = "k" * 32, "o" * 32


def intent(replicas: int, cpu_m: int = 100, **changes: Any) -> dict[str, Any]:
    """As somebody writes it who may write statuses only."""
    last = {
        "number": 7,
        "at": rfc3339(NOW_S),
        "phase": "Intended",
        "from": {"replicas": 2, "cpuMilli": 100},
        "applied": {"replicas": replicas, "cpuMilli": cpu_m},
    }
    return {"observedGeneration": 1, "lastDecision": last | changes}


def key_file(path: Path, *secrets: tuple[str, str]) -> Path:
    path.write_text(json.dumps({"keys": [{"id": name, "secret": secret} for name, secret in secrets]}))
    return path


def counted(life: Any, result: IntentResult) -> float:
    return float(life.metrics.registry.get_sample_value("tiphys_operator_scaling_intents_total", {"result": result}))


@pytest.mark.parametrize("replicas", [0, 9999])
@pytest.mark.parametrize("mac", ["", "this-process:00", "first:" + "0" * 64, "ünknown:é"])
async def test_a_forged_intent_is_not_obeyed_but_decided_anew(replicas: int, mac: str) -> None:
    world = World(horizontal={"minReplicas": 1, "maxReplicas": 4})
    world.kube.policy["status"] = intent(replicas, mac=mac)
    life = world.life()
    await life.window()
    assert 1 <= world.kube.deployment["spec"]["replicas"] <= 4
    assert world.decision["number"] == 8, "another decision"
    assert counted(life, IntentResult.UNSIGNED if not mac else IntentResult.NOT_OURS) == 1


async def test_a_forged_intent_within_bounds_is_not_obeyed_either() -> None:
    world = World(**exactly(2, 100) | {"horizontal": {"minReplicas": 1, "maxReplicas": 10}})
    world.kube.policy["status"] = intent(10)
    await world.life().window()
    assert world.kube.deployment["spec"]["replicas"] != 10


async def test_our_own_intent_beyond_the_bounds_is_not_obeyed_either() -> None:
    world = World(horizontal={"minReplicas": 1, "maxReplicas": 4})
    for replicas, cpu_m in ((9999, 100), (0, 100), (2, 9999), (2, 1)):
        status = intent(replicas, cpu_m)
        signed = world.keys.sign(policy(), LastDecision.model_validate(status["lastDecision"]))
        status["lastDecision"]["mac"] = signed.mac
        world.kube.policy["status"] = status
        life = world.life()
        await life.window()
        assert counted(life, IntentResult.NOT_ALLOWED) == 1
        assert 1 <= world.kube.deployment["spec"]["replicas"] <= 4
        assert {50 <= int(size.removesuffix("m")) <= 400 for size in world.sizes()} == {True}


async def test_our_own_intent_faster_than_the_rates_allow_is_decided_anew() -> None:
    slowly = {
        "minReplicas": 1,
        "maxReplicas": 9,
        "behavior": {"scaleUp": {"policies": [{"type": "Units", "value": 1, "periodSeconds": 60}]}},
    }
    world = World(horizontal=slowly, vertical=None)
    status = intent(9)
    status["lastDecision"]["mac"] = world.keys.sign(policy(), LastDecision.model_validate(status["lastDecision"])).mac
    world.kube.policy["status"] = status
    life = world.life()
    await life.window()
    assert counted(life, IntentResult.NOT_ALLOWED) == 1
    assert world.kube.deployment["spec"]["replicas"] <= 3


async def test_our_own_intent_to_shrink_is_not_done_while_nothing_is_measured() -> None:
    world = World(replicas=2, horizontal={"minReplicas": 1, "maxReplicas": 4})
    status = intent(1)
    status["lastDecision"]["mac"] = world.keys.sign(policy(), LastDecision.model_validate(status["lastDecision"])).mac
    world.kube.policy["status"] = status
    world.prometheus.down = True
    await world.life().window()
    assert world.kube.deployment["spec"]["replicas"] == 2
    assert world.decision["phase"] == DecisionPhase.HELD


async def test_an_intent_signed_for_another_object_spec_or_size_is_not_ours() -> None:
    keys, mine = IntentKeys(), policy()
    decision = keys.sign(mine, LastDecision.model_validate(intent(3)["lastDecision"]))
    assert keys.doubt(mine, decision) is None
    for other in (policy(metadata={"uid": "q"}), policy(metadata={"generation": 2})):
        assert keys.doubt(other, decision) is IntentResult.NOT_OURS
    for change in (
        {"number": 8}, {"at": rfc3339(NOW_S + 1)}, {"former": Size(replicas=1, cpu_milli=100)}, {"applied": Size(replicas=3, cpu_milli=101)},
    ):  # fmt: skip
        assert keys.doubt(mine, decision.model_copy(update=change)) is IntentResult.NOT_OURS


async def test_an_intent_that_was_done_is_not_done_again_when_somebody_shows_it_once_more() -> None:
    world = World(**exactly(3, 100))
    life = world.life()
    world.kube.die_at = (1, "after")
    with pytest.raises(Killed):
        await life.window()
    world.kube.die_at = None
    copied = json.loads(json.dumps(world.kube.policy["status"]))
    assert copied["lastDecision"]["phase"] == DecisionPhase.INTENDED
    await life.window()
    assert world.decision["phase"] == DecisionPhase.DONE
    assert "mac" not in {k for k, v in world.decision.items() if v}
    world.kube.policy["status"] = copied
    await life.window()
    assert (world.decision["number"], world.decision["phase"]) == (copied["lastDecision"]["number"] + 1, DecisionPhase.DONE)
    assert world.kube.writes.count("scale") == 1


async def test_a_successor_without_the_key_decides_anew_and_comes_to_the_same_size() -> None:
    world = World(**exactly(3, 200))
    world.kube.die_at = (2, "after")
    with pytest.raises(Killed):
        await world.life().window()
    world.kube.die_at = None
    world.keys = IntentKeys()
    await world.life().window()
    assert (world.kube.deployment["spec"]["replicas"], world.sizes()) == (3, ["200m", "200m"])
    assert world.kube.writes.count("scale") == 1


async def test_the_first_key_signs_all_are_believed_and_the_file_is_read_again(tmp_path: Path) -> None:
    path, mine = tmp_path / "keys.json", policy()
    decision = LastDecision.model_validate(intent(3)["lastDecision"])
    keys = IntentKeys(key_file(path, ("old", KEY)))
    before = keys.sign(mine, decision)
    key_file(path, ("new", OTHER_KEY), ("old", KEY))
    assert keys.doubt(mine, before) is None, "overlap"
    after = keys.sign(mine, decision)
    assert after.mac.startswith("new:")
    key_file(path, ("new", OTHER_KEY))
    assert (keys.doubt(mine, after), keys.doubt(mine, before)) == (None, IntentResult.NOT_OURS)


@pytest.mark.parametrize("content", ["", "[]", '{"keys": []}', '{"keys": [{"id": "a", "secret": "short"}]}', "[" * 100_000, "\ud800"])
def test_a_file_of_keys_that_cannot_be_used_is_refused_at_the_start_and_changes_nothing_later(tmp_path: Path, content: str) -> None:
    path, mine = tmp_path / "keys.json", policy()
    with pytest.raises(InvalidInput):
        IntentKeys(path)
    decision = LastDecision.model_validate(intent(3)["lastDecision"])
    keys = IntentKeys(key_file(path, ("a", KEY)))
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    assert keys.doubt(mine, keys.sign(mine, decision)) is None


async def test_a_size_that_somebody_else_calls_desired_is_not_given_to_pods() -> None:
    world = World(**exactly(2, 100) | {"vertical": {"minCpuMilli": 50, "maxCpuMilli": 100}})
    life = world.life()
    await life.window()
    world.kube.policy["status"]["desired"] = {"replicas": 2, "cpuMilli": 9999}
    await life.align()
    assert {"9999m"} & set(world.sizes()) == set()
