"""Whose weights choose and plan for a policy with `select`: those that ship, until others are published and promoted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.models.test_store import BROKEN, Server, varied
from tests.operator.selection.harness import Kube, loop_on, selecting
from tests.operator.selection.small import Live, policy
from tests.publications import OWN
from tiphys_cli.model.publishing import publication
from tiphys_models.api.selection import SelectSpec
from tiphys_models.artifacts.loaders import Loaded, load_file
from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.seats.modes import Mode
from tiphys_models.selection.cloud.state import Plan
from tiphys_operator.selection import controller
from tiphys_operator.selection.chooser import UNIT, Chooser, chooser_key
from tiphys_operator.selection.weights import SHIPPED_ONLY, SelectWeights, names_in, weights_for
from tiphys_operator.served_models import REFUSED_FOR_S, ServedModels

LOOK_S = 11.0


class Scene:
    """The operator's models of selection, and who publishes."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.server, self.clock = directory, Server(), ManualClock()
        self.volume = directory / "volume"
        self.volume.mkdir()
        self.models = ServedModels(cast("KubeClient", self.server), OWN, self.volume, self.clock, "selection")

    def publish(self, shipped: str, version: int, stage: str = "active", name: str = "", spoil: Any = None) -> str:
        made = publication(varied(WEIGHTS / f"{shipped}.json", self.directory / f"{shipped}-{version}", version), name, OWN, stage)  # type: ignore[arg-type]
        config_map, model = deepcopy(dict(made.config_map)), deepcopy(dict(made.model))
        model["metadata"]["uid"] = f"uid-{model['metadata']['name']}"
        if spoil is not None:
            spoil(config_map, model)
        self.server.maps[config_map["metadata"]["name"]] = config_map
        self.models.put(model)
        return str(model["spec"]["sha256"])

    async def weights(self, mode: Mode = "Active", **select: Any) -> SelectWeights:
        found = spec(**select)
        await self.models.refresh(names_in(found))
        return weights_for(self.models, found, mode)

    async def planner(self, mode: Mode = "Active") -> str:
        """Digest of the weights of `gobi`; empty: those that ship."""
        found = (await self.weights(mode)).planners.get("gobi")
        return found.digest if found is not None else ""

    async def selector(self, mode: Mode = "Active", **select: Any) -> str:
        found = (await self.weights(mode, **select)).selector
        return found.digest if found is not None else ""


def spec(**select: Any) -> SelectSpec:
    return policy(by="dqn", among=["gobi", "cost-lean"], **select)[1]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_a_published_planner_plans_once_it_is_promoted_and_a_broken_newer_version_does_not(scene: Scene) -> None:
    candidate = scene.publish("gobi", 1, "candidate")
    assert (await scene.planner(), await scene.planner("Shadow")) == ("", "")
    scene.publish("gobi", 1, "shadow")
    assert (await scene.planner(), await scene.planner("Shadow")) == ("", candidate)
    scene.publish("gobi", 1)
    assert await scene.planner() == candidate
    for spoil, _ in BROKEN.values():
        scene.publish("gobi", 2, spoil=spoil)
        assert await scene.planner() == candidate
    scene.models.drop({"metadata": {"name": "gobi"}})
    assert await scene.planner() == ""


async def test_a_selector_is_found_by_its_own_name_or_by_the_one_that_select_gives(scene: Scene) -> None:
    own, other = scene.publish("dqn", 1), scene.publish("dqn", 2, name="ours")
    assert (await scene.selector(), await scene.selector(model="ours"), await scene.selector(model="nobodys")) == (own, other, "")
    volume = load_file(varied(WEIGHTS / "dqn.json", scene.volume, 5)).digest
    scene.models.drop({"metadata": {"name": "dqn"}})
    scene.clock.advance(LOOK_S)
    assert await scene.selector() == volume, "mounted"
    emptied(scene.volume)
    scene.clock.advance(LOOK_S)
    assert await scene.selector() == ""


