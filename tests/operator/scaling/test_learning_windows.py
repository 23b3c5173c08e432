"""Windows of a learned agent with hands: what stands in status, what is counted, and what a restart keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.operator.scaling.harness import Life, World
from tests.publications import published_agent
from tiphys_models.kube.client import ApiError
from tiphys_models.scaling.learned import moves_of

ACTIONS = moves_of("combined").actions
AGENT = {"kind": "combined", "model": "mine", "requestCpuMicroseconds": 2000, "rollback": {"windows": 4, "marginPercent": 5}}
AT_ONCE = {"scaleUp": {"tolerancePercent": 0}, "scaleDown": {"stabilizationWindowSeconds": 0, "tolerancePercent": 0}}


def world(**agent: Any) -> World:
    return World(agent=AGENT | agent, vertical={"minCpuMilli": 50, "maxCpuMilli": 400, "behavior": AT_ONCE})


def publish(made: World, life: Life, directory: Path, action: str) -> str:
    config_map, model = published_agent(directory, "mine", action=ACTIONS.index(action))
    made.kube.config_maps[config_map["metadata"]["name"]] = config_map
    life.shelf.put(model)
    return str(model["spec"]["sha256"])


async def windows(made: World, life: Life, count: int) -> None:
    for _ in range(count):
        await life.window()
        made.clock.advance(15)


async def test_status_says_whose_weights_decide_and_how_they_compare(tmp_path: Path) -> None:
    made = world()
    life = made.life()
    digest = publish(made, life, tmp_path, "rule x 1")
    await windows(made, life, 6)
    seen = made.status["agent"]
    assert (seen["model"], seen["digest"], seen["aheadPermille"]) == ("mine", digest, 0)
    assert seen["compared"] in (4, 5), "written when it was new, and every minute"
    assert made.decision["modelDigest"] == digest
    assert (made.reason("ModelLoaded"), made.reason("RolledBack")) == ("ModelLoaded", "NotWorse")
    assert life.log.last == 0, "frozen: it teaches nobody"


async def test_a_rollback_is_an_event_a_count_and_outlives_the_process(tmp_path: Path) -> None:
    made = world(learning="Collect")
    life = made.life()
    publish(made, life, tmp_path, "rule x 3")
    await windows(made, life, 6)
    assert made.reason("RolledBack") == "WorseThanRule"
    assert made.decision["agent"] == "rule"
    assert [e.reason for e in life.writer.events].count("WorseThanRule") == 1
    shown = life.metrics.render().decode()
    assert "tiphys_operator_scaling_rollbacks_total 1.0" in shown
    assert f'tiphys_operator_scaling_transitions_total{{result="recorded"}} {life.log.last}.0' in shown
    assert life.log.last == 5

    successor = made.life()
    digest = publish(made, successor, tmp_path, "rule x 3")
    await windows(made, successor, 2)
    assert (made.status["agent"]["digest"], made.decision["agent"]) == (digest, "rule")
    assert "tiphys_operator_scaling_rollbacks_total 0.0" in successor.metrics.render().decode()
    publish(made, successor, tmp_path, "rule x 1")
    await windows(made, successor, 1)
    assert (made.reason("RolledBack"), made.decision["agent"]) == ("NotCompared", "combined")


async def test_without_its_model_the_shipped_weights_decide_and_it_says_so(tmp_path: Path) -> None:
    made = world()
    life = made.life()
    await windows(made, life, 1)
    assert made.reason("ModelLoaded") == "ModelMissing"
    assert made.decision["agent"] == "combined"
    digest = publish(made, life, tmp_path, "rule x 1")
    await windows(made, life, 1)
    assert (made.reason("ModelLoaded"), made.decision["modelDigest"]) == ("ModelLoaded", digest)


@pytest.mark.parametrize("step", ["preflight", "resize"])
async def test_a_step_that_was_refused_is_not_held_against_the_agent(tmp_path: Path, step: str) -> None:
    made = world()
    life = made.life()
    publish(made, life, tmp_path, "rule x 3")
    made.kube.refuse[step] = ApiError(403, "Forbidden", "exceeded quota: full")
    await windows(made, life, 2)
    assert "cpu-up: Quota" in made.decision["masked"]
    assert made.status["agent"].get("compared", 0) == 0
    await windows(made, life, 1)
    assert made.status["agent"]["compared"] == 1, "what it then decides within the mask is"
