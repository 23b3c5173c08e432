"""Whose weights decide: published, frozen, last good, shipped; each by digest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.operator.scaling.small import policy
from tests.publications import BROKEN, OWN, Object, published, published_agent, write_agent
from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_reasons import ScalingReason
from tiphys_models.api.scaling_status import AgentSeen
from tiphys_models.artifacts import files
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.scaling.learned import LearnedAgent
from tiphys_models.scaling.registry import make_agent
from tiphys_operator.scaling.agents import REFUSED_FOR_S, AgentShelf, Chosen

SHIPPED = str(cast("LearnedAgent", make_agent("combined")).digest)


class ConfigMaps:
    """An API server that has nothing else."""

    def __init__(self) -> None:
        self.found: dict[str, Object] = {}
        self.asked = 0
        self.error: Exception | None = None

    async def get(self, path: str, params: Any = None, *, accept: str = "") -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        name = path.removeprefix(f"/api/v1/namespaces/{OWN}/configmaps/")
        if name not in self.found:
            raise ApiError(404, "NotFound", path)
        return self.found[name]


class Scene:
    def __init__(self, directory: Path) -> None:
        self.directory, self.maps, self.clock = directory, ConfigMaps(), ManualClock()
        self.volume = directory / "volume"
        self.shelf = self.restarted()

    def restarted(self, *, listed: bool = True) -> AgentShelf:
        shelf = AgentShelf(cast("KubeClient", self.maps), OWN, self.volume, self.clock)
        if listed:
            shelf.listed(set())
        return shelf

    def publish(self, name: str = "mine", action: int = 3, change: Callable[[Object, Object], Any] | None = None, **more: Any) -> str:
        config_map, model = published_agent(self.directory, name, action=action, **more)
        if change is not None:
            change(config_map, model)
        self.maps.found[config_map["metadata"]["name"]] = config_map
        self.shelf.put(model)
        return str(model["spec"]["sha256"])

    async def choose(self, told: AgentSeen | None = None, held: Chosen | None = None, **agent: Any) -> Chosen:
        return await self.shelf.choose(spec(**agent), told, held)


def spec(mode: str = "Active", **agent: Any) -> ScalingPolicySpec:
    found = policy(mode=mode, agent={"kind": "combined", "model": "mine"} | agent).spec
    assert found is not None
    return found


def digest(chosen: Chosen) -> str:
    assert isinstance(chosen.agent, LearnedAgent)
    assert chosen.seen is not None
    assert chosen.seen.digest == chosen.agent.digest
    return chosen.agent.digest


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_rules_take_no_weights_and_a_learned_agent_without_a_model_the_shipped_ones(scene: Scene) -> None:
    rule = await scene.choose(kind="rule", model=None)
    assert (rule.agent.name, rule.reason, rule.seen) == ("rule", ScalingReason.MODEL_NOT_NEEDED, None)
    shipped = await scene.choose(model=None)
    assert (digest(shipped), shipped.reason) == (SHIPPED, ScalingReason.MODEL_SHIPPED)
    with pytest.raises(InvalidInput, match="unheard-of"):
        await scene.choose(kind="unheard-of", model=None)


async def test_a_published_model_is_taken_by_digest_and_fetched_once(scene: Scene) -> None:
    first = scene.publish()
    found = await scene.choose()
    assert (digest(found), found.reason) == (first, ScalingReason.MODEL_LOADED)
    again = await scene.choose(found.seen, found)
    assert (again.agent is found.agent, scene.maps.asked) == (True, 1)


async def test_the_wanted_attainment_picks_the_price_of_a_published_model_too(scene: Scene) -> None:
    scene.publish(prices=((1.0, 0.5), (7.0, 0.96), (50.0, 0.99)))
    found = await scene.choose()
    assert isinstance(found.agent, LearnedAgent)
    assert found.agent.price == 7.0


async def test_a_newer_version_is_taken_while_it_collects_and_not_while_it_is_frozen(scene: Scene) -> None:
    first = scene.publish()
    found = await scene.choose()
    second = scene.publish(action=5)
    assert digest(await scene.choose(found.seen, found)) == first
    assert digest(await scene.choose(found.seen, found, learning="Collect")) == second


async def test_a_frozen_version_outlives_a_restart(scene: Scene) -> None:
    first = scene.publish()
    told = (await scene.choose()).seen
    scene.shelf = scene.restarted()
    scene.publish(action=5)
    assert digest(await scene.choose(told)) == first
    assert digest(await scene.choose(told, model="mine", learning="Collect")) != first


async def test_a_frozen_version_whose_bytes_are_gone_is_not_replaced_by_a_newer_one(scene: Scene) -> None:
    scene.publish()
    told = (await scene.choose()).seen
    scene.shelf = scene.restarted()
    scene.maps.found.clear()
    scene.publish(action=5)
    first = await scene.choose(told)
    assert (digest(first), first.reason) == (SHIPPED, ScalingReason.MODEL_REFUSED)
    again = await scene.choose(first.seen, first)
    assert (again.agent is first.agent, again.reason) == (True, ScalingReason.MODEL_REFUSED)


async def test_while_the_shipped_weights_stand_in_they_stay_the_same_agent(scene: Scene) -> None:
    first = await scene.choose()
    again = await scene.choose(first.seen, first)
    assert (again.agent is first.agent, again.reason, digest(again)) == (True, ScalingReason.MODEL_MISSING, SHIPPED)


async def test_another_model_is_taken_although_frozen(scene: Scene) -> None:
    scene.publish()
    found = await scene.choose()
    other = scene.publish("other", action=5)
    assert digest(await scene.choose(found.seen, model="other")) == other


@pytest.mark.parametrize("name", [n for n in BROKEN if n not in ("other features in the spec", "nan weight", "wrong shape")])
async def test_a_refused_version_leaves_the_last_good_one_and_before_it_the_shipped_one(scene: Scene, name: str) -> None:
    change, _ = BROKEN[name]
    scene.publish(change=change, action=5)
    refused = await scene.choose()
    assert (digest(refused), refused.reason) == (SHIPPED, ScalingReason.MODEL_REFUSED)
    good = scene.publish()
    found = await scene.choose()
    scene.publish(change=change, action=5)
    after = await scene.choose(found.seen, found, learning="Collect")
    assert (digest(after), after.reason) == (good, ScalingReason.MODEL_REFUSED)
    scene.clock.advance(REFUSED_FOR_S + 1)
    restarted = await scene.choose(found.seen, learning="Collect")
    assert digest(restarted) == good


async def test_what_was_refused_is_not_fetched_with_every_window_but_again_later(scene: Scene) -> None:
    _, model = published_agent(scene.directory, "mine")
    scene.shelf.put(model)
    for _ in range(3):
        assert (await scene.choose()).reason is ScalingReason.MODEL_REFUSED
    assert scene.maps.asked == 1
    sound = scene.publish()
    scene.clock.advance(REFUSED_FOR_S + 1)
    assert digest(await scene.choose()) == sound


@pytest.mark.parametrize(
    ("stage", "mode", "reason"),
    [
        ("candidate", "Recommend", "ModelStage"), ("shadow", "Recommend", "ModelLoaded"), ("shadow", "Active", "ModelStage"),
        ("canary", "Active", "ModelStage"), ("active", "Active", "ModelLoaded"), ("retired", "Active", "ModelStage"),
    ],
)  # fmt: skip
async def test_a_stage_says_which_modes_it_serves(scene: Scene, stage: str, mode: str, reason: str) -> None:
    own = scene.publish(stage=stage)
    found = await scene.choose(mode=mode)
    assert (str(found.reason), digest(found)) == (reason, own if reason == "ModelLoaded" else SHIPPED)


@pytest.mark.parametrize("learning", ["Frozen", "Collect"])
async def test_whoever_publishes_can_take_it_back(scene: Scene, learning: str) -> None:
    scene.publish(stage="shadow")
    found = await scene.choose(mode="Recommend", learning=learning)
    assert digest(found) != SHIPPED
    active = await scene.choose(found.seen, mode="Active", learning=learning)
    assert (digest(active), active.reason) == (SHIPPED, ScalingReason.MODEL_STAGE)
    scene.publish(stage="retired")
    assert digest(await scene.choose(found.seen, found, mode="Recommend", learning=learning)) == SHIPPED
    scene.shelf.listed(set())
    assert digest(await scene.choose(found.seen, found, mode="Recommend", learning=learning)) == SHIPPED


@pytest.mark.parametrize("learning", ["Frozen", "Collect"])
async def test_before_models_are_listed_the_version_of_the_status_goes_on(scene: Scene, learning: str) -> None:
    first = scene.publish()
    told = (await scene.choose(learning=learning)).seen
    scene.shelf = scene.restarted(listed=False)
    assert digest(await scene.choose(told, learning=learning)) == first


async def test_a_model_for_somebody_else_or_that_is_gone_is_not_used(scene: Scene) -> None:
    assert (await scene.choose()).reason is ScalingReason.MODEL_MISSING
    config_map, model = published(scene.directory, "mine")
    scene.maps.found[config_map["metadata"]["name"]] = config_map
    scene.shelf.put(model)
    found = await scene.choose()
    assert (found.reason, "faasrank" in found.message) == (ScalingReason.MODEL_REFUSED, True)
    scene.publish()
    scene.shelf.listed(set())
    assert (await scene.choose()).reason is ScalingReason.MODEL_MISSING


async def test_an_api_server_that_does_not_answer_is_no_refusal(scene: Scene) -> None:
    good = scene.publish()
    scene.maps.error = Unavailable("refused")
    with pytest.raises(Unavailable):
        await scene.choose()
    scene.maps.error = None
    assert digest(await scene.choose()) == good
    scene.maps.error = ApiError(403, "Forbidden", "configmaps")
    scene.shelf = scene.restarted()
    scene.publish(action=5)
    found = await scene.choose()
    assert (found.reason, "may not read" in found.message) == (ScalingReason.MODEL_REFUSED, True)


async def test_an_agent_that_ships_without_weights_finds_mounted_ones_under_their_own_name(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = files.card_of("scaling-q-table")
    monkeypatch.setattr(files, "brought", tuple)
    without = await scene.choose(kind="q-table", model=None)
    assert (without.agent.name, without.reason) == ("rule", ScalingReason.WEIGHTS_NOT_SHIPPED)
    again = await scene.choose(without.seen, without, kind="q-table", model=None)
    assert again.agent is without.agent
    scene.volume.mkdir()
    for path in (card, card.with_suffix(".safetensors")):
        shutil.copy(path, scene.volume)
    scene.clock.advance(60)
    mounted = await scene.choose(again.seen, again, kind="q-table", model=None)
    assert (digest(mounted)[:8], mounted.reason) == ("822d079b", ScalingReason.MODEL_LOADED)


async def test_where_no_learned_model_serves_the_mounted_one_of_that_name_does(scene: Scene) -> None:
    write_agent(scene.volume, 4)
    for suffix in (".json", ".safetensors"):
        (scene.volume / f"agent{suffix}").rename(scene.volume / f"mine{suffix}")
    mounted = await scene.choose()
    assert (digest(mounted) != SHIPPED, mounted.reason, mounted.message.split()[0]) == (True, ScalingReason.MODEL_LOADED, "mounted")
    again = await scene.choose(mounted.seen, mounted)
    assert again.agent is mounted.agent
    own = scene.publish(stage="candidate")
    assert digest(await scene.choose(again.seen, again)) == digest(mounted)
    scene.publish(stage="active")
    assert digest(await scene.choose(again.seen, again, learning="Collect")) == own
    assert (await scene.choose(kind="dqn-vertical", model="mine")).reason is ScalingReason.MODEL_REFUSED