def emptied(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


async def test_weights_of_another_selector_are_not_taken(scene: Scene) -> None:
    scene.publish("metanet", 1, name="ours")
    assert await scene.selector(model="ours") == ""


async def test_an_api_server_that_does_not_answer_leaves_what_decided(scene: Scene) -> None:
    first = scene.publish("gobi", 1)
    assert await scene.planner() == first
    second = scene.publish("gobi", 2)
    scene.server.error = Unavailable("no answer")
    assert await scene.planner() == first
    scene.server.error = None
    scene.clock.advance(REFUSED_FOR_S + 1)
    assert await scene.planner() == second


async def test_what_was_learned_beside_other_weights_is_not_taken_over(scene: Scene) -> None:
    select = spec()
    before = chooser_key(select)
    assert before == chooser_key(select, SHIPPED_ONLY), "checkpoints of earlier releases go on"
    scene.publish("dqn", 1)
    first = chooser_key(select, await scene.weights())
    scene.publish("dqn", 2)
    assert len({before, first, chooser_key(select, await scene.weights())}) == 3


@pytest.mark.parametrize("by", ["metanet", "dqn"])
async def test_published_weights_choose_from_a_live_cluster(scene: Scene, by: str) -> None:
    scene.publish(by, 1)
    live = Live(by=by, among=["cost-lean", "gobi"])
    scene.publish("gobi", 1)
    await scene.models.refresh(names_in(live.spec))
    weights = weights_for(scene.models, live.spec, "Active")
    live.chooser = Chooser(live.spec, models=weights)
    live.create(2)
    live.interval()
    assert {c.candidate for c in live.memory.status.predicted_cost} == {"cost-lean", "gobi"}
    assert weights.selector is not None
    assert live.chooser.planner("gobi") is weights.planners["gobi"].value
    assert live.chooser.planner("cost-lean").name == "cost-lean"
    asked = (str(live.spec.by), tuple(live.spec.among), live.chooser.weights, UNIT)
    assert weights.make_selector(*asked) is not weights.make_selector(*asked), "online states are never shared"


async def test_the_loop_takes_a_promoted_planner_with_its_next_interval(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "_MODELS_S", 0.1)
    made = loop_on(Kube(), selecting(by="ucb", among=["gobi", "cost-lean"]), models=scene.models)
    running = asyncio.create_task(made.run())
    try:
        digest = scene.publish("gobi", 1)
        async with asyncio.timeout(10):
            while True:
                chooser = next(iter(made._policies.values())).chooser
                if chooser is not None and (found := chooser.models.planners.get("gobi")) is not None:
                    break
                await asyncio.sleep(0.05)
        assert found.digest == digest
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def on_second_host() -> Loaded:
    class Everywhere:
        def assign(self, state: Any, tasks: Any, seed: int) -> Any:
            return Plan(np.full(len(tasks), 1, np.int64))

    return Loaded("selection", cast("Any", None), Everywhere())


def test_a_published_planner_plans_also_where_the_selector_has_looked_at_a_plan_of_the_shipped_one() -> None:
    live = Live(by="preview", among=["greedy", "one-per-host"])
    live.chooser.models = SelectWeights(planners=dict.fromkeys(live.spec.among, on_second_host()))
    live.create(1)
    plan = live.interval().plan
    assert plan is not None
    assert [node.node for node in plan.functions[0].nodes] == ["b2s-1"]


async def test_models_that_may_not_be_watched_are_not_told_as_pods_and_nodes_that_may_not_be(scene: Scene) -> None:
    class Forbidding(Kube):
        async def pages(self, path: str, params: Any = None, *, accept: str = "") -> AsyncGenerator[dict[str, Any], None]:
            if path.endswith("learnedmodels"):
                asked.set()
                raise ApiError(403, "Forbidden", "learnedmodels")
            async for page in super().pages(path, params, accept=accept):
                yield page

    asked = asyncio.Event()
    made = loop_on(Forbidding(), selecting(), models=scene.models)
    running = asyncio.create_task(made.run())
    try:
        async with asyncio.timeout(5):
            await asked.wait()
        await asyncio.sleep(0.05)
        assert "pods" not in made.found()["a/p"].problem
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
