"""Simulated nodes, their readings, the exporter, and how pods finish."""

import datetime as dt
import http.client
import json
import math
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
import yaml

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError, RequestRefused
from tiphys_cli.kube.kubeconfig import Credentials
from tiphys_models.base.facts import PRICE_ANNOTATION, node_facts
from tiphys_models.placement.schema import NODE_READINGS
from tiphys_testbed.cluster.counters import NodeCounters, NodeLoad, escape_label
from tiphys_testbed.cluster.exporter import Exporter
from tiphys_testbed.cluster.nodes import MACHINE_TYPES, POOL_LABEL, SimulatedImage, fleet, node_manifest
from tiphys_testbed.cluster.pods import finished_status


def readings(counters: NodeCounters) -> dict[str, float]:
    """Series → value, summed over CPUs."""
    found: dict[str, float] = {}
    for line in counters.render().splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            if series.startswith("node_cpu"):
                series = "cpu_" + series.split('mode="')[1].split('"')[0]
            found[series] = found.get(series, 0.0) + float(value)
    return found


def test_a_fleet_mixes_types_and_zones_evenly() -> None:
    nodes = fleet(90, pool="edge")
    assert len({node.name for node in nodes}) == 90
    pairs = [(node.machine.name, node.zone) for node in nodes]
    assert {pairs.count(pair) for pair in pairs} == {10}
    assert len({machine.price_usd_per_hour for machine in MACHINE_TYPES}) == 3


def test_a_node_carries_what_placement_reads() -> None:
    image = SimulatedImage("docker.io/library/resize:1", 5)
    node = fleet(1, pool="edge", images=lambda _: (image,))[0]
    manifest = node_manifest(node)
    facts = node_facts(manifest)
    assert (facts.cpu_milli, facts.memory_bytes) == (2000, 4 * 1024**3)
    assert facts.instance_type == "B2s"
    assert facts.images == ("docker.io/library/resize:1",)
    assert float(manifest["metadata"]["annotations"][PRICE_ANNOTATION]) == 0.0472
    labels = manifest["metadata"]["labels"]
    assert labels["type"] == "kwok"
    assert labels[POOL_LABEL] == "edge"
    assert labels["kubernetes.io/hostname"] == node.name


def test_a_bare_node_is_ready_and_not_kwoks() -> None:
    manifest = node_manifest(fleet(1, bare=True)[0])
    assert "type" not in manifest["metadata"]["labels"]
    assert node_facts(manifest).schedulable


def test_the_exporter_has_every_reading_placement_asks_for() -> None:
    counters = NodeCounters(cores=4, memory_bytes=16 * 1024**3)
    text = counters.render()
    for feature in NODE_READINGS:
        name, _, selector = feature.source.partition("{")
        mode = selector.removesuffix("}") if name == "node_cpu_seconds_total" else ""
        assert any(line.startswith(name) and mode in line for line in text.splitlines()), feature.source


def test_processor_time_adds_up_to_the_cores_whatever_is_asked() -> None:
    counters = NodeCounters(cores=4, memory_bytes=2**34)
    before = readings(counters)
    counters.advance(2.5, NodeLoad(busy_cores=3, iowait_cores=5, steal_cores=9))
    after = readings(counters)
    spent = {k: after[k] - before[k] for k in after if k.startswith("cpu_")}
    assert math.isclose(sum(spent.values()), 4 * 2.5, abs_tol=1e-4)
    assert math.isclose(spent["cpu_user"] + spent["cpu_system"], 7.5, abs_tol=1e-4)
    assert math.isclose(spent["cpu_iowait"], 2.5, abs_tol=1e-4)
    assert spent["cpu_steal"] == 0


