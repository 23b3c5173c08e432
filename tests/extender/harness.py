"""What the extender's tests share: a small world, real listeners in the test's own loop, and a strict model of Go's decoder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.builders import node, policy_object, read
from tiphys_extender.model_store import ModelStore
from tiphys_extender.placement.answer import Answerer, AnswerLimits
from tiphys_extender.placement.decide import World
from tiphys_extender.placement.decisions import DecisionLog
from tiphys_extender.placement.hot_listener import HotListener, HotRoutes
from tiphys_extender.placement.objects import policy_objects
from tiphys_extender.serve.http_protocol import BoundedServer, Front, open_listener
from tiphys_extender.serve.metrics import Metrics
from tiphys_models.base.clock import Clock, ManualClock
from tiphys_models.placement.state import PlacementState, StateLimits
from tiphys_models.placement.untrained import write_untrained
from tiphys_models.serving.bounds import ListenerBounds

ACTIVE = policy_object("active", mode="Active", policy="least-connections")


class Extender:
    """All parts of an extender but its sockets."""

    def __init__(
        self,
        nodes: int = 5,
        policies: Sequence[dict[str, Any]] = (ACTIVE,),
        *,
        models: Path | None = None,
        clock: Clock | None = None,
        limits: AnswerLimits | None = None,
        capacity: int = 1000,
    ) -> None:
        self.clock = clock or ManualClock()
        self.metrics = Metrics()
        self.models = ModelStore(models, self.metrics, 5)
        self.models.rescan_now()
        self.state = PlacementState(StateLimits(max_reading_age_s=3600))
        self.world = World(self.state, self.models, scheduler_name="tiphys", own_namespace="tiphys-system")
        self.world.synced = True
        for index in range(nodes):
            self.state.put_node(node(f"n{index}"))
        self.policies = policy_objects(self.world, self.metrics)
        for policy in policies:
            self.policies.put(policy)
        self.decisions = DecisionLog(capacity, self.metrics)
        self.answerer = Answerer(self.world, self.decisions, self.metrics, self.clock, limits or AnswerLimits(deadline_s=10))

    def ask(self, uid: str = "u0", names: Sequence[str] | None = None, **pod: Any) -> dict[str, int]:
        """Scores by host for a pod with this uid, book-keeping included."""
        wanted = list(self.state.nodes.row_of) if names is None else list(names)
        return self.ask_raw(json.dumps(arguments(wanted, uid=uid, **pod)).encode())

    def ask_raw(self, body: bytes) -> dict[str, int]:
        """The same for any body."""
        answer = self.answerer.prioritize(body)
        self.answerer.settle()
        return {entry["Host"]: entry["Score"] for entry in decode_as_go(answer)}

    def read(self, **columns: dict[str, float]) -> None:
        """Fresh readings of 1.0 everywhere but what is named."""
        read(self.state, self.clock.now_s(), **columns)

    def counted(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        value = self.metrics.registry.get_sample_value(f"tiphys_extender_{name}", labels)
        assert value is not None, f"no such sample: {name} {labels}"
        return value

    @property
    def last(self) -> dict[str, Any]:
        """The newest record of the decision log."""
        return self.decisions.after(self.decisions.last - 1, 1)["items"][0]  # type: ignore[no-any-return]


def pod_json(uid: str = "u0", namespace: str = "default", function: str = "f", **changes: Any) -> dict[str, Any]:
    """A pod as the scheduler sends it, with an environment that must never be seen again."""
    pod: dict[str, Any] = {
        "metadata": {"name": f"pod-{uid}", "namespace": namespace, "uid": uid, "labels": {"tiphys.io/function": function}},
        "spec": {
            "schedulerName": "tiphys",
            "containers": [
                {
                    "name": "c",
                    "image": "registry.example/f:1",
                    "env": [{"name": "PASSWORD", "value": "hunter2-in-env"}],
                    "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
                }
            ],
        },
        "status": {"phase": "Pending"},
    }
    for part, values in changes.items():
        pod[part] = {**pod[part], **values} if isinstance(values, Mapping) else values
    return pod


def arguments(names: Sequence[str], **pod: Any) -> dict[str, Any]:
    """ExtenderArgs of a scheduler with nodeCacheCapable."""
    return {"Pod": pod_json(**pod), "Nodes": None, "NodeNames": list(names)}


def decode_as_go(answer: bytes) -> list[dict[str, Any]]:
    """HostPriorityList as encoding/json decodes it into []struct{Host string; Score int64}; fails wherever Go would."""

    def no_float(text: str) -> float:
        raise ValueError(f"Go cannot put {text} into an int64")

    def no_constant(text: str) -> float:
        raise ValueError(f"{text} is no JSON")

    decoded = json.loads(answer.decode("utf-8", "strict"), parse_float=no_float, parse_constant=no_constant)
    assert isinstance(decoded, list), "HostPriorityList is an array"
    for entry in decoded:
        assert isinstance(entry, dict)
        assert set(entry) == {"Host", "Score"}
        assert type(entry["Host"]) is str
        assert type(entry["Score"]) is int
        assert -(2**63) <= entry["Score"] < 2**63
    return decoded


def check_contract(answer: bytes, names: Sequence[str]) -> None:
    """Each distinct host exactly once, 0..10."""
    entries = decode_as_go(answer)
    hosts = [entry["Host"] for entry in entries]
    assert len(hosts) == len(set(hosts))
    assert set(hosts) == set(names)
    assert all(0 <= entry["Score"] <= 10 for entry in entries)


def untrained(directory: Path, name: str = "m", seed: int = 0) -> str:
    """Random weights in a directory; their digest."""
    return write_untrained(directory, name, np.random.default_rng(seed)).card.sha256


@contextlib.asynccontextmanager
async def listening(app: Any, count: Callable[[int], None] = lambda status: None, **front: Any) -> AsyncGenerator[int, None]:
    """An app behind the extender's own HTTP protocol on a free port of loopback."""
    listener = open_listener("127.0.0.1", 0)
    port = listener.getsockname()[1]
    server = BoundedServer(app, listener, Front(count=count, **front), drain_s=2)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(5):
            while not server.started:  # noqa: ASYNC110 - uvicorn has a flag, not an event
                await asyncio.sleep(0.005)
        yield port
    finally:
        server.should_exit = True
        async with asyncio.timeout(5):
            await serving


