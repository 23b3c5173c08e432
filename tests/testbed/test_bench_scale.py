"""The made-up API server pages, watches, forgets and takes writes as a real one does; the small run of `bench scale` holds its claims."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from aiohttp import ClientSession, web

from tiphys_models.base.errors import Unavailable
from tiphys_models.base.facts import node_facts, pod_facts
from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_testbed.bench.scale_extender import CHART_LIMIT_MIB
from tiphys_testbed.bench.scale_objects import NODE_IMAGES, Fleet
from tiphys_testbed.bench.scale_readings import answer, function_of
from tiphys_testbed.bench.scale_server import Server
from tiphys_testbed.bench.scale_store import NODES, PODS, Store

FLEET = Fleet(nodes=4, workloads=3, pods=30, jobs=20)
POLICIES = "/apis/tiphys.io/v1alpha1/schedulingpolicies"
UNFINISHED = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}


@asynccontextmanager
async def serving(fleet: Fleet = FLEET) -> AsyncGenerator[tuple[Store, KubeClient, str], None]:
    """The server in this process, a client of ours, and its address."""
    store = Store()
    await store.fill(fleet)
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", Server(store).handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with KubeClient(ApiAccess(url, None)) as client:
            yield store, client, url
    finally:
        await runner.cleanup()


async def names(client: KubeClient, path: str, params: dict[str, str] | None = None) -> list[str]:
    return [obj["metadata"]["name"] async for page in client.pages(path, params) for obj in page["items"]]


def test_objects_are_as_large_as_real_ones_and_the_same_every_time() -> None:
    fleet = Fleet(nodes=100, workloads=10, pods=1_000, jobs=10)
    assert min(len(fleet.pod(index).body) for index in range(50)) >= 3_000
    assert min(len(fleet.job_pod(index).body) for index in range(10)) >= 3_000
    assert fleet.pod(7) == fleet.pod(7)
    facts = node_facts(orjson.loads(fleet.node(3).body))
    assert (facts.schedulable, len(facts.images)) == (True, 2 * NODE_IMAGES)
    pod = pod_facts(orjson.loads(fleet.pod(13).body))
    assert (pod.function, pod.in_flight, pod.cpu_milli) == (function_of(3), True, 10)


async def test_pages_are_of_one_list_whatever_happens_meanwhile() -> None:
    async with serving() as (store, client, _):
        found: list[str] = []
        params = {"limit": "7", **UNFINISHED}
        async for page in client.pages(PODS, params):
            found += [obj["metadata"]["name"] for obj in page["items"]]
            store.put(PODS, FLEET.job_pod(0, "Running"))
            gone = FLEET.pod(29)
            store.delete(PODS, gone.namespace, gone.name)
        assert sorted(found) == sorted(FLEET.pod(index).name for index in range(30))


async def test_finished_pods_are_not_listed_and_leave_a_watch_as_deleted() -> None:
    async with serving() as (store, client, _):
        assert len(await names(client, PODS, UNFINISHED)) == 30
        version = str(store.version)
        store.put(PODS, FLEET.pod(0, "Succeeded"))
        store.put(PODS, FLEET.job_pod(0, "Running"))
        events = client.watch(PODS, version, server_timeout_s=5, stall_s=5, params=UNFINISHED)
        seen = [await anext(events), await anext(events)]
        await events.aclose()
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
            ("DELETED", FLEET.pod(0).name),
            ("ADDED", FLEET.job_pod(0).name),
        ]


async def test_a_watch_misses_nothing_while_much_is_written() -> None:
    async with serving(Fleet(2, 2, 0, 2_000)) as (store, client, _):
        fleet, version, seen = store.fleet, str(store.version), 0

        async def write() -> None:
            for index in range(2_000):
                store.put(PODS, fleet.job_pod(index, "Running"))
                if index % 50 == 0:
                    await asyncio.sleep(0)

        writing = asyncio.ensure_future(write())
        async with asyncio.timeout(10):
            async for event in client.watch(PODS, version, server_timeout_s=10, stall_s=10, params=UNFINISHED):
                seen += event["type"] == "ADDED"
                if seen == 2_000:
                    break
        await writing


async def test_who_was_forgotten_is_told_to_list_again() -> None:
    async with serving() as (store, client, _):
        version = str(store.version)
        store.put(PODS, FLEET.pod(0, "Running"))
        store.expire()
        event = await anext(client.watch(PODS, version, server_timeout_s=5, stall_s=5))
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        with pytest.raises(ApiError) as refused:
            await client.page(PODS, {"limit": "5"}, token="bm9wZS81")
        assert refused.value.status == 410


async def test_writes_have_versions_conflicts_and_a_status_of_their_own() -> None:
    async with serving() as (_, client, _url):
        policy = {"apiVersion": "tiphys.io/v1alpha1", "kind": "SchedulingPolicy", "metadata": {"name": "p"}, "spec": {"mode": "Off"}}
        place = POLICIES.replace("v1alpha1/", "v1alpha1/namespaces/shop/")
        made = await client.request("POST", place, body=policy)
        changed = await client.request(
            "PATCH", f"{place}/p/status", body={"status": {"ready": True}}, content_type="application/merge-patch+json"
        )
        assert (changed["spec"], changed["status"], changed["metadata"]["generation"]) == ({"mode": "Off"}, {"ready": True}, 1)
        stale: dict[str, Any] = {**made, "spec": {"mode": "Active"}}
        with pytest.raises(ApiError) as refused:
            await client.request("PUT", f"{place}/p", body=stale)
        assert refused.value.status == 409
        stale["metadata"] = {"name": "p"}
        assert (await client.request("PUT", f"{place}/p", body=stale))["metadata"]["generation"] == 2
        assert await names(client, POLICIES) == ["p"]
        await client.request("DELETE", f"{place}/p")
        with pytest.raises(Unavailable):
            await client.get(f"{place}/p")


async def test_counts_and_requests_can_be_asked_for() -> None:
    async with serving() as (_, client, url), ClientSession() as session:
        assert len(await names(client, NODES)) == 4
        async with session.post(f"{url}/-/pods", json={"fleet": "jobs", "first": 0, "count": 5, "phase": "Gone"}) as answered:
            stats = await answered.json()
        assert (stats["objects"][PODS], stats["requests"]["GET /api/v1/nodes"]) == (45, 1)


def test_readings_are_of_every_node_and_every_workload() -> None:
    for query, series in (
        ("max by (node) (node_load1)", 4),
        ("timestamp(tiphys_runtime_idle_instances)", 4),
        ("sum by (node, function) (tiphys_runtime_idle_instances)", 12),
        ("tiphys_runtime_call_profile", 15),
        ("up", 0),
    ):
        assert len(orjson.loads(answer(FLEET, query))["data"]["result"]) == series


def test_the_limit_of_the_chart_is_the_one_that_claims_are_held_to() -> None:
    values = yaml.safe_load((Path(__file__).parents[2] / "helm/tiphys/values.yaml").read_text())
    match = re.fullmatch(r"(\d+)Mi", values["extender"]["resources"]["limits"]["memory"])
    assert match is not None
    assert float(match.group(1)) == CHART_LIMIT_MIB
