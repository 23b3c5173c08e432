"""Operator, extender and our scheduler as real processes beside the local control plane, each under its own account."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_urlsafe
from urllib.error import URLError
from urllib.request import urlopen

from tiphys_cli.kube.errors import ClusterError, RequestRefused
from tiphys_models.api.base import GROUP, VERSION
from tiphys_models.api.scheduling_policy import PLURAL
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.options import SchedulerOptions
from tiphys_testbed.cluster.ports import free_ports
from tiphys_testbed.cluster.processes import RANK_CLIENT, Process, ProcessTable
from tiphys_testbed.cluster.readiness import wait_healthy
from tiphys_testbed.demo.chart import NAMESPACE, RenderedChart
from tiphys_testbed.demo.lanes import Lane

SCRAPE_WINDOW_S = 5
"""Five scrapes of one second each: a demo is over before the usual window of a minute has filled."""
READINGS_INTERVAL_S = 1
OPERATOR_ACCOUNT = "tiphys-operator"
SCHEDULER_ACCOUNT = "tiphys-scheduler"
EXTENDER_ACCOUNT = "tiphys-extender"
EXTENDER, OPERATOR = "tiphys-extender", "tiphys-operator"
"""Names of processes."""
HEALTH = {EXTENDER: "/readyz", OPERATOR: "/healthz"}
_EXTENDER_SETTINGS = {
    "STATUS_HOST": "127.0.0.1",
    "STATUS_REQUESTS_PER_SECOND": "1000",  # on one machine everybody who asks is one address
    "OWN_NAMESPACE": NAMESPACE,
    "SCRAPE_WINDOW_S": str(SCRAPE_WINDOW_S),
    "READINGS_INTERVAL_S": str(READINGS_INTERVAL_S),
}
_OPERATOR_SETTINGS = {
    "NAMESPACE": NAMESPACE,
    "IDENTITY": "demo",
    "RESYNC_S": "5",
    "PROBE_ALLOW": "127.0.0.0/8",  # all that there is stands on loopback
    "STATUS_HOST": "127.0.0.1",
}
_POLL_S = 0.2
_TIMEOUT_S = 5.0


@dataclass(slots=True)
class Services:
    """The three processes, and where they can be asked."""

    processes: tuple[Process, ...]
    """Extender, operator, our scheduler."""
    extender_url: str
    status_url: str
    explain_url: str
    token: str
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What a process needs to be started again, by its name."""

    def begin_again(self, cluster: LocalCluster, name: str, deadline_s: float) -> None:
        """End extender or operator, if it still runs, and start it anew with what it was given first; it knows nothing of before."""
        former = cluster.process(name)
        cluster.stop_process(name)
        table = ProcessTable(cluster.options.run_dir, self.environments[name])
        process = table.start(name, former.argv, former.rank, former.url)
        self.processes = tuple(process if known.name == name else known for known in self.processes)
        wait_healthy(process, HEALTH[name], None, deadline_s)

    @property
    def ended(self) -> tuple[str, ...]:
        """Names of those that do not run."""
        return tuple(process.name for process in self.processes if not process.alive())

    def check(self) -> None:
        """Raise if one of them has ended."""
        for process in self.processes:
            if not process.alive():
                raise ClusterError(f"{process.name} has ended; the end of its log ({process.log}):\n{process.log_tail()}")


def start_services(
    cluster: LocalCluster,
    installation: RenderedChart,
    prometheus_url: str,
    deadline_s: float,
    operator_settings: Mapping[str, str] | None = None,
    extender_settings: Mapping[str, str] | None = None,
) -> Services:
    """Start all three and wait until each says that it is ready; settings by their names without the prefix."""
    directory = cluster.options.run_dir / "tiphys"
    directory.mkdir(mode=0o700, exist_ok=True)
    token_file = directory / "token"
    token = token_urlsafe(32)
    token_file.touch(mode=0o600)
    token_file.write_text(token, encoding="utf-8")
    hot, status, explain, operator_status = free_ports(4)
    extender_url, status_url = f"http://127.0.0.1:{hot}", f"http://127.0.0.1:{status}"
    ours = {
        "PORT": str(hot),
        "STATUS_PORT": str(status),
        "EXPLAIN_PORT": str(explain),
        "PROMETHEUS_URL": prometheus_url,
        "TOKEN_FILE": str(token_file),
        "DECISION_LOG_DIR": str(_made(directory / "decisions")),
    }
    theirs = {"EXTENDER_URL": status_url, "TOKEN_FILE": str(token_file), "STATUS_PORT": str(operator_status)}
    environments = {
        EXTENDER: _environment(cluster, EXTENDER_ACCOUNT, "TIPHYS_EXTENDER", _EXTENDER_SETTINGS, ours, extender_settings),
        OPERATOR: _environment(cluster, OPERATOR_ACCOUNT, "TIPHYS_OPERATOR", _OPERATOR_SETTINGS, theirs, operator_settings),
    }
    extender = _start(cluster, EXTENDER, "tiphys_extender", status_url, environments[EXTENDER])
    operator = _start(cluster, OPERATOR, "tiphys_operator", f"http://127.0.0.1:{operator_status}", environments[OPERATOR])
    for process in (extender, operator):
        wait_healthy(process, HEALTH[process.name], None, deadline_s)
    kubeconfig = cluster.kubeconfig_for(SCHEDULER_ACCOUNT, NAMESPACE)
    scheduler = cluster.start_scheduler(
        SchedulerOptions(extender_url=extender_url, config_text=installation.scheduler_config, kubeconfig=kubeconfig)
    )
    return Services((extender, operator, scheduler), extender_url, status_url, f"http://127.0.0.1:{explain}", token, environments)


