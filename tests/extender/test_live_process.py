"""The process against an API server: what a cluster of 5,000 nodes and 10,000 pods costs it, and how it lives through outages."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from aiohttp import web

from tests.builders import policy_object
from tests.extender.fake_api import FakeApi, fake_api
from tests.extender.harness import arguments, check_contract
from tests.extender.test_process import Process, started
from tests.extender.test_watches import NODES, PODS, SWITCH, bound_json, node_json
from tests.fuzz.grammar import GRAMMAR
from tiphys_extender.watches import PLANS_PATH, POLICIES_PATH
from tiphys_models.base.quantity import rfc3339
from tiphys_models.kube.access import ApiAccess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MIB = 2**20


def kubeconfig(directory: Path, access: ApiAccess) -> Path:
    path = directory / "kubeconfig"
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": access.server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


async def until(what: Callable[[], Any], within_s: float) -> Any:
    """What it gives once that is true; looked at in a thread, the fake API server needs the loop."""
    async with asyncio.timeout(within_s):
        while not (found := await asyncio.to_thread(what)):  # noqa: ASYNC110 - another process, seen over HTTP only
            await asyncio.sleep(0.1)
    return found


def ready(extender: Process) -> bool:
    return extender.call("status", "GET", "/readyz")[0] == 200


def state(extender: Process) -> dict[str, Any]:
    return json.loads(extender.call("explain", "GET", "/v1/state")[1])  # type: ignore[no-any-return]


def ask(extender: Process, uid: str, names: list[str], namespace: str = "default") -> set[int]:
    asked = json.dumps(arguments(names, uid=uid, namespace=namespace)).encode()
    status, answer = extender.call("prioritize", "POST", "/prioritize", asked)
    assert status == 200
    check_contract(answer, names)
    return {entry["Score"] for entry in json.loads(answer)}


async def test_five_thousand_nodes_and_ten_thousand_pods_fit_into_150_mib(tmp_path: Path) -> None:
    async with fake_api() as (api, access):
        padding = {f"example.com/note-{i}": "x" * 250 for i in range(10)}  # a real pod has about 3.5 kB
        for index in range(5_000):
            api.put(NODES, node_json(f"n{index}"))
        for index in range(10_000):
            pod = bound_json(f"p{index}", f"n{index % 5000}")
            pod["metadata"]["annotations"] = padding
            pod["metadata"]["labels"]["tiphys.io/function"] = f"f{index % 12}"
            api.put(PODS, pod)
        api.put(POLICIES_PATH, policy_object(mode="Active", policy="least-connections"))
        with await asyncio.to_thread(_started, tmp_path, access) as extender:
            await until(lambda: ready(extender), 60)
            for index in range(50):
                names = [f"n{(index * 97 + k) % 5000}" for k in range(500)]
                assert max(await asyncio.to_thread(ask, extender, f"u{index}", names)) == 10
            found = await asyncio.to_thread(state, extender)
            assert (found["nodes"], found["pods"]) == (5_000, 10_050)
            assert found["peakMemoryBytes"] <= 150 * MIB
            assert found["torchImported"] is False


def _started(directory: Path, access: ApiAccess, **settings: object) -> Any:
    class Entered:
        """The process, started in a thread and ended by the test."""

        def __init__(self) -> None:
            self._context = started(directory, KUBECONFIG=kubeconfig(directory, access), OWN_NAMESPACE="tiphys-system", **settings)
            self._process = self._context.__enter__()

        def __enter__(self) -> Process:
            return self._process

        def __exit__(self, *exception: object) -> None:
            self._context.__exit__(None, None, None)

    return Entered()


async def test_an_outage_of_the_api_server_is_survived_and_the_kill_switch_reaches_a_running_process(tmp_path: Path) -> None:
    async with fake_api() as (api, access):
        small(api)
        with await asyncio.to_thread(_started, tmp_path, access) as extender:
            await until(lambda: ready(extender), 20)
            assert max(await asyncio.to_thread(ask, extender, "a", ["n0", "n1"])) == 10
            for path in (NODES, PODS, POLICIES_PATH):  # open watches break, and for a while nothing answers
                api.faults[path] += ["cut", "rst", 503, "garbage"]
            await until(lambda: not any(api.faults.values()), 20)
            api.put(NODES, node_json("n2"))
            await until(lambda: state(extender)["nodes"] == 3, 20)
            assert ready_now(await asyncio.to_thread(state, extender))
            switch = {"metadata": {"name": "tiphys-switch", "namespace": "tiphys-system"}, "data": {"enabled": "false"}}
            api.put(SWITCH, switch)
            await until(lambda: state(extender)["enabled"] is False, 5)
            assert await asyncio.to_thread(ask, extender, "b", ["n0", "n1"]) == {5}


def small(api: FakeApi) -> None:
    api.put(NODES, node_json("n0"))
    api.put(NODES, node_json("n1"))
    api.put(POLICIES_PATH, policy_object(mode="Active", policy="least-connections"))


def ready_now(found: dict[str, Any]) -> bool:
    return found["ready"] is True and found["problem"] == ""


async def test_hostile_objects_of_every_kind_neither_end_the_process_nor_hide_healthy_ones(tmp_path: Path) -> None:
    async with fake_api() as (api, access):
        small(api)
        # in a namespace of its own: what is generated for the others may be valid, and then it decides there
        api.put(POLICIES_PATH, policy_object("healthy", "healthy", mode="Active", policy="least-connections"))
        paths = {"Node": NODES, "Pod": PODS, "SchedulingPolicy": POLICIES_PATH, "PlacementPlan": PLANS_PATH}
        random = Random(20)
        for kind, path in paths.items():  # some are there before the first list, others come by watch
            for _ in range(40):
                api.put(path, GRAMMAR[kind](random))
        with await asyncio.to_thread(_started, tmp_path, access) as extender:
            await until(lambda: ready(extender), 20)
            for round_ in range(3):
                for kind, path in paths.items():
                    for _ in range(30):
                        api.put(path, GRAMMAR[kind](random))
                    api.objects[path]["/nobody"] = {"metadata": None}
                api.put(NODES, node_json(f"healthy-{round_}"))
                for path in paths.values():
                    api.faults[path] += ["cut", "gone-event"]  # and a whole list again
                await until(lambda name=f"healthy-{round_}": max(ask(extender, name, [name, "n0"], "healthy")) == 10, 20)  # type: ignore[misc]
            metrics = extender.call("status", "GET", "/metrics")[1].decode()
            found = await asyncio.to_thread(state, extender)
        assert found["lateLoops"] == []
        assert 'loop_failures_total{loop="watch-pods"} 0.0' in metrics
        left_out = [line for line in metrics.splitlines() if 'reason="bad-object"' in line and not line.endswith(" 0.0")]
        assert {kind for kind in ("nodes", "pods", "plans") if any(f'kind="{kind}"' in line for line in left_out)} == {
            "nodes",
            "pods",
            "plans",
        }


async def test_the_process_learns_processor_time_of_a_pod_from_its_prometheus(tmp_path: Path) -> None:
    asked: list[str] = []

    async def query(request: web.Request) -> web.Response:
        text, values = str((await request.post())["query"]), {}
        if "container_cpu_usage" in text:
            asked.append(text)
            values = {"core_seconds": "90", "age_seconds": "1"}
        labels = {"namespace": "default", "pod": "pod-u"}
        result = [{"metric": labels | {"quantity": name}, "value": [time.time(), value]} for name, value in values.items()]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    app = web.Application()
    app.router.add_post("/api/v1/query", query)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    began = {"name": "c", "state": {"running": {"startedAt": rfc3339(time.time() - 90)}}}
    pod = bound_json("u", "n0")
    pod["status"]["containerStatuses"] = [began]
    async with fake_api() as (api, access):
        small(api)
        api.put(POLICIES_PATH, policy_object(mode="Shadow", policy="estimator"))
        api.put(PODS, pod)
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        with await asyncio.to_thread(_started, tmp_path, access, PROMETHEUS_URL=url, READINGS_INTERVAL_S=0.2) as extender:
            await until(lambda: len(asked) >= 2, 20)
            api.delete(PODS, "default", "pod-u")
            await until(lambda: b"pod_cpu_learned_total 1.0" in extender.call("status", "GET", "/metrics")[1], 20)
    assert 'namespace=~"default"' in asked[0]
    await runner.cleanup()
