"""The hands of the demo: retries, two things at once, and what kubelets report."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from tiphys_models.base.errors import Unavailable
from tiphys_models.base.facts import pod_facts
from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.placement.gate import GATE
from tiphys_models.placement.registry import PolicyName
from tiphys_testbed.demo.fleet import RuntimeFleet
from tiphys_testbed.demo.functions import BY_NAME
from tiphys_testbed.demo.kubelets import Kubelets, persist, running_status
from tiphys_testbed.demo.lanes import Lane, lane_nodes, make_lanes, pod_manifest
from tiphys_testbed.demo.records import CallRecord
from tiphys_testbed.demo.session import alongside

WARM = make_lanes([PolicyName.WARM_FIRST])[1]


class Server:
    """Takes patches and deletions of pods, and remembers them in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, Any]] = []
        self.refuse = 0
        """How many requests to refuse before the next is taken."""

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        if self.refuse:
            self.refuse -= 1
            return web.json_response({"reason": "TooManyRequests", "message": "later"}, status=429)
        self.seen.append((request.method, request.path, body))
        return web.json_response({})


@asynccontextmanager
async def kubelets(speed: float = 0.05) -> AsyncIterator[tuple[Kubelets, Server]]:
    """Kubelets of three nodes on which calls take a twentieth of their time, and the server they report to."""
    server = Server()
    functions = {name: replace(f, cold_s=f.cold_s * speed, warm_s=f.warm_s * speed, init_s=f.init_s * speed) for name, f in BY_NAME.items()}
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with KubeClient(ApiAccess(f"http://127.0.0.1:{runner.addresses[0][1]}", None)) as client:
            made = Kubelets(client, RuntimeFleet({WARM.namespace: lane_nodes(WARM, 3)}, time.monotonic()), functions)
            made.start_s = time.monotonic()
            keeping = asyncio.ensure_future(made._keep_time())
            try:
                yield made, server
            finally:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
    finally:
        await runner.cleanup()


def bound(name: str = "p", function: str = "eg", lane: Lane = WARM, **metadata: Any) -> dict[str, Any]:
    pod = pod_manifest(lane, name, BY_NAME[function], "s0")
    pod["metadata"] |= {"uid": f"uid-{name}"} | metadata
    pod["spec"]["nodeName"] = "warm-first-0000"
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return pod | {"status": {"phase": "Pending", "conditions": [scheduled]}}


async def until(condition: Any, deadline_s: float = 5.0) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110 - what is awaited is not an event of ours
            await asyncio.sleep(0.005)


async def test_a_bound_pod_is_reported_running_then_succeeded_and_its_record_filled() -> None:
    async with kubelets() as (made, server):
        record = CallRecord("warm-first", "p", "eg", 0.0, created_s=0.0)
        made.records[WARM.namespace, "p"] = record
        made.put(bound())
        await until(lambda: record.done_s is not None)
        phases = [body["status"]["phase"] for _, _, body in server.seen]
        assert phases == ["Running", "Succeeded"]
        assert {path for _, path, _ in server.seen} == {f"/api/v1/namespaces/{WARM.namespace}/pods/p/status"}
        assert all(body["metadata"]["uid"] == "uid-p" for _, _, body in server.seen)
        assert record.cold is True
        assert record.node == "warm-first-0000"
        assert record.ready_s is not None
        assert record.finished_s is not None
        profile = made.functions["eg"]
        assert record.finished_s - record.ready_s == pytest.approx(profile.cold_s - profile.init_s, rel=0.02)
        made.put(bound())  # old news, still on its way when the end was reported
        await asyncio.sleep(0.1)
        assert len(server.seen) == 2


async def test_a_pod_is_held_from_its_creation_until_its_gate_is_seen_open() -> None:
    async with kubelets() as (made, _):
        held = CallRecord("warm-first", "p", "eg", 0.0, created_s=0.0)
        free = CallRecord("warm-first", "q", "eg", 0.0, created_s=0.0)
        made.records = {(WARM.namespace, "p"): held, (WARM.namespace, "q"): free}
        waiting = bound()
        waiting["spec"] = {**waiting["spec"], "nodeName": "", "schedulingGates": [{"name": GATE}]}
        made.put(waiting)
        await asyncio.sleep(0.05)
        made.put({**waiting, "spec": {**waiting["spec"], "schedulingGates": []}})
        opened_s = held.opened_s
        made.put(bound())
        made.put(bound("q"))
        assert opened_s is not None
        assert held.opened_s == opened_s  # what comes after is not waiting
        assert held.held_s == opened_s >= 0.05
        assert (free.gated, free.held_s) == (False, 0.0)


