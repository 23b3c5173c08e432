"""The extender's process with gates: its settings, its watch, and what the status listener says of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from aiohttp import web

from tests.builders import policy_object
from tests.extender.fake_api import FakeApi, fake_api
from tests.extender.gates.house import SLOW_START, bound, gated, node_json
from tests.extender.test_watches import NODES, PODS
from tiphys_extender.gates.metrics import GATED_PODS
from tiphys_extender.gates.process import READY_PATH, ExtenderParts
from tiphys_extender.settings import PREFIX, Settings, read_settings
from tiphys_extender.watches import POLICIES_PATH, WAITING
from tiphys_models.base.clock import SystemClock
from tiphys_models.base.errors import InvalidInput
from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.client import KubeClient
from tiphys_models.placement.gate import GATE

GATED = "/gated"


class Pods(FakeApi):
    """Bound pods and gated ones are watched under one path: whoever asks with the label selector is shown those of another."""

    def __init__(self) -> None:
        super().__init__()
        self.forbidden = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "PATCH":
            name = request.path.rpartition("/")[2]
            pod = self.objects[GATED][f"default/{name}"]
            pod["spec"]["schedulingGates"] = []
            self.put(GATED, pod)
            return web.json_response(pod)
        if request.query.get("labelSelector"):
            if self.forbidden:
                return web.json_response({"reason": "Forbidden"}, status=403)
            request = request.clone(rel_url=f"{GATED}?{request.query_string}")
        return await super().handle(request)


@contextlib.asynccontextmanager
async def process(api: Pods, **settings: Any) -> AsyncGenerator[ExtenderParts, None]:
    """The parts of a process and its jobs, without listeners."""
    async with fake_api(api) as (_, access):
        parts = ExtenderParts(Settings(gates_enabled=True, deadline_ms=5000, **settings), SystemClock())
        async with KubeClient(access, request_timeout_s=2) as client:
            parts.watches = parts._make_watches(client, None)
            jobs = [asyncio.ensure_future(job()) for job in (parts.watches.run, *parts._jobs.values())]
            try:
                yield parts
            finally:
                for job in jobs:
                    job.cancel()
                await asyncio.gather(*jobs, return_exceptions=True)


def cluster() -> Pods:
    api = Pods()
    for index in range(3):
        api.put(NODES, node_json(f"n{index}"))
    api.put(POLICIES_PATH, policy_object(mode="Active", policy="estimator"))
    return api


async def until(what: Callable[[], Any], within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not what():  # noqa: ASYNC110 - other tasks do their work meanwhile
            await asyncio.sleep(0.01)


def counted(parts: ExtenderParts, name: str, **labels: str) -> float:
    return parts.metrics.registry.get_sample_value(f"tiphys_extender_{name}", labels) or 0.0


async def test_a_pod_is_held_and_let_go_when_the_one_it_waits_for_has_ended() -> None:
    api = cluster()
    api.put(PODS, bound("busy", "n1"))
    async with process(api) as parts:
        parts.world.state.put_profiles({"default/f": SLOW_START})
        ready = parts._probes()[READY_PATH]
        await until(lambda: ready() == "")
        await asyncio.sleep(1.3)  # the busy one is expected back in time
        api.put(GATED, gated("next"))
        await until(lambda: counted(parts, "held_pods_total") == 1)
        assert {"labelSelector": "tiphys.io/may-wait=true", "fieldSelector": "spec.nodeName="}.items() <= WAITING.items()
        api.delete(PODS, "default", "pod-busy")
        await until(lambda: counted(parts, "gates_opened_total", reason="warm") == 1)
        assert parts.world.state.unfinished("default/f") == {"n1": 1}


async def test_without_the_right_to_watch_gated_pods_the_process_answers_and_opens_nothing() -> None:
    api = cluster()
    api.forbidden = True
    async with process(api) as parts:
        watches = parts.watches
        assert watches is not None
        await until(lambda: parts.health.problem() == "")
        assert parts.world.synced
        assert GATED_PODS in parts._probes()[READY_PATH]()
        api.forbidden = False
        await until(lambda: parts._probes()[READY_PATH]() == "")


async def test_a_watch_that_fails_leaves_nobody_behind_a_gate() -> None:
    api = cluster()
    async with process(api) as parts:
        ready = parts._probes()[READY_PATH]
        await until(lambda: ready() == "")
        api.faults[NODES] += ["cut", 503]
        await until(lambda: "watches fail: nodes" in ready())
        await until(lambda: ready() == "")


async def test_whoever_opens_no_gates_says_so() -> None:
    parts = ExtenderParts(Settings(), SystemClock())
    assert parts._probes()[READY_PATH]() == "gates are not enabled"
    async with fake_api() as (_, access), KubeClient(ApiAccess(access.server, None)) as client:
        assert parts._make_watches(client, None) is not None
    assert parts._gates is None
    assert parts.answerer.gates is None


@pytest.mark.parametrize("value", ["0", "-1", "61", "long"])
def test_a_bound_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(f"{PREFIX}GATES_LONGEST_WAIT_S", value)
    with pytest.raises(InvalidInput, match="GATES_LONGEST_WAIT_S"):
        read_settings()


def test_gates_are_off_unless_somebody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not read_settings().gates_enabled
    monkeypatch.setenv(f"{PREFIX}GATES_ENABLED", "true")
    assert read_settings().gates_enabled
    assert read_settings().gates_longest_wait_s == 10.0
    assert GATE