def test_counters_never_run_backwards_and_rates_are_those_of_the_load() -> None:
    counters = NodeCounters(cores=2, memory_bytes=2**32)
    load = NodeLoad(busy_cores=1, reads_per_s=10, writes_per_s=20, receive_bytes_per_s=1000, transmit_bytes_per_s=500)
    counters.advance(1, load)
    first = readings(counters)
    counters.advance(1, load)
    second = readings(counters)
    rates = {name: second[name] - first[name] for name in second}
    assert rates['node_disk_reads_completed_total{device="sda"}'] == pytest.approx(10)
    assert rates['node_disk_write_time_seconds_total{device="sda"}'] == pytest.approx(20 * 4e-4)
    assert rates['node_network_receive_bytes_total{device="eth0"}'] == pytest.approx(1000)
    assert all(rate >= 0 for name, rate in rates.items() if "_total" in name or name.startswith("cpu_"))
    with pytest.raises(ValueError, match="runs forward"):
        counters.advance(-1, load)


def test_load1_follows_the_run_queue_with_a_minute_of_inertia() -> None:
    counters = NodeCounters(cores=2, memory_bytes=2**32)
    counters.advance(60, NodeLoad(busy_cores=2, runnable=6))
    assert readings(counters)["node_load1"] == pytest.approx(6 * (1 - math.exp(-1)), abs=1e-5)
    whole, parts = NodeCounters(2, 2**32), NodeCounters(2, 2**32)
    whole.advance(10, NodeLoad(busy_cores=1))
    for _ in range(100):
        parts.advance(0.1, NodeLoad(busy_cores=1))
    assert readings(whole)["node_load1"] == pytest.approx(readings(parts)["node_load1"], abs=1e-5)


@pytest.mark.parametrize("used", [0.0, 2e9, 4.2e9, 9e9])
def test_memory_adds_up_and_is_never_negative(used: float) -> None:
    counters = NodeCounters(cores=2, memory_bytes=2**32)
    for _ in range(100):
        counters.advance(10, NodeLoad(memory_used_bytes=used))
    values = readings(counters)
    parts = [values[f"node_memory_{name}_bytes"] for name in ("MemFree", "Buffers", "Cached")]
    assert all(part >= 0 for part in parts)
    assert parts[0] == pytest.approx(max(2**32 - used, 0))
    assert sum(parts) <= values["node_memory_MemTotal_bytes"]
    assert values["node_memory_MemAvailable_bytes"] == pytest.approx(sum(parts), abs=1)


def test_idle_instances_are_labelled_by_function() -> None:
    counters = NodeCounters(cores=1, memory_bytes=2**30)
    counters.set_idle_instances({"default/resize": 2, 'odd"\\\nname': 1})
    text = counters.render()
    assert 'tiphys_runtime_idle_instances{function="default/resize"} 2\n' in text
    assert 'tiphys_runtime_idle_instances{function="odd\\"\\\\\\nname"} 1\n' in text
    assert escape_label("plain") == "plain"


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    with Exporter({"node-1": NodeCounters(1, 2**30), "a/b": NodeCounters(2, 2**30)}) as running:
        yield running


def fetch(url: str) -> tuple[int, str, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=5)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_every_node_has_its_own_page(exporter: Exporter) -> None:
    pages = {name: fetch(url) for name, url in exporter.node_urls().items()}
    assert {status for status, _, _ in pages.values()} == {200}
    assert all(kind.startswith("text/plain; version=0.0.4") for _, kind, _ in pages.values())
    assert 'cpu="1"' in pages["a/b"][2]
    assert 'cpu="1"' not in pages["node-1"][2]


@pytest.mark.parametrize("path", ["/", "/metrics", "/nodes/none/metrics", "/nodes/node-1", "/nodes/node-1/metrics/x"])
def test_other_paths_are_not_found(exporter: Exporter, path: str) -> None:
    assert fetch(exporter.url + path)[0] == 404


def running_pod() -> dict[str, object]:
    return {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "img:1"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "c", "imageID": "x://y", "restartCount": 3, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
            ],
        },
    }


