"""Where scaling may act at all: what the release names, and never where the cluster or the release itself runs."""

from __future__ import annotations

import pytest

from tests.operator.scaling.harness import Life, World, exactly
from tiphys_operator.runtime.permissions import wanted
from tiphys_operator.scaling.reach import Reach


def life_in(world: World, namespace: str, reach: Reach) -> Life:
    for obj in (world.kube.policy, world.kube.deployment, *world.kube.pods.values()):
        obj["metadata"]["namespace"] = namespace
    return Life(world.kube, world.clock, world.prometheus, reach)


@pytest.mark.parametrize(
    ("namespace", "reach"),
    [
        ("kube-system", Reach("tiphys-system")),
        ("kube-system", Reach("tiphys-system", allowed=frozenset({"kube-system"}))),
        ("kube-node-lease", Reach("tiphys-system")),
        ("tiphys-system", Reach("tiphys-system", allowed=frozenset({"tiphys-system"}))),
        ("bank", Reach("tiphys-system", excluded=frozenset({"bank"}))),
        ("bank", Reach("tiphys-system", allowed=frozenset({"shop"}))),
        ("bank", Reach("tiphys-system", allowed=frozenset({"bank"}), excluded=frozenset({"bank"}))),
    ],
)
async def test_a_policy_where_the_release_may_not_scale_says_so_and_changes_nothing(namespace: str, reach: Reach) -> None:
    world = World(**exactly(3, 200))
    life = life_in(world, namespace, reach)
    await life.window()
    await life.align()
    assert world.reason("Ready") == "NamespaceNotAllowed"
    assert world.kube.writes == ["status"], "its condition, and neither pods nor sizes"
    assert namespace in world.status["conditions"][0]["message"]
    assert "lastDecision" not in world.status


async def test_a_status_there_is_obeyed_as_little() -> None:
    world = World(**exactly(3, 200))
    await life_in(world, "bank", Reach("tiphys-system")).window()
    world.kube.policy["status"]["lastDecision"] |= {"phase": "Intended", "applied": {"replicas": 9, "cpuMilli": 400}}
    before = len(world.kube.writes)
    await life_in(world, "bank", Reach("tiphys-system", excluded=frozenset({"bank"}))).window()
    assert world.kube.writes[before:] == ["status"]
    assert world.kube.deployment["spec"]["replicas"] == 3


@pytest.mark.parametrize("reach", [Reach("tiphys-system"), Reach("tiphys-system", allowed=frozenset({"shop"}))])
async def test_policies_act_in_namespaces_where_scaling_is_allowed(reach: Reach) -> None:
    world = World(**exactly(3, 200))
    await life_in(world, "shop", reach).window()
    assert world.kube.deployment["spec"]["replicas"] == 3


def test_rights_on_workloads_are_asked_for_where_they_are_needed() -> None:
    everywhere = {p.namespace for p in wanted("own", "lease", "map") if p.text.startswith("patch deployments/scale")}
    named = {
        p.namespace for p in wanted("own", "lease", "map", scaling_namespaces={"shop", "bank"}) if p.text.startswith("patch pods/resize")
    }
    assert everywhere == {""}
    assert named == {"shop", "bank"}
