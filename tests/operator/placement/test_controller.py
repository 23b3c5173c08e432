from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.operator.api_server import POLICIES
from tests.operator.placement.harness import Loop, refuse
from tests.publications import OWN, published
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.client import ApiError
from tiphys_models.kube.leases import LeaseLost
from tiphys_operator.placement import plan as plan_module
from tiphys_operator.runtime.permissions import CREATE_EVENTS


async def test_a_round_writes_what_differs_and_the_next_writes_nothing(loop: Loop) -> None:
    loop.server.add_policy("p")
    loop.server.add_pod("a", app="x")
    loop.server.add_pod("b", scheduler="default-scheduler")
    loop.server.add_pod("done", phase="Succeeded")
    assert await loop.reconciler.reconcile()
    assert (loop.status()["matchingPods"], loop.status()["routedPods"]) == (2, 1)
    assert loop.reason("Routed") == "NotRouted"
    writes = len(loop.server.writes)
    assert await loop.reconciler.reconcile()
    assert len(loop.server.writes) == writes


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_a_list_that_fails_is_counted_and_tried_again(loop: Loop, code: int) -> None:
    loop.server.add_policy("p")
    loop.server.fault = refuse(code, times=1)
    running = asyncio.create_task(loop.reconciler.run())
    await loop.until(lambda: loop.reason("Ready") == "Accepted")
    assert loop.sample("reconciles_total", result="error") == 1
    assert loop.sample("errors_total", reason="api-error") == 1
    running.cancel()


async def test_a_connection_that_is_reset_is_counted_and_tried_again(loop: Loop) -> None:
    resets = 0

    async def reset(request: web.Request) -> web.StreamResponse | None:
        nonlocal resets
        if request.path != POLICIES or resets >= 2:
            return None
        resets += 1
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    loop.server.add_policy("p")
    loop.server.fault = reset
    running = asyncio.create_task(loop.reconciler.run())
    await loop.until(lambda: loop.reason("Ready") == "Accepted")
    assert loop.sample("reconciles_total", result="error") >= 1
    running.cancel()


async def test_a_refused_list_is_counted_as_forbidden(loop: Loop) -> None:
    loop.server.fault = refuse(403)
    running = asyncio.create_task(loop.reconciler.run())
    await loop.until(lambda: loop.sample("errors_total", reason="forbidden") >= 1)
    assert not running.done()
    running.cancel()


async def test_without_the_crd_the_loop_waits_for_it(loop: Loop) -> None:
    loop.server.add_policy("p")
    loop.server.fault = refuse(404, times=2)
    running = asyncio.create_task(loop.reconciler.run())
    await loop.until(lambda: loop.reason("Ready") == "Accepted")
    assert loop.sample("reconciles_total", result="error") == 2
    running.cancel()


async def test_pods_that_may_not_be_listed_cost_only_their_count(loop: Loop) -> None:
    loop.server.add_policy("p")
    loop.server.fault = refuse(403, part="/pods")
    assert await loop.reconciler.reconcile()
    assert loop.reason("Ready") == "Accepted"
    assert loop.reason("Routed") == "PodsUnknown"


async def test_pods_that_cannot_be_listed_at_the_moment_flip_no_condition(loop: Loop) -> None:
    loop.server.add_policy("p")
    loop.server.add_pod("a")
    loop.server.fault = refuse(500, part="/pods")
    assert await loop.reconciler.reconcile()
    assert (loop.reason("Ready"), loop.reason("Routed")) == ("Accepted", "PodsUnknown")
    routed = {"type": "Routed", "status": "True", "reason": "PodsRouted", "message": "all", "observedGeneration": 1}
    kept = [c for c in loop.status()["conditions"] if c["type"] != "Routed"]
    loop.status()["conditions"] = [*kept, routed | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]
    assert await loop.reconciler.reconcile()
    assert loop.reason("Routed") == "PodsRouted", "what a former leader has said stands until pods are known"


