"""Operator processes for end-to-end tests, each under the rights a chart would give it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.cluster.ports import free_ports

ACCOUNT = "tiphys-operator"
STOP_DEADLINE_S = 20.0

BINDING_KINDS = ("inferencesites", "modelvariants", "streampolicies")
RULES = [
    # one resource a rule, so that tests can take one away
    {"apiGroups": ["tiphys.io"], "resources": ["schedulingpolicies"], "verbs": ["list", "watch"]},
    {"apiGroups": ["tiphys.io"], "resources": ["learnedmodels"], "verbs": ["list", "watch"]},
    {"apiGroups": ["tiphys.io"], "resources": ["schedulingpolicies/status"], "verbs": ["patch"]},
    {"apiGroups": ["tiphys.io"], "resources": ["learnedmodels/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]},
    {"apiGroups": ["tiphys.io"], "resources": ["placementplans"], "verbs": ["create", "patch"]},
    {"apiGroups": ["tiphys.io"], "resources": ["scalingpolicies"], "verbs": ["list", "watch"]},
    {"apiGroups": ["tiphys.io"], "resources": ["scalingpolicies/status"], "verbs": ["patch"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]},
    {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["apps"], "resources": ["statefulsets/scale"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["list", "watch"]},
    {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["list", "watch"]},
    {"apiGroups": ["autoscaling.k8s.io"], "resources": ["verticalpodautoscalers"], "verbs": ["list", "watch"]},
    {"apiGroups": ["keda.sh"], "resources": ["scaledobjects"], "verbs": ["list", "watch"]},
    *({"apiGroups": ["tiphys.io"], "resources": [kind], "verbs": ["list", "watch"]} for kind in BINDING_KINDS),
    *({"apiGroups": ["tiphys.io"], "resources": [f"{kind}/status"], "verbs": ["patch"]} for kind in BINDING_KINDS),
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
]
LEASE_RULES = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [ACCOUNT], "verbs": ["get", "update"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["tiphys-selection"], "verbs": ["patch"]},
]


def grant(
    cluster: Cluster, namespace: str, rules: list[dict[str, Any]] | None = None, own_rules: list[dict[str, Any]] | None = None
) -> Path:
    """Make the operator's ServiceAccount with these rules, cluster-wide and in its namespace (default: all it needs); its kubeconfig."""
    name = f"{ACCOUNT}-{namespace}"
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    kind = "rbac.authorization.k8s.io/v1"
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace}},
        {"apiVersion": kind, "kind": "ClusterRole", "metadata": {"name": name}, "rules": RULES if rules is None else rules},
        {
            "apiVersion": kind,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        },
        {
            "apiVersion": kind,
            "kind": "Role",
            "metadata": {"name": ACCOUNT, "namespace": namespace},
            "rules": LEASE_RULES if own_rules is None else own_rules,
        },
        {
            "apiVersion": kind,
            "kind": "RoleBinding",
            "metadata": {"name": ACCOUNT, "namespace": namespace},
            "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
        },
    ]
    cluster.apply(yaml.safe_dump_all(objects))
    return cluster.kubeconfig_for(ACCOUNT, namespace)


@dataclass
class OperatorProcess:
    """`python -m tiphys_operator`, started on enter and ended on exit."""

    kubeconfig: Path
    namespace: str
    log: Path
    identity: str = "operator-0"
    settings: dict[str, str] = field(default_factory=dict)
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> Self:
        """Start it; it is not waited for."""
        self.port = free_ports(1)[0]
        settings = {
            "NAMESPACE": self.namespace,
            "IDENTITY": self.identity,
            "RESYNC_S": "2",
            "STATUS_HOST": "127.0.0.1",
            "STATUS_PORT": str(self.port),
            "PROBE_ALLOW": "127.0.0.0/8",  # sites of tests stand on loopback
        } | self.settings
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIPHYS_")}
        environment |= {f"TIPHYS_OPERATOR_{name}": value for name, value in settings.items()} | {"KUBECONFIG": str(self.kubeconfig)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "tiphys_operator"], env=environment, stdout=log, stderr=log)
        return self

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, deadline_s: float) -> int:
        """Its exit code."""
        assert self.process is not None
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.identity} did not end within {deadline_s:.0f} s: {self.log.read_text()[-2000:]}")

    def stop(self) -> int:
        """Ask it to end, then make it."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
            try:
                return self.process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)
                pytest.fail(f"{self.identity} ignored SIGTERM for {STOP_DEADLINE_S:.0f} s")
        return self.process.returncode

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of its status listener; (0, reason) if it does not listen."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, series: str) -> float:
        """The value of one series, by its name and labels as exposed; -1 if it is not there."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(f"{series} "):
                return float(line.rsplit(" ", 1)[1])
        return -1.0

    @property
    def leads(self) -> bool:
        """Whether it holds the Lease, as it says."""
        return self.metric("tiphys_operator_leader") == 1.0


def leaders(operators: list[OperatorProcess], seconds: float, poll_s: float = 0.05) -> list[tuple[float, list[str]]]:
    """Who leads, sampled for a while: seconds since the start, and names."""
    start = time.monotonic()
    samples = []
    while (now := time.monotonic() - start) < seconds:
        samples.append((now, [operator.identity for operator in operators if operator.leads]))
        time.sleep(poll_s)
    return samples


StartOperator = Callable[..., OperatorProcess]


@contextmanager
def operators(cluster: Cluster, release: str, logs: Path) -> Iterator[StartOperator]:
    """Make a release's namespace; what is called to start operators in it. All end with the block."""
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": release}})
    started: list[OperatorProcess] = []

    def run(identity: str = "operator-0", rules: list[dict[str, Any]] | None = None, **settings: str) -> OperatorProcess:
        operator = OperatorProcess(grant(cluster, release, rules), release, logs / f"{identity}.log", identity, settings)
        started.append(operator)
        return operator.start()

    yield run
    for operator in started:
        operator.stop()
    for kind in ("clusterrole", "clusterrolebinding"):
        cluster.kubectl("delete", kind, f"tiphys-operator-{release}", "--ignore-not-found")
    cluster.api.delete(f"/api/v1/namespaces/{release}")