def wait_until_deciding(cluster: LocalCluster, services: Services, lanes: list[Lane], deadline_s: float) -> None:
    """Wait until the operator calls every policy Ready, and the extender routes to them with readings of all nodes."""
    for lane in lanes:
        if lane.policy is not None:
            _wait(services, partial(_not_ready, cluster, lane), deadline_s)
    policies = sum(lane.policy is not None for lane in lanes)
    _wait(services, partial(_not_deciding, services.status_url, policies), deadline_s)


def metric(url: str, name: str, labels: str = "") -> float | None:
    """One sample of a process's `/metrics`; None if it is not there."""
    try:
        with urlopen(f"{url}/metrics", timeout=_TIMEOUT_S) as answer:  # noqa: S310 - our own loopback address
            text = answer.read().decode()
    except (URLError, TimeoutError) as error:
        raise ClusterError(f"{url}/metrics cannot be read: {error}") from error
    prefix = f"{name}{labels} "
    for line in text.splitlines():
        if line.startswith(prefix):
            return float(line.removeprefix(prefix))
    return None


def _environment(cluster: LocalCluster, account: str, prefix: str, *settings: Mapping[str, str] | None) -> dict[str, str]:
    """What a process is started with; later settings win."""
    named = {f"{prefix}_{name}": value for some in settings for name, value in (some or {}).items()}
    return {"KUBECONFIG": str(cluster.kubeconfig_for(account, NAMESPACE)), **named}


def _start(cluster: LocalCluster, name: str, module: str, url: str, environment: Mapping[str, str]) -> Process:
    table = ProcessTable(cluster.options.run_dir, environment)
    return table.start(name, [sys.executable, "-m", module], RANK_CLIENT, url)


def _made(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    return directory


def _not_ready(cluster: LocalCluster, lane: Lane) -> str:
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{lane.namespace}/{PLURAL}/{lane.name}"
    try:
        status = cluster.api.get(path).get("status") or {}
    except RequestRefused as error:
        return str(error)
    for condition in status.get("conditions") or ():
        if condition["type"] == "Ready":
            said = f"Ready is {condition['status']}: {condition['reason']}: {condition['message']}"
            return "" if condition["status"] == "True" else f"SchedulingPolicy {lane.namespace}/{lane.name}: {said}"
    return f"SchedulingPolicy {lane.namespace}/{lane.name} has no condition Ready: the operator has not reconciled it"


def _not_deciding(url: str, policies: int) -> str:
    routes = sum(metric(url, "tiphys_extender_routes", f'{{mode="{mode}"}}') or 0 for mode in ("Active", "Shadow"))
    if routes < policies:
        return f"the extender routes to {routes:.0f} of {policies} policies"
    coverage = metric(url, "tiphys_extender_readings_coverage_ratio") or 0
    return "" if coverage > 0.99 else f"the extender has readings of {coverage:.0%} of the nodes"


def _wait(services: Services, missing: Callable[[], str], deadline_s: float) -> None:
    """Poll until nothing is missing."""
    end_s = time.monotonic() + deadline_s
    while what := missing():
        services.check()
        if time.monotonic() > end_s:
            logs = "\n".join(f"{process.name}: {process.log}" for process in services.processes)
            raise ClusterError(f"not ready within {deadline_s:.0f} s: {what}\nThe logs:\n{logs}")
        time.sleep(_POLL_S)
