"""What keeps a window from acting: no samples, refusals, other owners, a spec or a workload that will not do; and what status then says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.scaling.harness import World, exactly
from tests.operator.scaling.small import NOW_S
from tiphys_models.api.scaling_reasons import DecisionPhase
from tiphys_models.kube.client import ApiError


async def test_prometheus_that_is_gone_holds_everything_and_says_why() -> None:
    world = World(**exactly(3, 200))
    world.prometheus.down = True
    life = world.life()
    await life.window()
    assert world.kube.writes == ["status"]
    assert (world.decision["phase"], world.reason("MetricsAvailable")) == (DecisionPhase.HELD, "PrometheusUnreachable")
    assert "PrometheusUnreachable" in {e.reason for e in life.writer.events}


async def test_samples_that_stand_still_hold_everything() -> None:
    world = World(**exactly(3, 200))
    world.prometheus.frozen_s = NOW_S - 60
    await world.life().window()
    assert (world.decision["phase"], world.reason("MetricsAvailable")) == (DecisionPhase.HELD, "SamplesStale")


async def test_what_admission_refuses_beforehand_is_never_tried_and_masked() -> None:
    world = World(**exactly(2, 200))
    world.kube.refuse["preflight"] = ApiError(403, "Forbidden", "exceeded quota: q, requested: limits.cpu=100m")
    life = world.life()
    await life.window()
    assert world.kube.writes == ["status"]
    assert world.decision["phase"] == DecisionPhase.REFUSED
    assert "cpu-up: Quota" in world.decision["masked"]
    world.clock.advance(15)
    await life.window()
    assert world.kube.writes == ["status", "status"], "masked: no further dry run, no step"
    assert world.status["memory"]["blocked"][0]["tries"] == 1


async def test_a_refused_scale_is_masked_and_not_tried_again() -> None:
    world = World(**exactly(3, 100))
    world.kube.refuse["scale"] = ApiError(403, "Forbidden", "denied by a policy")
    life = world.life()
    await life.window()
    assert world.decision["phase"] == DecisionPhase.REFUSED
    del world.kube.refuse["scale"]
    world.clock.advance(15)
    await life.window()
    assert "scale" not in world.kube.writes
    assert world.reason("Limited") == "ByMask"


async def test_a_refused_scale_down_masks_shrinking_and_not_growing() -> None:
    world = World(replicas=4, **exactly(2, 100))
    world.kube.refuse["scale"] = ApiError(403, "Forbidden", "denied by a policy")
    await world.life().window()
    (blocked,) = world.status["memory"]["blocked"]
    assert (blocked["move"], blocked["bound"], blocked["reason"]) == ("replicas-down", 4, "RefusedByServer")


async def test_somebody_else_who_sets_replicas_again_and_again_is_yielded_to() -> None:
    world = World(**exactly(3, 100))
    life = world.life()
    for _ in range(3):
        await life.window()
        world.kube.deployment["spec"]["replicas"] = 2
        world.kube.deployment["metadata"]["managedFields"] = [{"manager": "argocd", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
        world.clock.advance(15)
    await life.window()
    assert [e.message for e in life.writer.events if e.reason == "ReplicasOverridden"] == ["argocd set 2 pods, we had set 3"] * 3
    assert world.reason("Conflict") == "Overridden"
    assert world.kube.deployment["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: setattr(w.kube, "missing", True), "TargetNotFound"),
        (lambda w: w.kube.deployment["spec"].update(replicas=0), "Idle"),
        (lambda w: w.kube.deployment["spec"]["template"]["spec"]["containers"][0].update(resources={}), "TargetUnfit"),
        (lambda w: w.kube.policy["spec"].update(mode="Off"), "Disabled"),
        (lambda w: w.kube.policy["spec"].update(agent={"kind": "unheard-of"}), "AgentUnavailable"),
        (lambda w: w.kube.policy["spec"].update(horizontal={"minReplicas": 5, "maxReplicas": 1}), "InvalidSpec"),
        (lambda w: w.kube.policy["metadata"].update(annotations={"tiphys.io/paused": "true"}), "Paused"),
    ],
)
async def test_what_keeps_it_from_deciding_stands_in_ready(change: Any, reason: str) -> None:
    world = World(**exactly(3, 200))
    change(world)
    await world.life().window()
    assert world.reason("Ready") == reason
    assert {"scale", "resize"} & set(world.kube.writes) == set()


async def test_without_the_right_to_see_other_autoscalers_it_only_recommends() -> None:
    world = World(**exactly(3, 200))
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    world.kube.refuse[path] = ApiError(403, "Forbidden", "cannot list")
    await world.life().window()
    assert world.reason("Conflict") == "OthersUnknown"
    assert world.kube.writes == ["status"]


async def test_autoscalers_that_are_not_installed_are_none() -> None:
    world = World(**exactly(3, 200))
    world.kube.refuse["/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects"] = ApiError(404, "NotFound", "no such API")
    await world.life().window()
    assert world.reason("Conflict") == "NoConflict"
