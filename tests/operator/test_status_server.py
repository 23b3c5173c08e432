from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from tests.operator.api_server import FakeApiServer
from tests.operator.scaling.test_transition_log import transition
from tiphys_models.base.clock import ManualClock
from tiphys_models.kube.leases import Lease, LeaseOptions
from tiphys_models.scaling.transition import TransitionPage
from tiphys_models.serving.bounds import ListenerBounds
from tiphys_models.serving.certificates import ServerCertificates
from tiphys_operator.all_metrics import all_metrics
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.runtime.health import Health
from tiphys_operator.runtime.kopf_watch import SeenVersions
from tiphys_operator.scaling.metrics import ScalingMetrics
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
    clock, metrics = ManualClock(), all_metrics()
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
        probe.metrics.part(ScalingMetrics).count([(f"mode-{index}", "True")], [f"reason-{index}"])
    assert await series() == at_first < 360, "all there are, and all from the start"


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


@contextlib.asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[tuple[int, OperatorMetrics]]:
    clock, metrics = ManualClock(), all_metrics()
    async with FakeApiServer() as server, server.client() as client:
        health = Health(clock, Lease(client, LeaseOptions("n", "l", "a"), clock), dead_after_s=150)
        async with StatusServer("127.0.0.1", 0, health, metrics, TransitionLog(), None, **options) as status:
            yield status.port, metrics


def refused(metrics: OperatorMetrics, reason: str) -> float:
    return metrics.registry.get_sample_value("tiphys_operator_status_refused_total", {"reason": reason}) or 0.0


async def said(port: int, sent: bytes, within_s: float = 3) -> bytes:
    """What comes until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    answer = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(within_s):
            answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("start", "more"),
    [(b"GET /metrics HTTP/1.1\r\n", b"a:b\r\n"), (b"GET /metrics HTTP/1.1\r\na:", b"x" * 4096), (b"GET /", b"x" * 4096)],
    ids=["many headers", "one header", "one url"],
)
async def test_37_megabytes_of_head_cost_less_than_five(start: bytes, more: bytes) -> None:
    chunk = more * (65_536 // len(more))
    async with listening() as (port, _):
        tracemalloc.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            writer.write(start)
            for _ in range(37 * 2**20 // len(chunk)):
                writer.write(chunk)
                await writer.drain()
                if reader.at_eof():
                    break
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        writer.close()
        assert peak < 5 * 2**20
        assert (await said(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("start", [b"GET /heal", b"GET /healthz HTTP/1.1\r\nHost", b"\r\n"])
async def test_a_request_that_does_not_come_is_cut(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiphys_models.serving.bounds.RECEIPT_LIMIT_S", 0.1)
    async with listening() as (port, metrics):
        assert (await said(port, start)).startswith(b"HTTP/1.1 408")
        assert refused(metrics, "too-slow") == 1


async def test_a_connection_that_asks_nothing_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiphys_models.serving.bounds.IDLE_LIMIT_S", 0.1)
    async with listening() as (port, _):
        assert await said(port, b"") == b""


async def test_a_kept_connection_answers_again_and_again() -> None:
    async with listening() as (port, _), aiohttp.ClientSession() as session:
        for _ in range(20):
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert answer.status == 200


async def test_one_address_has_so_many_connections_and_asks_so_often() -> None:
    async with listening(bounds=ListenerBounds(connections_a_peer=2)) as (port, metrics):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        assert (await said(port, b"")).startswith(b"HTTP/1.1 503")
        assert refused(metrics, "too-many-connections") == 1
        for _, writer in held:
            writer.close()
    async with listening(bounds=ListenerBounds(per_second=1, burst=5)) as (port, metrics):
        answers = await said(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        assert answers.count(b"HTTP/1.1 200") <= 6
        assert answers.count(b"HTTP/1.1 429") == 1
        assert refused(metrics, "too-many-requests") == 1


async def test_status_over_tls_with_a_certificate_that_changes(tmp_path: Path) -> None:
    authority = trustme.CA()
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def issue() -> None:
        issued = authority.issue_cert("localhost")
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())

    issue()
    metrics = OperatorMetrics()
    certificates = ServerCertificates(cert, key, None, on_expiry=metrics.certificate_expiry.set)
    assert (metrics.registry.get_sample_value("tiphys_operator_status_certificate_expiry_timestamp_seconds") or 0) > time.time()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with listening(certificates=certificates) as (port, counted), aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.get(f"https://localhost:{port}/healthz", ssl=trusting) as answer:
                assert answer.status == 200
            issue()
            assert certificates.reload_if_changed()
        await said(port, b"GET /healthz HTTP/1.1\r\n\r\n")
        failed = counted.registry.get_sample_value("tiphys_operator_tls_handshake_failures_total", {"reason": "not-tls"})
        assert failed == 1


async def test_the_own_token_of_transitions_opens_them_and_that_of_another_purpose_does_not(tmp_path: Path) -> None:
    (tmp_path / "transitions").write_text("own")
    path = b"GET /v1/scaling/transitions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %b\r\n\r\n"
    async with listening(transitions_token_file=tmp_path / "transitions") as (port, _):
        assert (await said(port, path % b"own")).startswith(b"HTTP/1.1 200")
        assert (await said(port, path % b"decisions")).startswith(b"HTTP/1.1 401")


async def test_when_metrics_were_last_read_is_a_metric(probe: Probe) -> None:
    assert "tiphys_operator_last_scrape_timestamp_seconds 0.0" in (await probe.get("/metrics"))[1]
    assert "tiphys_operator_last_scrape_timestamp_seconds 1" in (await probe.get("/metrics"))[1]