async def test_a_conflict_is_resolved_by_the_next_round(loop: Loop) -> None:
    loop.server.add_policy("p")
    loop.server.fault = refuse(409, method="PATCH", part="/status", times=1)
    assert not await loop.reconciler.reconcile()
    assert loop.sample("errors_total", reason="conflict") == 1
    assert loop.server.events == []  # not yet: the status does not say so
    assert await loop.reconciler.reconcile()
    assert loop.reason("Ready") == "Accepted"
    assert len(loop.server.events) == 1


async def test_events_that_may_not_be_written_do_not_stop_statuses(loop: Loop) -> None:
    loop.server.denied = {("create", "events")}
    await loop.permissions.check()
    loop.server.add_policy("p")
    assert await loop.reconciler.reconcile()
    assert loop.reason("Ready") == "Accepted"
    assert loop.server.wrote("/events") == 0
    assert not loop.permissions.allows(CREATE_EVENTS)


async def test_statuses_that_may_not_be_written_are_left_alone(loop: Loop) -> None:
    loop.server.denied = {("patch", "schedulingpolicies/status")}
    await loop.permissions.check()
    loop.server.add_policy("p")
    assert await loop.reconciler.reconcile()
    assert loop.server.writes == []
    assert loop.sample("policies", mode="Shadow", ready="True") == 1


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("list", "schedulingpolicies"),
        ("watch", "schedulingpolicies"),
        ("patch", "schedulingpolicies/status"),
        ("list", "learnedmodels"),
        ("watch", "learnedmodels"),
        ("patch", "learnedmodels/status"),
        ("get", "configmaps"),
        ("list", "pods"),
        ("patch", "pods/resize"),
        ("patch", "deployments/scale"),
        ("list", "horizontalpodautoscalers"),
        ("patch", "scalingpolicies/status"),
        ("create", "events"),
        ("patch", "events"),
        ("get", "leases"),
        ("create", "leases"),
        ("update", "leases"),
    ],
)
async def test_every_missing_right_is_named(loop: Loop, verb: str, resource: str, caplog: pytest.LogCaptureFixture) -> None:
    loop.server.denied = {(verb, resource)}
    await loop.permissions.check()
    assert [(p.verb, p.target.split(".")[0]) for p in loop.permissions.denied] == [(verb, resource)]
    assert f"RBAC denies {verb} {resource}" in caplog.text
    (permission,) = loop.permissions.denied
    assert loop.sample("permission_missing", verb=verb, resource=permission.target) == 1
    loop.server.denied = set()
    await loop.permissions.check()
    assert loop.sample("permission_missing", verb=verb, resource=permission.target) == 0


async def test_an_access_review_that_fails_denies_nothing(loop: Loop) -> None:
    loop.server.fault = refuse(500, method="POST", part="selfsubjectaccessreviews")
    await loop.permissions.check_softly()
    assert loop.permissions.denied == frozenset()


async def test_waking_it_reconciles_at_once(loop: Loop) -> None:
    loop.reconciler._resync_s = 60.0
    running = asyncio.create_task(loop.reconciler.run())
    await loop.until(lambda: loop.sample("reconciles_total", result="success") == 1)
    loop.server.add_policy("p")
    loop.reconciler.wake()
    await loop.until(lambda: loop.reason("Ready") == "Accepted", 2)
    running.cancel()


async def test_a_bunch_of_events_is_one_round(loop: Loop) -> None:
    loop.reconciler._resync_s = 60.0
    running = asyncio.create_task(loop.reconciler.run())
    await loop.until(lambda: loop.sample("reconciles_total", result="success") == 1)
    for _ in range(50):
        loop.reconciler.wake()
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.5)
    assert loop.sample("reconciles_total", result="success") <= 3
    running.cancel()


async def test_a_lost_lease_ends_the_loop(loop: Loop) -> None:
    loop.server.add_policy("p")
    loop.lease._valid_until_s = 0.0
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(loop.reconciler.run(), 2)
    assert loop.server.writes == []