@contextlib.asynccontextmanager
async def serving(
    extender: Extender,
    *,
    max_body_bytes: int = 2_000_000,
    floor: bool = False,
    tls: Callable[[], ssl.SSLContext] | None = None,
    bounds: ListenerBounds | None = None,
) -> AsyncGenerator[int, None]:
    """The extender's hot listener on a free port of loopback."""
    hot = HotListener(HotRoutes(extender.answerer, extender.metrics, max_body_bytes=max_body_bytes, expose_floor=floor))
    listener = open_listener("127.0.0.1", 0)
    port = listener.getsockname()[1]
    hot.start(listener, bounds or ListenerBounds(loopback_is_free=True), tls or (lambda: None))
    try:
        yield port
    finally:
        await hot.stop(within_s=2)


class Connection:
    """One HTTP/1.1 connection, spoken by hand: what goes over the wire is exactly what the test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def post(self, body: bytes, path: str = "/prioritize", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """POST and the answer."""
        return await self.send("POST", path, body, **headers)

    async def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """GET and the answer."""
        return await self.send("GET", path, b"", **headers)

    async def send(self, method: str, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Any verb and the answer; header names with underscores for dashes."""
        lines = [f"{method} {path} HTTP/1.1", "Host: extender", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        async with asyncio.timeout(5):
            await self.writer.drain()
            return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer on the wire."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(status.split()[1]), headers, await self.reader.readexactly(int(headers["content-length"]))

    async def closed(self, within_s: float) -> bytes:
        """What still comes until the server closes."""
        async with asyncio.timeout(within_s):
            return await self.reader.read()


@contextlib.asynccontextmanager
async def connected(port: int, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Connection, None]:
    """A connection to a port of loopback."""
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname="localhost" if tls else None)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


def is_neutral(answer: dict[str, int]) -> bool:
    """No node is said to be better than another."""
    return set(answer.values()) == {5}


def first(answer: dict[str, int]) -> str:
    """The best node of an answer."""
    return max(answer, key=lambda name: answer[name])
