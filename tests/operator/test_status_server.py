from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.operator.api_server import FakeApiServer
from tiphys_models.clients.leases import Lease, LeaseOptions
from tiphys_models.domain.clock import ManualClock
from tiphys_operator.health import Health
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.policy_watch import SeenVersions
from tiphys_operator.status_server import StatusServer


class Probe:
    def __init__(self, url: str, clock: ManualClock, health: Health, metrics: OperatorMetrics) -> None:
        self.url, self.clock, self.health, self.metrics = url, clock, health, metrics

    async def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.request(method, self.url + path) as answer:
            return answer.status, await answer.text()

    def later(self, seconds: float) -> None:
        """Time passes, and the event loop runs."""
        self.clock.advance(seconds)
        self.health.beat_s = self.clock.monotonic_s()


@pytest.fixture
async def probe() -> AsyncIterator[Probe]:
    clock, metrics = ManualClock(), OperatorMetrics()
    async with FakeApiServer() as server, server.client() as client:
        lease = Lease(client, LeaseOptions("n", "l", "a"), clock)
        health = Health(clock, lease, dead_after_s=150)
        async with StatusServer("127.0.0.1", 0, health, metrics) as status:
            yield Probe(f"http://127.0.0.1:{status.port}", clock, health, metrics)


async def test_a_standby_is_alive_and_ready_once_it_has_seen_the_lease(probe: Probe) -> None:
    assert await probe.get("/healthz") == (200, "ok\n")
    assert await probe.get("/readyz") == (503, "the Lease cannot be read\n")
    await probe.health.lease.try_acquire_or_renew()
    assert (await probe.get("/readyz"))[0] == 200
    probe.later(61)
    assert (await probe.get("/readyz"))[0] == 503
    assert (await probe.get("/healthz"))[0] == 200


async def test_a_leader_whose_watch_is_dead_is_restarted(probe: Probe) -> None:
    probe.health.leading_since_s = probe.clock.monotonic_s()
    probe.health.watch = SeenVersions(probe.clock, grace_s=120)
    for _ in range(6):
        probe.health.listed_s = probe.clock.monotonic_s()
        probe.health.watch.listed({"u": "7"})
        probe.later(30)
    assert await probe.get("/healthz") == (503, "the watch on policies delivers nothing\n")


async def test_metrics_are_in_the_text_format_with_all_labels_from_the_start(probe: Probe) -> None:
    status, text = await probe.get("/metrics")
    assert status == 200
    for series in (
        "tiphys_operator_leader 0.0",
        'tiphys_operator_reconciles_total{result="success"} 0.0',
        'tiphys_operator_reconciles_total{result="error"} 0.0',
        'tiphys_operator_policies{mode="Canary",ready="False"} 0.0',
        'tiphys_operator_errors_total{reason="forbidden"} 0.0',
        "tiphys_operator_decision_pull_errors_total 0.0",
        "tiphys_operator_decisions_lost_total 0.0",
        "tiphys_operator_last_event_timestamp_seconds 0.0",
        "tiphys_operator_last_reconcile_timestamp_seconds 0.0",
        "tiphys_operator_reconcile_duration_seconds_count 0.0",
    ):
        assert series in text


async def test_there_are_few_series_whatever_happens(probe: Probe) -> None:
    async def series() -> int:
        return len([line for line in (await probe.get("/metrics"))[1].splitlines() if not line.startswith("#")])

    at_first = await series()
    for index in range(1000):
        probe.metrics.count_policies({("Shadow", "True"): index, (f"mode-{index}", "True"): 1})
        probe.metrics.scaling.count([(f"mode-{index}", "True")], [f"reason-{index}"])
    assert await series() == at_first < 300, "all there are, and all from the start"


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/metrics", 405), ("GET", "/", 404), ("GET", "/docs", 404)])
async def test_nothing_else_is_served(probe: Probe, method: str, path: str, status: int) -> None:
    assert (await probe.get(path, method))[0] == status
