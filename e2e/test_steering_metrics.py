"""Metrics that steer, on a real Prometheus: what is scraped twice counts once, whoever lacks the wanted labels is not believed, and what
is scraped no more is missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TypeVar

import pytest

from e2e.conftest import wait_until
from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.base.quantity import rfc3339
from tiphys_models.kube.prometheus import AnswerTooLarge, PrometheusClient, Provenance, QueryLimits
from tiphys_models.placement.gauges import ReadingTable
from tiphys_models.placement.pod_cpu import POD_CPU_SERIES
from tiphys_models.placement.schema import COLUMN
from tiphys_operator.cluster.scaled import ScaledPod, pod_of
from tiphys_operator.scaling.reader import WindowReader
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.options import PrometheusOptions, ScrapeJob
from tiphys_testbed.cluster.prometheus import query

pytestmark = [pytest.mark.needs_local, pytest.mark.programs("prometheus")]
T = TypeVar("T")
WINDOW_S = 8
RATE = 20.0
"""Requests a second of each proxy."""
HONEST, TENANT = "node-exporter", "some-pod"


@contextmanager
def shown(render: Callable[[], list[str]]) -> Iterator[str]:
    """Address at which these lines can be scraped."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write("\n".join([*render(), ""]).encode())

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name is that of the base class
            """Scrapes are no news."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextmanager
def exporter(factor: float) -> Iterator[str]:
    """Two CPUs, two disks, and a runtime with two idle instances; or a multiple of everything."""
    began_s = time.monotonic()

    def render() -> list[str]:
        age_s = (time.monotonic() - began_s) * factor
        lines = [f'node_cpu_seconds_total{{cpu="{cpu}",mode="user"}} {0.5 * age_s:.4f}' for cpu in range(2)]
        lines += [f'node_disk_reads_completed_total{{device="sd{disk}"}} {10 * age_s:.4f}' for disk in "ab"]
        lines += [
            f'node_network_receive_bytes_total{{device="eth0"}} {1000 * age_s:.4f}',
            f"node_context_switches_total {7 * age_s:.4f}",
        ]
        lines += [f"node_load1 {1.5 * factor}", f'tiphys_runtime_idle_instances{{function="d/f"}} {2 * factor:.0f}']
        mesh = 'reporter="destination",destination_workload="web",destination_workload_namespace="shop"'
        lines += [f'istio_request_duration_milliseconds_bucket{{{mesh},le="{le}"}} {RATE * age_s:.4f}' for le in ("400", "+Inf")]
        lines += [
            f'tiphys_runtime_call_profile{{function="d/f",quantity="{quantity}"}} {factor}'
            for quantity in ("warm_seconds", "cold_seconds", "warm_core_seconds", "cold_core_seconds", "parallelism")
        ]
        return lines

    with shown(render) as url:
        yield url


@pytest.fixture(scope="module")
def prometheus(local: LocalCluster) -> Iterator[str]:
    """It scrapes n0 by two jobs, and a pod that claims to be n0, too."""
    with exporter(1.0) as honest, exporter(100.0) as liar:
        jobs = (
            ScrapeJob(HONEST, honest, {"node": "n0", "namespace": "monitoring"}),
            ScrapeJob("kubernetes-pods", honest, {"node": "n0", "namespace": "monitoring"}),
            ScrapeJob(TENANT, liar, {"node": "n0", "namespace": "tenant"}),
        )
        url = local.start_prometheus(PrometheusOptions(jobs=jobs, name="steering"))
        counted = f"count(count_over_time(node_load1[{WINDOW_S}s]) >= {WINDOW_S - 1})"
        wait_until(lambda: [float(r["value"][1]) for r in query(url, counted)] == [3.0], 60, "a window of samples of all three")
        yield url
        local.stop_process("steering")


def ask(url: str, question: Callable[[PrometheusClient], Awaitable[T]], provenance: Provenance, limits: QueryLimits | None = None) -> T:
    async def asked() -> T:
        async with PrometheusClient(url, window_s=WINDOW_S, provenance=provenance, limits=limits) as client:
            return await question(client)

    return asyncio.run(asked())


def reading(table: ReadingTable, feature: str) -> float:
    assert table.names == ("n0",)
    return float(table.values[0, COLUMN[feature]])


HELD = Provenance(node={"namespace": "monitoring"}, runtime={"namespace": "monitoring"})


def test_an_exporter_that_two_jobs_scrape_counts_once(prometheus: str) -> None:
    table = ask(prometheus, lambda client: client.node_readings(), HELD)
    assert reading(table, "cpu_user") == pytest.approx(1.0, rel=0.2), "two CPUs by half, not by two jobs"
    assert reading(table, "disk_read") == pytest.approx(20.0, rel=0.2)
    assert reading(table, "net_recv") == pytest.approx(1000.0, rel=0.2)
    assert reading(table, "ctx_switches") == pytest.approx(7.0, rel=0.2)
    assert reading(table, "cpu_load_avg") == 1.5
    assert ask(prometheus, lambda client: client.busy_cores(), HELD) == {"n0": pytest.approx(1.0, rel=0.2)}
    counts, times = ask(prometheus, lambda client: client.idle_instances(), HELD)
    assert counts == {"d/f": {"n0": 2.0}}
    assert time.time() - times["n0"] < 10


def test_a_pod_that_claims_to_be_a_node_is_believed_only_where_no_label_is_asked_for(prometheus: str) -> None:
    for provenance in (HELD, Provenance(node={"job": HONEST}, runtime={"job": HONEST})):
        assert reading(ask(prometheus, lambda client: client.node_readings(), provenance), "cpu_load_avg") == 1.5
        assert ask(prometheus, lambda client: client.idle_instances(), provenance)[0] == {"d/f": {"n0": 2.0}}
        assert ask(prometheus, lambda client: client.call_profiles(), provenance)["d/f"].warm_s == 1.0
    anyone = Provenance()
    assert reading(ask(prometheus, lambda client: client.node_readings(), anyone), "cpu_load_avg") == 150.0
    assert ask(prometheus, lambda client: client.idle_instances(), anyone)[0] == {"d/f": {"n0": 200.0}}
    nobody = Provenance(node={"job": 'x"} or node_load1{job="' + TENANT}, runtime={"job": 'a\\"b\n'})
    assert ask(prometheus, lambda client: client.node_readings(), nobody).names == ()
    assert ask(prometheus, lambda client: client.idle_instances(), nobody) == ({}, {})


def test_prometheus_is_asked_for_no_more_series_than_are_read(prometheus: str) -> None:
    selector = 'tiphys_runtime_call_profile{namespace="monitoring"}[5s]'
    found = ask(prometheus, lambda client: client.ranges(selector), HELD, QueryLimits(series=10))
    assert len(found["data"]["result"]) == 10
    with pytest.raises(AnswerTooLarge, match="more than 9 series"):
        ask(prometheus, lambda client: client.ranges(selector), HELD, QueryLimits(series=9))


def proxy_pod(name: str) -> ScaledPod:
    began = rfc3339(time.time() - 600)
    metadata = {"uid": name, "name": name, "namespace": "shop", "resourceVersion": "1"}
    status = {"phase": "Running", "startTime": began, "conditions": [{"type": "Ready", "status": "True"}]}
    found = pod_of({"metadata": metadata, "spec": {"containers": []}, "status": status})
    assert found is not None
    return found


def test_a_proxy_that_is_scraped_no_more_is_missed_before_its_load_is(local: LocalCluster) -> None:
    names = ["web-0", "web-1", "web-2"]
    spec = ScalingPolicySpec.model_validate(
        {
            "targetRef": {"kind": "Deployment", "name": "web"},
            "objective": {"latencyMilliseconds": 400, "metrics": {"preset": "istio"}},
            "horizontal": {},
            "intervalSeconds": 5,
        }
    )
    full = len(names) * RATE * spec.interval_seconds
    with ExitStack() as stack:
        last = ExitStack()
        urls = [*(stack.enter_context(exporter(1.0)) for _ in names[1:]), last.enter_context(exporter(1.0))]
        jobs = tuple(ScrapeJob(n, url, {"pod": n, "namespace": "shop"}) for n, url in zip(names, urls, strict=True))
        url = local.start_prometheus(PrometheusOptions(jobs=jobs, name="proxies"))
        stack.callback(local.stop_process, "proxies")
        wait_until(lambda: len(query(url, "count_over_time(up[20s]) >= 18")) == 3, 60, "samples of all three")

        async def missed() -> tuple[str, ...]:
            reader, pods = WindowReader(spec, "shop", "main"), [proxy_pod(name) for name in names]
            async with PrometheusClient(url, window_s=60) as client:
                found = await reader.read(client, pods, time.time())
                assert (found.problem, found.partial) == (None, ())
                await asyncio.to_thread(last.close)
                for _ in range(30):
                    await asyncio.sleep(0.5)
                    found = await reader.read(client, pods, time.time())
                    if found.partial:
                        return found.partial
                    assert found.windows[-1].arrived > 0.9 * full
            return ()

        assert asyncio.run(missed()) == ("no samples of web-2",)


@contextmanager
def cadvisor() -> Iterator[str]:
    """Containers of pods as a kubelet shows them, each sample with its own time: what has gone stays for five minutes."""
    began_s = time.time()

    def line(pod: str, container: str, core_seconds: float, at_s: float, cgroup: str = "now", namespace: str = "shop") -> str:
        labels = f'namespace="{namespace}",pod="{pod}",container="{container}",id="{cgroup}"'
        return f"container_cpu_usage_seconds_total{{{labels}}} {core_seconds} {at_s * 1000:.0f}"

    def render() -> list[str]:
        now_s = time.time()
        return [
            line("work", "main", 30.0, now_s - 3),
            line("work", "sidecar", 12.0, now_s - 4),
            line("work", "", 1042.0, now_s - 3),
            line("work", "POD", 1000.0, now_s - 3),
            line("work", "init", 500.0, began_s - 60),
            line("work", "main", 900.0, began_s - 50, cgroup="before"),
            line("fresh", "init", 7.0, now_s - 9),
            line("fresh", "main", 1.0, now_s - 1),
            line("work", "main", 5.0, now_s, namespace="elsewhere"),
        ]

    with shown(render) as url:
        yield url


def test_processor_time_of_a_pod_is_that_of_the_containers_it_has_now(local: LocalCluster) -> None:
    with cadvisor() as url, ExitStack() as stack:
        jobs = tuple(ScrapeJob(name, url, {"node": "n0"}) for name in ("cadvisor", "the-same-again"))
        prometheus = local.start_prometheus(PrometheusOptions(jobs=jobs, name="cadvisor"))
        stack.callback(local.stop_process, "cadvisor")
        wait_until(lambda: len(query(prometheus, 'container_cpu_usage_seconds_total{pod="work"}')) == 14, 30, "samples of both jobs")
        now_s = time.time()
        readings = ask(prometheus, lambda client: client.pod_cpu(POD_CPU_SERIES, {"shop", "empty"}, now_s), Provenance())
        found = {(reading.namespace, reading.pod): (reading.core_seconds, now_s - reading.at_s) for reading in readings}
        assert set(found) == {("shop", "work"), ("shop", "fresh")}
        core_seconds, age_s = found["shop", "work"]
        assert core_seconds == 42.0, "each container once, what it is now"
        assert 3.5 <= age_s < 10.0, "as old as the oldest sample in it"
        core_seconds, age_s = found["shop", "fresh"]
        assert (core_seconds, age_s >= 8.5) == (8.0, True), "while an init container may be in it, it is as old as that one"
        by_record = ask(
            prometheus, lambda client: client.pod_cpu('container_cpu_usage_seconds_total{container="main"}', {"shop"}, now_s), Provenance()
        )
        assert sorted(reading.core_seconds for reading in by_record) == [1.0, 30.0]
