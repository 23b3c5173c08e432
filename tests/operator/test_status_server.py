from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.operator.api_server import FakeApiServer
from tests.operator.scaling.test_transition_log import transition
from tiphys_models.api.scaling_transition import TransitionPage
from tiphys_models.clients.leases import Lease, LeaseOptions
from tiphys_models.domain.clock import ManualClock
from tiphys_operator.health import Health
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.policy_watch import SeenVersions
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.status_server import StatusServer


class Probe:
    def __init__(
        self, url: str, clock: ManualClock, health: Health, metrics: OperatorMetrics, transitions: TransitionLog, token_file: Path
    ) -> None:
        self.url, self.clock, self.health, self.metrics = url, clock, health, metrics
        self.transitions, self.token_file = transitions, token_file

    async def get(self, path: str, method: str = "GET", token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with aiohttp.ClientSession() as session, session.request(method, self.url + path, headers=headers) as answer:
            return answer.status, await answer.text()

    def later(self, seconds: float) -> None:
        """Time passes, and the event loop runs."""
        self.clock.advance(seconds)
        self.health.beat_s = self.clock.monotonic_s()


@pytest.fixture
async def probe(tmp_path: Path) -> AsyncIterator[Probe]:
    clock, metrics = ManualClock(), OperatorMetrics()
    async with FakeApiServer() as server, server.client() as client:
        lease = Lease(client, LeaseOptions("n", "l", "a"), clock)
        health = Health(clock, lease, dead_after_s=150)
        token, log = tmp_path / "token", TransitionLog()
        token.write_text("secret\n")
        async with StatusServer("127.0.0.1", 0, health, metrics, log, token) as status:
            yield Probe(f"http://127.0.0.1:{status.port}", clock, health, metrics, log, token)


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


async def test_a_leader_whose_loops_stand_still_is_not_ready_and_in_the_end_not_alive(probe: Probe) -> None:
    health = probe.health
    health.leading_since_s, health.reconciled = probe.clock.monotonic_s(), True
    health.loops.expect("watch-scaling-pods", 100.0)
    health.loops.expect("scaling", 140.0, fatal=True)
    assert (await probe.get("/readyz"))[0] == 200
    probe.later(101)
    assert await probe.get("/readyz") == (503, "watch-scaling-pods has done nothing for 101 s\n")
    assert (await probe.get("/healthz"))[0] == 200
    health.loops.beat("watch-scaling-pods")
    assert (await probe.get("/readyz"))[0] == 200
    probe.later(40)
    assert await probe.get("/healthz") == (503, "scaling has done nothing for 141 s\n")
    health.loops.beat("scaling")
    assert (await probe.get("/healthz"))[0] == 200


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
        lines = (await probe.get("/metrics"))[1].splitlines()
        return len([line for line in lines if not line.startswith("#") and "_created" not in line])  # the operator switches those off

    at_first = await series()
    for index in range(1000):
        probe.metrics.count_policies({("Shadow", "True"): index, (f"mode-{index}", "True"): 1})
        probe.metrics.scaling.count([(f"mode-{index}", "True")], [f"reason-{index}"])
    assert await series() == at_first < 220, "all there are, and all from the start"


async def test_transitions_are_paged_for_whoever_has_the_token(probe: Probe) -> None:
    for _ in range(5):
        probe.transitions.append(transition())
    status, text = await probe.get("/v1/scaling/transitions?after=1&limit=2", token="secret")
    page = TransitionPage.model_validate_json(text)
    assert (status, [entry.seq for entry in page.items], page.next, page.last) == (200, [2, 3], 3, 5)
    assert page.items[0].transition == transition()
    nobody = await probe.get("/v1/scaling/transitions?policy=default/other", token="secret")
    assert TransitionPage.model_validate_json(nobody[1]).items == []


async def test_transitions_need_the_token_that_is_in_the_file_now(probe: Probe) -> None:
    path = "/v1/scaling/transitions"
    assert [(await probe.get(path, token=token))[0] for token in ("", "other", "secret")] == [401, 401, 200]
    probe.token_file.write_text("rotated")
    assert [(await probe.get(path, token=token))[0] for token in ("secret", "rotated")] == [401, 200]
    probe.token_file.write_text("")
    assert (await probe.get(path, token="rotated"))[0] == 401
    probe.token_file.unlink()
    assert (await probe.get(path, token="rotated"))[0] == 403


@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=0", "limit=5001", f"after={'9' * 30}"])
async def test_a_page_that_makes_no_sense_is_refused(probe: Probe, query: str) -> None:
    assert (await probe.get(f"/v1/scaling/transitions?{query}", token="secret"))[0] == 400


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/metrics", 405), ("GET", "/", 404), ("GET", "/docs", 404)])
async def test_nothing_else_is_served(probe: Probe, method: str, path: str, status: int) -> None:
    assert (await probe.get(path, method))[0] == status