async def test_a_report_that_was_refused_for_a_moment_is_repeated() -> None:
    async with kubelets() as (made, server):
        server.refuse = 2
        made.put(bound())
        await until(lambda: server.seen and server.seen[-1][2]["status"]["phase"] == "Succeeded")


async def test_a_pod_without_a_function_runs_on_and_goes_when_deleted() -> None:
    async with kubelets() as (made, server):
        made.put(bound(labels={}))
        await until(lambda: len(server.seen) == 1)
        assert server.seen[0][2]["status"]["phase"] == "Running"
        made.put(bound(labels={}, deletionTimestamp="2026-01-01T00:00:00Z"))
        await until(lambda: len(server.seen) == 2)
        assert server.seen[1][:2] == ("DELETE", f"/api/v1/namespaces/{WARM.namespace}/pods/p")


async def test_a_deleted_call_is_a_problem_of_its_record_and_frees_its_node() -> None:
    async with kubelets(speed=100.0) as (made, _):
        record = made.records[WARM.namespace, "p"] = CallRecord("warm-first", "p", "eg", 0.0)
        made.put(bound())
        assert made.fleet.next_event_s < float("inf")
        made.drop(bound())
        assert made.fleet.next_event_s == float("inf")
        assert "deleted" in record.problem


async def test_pods_of_other_nodes_are_left_alone() -> None:
    async with kubelets() as (made, server):
        other = bound()
        other["spec"]["nodeName"] = "somebody-elses"
        made.put(other)
        await asyncio.sleep(0.1)
        assert server.seen == []


def test_a_running_pod_keeps_the_time_it_was_scheduled() -> None:
    pod = bound()
    status = running_status(pod, dt.datetime(2026, 1, 1, 0, 0, 3, tzinfo=dt.UTC))
    facts = pod_facts(pod | {"status": status})
    assert facts.scheduled_s is not None
    assert facts.ready_s is not None
    assert facts.ready_s - facts.scheduled_s == 3.0
    assert status["containerStatuses"][0]["imageID"]  # a required field: typed clients refuse a status without it


# ---- retries ---------------------------------------------------------------------------------------------------------


def failing(*errors: Exception) -> Any:
    left = list(errors)

    async def request() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return request


async def test_passing_trouble_is_waited_out() -> None:
    assert await persist(failing(Unavailable("reset"), ApiError(429, "TooManyRequests", ""), ApiError(503, "", "")), 5.0) == "done"


async def test_trouble_that_stays_is_told_after_the_deadline() -> None:
    with pytest.raises(Unavailable, match="third"):
        await persist(failing(Unavailable("first"), Unavailable("second"), Unavailable("third")), 0.15)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422])
async def test_a_refusal_is_not_repeated(status: int) -> None:
    with pytest.raises(ApiError):
        await persist(failing(ApiError(status, "No", "")), 5.0)


async def test_an_object_that_an_unanswered_try_has_made_is_fine() -> None:
    assert await persist(failing(Unavailable("no answer"), ApiError(409, "AlreadyExists", "")), 5.0) is None
    with pytest.raises(ApiError):
        await persist(failing(ApiError(409, "AlreadyExists", "")), 5.0)


# ---- two things at once ----------------------------------------------------------------------------------------------


async def test_the_work_ends_the_background() -> None:
    ended = asyncio.Event()

    async def endless() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def work() -> int:
        await asyncio.sleep(0.01)
        return 7

    assert await alongside(endless(), work()) == 7
    assert ended.is_set()


async def test_a_background_that_fails_ends_the_work_with_its_own_error() -> None:
    async def failing_soon() -> None:
        await asyncio.sleep(0.01)
        raise Unavailable("the watch")

    with pytest.raises(Unavailable, match="the watch"):
        await asyncio.wait_for(alongside(failing_soon(), asyncio.sleep(60)), 5)
