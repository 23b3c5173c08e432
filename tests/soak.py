"""`make soak`: operator and extender against an API server that is slow, throttles and compacts, for minutes.

No unit test (its name keeps it out of `make unit`): real processes and real time. The short version is in tests/models/test_overload.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.extender.fake_api import FakeApi
from tests.extender.test_live_process import _started, kubeconfig, ready, state, until
from tests.extender.test_watches import NODES, PODS, bound_json, node_json
from tests.operator.api_server import FakeApiServer, status

pytestmark = [pytest.mark.timeout(900)]

MOODS = os.environ.get("SOAK_MOODS", "calm,slow,throttles,compacts,all").split(",")
STORM_S = float(os.environ.get("SOAK_STORM_S", "45"))
PER_S = 6.0
"""Requests a second that one process may make on average over a storm. The operator makes about three in a calm: its Lease one, the
question what it may do 42 a minute, a reconciliation every ten seconds here. A dozen watches stand behind it."""
PEAK_PER_S = 60
"""The operator looks once a minute what it may do: 42 questions at once."""
_SLOW_S = 3.0
_RETRY_AFTER_S = 5


class StormyServer(FakeApiServer):
    """What the operator needs of an API server, any other list and watch in pages, and a mood."""

    def __init__(self) -> None:
        super().__init__()
        self.store = FakeApi()
        self.mood = "calm"
        self.seen: list[tuple[float, str, str]] = []
        """When, who, what."""
        self.fault = self._weather

    async def _weather(self, request: web.Request) -> web.StreamResponse | None:
        agent = request.headers.get("User-Agent", "")
        who = "extender" if agent.startswith("tiphys-extender") else "operator"  # kopf and the operator's own client
        watching = request.query.get("watch") == "true"
        self.seen.append((time.monotonic(), who, f"{'WATCH' if watching else request.method} {request.path}"))
        if "leases" in request.path:  # the cluster's own queue for elections: see the chart's FlowSchemas
            return None
        if self.mood in ("slow", "all"):
            await asyncio.sleep(_SLOW_S)
        if self.mood == "throttles" or (self.mood == "all" and len(self.seen) % 2):
            return status(429, "TooManyRequests", **{"Retry-After": str(_RETRY_AFTER_S)})
        if self.mood in ("compacts", "all") and (watching or "continue" in request.query):
            return await self._expired(request) if watching and len(self.seen) % 2 else status(410, "Expired")
        return None

    async def _expired(self, request: web.Request) -> web.StreamResponse:
        """As a real API server says it: 200, and an event."""
        answer = web.StreamResponse()
        await answer.prepare(request)
        event = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}}
        await answer.write(json.dumps(event).encode() + b"\n")
        return answer

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        if request.path in (NODES, PODS) or (request.method == "GET" and request.path in EMPTY):
            return await self.store.handle(request)
        return await super()._dispatch(request)


_GROUP = "/apis/tiphys.io/v1alpha1"
EMPTY = {
    *(f"{_GROUP}/{plural}" for plural in ("scalingpolicies", "placementplans", "inferencesites", "modelvariants", "streampolicies")),
    "/api/v1/namespaces/tiphys-system/configmaps",
    f"{_GROUP}/namespaces/tiphys-system/learnedmodels",
}


@contextlib.asynccontextmanager
async def operator(directory: Path, server: StormyServer) -> AsyncGenerator[subprocess.Popen[bytes], None]:
    settings = {"NAMESPACE": "tiphys-system", "RESYNC_S": "10", "STATUS_HOST": "127.0.0.1", "STATUS_PORT": "0"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIPHYS_")}
    environment |= {f"TIPHYS_OPERATOR_{name}": value for name, value in settings.items()}
    environment["KUBECONFIG"] = str(kubeconfig(directory, server.access))

    def start() -> subprocess.Popen[bytes]:
        with (directory / "operator.log").open("wb") as log:
            return subprocess.Popen([sys.executable, "-m", "tiphys_operator"], env=environment, stdout=log, stderr=log)

    process = await asyncio.to_thread(start)
    try:
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.wait, 10)


def report(server: StormyServer, mood: str, began_s: float) -> list[str]:
    """What was asked during a storm, and what breaks the bound."""
    broken = []
    took_s = time.monotonic() - began_s
    for who in ("operator", "extender"):
        asked = [(at_s - began_s, what) for at_s, asker, what in server.seen if asker == who and at_s >= began_s]
        peak = max(Counter(int(at_s) for at_s, _ in asked).values(), default=0)
        often = ", ".join(f"{what} {count}" for what, count in Counter(what for _, what in asked).most_common(3))
        sys.stdout.write(f"{mood:10} {who:9} {len(asked) / took_s:5.2f}/s, peak {peak}/s; {often}\n")
        if len(asked) / took_s > PER_S or peak > PEAK_PER_S:
            broken.append(f"{mood}: {who} {len(asked) / took_s:.2f}/s, peak {peak}/s")
    return broken


def grow(server: StormyServer, prefix: str) -> None:
    """Nodes and pods come and go, and a policy is made: all of it has to arrive in the end."""
    for index in range(40):
        server.store.put(NODES, node_json(f"{prefix}-{index}"))
        server.store.put(PODS, bound_json(f"{prefix}-{index}", f"{prefix}-{index}"))
    for key in list(server.store.objects[NODES])[:5]:
        server.store.delete(NODES, "", key.lstrip("/"))
    server.add_policy(f"made-while-{prefix}", mode="Active", policy="least-connections")


def settled(server: StormyServer) -> bool:
    """Whether the operator has judged every policy."""
    return all((policy.get("status") or {}).get("observedGeneration") == 1 for policy in server.policies.values())


async def test_storms_are_survived_politely_and_nothing_is_lost(tmp_path: Path) -> None:
    async with StormyServer() as server:
        for index in range(300):
            server.store.put(NODES, node_json(f"n{index}"))
        for index in range(1200):
            server.store.put(PODS, bound_json(f"p{index}", f"n{index % 300}"))
        server.add_policy("first", mode="Active", policy="least-connections")
        with await asyncio.to_thread(_started, tmp_path, server.access) as extender:
            async with operator(tmp_path, server) as operating:
                await until(lambda: ready(extender), 30)
                await until(lambda: settled(server), 60)
                broken: list[str] = []
                for mood in MOODS:
                    server.mood, began_s = mood, time.monotonic()
                    server.store.faults.clear()
                    for path in (NODES, PODS):  # what is open breaks, as when the server goes over to another
                        server.store.faults[path] += ["cut"]
                    grow(server, mood)
                    await asyncio.sleep(STORM_S)
                    broken += report(server, mood, began_s)
                    server.store.faults.clear()
                    server.mood = "calm"
                    nodes, pods = len(server.store.objects[NODES]), len(server.store.objects[PODS])

                    def arrived(nodes: int = nodes, pods: int = pods) -> bool:
                        found: dict[str, Any] = state(extender)
                        return (found["nodes"], found["pods"], found["ready"]) == (nodes, pods, True)

                    calm_s = time.monotonic()
                    try:
                        await until(arrived, 90)
                        await until(lambda: settled(server), 90)
                    except TimeoutError:
                        lost = f"{state(extender)} and {len(server.policies)} policies, wanted {nodes} nodes and {pods} pods"
                        pytest.fail(f"{mood}: {lost}; {(tmp_path / 'operator.log').read_text()[-3000:]}")
                    sys.stdout.write(f"{mood:10} all there again after {time.monotonic() - calm_s:.0f} s\n")
                    assert operating.poll() is None, (tmp_path / "operator.log").read_text()[-3000:]
                    assert extender.process.poll() is None
        assert not broken, "\n".join(broken)