async def test_an_invalid_policy_harms_no_other(loop: Loop) -> None:
    loop.server.add_policy("bad", mode="Sometimes", guardrails="none")
    loop.server.add_policy("good")
    assert await loop.reconciler.reconcile()
    assert (loop.reason("Ready", "bad"), loop.reason("Ready", "good")) == ("InvalidSpec", "Accepted")


async def test_an_unreadable_list_is_unavailable_not_a_crash(loop: Loop) -> None:
    async def garbage(request: web.Request) -> web.Response | None:
        return web.Response(body=b"<html>proxy</html>", status=502) if request.path == POLICIES else None

    loop.server.fault = garbage
    with pytest.raises(Unavailable, match="502"):
        await loop.reconciler.reconcile()


async def test_a_learned_model_is_checked_again_only_when_its_bytes_or_its_spec_changed(loop: Loop, tmp_path: Path) -> None:
    config_map, model = published(tmp_path)
    loop.server.add_config_map(config_map)
    stored = loop.server.add_model("m", **model["spec"])

    def accepted() -> str:
        return next(str(c["reason"]) for c in stored["status"]["conditions"] if c["type"] == "Accepted")

    assert await loop.reconciler.reconcile()
    assert accepted() == "Accepted"
    path = f"/api/v1/namespaces/{OWN}/configmaps/{config_map['metadata']['name']}"
    asked = loop.server.requests.count(("GET", path))
    await loop.reconciler.reconcile()
    assert loop.server.requests.count(("GET", path)) == asked + 1, "metadata alone"
    config_map["data"]["card.json"] = "{}"
    loop.server.add_config_map(config_map)
    await loop.reconciler.reconcile()
    assert accepted() == "CardInvalid"
    loop.server.config_maps.clear()
    await loop.reconciler.reconcile()
    assert accepted() == "Missing"
    assert {event["involvedObject"]["kind"] for event in loop.server.events} == {"LearnedModel"}
    assert {event["reason"] for event in loop.server.events} == {"Accepted", "CardInvalid", "Missing"}


@pytest.mark.parametrize("code", [403, 404])
async def test_without_the_kind_or_the_right_policies_go_on(loop: Loop, code: int) -> None:
    loop.server.add_policy("p")
    loop.server.fault = refuse(code, part="/learnedmodels")
    assert await loop.reconciler.reconcile()
    assert loop.reason("Ready") == "Accepted"


async def test_pods_are_listed_once_whatever_is_edited_and_counted_by_every_policy_that_selects_them(loop: Loop) -> None:
    for number in range(20):
        loop.server.add_policy(f"p{number}", selector={"matchLabels": {"app": str(number % 2)}})
    for number in range(6):
        loop.server.add_pod(f"pod{number}", app=str(number % 2))
    for generation in range(2, 6):
        await loop.reconciler.reconcile()
        loop.server.policies["default", "p0"]["metadata"]["generation"] = generation
    assert {loop.status(f"p{number}")["matchingPods"] for number in range(20)} == {3}
    lists = [path for method, path in loop.server.requests if "/pods" in path and "watch=" not in path]
    assert len(lists) == 1


async def test_a_pod_that_comes_is_counted_without_another_list(loop: Loop) -> None:
    loop.server.add_policy("p")
    running = asyncio.create_task(loop.reconciler.run())
    await loop.until(lambda: loop.reason("Routed") == "NoPods")
    loop.server.add_pod("a")
    await loop.until(lambda: loop.status().get("routedPods") == 1)
    running.cancel()


async def test_a_round_that_is_woken_all_the_time_leaves_the_api_server_four_times_as_long_as_it_took(loop: Loop) -> None:
    loop.reconciler._resync_s = 30.0
    loop.server.add_policy("p")
    running = asyncio.create_task(loop.reconciler.run())
    until_s = loop.metrics.registry.get_sample_value("tiphys_operator_reconciles_total", {"result": "success"}) or 0.0
    for _ in range(150):
        loop.reconciler.wake()
        await asyncio.sleep(0.01)
    running.cancel()
    assert loop.sample("reconciles_total", result="success") - until_s <= 2


