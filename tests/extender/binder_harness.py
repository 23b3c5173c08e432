"""A binder but its process: nodes of a pool, a tenant or two, and calls with small defaults."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.builders import policy_object
from tests.extender.harness import Connection, connected, listening
from tiphys_extender.binder.app import make_binder_app
from tiphys_extender.binder.metrics import BinderMetrics
from tiphys_extender.calls.leases import Leases
from tiphys_extender.calls.placer import Placer
from tiphys_extender.calls.pool import CallPodSink, Pool, pool_nodes
from tiphys_extender.calls.replies import Replies
from tiphys_extender.calls.requests import PlaceCall, Report
from tiphys_extender.model_store import ModelStore
from tiphys_extender.placement.answer import Answerer, AnswerLimits
from tiphys_extender.placement.decide import World
from tiphys_extender.placement.decisions import DecisionLog
from tiphys_extender.placement.objects import policy_objects
from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.requests import parse
from tiphys_extender.serve.tenants import Tenant, Tenants
from tiphys_extender.serve.throttle import Throttle
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.selector import LabelSelector
from tiphys_models.placement.state import PlacementState
from tiphys_models.serving.bounds import REFUSALS

ACTIVE = policy_object("active", mode="Active", policy="least-connections")
POOL = {"tiphys.io/door": "calls"}
TOKEN = "a-token-of-the-platform"
OTHER_TOKEN = "a-token-of-somebody-else"
PLATFORM = Tenant("platform", (), frozenset({"default"}))
OTHER = Tenant("other", (), frozenset({"elsewhere"}))


def node_object(name: str, labels: dict[str, str] | None = None, cpu: str = "8", memory: str = "16Gi", **changes: Any) -> dict[str, Any]:
    """A node as the API server sends it, in the pool unless labels say otherwise."""
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": POOL if labels is None else labels},
        "spec": {},
        "status": {"allocatable": {"cpu": cpu, "memory": memory}, "conditions": [{"type": "Ready", "status": "True"}]},
    } | changes


class Binder:
    """All parts of a binder but its sockets."""

    def __init__(
        self,
        nodes: int = 4,
        policies: Sequence[dict[str, Any]] = (ACTIVE,),
        *,
        lease_s: float = 60.0,
        max_open: int = 100,
        limits: AnswerLimits | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.metrics = BinderMetrics()
        self.state = PlacementState()
        self.world = World(self.state, ModelStore(None, self.metrics, 5), scheduler_name="tiphys", own_namespace="tiphys-system")
        self.world.synced = True
        self.pool = Pool(LabelSelector.of(POOL))
        self.leases = Leases(lease_s, max_open)
        self.decisions = DecisionLog(1000, self.metrics)
        self.nodes = pool_nodes(self.world, self.pool)
        self.pods = CallPodSink(self.world, self.decisions, self.clock, self.pool, self.leases)
        self.policies = policy_objects(self.world, self.metrics)
        for index in range(nodes):
            self.nodes.put(node_object(f"n{index}"))
        for policy in policies:
            self.policies.put(policy)
        limits = limits or AnswerLimits(deadline_s=10)
        answerer = Answerer(self.world, self.decisions, self.metrics, self.clock, limits)
        uids = count()
        self.placer = Placer(
            self.world, answerer, self.decisions, self.pool, self.leases, self.metrics, self.clock, limits,
            lambda: f"call-{next(uids):032x}",
        )  # fmt: skip

    def place(self, tenant: Tenant = PLATFORM, **changes: Any) -> dict[str, Any]:
        """The answer to a call of function f with the whole pool as candidates."""
        return self.placer.place(tenant, parse(PlaceCall, call(**changes)))

    def report(self, uid: str, tenant: Tenant = PLATFORM, **report: Any) -> dict[str, Any]:
        """started or renew."""
        return self.placer.report(tenant, uid, parse(Report, json.dumps(report).encode()))

    def inflight(self) -> dict[str, int]:
        """Calls in flight by node, as policies see them; nodes with none are left out."""
        nodes = self.state.nodes
        return {name: int(nodes.inflight[row]) for name, row in sorted(nodes.row_of.items()) if nodes.inflight[row]}

    def counted(self, name: str, **labels: str) -> float:
        """The value of a metric."""
        value = self.metrics.registry.get_sample_value(f"tiphys_binder_{name}", labels)
        assert value is not None, f"no such sample: {name} {labels}"
        return value


def call(**changes: Any) -> bytes:
    """A body of POST /v1/placements; what is changed to None is left out."""
    body = {"namespace": "default", "function": "f", "cpu": "100m", "memory": "256Mi", "selector": {}} | changes
    return json.dumps({key: value for key, value in body.items() if value is not None}).encode()


def tenants_file(directory: Path, **changes: Any) -> Path:
    """Two tenants, each with a namespace of its own."""
    path = directory / "tenants.json"
    tenants = [
        {"name": "platform", "token": TOKEN, "namespaces": ["default"], **changes},
        {"name": "other", "token": OTHER_TOKEN, "namespaces": ["elsewhere"]},
    ]
    path.write_text(json.dumps({"tenants": tenants}))
    return path


class Caller:
    """Somebody with a token on one connection."""

    def __init__(self, connection: Connection, token: str = TOKEN) -> None:
        self.connection, self.token = connection, token

    async def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, dict[str, str], Any]:
        """Any request of /v1/placements; status, headers, decoded body."""
        given = {"Authorization": f"Bearer {self.token}"} | headers
        status, answered, content = await self.connection.send(method, f"/v1/placements{path}", body, **given)
        return status, answered, json.loads(content)

    async def post(self, path: str, body: bytes = b"") -> tuple[int, Any]:
        """Status and body."""
        status, _, content = await self.send("POST", path, body)
        return status, content


@contextlib.asynccontextmanager
async def open_to_callers(binder: Binder, directory: Path, *, max_body_bytes: int = 100_000, **tenant: Any) -> AsyncGenerator[int, None]:
    """The port of the binder's listener."""
    tenants = Tenants(tenants_file(directory, **tenant), binder.metrics)
    throttle = Throttle(binder.clock)
    app = make_binder_app(binder.placer, Replies(1_000_000), tenants, binder.metrics, throttle=throttle, max_body_bytes=max_body_bytes)

    def refused(status: int) -> None:
        binder.metrics.bad_requests[REFUSALS.get(status, "not-http")].inc()
        binder.metrics.requests[str(status)].inc()

    async with listening(app, refused, max_body_bytes=max_body_bytes + 1_000) as port:
        yield port


@contextlib.asynccontextmanager
async def calling(binder: Binder, directory: Path, **options: Any) -> AsyncGenerator[Caller, None]:
    """One connection to it."""
    async with open_to_callers(binder, directory, **options) as port, connected(port) as connection:
        yield Caller(connection)


def refused(reason: str) -> Any:
    """What a call that is refused for this reason raises."""
    return pytest.raises(Refused, check=lambda error: error.reason == reason)