def test_a_finished_pod_looks_as_a_kubelet_would_leave_it() -> None:
    status = finished_status(running_pod(), dt.datetime(2026, 1, 1, 0, 0, 9, tzinfo=dt.UTC))
    assert status["phase"] == "Succeeded"
    (container,) = status["containerStatuses"]
    assert container["state"]["terminated"] == {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:09Z",
    }
    assert (container["imageID"], container["restartCount"]) == ("x://y", 3)
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "PodScheduled": "True",
        "Ready": "False",
        "ContainersReady": "False",
    }
    assert finished_status(running_pod(), dt.datetime.now(dt.UTC), exit_code=3)["phase"] == "Failed"


def test_no_stage_completes_a_pod_and_all_name_the_image() -> None:
    from tiphys_testbed.cluster import nodes

    stages = Path(nodes.__file__).parent / "stages"
    documents = [d for f in stages.glob("*.yaml") for d in yaml.safe_load_all(f.read_text())]
    pods = {d["metadata"]["name"]: d["spec"]["next"] for d in documents if d["spec"]["resourceRef"]["kind"] == "Pod"}
    assert set(pods) == {"tiphys-pod-ready", "tiphys-pod-resize", "tiphys-pod-delete"}
    templates = {name: following["statusTemplate"] for name, following in pods.items() if "statusTemplate" in following}
    assert all("phase: Succeeded" not in template for template in templates.values())
    named = {name: (template.count("- name:"), template.count("imageID:")) for name, template in templates.items()}
    assert named == {"tiphys-pod-ready": (2, 2), "tiphys-pod-resize": (1, 1)}  # init containers are never resized


class _Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self) -> None:
        if self.path.startswith("/missing"):
            self._say(404, {"reason": "NotFound", "message": "no such thing"})
        elif "watch=1" in self.path and "resourceVersion=1&" in self.path:
            self._say(200, {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}})
        elif "watch=1" in self.path:
            self._say(200, {"type": "ADDED", "object": {"n": 4}})
        elif "continue=more" in self.path:
            self._say(200, {"items": [{"n": 3}], "metadata": {}})
        else:
            self._say(200, {"items": [{"n": 1}, {"n": 2}], "metadata": {"continue": "more"}})

    def _say(self, status: int, body: object) -> None:
        data = json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def serve(port: int = 0) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", port), _Api)
    server.daemon_threads = True
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server


def test_lists_are_read_page_by_page_and_refusals_are_errors() -> None:
    server = serve()
    with ApiClient(Credentials(f"http://127.0.0.1:{server.server_port}", None)) as api:
        assert [item["n"] for item in api.items("/things")] == [1, 2, 3]
        with pytest.raises(RequestRefused, match="404 NotFound: GET /missing: no such thing"):
            api.get("/missing")
    server.shutdown()
    server.server_close()
    with (
        ApiClient(Credentials(f"http://127.0.0.1:{server.server_port}", None)) as api,
        pytest.raises(ClusterError, match="no answer from"),
    ):
        api.get("/things")


def test_a_watch_yields_events_and_an_expired_one_is_an_error() -> None:
    server = serve()
    with ApiClient(Credentials(f"http://127.0.0.1:{server.server_port}", None)) as api:
        assert [event["object"]["n"] for event in api.watch("/things", "7")] == [4]
        with pytest.raises(RequestRefused) as expired:
            list(api.watch("/things", "1"))
        assert (expired.value.status, expired.value.reason) == (410, "Expired")
        with pytest.raises(RequestRefused, match="404"):
            list(api.watch("/missing", "7"))
    server.shutdown()
    server.server_close()


def test_many_threads_share_one_client_and_the_first_error_comes_out() -> None:
    server = serve()
    seen = []
    with ApiClient(Credentials(f"http://127.0.0.1:{server.server_port}", None)) as api:
        api.each(lambda n: seen.append((n, api.get("/things")["items"])), range(50), threads=4)
        assert sorted(n for n, _ in seen) == list(range(50))
        with pytest.raises(RequestRefused, match="404"):
            api.each(api.get, ["/things", "/missing", "/things"])
    server.shutdown()
    server.server_close()
