"""Every part of Tiphys on one local control plane, as processes of its run directory: `tiphys cluster up --full`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from tiphys_cli.kube.errors import ClusterError, RequestRefused
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import SimulatedNode, create_nodes, fleet
from tiphys_testbed.cluster.options import PrometheusOptions, ScrapeJob
from tiphys_testbed.cluster.ports import free_ports
from tiphys_testbed.cluster.processes import RANK_CLIENT, Process, ProcessTable
from tiphys_testbed.cluster.readiness import until_served, wait_healthy
from tiphys_testbed.demo.chart import find_chart, render_chart
from tiphys_testbed.demo.services import Services, start_services
from tiphys_testbed.plane.objects import ACCESS_SITE, CALLS, POOL, RELEASE_NAMESPACE, SELECT, SHOP, SITE_ADDRESSES, WEB
from tiphys_testbed.plane.objects import streams as stream_objects
from tiphys_testbed.plane.objects import tenants as tenant_objects
from tiphys_testbed.plane.world import WorldSettings
from tiphys_testbed.tools.programs import ToolError

READY_DEADLINE_S = 120.0
BINDER_ACCOUNT = "tiphys-binder"
_TIMEOUT_S = 5.0
_POLL_S = 0.3
_GROUP = "/apis/tiphys.io/v1alpha1"
_CHART_VALUES = (
    "binder.enabled=true",
    "binder.tls.insecure=true",
    "binder.pool=",
    f"binder.tenants.namespaces[0]={CALLS}",
    f"binder.streams.accessSite={ACCESS_SITE}",
)


@dataclass(frozen=True, slots=True)
class Plane:
    """A plane at work."""

    cluster: LocalCluster
    services: Services
    processes: tuple[Process, ...]
    """All that must never end: services, schedulers, Prometheus, the world around them."""
    page_url: str
    binder_url: str
    binder_status_url: str
    prometheus_url: str
    operator_status_url: str

    def check(self) -> None:
        """Raise if a process has ended."""
        for process in self.processes:
            if not process.alive():
                raise ClusterError(f"{process.name} has ended; the end of its log ({process.log}):\n{process.log_tail()}")

    def pulse(self) -> dict[str, Any]:
        """What pods and streams of the pulse took, and what became of the steady streams."""
        return dict(_json(f"{self.page_url}/pulse"))

    def windows(self, namespace: str = SHOP, name: str = WEB) -> int:
        """The number in the operator's log of the last window that a ScalingPolicy decided; 0 before the first.

        The status would not do: it says nothing of a window that came to the same as the one before.
        """
        records = _json(f"{self.operator_status_url}/explain/ScalingPolicy/{namespace}/{name}", self.services.token)["items"]
        return int(records[-1]["seq"]) if records else 0

    def intervals(self, namespace: str = CALLS, name: str = SELECT) -> int:
        """The number of the last interval of a policy that selects; 0 before the first."""
        selection = self._status(f"schedulingpolicies/{name}", namespace).get("selection") or {}
        return int(selection.get("interval") or 0)

    def _status(self, path: str, namespace: str) -> dict[str, Any]:
        return dict(self.cluster.api.get(f"{_GROUP}/namespaces/{namespace}/{path}").get("status") or {})


def start_plane(cluster: LocalCluster, nodes: int) -> Plane:
    """Install Tiphys beside a control plane that runs, with tenants who use all of it; wait until everything works."""
    try:
        helm = cluster.toolbox.ensure(["helm", "prometheus"])["helm"]
    except ToolError as error:
        raise ClusterError(str(error)) from error
    made = fleet(nodes, pool=POOL)
    with cluster.toolbox.progress.step("installing the chart's roles and custom resources") as step:
        create_nodes(cluster.api, made)
        installation = render_chart(helm, find_chart(), cluster.version, _CHART_VALUES)
        for name in (RELEASE_NAMESPACE, SHOP, CALLS):
            cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        cluster.apply(installation.manifest())
        directory = cluster.options.run_dir / "plane"
        directory.mkdir(mode=0o700)
        settings, ports = _settings(cluster)
        step.detail("starting Prometheus and what lies around Tiphys")
        world = _start_world(cluster, settings, directory)
        prometheus_url = _start_prometheus(cluster, settings, made)
        step.detail("starting extender, operator and our scheduler")
        services = start_services(
            cluster,
            installation,
            prometheus_url,
            READY_DEADLINE_S,
            operator_settings={
                "PROMETHEUS_URL": prometheus_url,
                "SCRAPE_WINDOW_S": "5",
                "BINDER_URL": _url(ports.status),
                "ACCESS_SITE": ACCESS_SITE,
                "PROBE_ALLOW": "127.0.0.0/8",
                "INTENT_KEYS_FILE": str(_secret(directory / "intent-keys.json", {"keys": [{"id": "plane", "secret": token_urlsafe(36)}]})),
            },
        )
        step.detail("starting the binder")
        binder = _start_binder(cluster, settings, ports, directory)
        until_served(lambda: cluster.api.get(f"{_GROUP}/streampolicies"), "StreamPolicy is not served", READY_DEADLINE_S)
        for obj in [*tenant_objects(), *stream_objects(_site_urls(settings))]:
            cluster.apply(json.dumps(obj))
        plane = Plane(
            cluster,
            services,
            (*services.processes, binder, world, cluster.process("prometheus"), cluster.process("kube-scheduler")),
            _url(settings.page_port),
            settings.binder_url,
            _url(ports.status),
            prometheus_url,
            services.processes[1].url,
        )
        step.detail("waiting until pods, streams, windows and intervals come")
        wait_until_working(plane)
    return plane


def wait_until_working(plane: Plane, deadline_s: float = READY_DEADLINE_S) -> None:
    """Wait for a first pod and a first stream to be bound, and for a first window and interval."""
    end_s = time.monotonic() + deadline_s
    while missing := _missing(plane):
        plane.check()
        if time.monotonic() > end_s:
            raise ClusterError(f"not within {deadline_s:.0f} s: {missing}; logs: {plane.cluster.options.run_dir / 'logs'}")
        time.sleep(_POLL_S)


def status_line(plane: Plane) -> str:
    """How the plane does, in one line."""
    pulse = plane.pulse()
    parts = [
        f"{what} bound {time.time() - beats[-1]['at_s']:.0f} s ago"
        if (beats := [b for b in pulse[key] if not b["trouble"]])
        else f"no {what}"
        for what, key in (("pod", "pods"), ("stream", "streams"))
    ]
    parts.append(f"window {plane.windows()}, interval {plane.intervals()}")
    parts.append(f"{pulse['steady']} streams renewed {pulse['renewed']} times, {pulse['lost']} lost")
    return " · ".join(parts) + (f" · last trouble: {pulse['lastTrouble']}" if pulse["lastTrouble"] else "")


def _missing(plane: Plane) -> str:
    try:
        pulse = plane.pulse()
        if not any(not beat["trouble"] for beat in pulse["pods"]):
            return f"a pod is bound ({pulse['lastTrouble']})"
        if not any(not beat["trouble"] for beat in pulse["streams"]):
            return f"a stream is bound ({pulse['lastTrouble']})"
        if not plane.windows():
            return f"ScalingPolicy {SHOP}/{WEB} decides a window"
        if not plane.intervals():
            return f"SchedulingPolicy {CALLS}/{SELECT} decides an interval"
    except (RequestRefused, URLError, OSError) as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class _BinderPorts:
    """Chosen before anything starts: operator and world must know them."""

    calls: int
    status: int
    explain: int


def _settings(cluster: LocalCluster) -> tuple[WorldSettings, _BinderPorts]:
    calls, status, explain, service, page, *sites = free_ports(5 + len(SITE_ADDRESSES))
    world = WorldSettings(
        kubeconfig=str(cluster.kubeconfig),
        binder_url=_url(calls),
        token=token_urlsafe(24),
        service_port=service,
        page_port=page,
        site_ports=dict(zip(SITE_ADDRESSES, sites, strict=True)),
    )
    return world, _BinderPorts(calls, status, explain)


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _site_urls(settings: WorldSettings) -> dict[str, str]:
    return {site: f"http://{SITE_ADDRESSES[site]}:{port}" for site, port in settings.site_ports.items()}


def _start_world(cluster: LocalCluster, settings: WorldSettings, directory: Path) -> Process:
    file = directory / "world.json"
    settings.write(file)
    url = _url(settings.page_port)
    process = cluster.processes.start("plane-world", [sys.executable, "-m", "tiphys_testbed.plane.world", str(file)], RANK_CLIENT, url)
    wait_healthy(process, "/pulse", None, READY_DEADLINE_S)
    return process


def _start_prometheus(cluster: LocalCluster, settings: WorldSettings, nodes: list[SimulatedNode]) -> str:
    page = _url(settings.page_port)
    return cluster.start_prometheus(
        PrometheusOptions(
            node_urls={node.name: f"{page}/nodes/{node.name}/metrics" for node in nodes},
            jobs=(ScrapeJob("web", f"{_url(settings.service_port)}/metrics"),),
            scrape_interval_s=1.0,
        )
    )


def _start_binder(cluster: LocalCluster, settings: WorldSettings, ports: _BinderPorts, directory: Path) -> Process:
    files = {
        "TENANTS_FILE": {"tenants": [{"name": "plane", "token": settings.token, "namespaces": [RELEASE_NAMESPACE, CALLS]}]},
        "LEASE_KEYS_FILE": {"keys": [{"id": "plane", "secret": token_urlsafe(32)}]},
    }
    environment = {
        "KUBECONFIG": str(cluster.kubeconfig_for(BINDER_ACCOUNT, RELEASE_NAMESPACE)),
        "TIPHYS_EXTENDER_HOST": "127.0.0.1",
        "TIPHYS_EXTENDER_PORT": str(ports.calls),
        "TIPHYS_EXTENDER_STATUS_HOST": "127.0.0.1",
        "TIPHYS_EXTENDER_STATUS_PORT": str(ports.status),
        "TIPHYS_EXTENDER_EXPLAIN_PORT": str(ports.explain),
        "TIPHYS_EXTENDER_OWN_NAMESPACE": RELEASE_NAMESPACE,
        "TIPHYS_EXTENDER_TOKEN_FILE": str(cluster.options.run_dir / "tiphys" / "token"),
        "TIPHYS_BINDER_ACCESS_SITE": ACCESS_SITE,
        "TIPHYS_BINDER_POOL": "",
    }
    for name, content in files.items():
        environment[f"TIPHYS_BINDER_{name}"] = str(_secret(directory / f"{name.lower()}.json", content))
    url = _url(ports.status)
    process = ProcessTable(cluster.options.run_dir, environment).start(
        "tiphys-binder", [sys.executable, "-m", "tiphys_extender", "binder"], RANK_CLIENT, url
    )
    wait_healthy(process, "/readyz", None, READY_DEADLINE_S)
    return process


def _secret(file: Path, content: Any) -> Path:
    """A file that nobody else may read."""
    file.touch(mode=0o600)
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def _json(url: str, token: str = "") -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urlopen(Request(url, headers=headers), timeout=_TIMEOUT_S) as answer:  # noqa: S310 - our own loopback address
        return json.loads(answer.read())
