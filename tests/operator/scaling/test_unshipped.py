"""Agents whose weights no image carries: the rule decides, says so, and gives way when somebody publishes them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.scaling.harness import Life, World
from tiphys_cli.model.publishing import paper_publication
from tiphys_models.artifacts import files
from tiphys_models.scaling.registry import make_agent

AGENT = {"kind": "q-table", "requestCpuMicroseconds": 2000}
PUBLISHED = paper_publication("scaling-q-table", "tiphys-system")


@pytest.fixture(autouse=True)
def _no_test_bed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "brought", tuple)


async def windows(made: World, life: Life, count: int) -> None:
    for _ in range(count):
        await life.window()
        made.clock.advance(15)


def publish(made: World, life: Life, stage: str = "active") -> None:
    made.kube.config_maps[PUBLISHED.config_map["metadata"]["name"]] = dict(PUBLISHED.config_map)
    spec: dict[str, Any] = {**PUBLISHED.model["spec"], "stage": stage}
    life.shelf.put({**PUBLISHED.model, "metadata": {**PUBLISHED.model["metadata"], "uid": "uid"}, "spec": spec})


@pytest.mark.parametrize("mode", ["Active", "Recommend"])
async def test_the_rule_decides_for_an_agent_without_weights_and_the_loop_goes_on(mode: str) -> None:
    made = World(mode=mode, agent=AGENT)
    life = made.life()
    life.shelf.listed(set())
    await windows(made, life, 3)
    assert made.decision["agent"] == "rule"
    assert made.decision["phase"] in ("Done", "Recommended")
    assert made.reason("ModelLoaded") == "WeightsNotShipped"
    ready, loaded = (next(c for c in made.status["conditions"] if c["type"] == kind) for kind in ("Ready", "ModelLoaded"))
    assert (ready["status"], loaded["status"]) == ("True", "False")
    assert "tiphys model ship scaling-q-table" in loaded["message"]
    assert [e.reason for e in life.writer.events].count("WeightsNotShipped") == 1


async def test_before_models_are_listed_the_rule_decides_too() -> None:
    made = World(agent=AGENT)
    life = made.life()
    await windows(made, life, 1)
    assert (made.decision["agent"], made.reason("ModelLoaded")) == ("rule", "WeightsNotShipped")


async def test_published_under_their_own_name_the_weights_are_taken_without_a_restart_and_deleted_the_rule_is_back() -> None:
    made = World(agent=AGENT)
    life = made.life()
    await windows(made, life, 1)
    publish(made, life)
    await windows(made, life, 1)
    assert (made.decision["agent"], made.decision["modelDigest"]) == ("q-table", PUBLISHED.sha256)
    assert (made.reason("ModelLoaded"), made.status["agent"]["model"]) == ("ModelLoaded", "scaling-q-table")
    life.shelf.listed(set())
    await windows(made, life, 1)
    assert (made.decision["agent"], made.reason("ModelLoaded")) == ("rule", "WeightsNotShipped")
    publish(made, life, stage="candidate")
    await windows(made, life, 1)
    assert (made.decision["agent"], made.reason("ModelLoaded")) == ("rule", "ModelStage")


async def test_after_a_restart_the_published_version_that_the_status_names_goes_on() -> None:
    made = World(agent=AGENT)
    life = made.life()
    publish(made, life)
    await windows(made, life, 1)
    successor = made.life()
    await windows(made, successor, 1)
    assert (made.decision["agent"], made.decision["modelDigest"]) == ("q-table", PUBLISHED.sha256)


async def test_a_named_model_that_is_missing_leaves_the_rule_where_nothing_ships() -> None:
    made = World(agent=AGENT | {"model": "mine"})
    life = made.life()
    life.shelf.listed(set())
    await windows(made, life, 2)
    assert (made.decision["agent"], made.reason("ModelLoaded")) == ("rule", "ModelMissing")


async def test_with_the_test_bed_installed_its_weights_decide_as_they_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    digest = str(getattr(make_agent("q-table"), "digest"))  # noqa: B009 - of a learned agent
    assert digest == PUBLISHED.sha256
    made = World(agent=AGENT)
    life = made.life()
    await windows(made, life, 1)
    assert (made.decision["agent"], made.reason("ModelLoaded")) == ("q-table", "ModelShipped")