@pytest.mark.parametrize("code", [400, 413, 422])
async def test_a_status_that_the_api_server_cannot_take_ends_no_round(loop: Loop, code: int) -> None:
    loop.server.add_policy("bad")
    loop.server.add_policy("p")
    loop.server.fault = refuse(code, method="PATCH", part="/bad/")
    assert await loop.reconciler.reconcile()
    assert loop.reason("Ready") == "Accepted"
    assert loop.sample("object_errors_total", kind="SchedulingPolicy") == 1


async def test_whatever_one_policy_does_to_the_plan_the_others_are_planned_for(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = plan_module._conflict

    def trips(route: Any, *rest: Any) -> Any:
        if route.name == "bad":
            raise RecursionError("nobody foresaw it")
        return judged(route, *rest)

    monkeypatch.setattr(plan_module, "_conflict", trips)
    loop.server.add_policy("bad")
    loop.server.add_policy("p")
    assert await loop.reconciler.reconcile()
    assert (loop.reason("Ready"), loop.reason("Ready", "bad")) == ("Accepted", "InternalError")
    assert "nobody foresaw it" in loop.status("bad")["conditions"][0]["message"]
    assert loop.sample("object_errors_total", kind="SchedulingPolicy") == 1
    monkeypatch.undo()
    assert await loop.reconciler.reconcile()
    assert loop.reason("Ready", "bad") == "Accepted"


async def test_a_round_shows_that_the_loop_turns(loop: Loop) -> None:
    running = asyncio.create_task(loop.reconciler.run())
    await loop.until(lambda: loop.sample("reconciles_total", result="success") >= 1)
    assert loop.health.loops.ages_s()["reconcile"] < 5.0
    running.cancel()


async def test_a_server_that_asks_to_be_left_alone_is_asked_so_seldom(loop: Loop) -> None:
    asked = 0

    async def observe() -> Any:
        nonlocal asked
        asked += 1
        raise ApiError(429, "TooManyRequests", "later", retry_after_s=2.0)

    loop.reconciler._observer.observe = observe  # type: ignore[method-assign]
    running = asyncio.create_task(loop.reconciler.run())
    await asyncio.sleep(1.6)
    assert asked == 1
    running.cancel()


@pytest.mark.parametrize("code", [400, 410])
async def test_an_artifact_that_cannot_be_fetched_is_one_models_own_trouble(loop: Loop, tmp_path: Path, code: int) -> None:
    for name in ("bad", "m"):
        config_map, model = published(tmp_path, name)
        loop.server.add_config_map(config_map)
        loop.server.add_model(name, OWN, **model["spec"])
    loop.server.fault = refuse(code, part=loop.server.models[OWN, "bad"]["spec"]["weights"]["configMap"]["name"])
    assert await loop.reconciler.reconcile()

    def accepted(name: str) -> str:
        return str(loop.server.models[OWN, name]["status"]["conditions"][0]["reason"])

    assert (accepted("bad"), accepted("m")) == ("Unreadable", "Accepted")


async def test_pods_that_take_long_to_be_listed_hold_up_nothing_else(loop: Loop) -> None:
    go_on = asyncio.Event()

    async def slow(request: web.Request) -> None:
        if request.path.endswith("/pods"):
            await go_on.wait()

    loop.server.add_policy("p")
    loop.server.add_pod("a", app="x")
    loop.server.fault = slow
    async with asyncio.timeout(2.0):
        await loop.reconciler.reconcile()
    assert (loop.reason("Ready"), loop.reason("Routed")) == ("Accepted", "PodsUnknown")
    running = asyncio.create_task(loop.reconciler.run())
    go_on.set()
    await loop.until(lambda: loop.reason("Routed") == "PodsRouted")
    running.cancel()
