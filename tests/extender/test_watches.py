"""Caches follow the API server through every kind of interruption."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.builders import policy_object
from tests.extender.fake_api import FakeApi, fake_api
from tests.extender.harness import Extender, pod_json
from tiphys_extender.watches import POLICIES_PATH, RUNNING, Watches
from tiphys_models.base.clock import SystemClock
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.reflector import WatchLimits

NODES, PODS, SWITCH = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces/tiphys-system/configmaps"
QUICK = WatchLimits(stall_s=1.0, backoff_start_s=0.02, backoff_max_s=0.1)


def node_json(name: str) -> dict[str, Any]:
    status = {"allocatable": {"cpu": "4", "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


def bound_json(uid: str, node: str, phase: str = "Running") -> dict[str, Any]:
    pod = pod_json(uid, status={"phase": phase})
    pod["spec"]["nodeName"] = node
    return pod


@dataclass
class Running:
    api: FakeApi
    extender: Extender
    watches: Watches

    async def until(self, what: Callable[[], bool], within_s: float = 3.0) -> None:
        async with asyncio.timeout(within_s):
            while True:
                self.watches.publish()
                if what():
                    return
                await asyncio.sleep(0.01)

    async def synced(self) -> None:
        await self.until(lambda: self.extender.world.synced)

    @property
    def nodes(self) -> set[str]:
        return set(self.extender.state.nodes.row_of)


@contextlib.asynccontextmanager
async def running(prepare: Callable[[FakeApi], None] = lambda api: None) -> AsyncGenerator[Running, None]:
    """Watches against a fake API server with two nodes and an active policy."""
    async with fake_api() as (api, access):
        api.put(NODES, node_json("n0"))
        api.put(NODES, node_json("n1"))
        api.put(POLICIES_PATH, policy_object(mode="Active", policy="least-connections"))
        prepare(api)
        extender = Extender(nodes=0, policies=[], clock=SystemClock())
        extender.world.synced = False
        async with KubeClient(access, request_timeout_s=2) as client:
            watches = Watches(client, extender.world, extender.decisions, extender.metrics, extender.clock, "tiphys-switch", limits=QUICK)
            task = asyncio.create_task(watches.run())
            try:
                yield Running(api, extender, watches)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def test_events_that_come_while_a_watch_rests_are_read_together() -> None:
    rest_s, came_s = 0.2, []
    async with fake_api() as (api, access), KubeClient(access, request_timeout_s=2) as client:
        api.put(NODES, node_json("n0"))
        events = client.watch(NODES, "0", server_timeout_s=5, stall_s=5.0, rest_s=rest_s)
        async with asyncio.timeout(5), contextlib.aclosing(events):
            async for _ in events:
                came_s.append(asyncio.get_running_loop().time())
                if len(came_s) == 3:
                    break
                if len(came_s) == 1:
                    api.put(NODES, node_json("n1"))
                    api.put(NODES, node_json("n2"))
    assert came_s[1] - came_s[0] >= rest_s
    assert came_s[2] - came_s[1] < rest_s / 2


async def test_ready_only_when_everything_is_listed() -> None:
    async with running(lambda api: api.faults[PODS].extend([500] * 8)) as run:
        await run.until(lambda: run.watches.missing == ("pods",))
        assert run.extender.ask(names=["n0", "n1"]) == {"n0": 5, "n1": 5}
        assert run.extender.last["reason"] == "not-synced"
        assert run.extender.counted("cache_synced", kind="pods") == 0
        assert run.extender.counted("cache_synced", kind="nodes") == 1
        await run.synced()
        assert max(run.extender.ask("again").values()) == 10
        assert run.extender.counted("watch_errors_total", kind="pods", reason="server-error") == 8


async def test_pods_are_listed_in_pages_and_finished_ones_not_at_all() -> None:
    def many(api: FakeApi) -> None:
        for index in range(1100):
            api.put(PODS, bound_json(f"p{index}", f"n{index % 2}"))

    async with running(many) as run:
        await run.until(lambda: run.extender.world.synced, within_s=5)
        assert run.extender.state.pods == 1100
        pages = [q for q in run.api.queries if q["path"] == PODS and "watch" not in q]
        assert [page["limit"] for page in pages] == ["50", "500", "500", "500"]
        assert {page["fieldSelector"] for page in pages} == {RUNNING}


async def test_events_reach_the_state_and_the_decision_log() -> None:
    async with running() as run:
        await run.synced()
        answer = run.extender.ask("u1")
        chosen = max(answer, key=lambda name: answer[name])
        assert run.extender.state.reservations == 1
        run.api.put(PODS, bound_json("u1", chosen))
        await run.until(lambda: run.extender.state.reservations == 0)
        assert run.extender.last["chosen"] == chosen
        assert run.extender.counted("choices_total", result="same", mode="Active") == 1
        run.api.put(PODS, bound_json("u1", chosen, phase="Succeeded"))
        await run.until(lambda: run.extender.state.pods == 0)
        run.api.put(NODES, node_json("n2"))
        await run.until(lambda: "n2" in run.nodes)
        run.api.delete(NODES, "", "n0")
        await run.until(lambda: "n0" not in run.nodes)
        assert run.extender.counted("cache_objects", kind="nodes") == 2


async def test_a_pod_deleted_before_its_bind_was_shown_still_tells_where_it_went() -> None:
    async with running() as run:
        await run.synced()
        run.extender.ask("u1")
        pod = bound_json("u1", "n1")
        run.api.objects[PODS]["default/pod-u1"] = pod
        run.api.delete(PODS, "default", "pod-u1")
        await run.until(lambda: run.extender.last["chosen"] == "n1")
        assert run.extender.state.reservations == 0


async def test_a_policy_change_takes_effect_by_watch() -> None:
    async with running() as run:
        await run.synced()
        assert set(run.extender.ask("a").values()) != {5}
        run.api.put(POLICIES_PATH, policy_object(mode="Shadow"))
        await run.until(lambda: run.extender.counted("routes", mode="Shadow") == 1)
        assert set(run.extender.ask("b").values()) == {5}
        run.api.delete(POLICIES_PATH, "default", "p")
        await run.until(lambda: run.extender.counted("routes", mode="Shadow") == 0)
        run.extender.ask("c")
        assert run.extender.last["reason"] == "no-policy"


async def test_the_kill_switch_works_by_watch_and_its_absence_means_on() -> None:
    switch: dict[str, Any] = {"metadata": {"name": "tiphys-switch", "namespace": "tiphys-system"}, "data": {"enabled": "false"}}
    async with running() as run:
        await run.synced()
        assert run.extender.world.enabled
        run.api.put(SWITCH, switch)
        await run.until(lambda: not run.extender.world.enabled)
        run.extender.ask("a")
        assert run.extender.last["reason"] == "disabled"
        assert run.extender.counted("enabled") == 0
        run.api.put(SWITCH, {**switch, "data": {"enabled": "true"}})
        await run.until(lambda: run.extender.world.enabled)
        run.api.put(SWITCH, switch)
        await run.until(lambda: not run.extender.world.enabled)
        run.api.delete(SWITCH, "tiphys-system", "tiphys-switch")
        await run.until(lambda: run.extender.world.enabled)
        selectors = {q["fieldSelector"] for q in run.api.queries if q["path"] == SWITCH}
        assert selectors == {"metadata.name=tiphys-switch"}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (403, "forbidden"),
        (401, "forbidden"),
        (429, "throttled"),
        (503, "server-error"),
        ("rst", "unreachable"),
        ("garbage", "unreachable"),
    ],
)
async def test_a_failing_list_is_retried_and_counted(fault: Any, reason: str) -> None:
    async with running(lambda api: api.faults[NODES].extend([fault, fault])) as run:
        await run.synced()
        assert run.nodes == {"n0", "n1"}
        # a connection that breaks before the answer is retried by the client itself at times: once is enough
        assert run.extender.counted("watch_errors_total", kind="nodes", reason=reason) >= 1


@pytest.mark.parametrize("fault", [410, "gone-event", "error-event", 500, 403, 429, "rst", "cut", "garbage"])
async def test_after_any_fault_of_a_watch_nothing_is_missed(fault: Any) -> None:
    async with running() as run:
        await run.synced()
        lists = run.api.lists[NODES]
        await run.until(lambda: run.api.watches[NODES] >= 1)
        run.api.forget(NODES, "n0")
        run.api.faults[NODES] += ["cut"] if fault == "cut" else ["cut", fault]
        await run.until(lambda: not run.api.faults[NODES])
        run.api.put(NODES, node_json("n9"))
        if fault in (410, "gone-event", "error-event", 500, 403):
            await run.until(lambda: run.nodes == {"n1", "n9"})
            assert run.api.lists[NODES] > lists
        else:  # the watch goes on where it broke: what happened without an event needs a list
            await run.until(lambda: "n9" in run.nodes)
            assert run.api.lists[NODES] == lists


async def test_a_silent_watch_is_given_up_and_made_again() -> None:
    async with running(lambda api: api.faults[NODES].extend([None, "stall"])) as run:
        await run.synced()
        await run.until(lambda: run.api.watches[NODES] == 1)
        await asyncio.sleep(0.05)
        run.api.put(NODES, node_json("late"))
        await run.until(lambda: "late" in run.nodes, within_s=4)
        assert run.extender.counted("watch_errors_total", kind="nodes", reason="unreachable") >= 1


async def test_one_strange_object_does_not_stop_a_watch() -> None:
    async with running() as run:
        await run.synced()
        strange = node_json("strange")
        strange["status"]["allocatable"]["cpu"] = "many"
        run.api.put(NODES, strange)
        run.api.put(NODES, node_json("sane"))
        await run.until(lambda: "sane" in run.nodes)
        assert "strange" not in run.nodes
        assert run.extender.counted("watch_errors_total", kind="nodes", reason="bad-object") == 1


async def test_node_heartbeats_keep_scores() -> None:
    async with running() as run:
        await run.synced()
        before = run.extender.state.nodes.version.copy()
        beat = node_json("n0")
        beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
        run.api.put(NODES, beat)
        run.api.put(NODES, node_json("marker"))
        await run.until(lambda: "marker" in run.nodes)
        state = run.extender.state
        # a new node touches all rows once; the heartbeat did not touch its own a second time
        assert len(set(state.nodes.version[: len(before)].tolist())) <= 2


async def test_answers_go_on_while_nodes_come_and_go() -> None:
    async with running() as run:
        await run.synced()
        for index in range(200):
            name = f"storm-{index % 20}"
            if f"/{name}" in run.api.objects[NODES]:
                run.api.delete(NODES, "", name)
            else:
                run.api.put(NODES, node_json(name))
            names = ["n0", "n1", *(f"storm-{i}" for i in range(20))]
            answer = run.extender.ask(f"u{index}", names)
            assert sorted(answer) == sorted(names)
            assert max(answer.values()) == 10
            if index % 10 == 0:
                await asyncio.sleep(0.005)
        wanted = {key.lstrip("/") for key in run.api.objects[NODES]}
        await run.until(lambda: run.nodes == wanted)
