"""Every input of a decision with its real value, idle and under load, as the extender had it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError, RequestRefused
from tiphys_cli.support.extenders import ask_extenders
from tiphys_models.placement.schema import FEATURES
from tiphys_testbed.kind import monitoring
from tiphys_testbed.kind.workloads import FUNCTIONS, call_pod, repeated

NAMESPACE = "tiphys-features"
POLICY = {"policy": "faasrank", "model": "faasrank-paper", "mode": "Active"}
"""The paper's inputs: what every node reports, without a function runtime."""
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_DEADLINE_S = 120.0
_WINDOW_S = 30
"""A kubelet looks at its containers every ten to fifteen seconds."""
Values = Mapping[str, Mapping[str, float | None]]
"""Node → feature → value (of readings the other way round), None where nobody has measured it."""


_OWN = (
    ("node: CPU used", "cores", "kubelet", f"sum by (node) (rate(node_cpu_usage_seconds_total[{_WINDOW_S}s]))"),
    ("node: CPU withheld", "s/s", "cadvisor", f'sum by (node) (rate(container_cpu_cfs_throttled_seconds_total{{id="/"}}[{_WINDOW_S}s]))'),
    ("node: working set", "bytes", "kubelet", "sum by (node) (node_memory_working_set_bytes)"),
    ("node: pods", "pods", "kube-state-metrics", "count by (node) (kube_pod_info)"),
)
"""Name, unit, who measures it, query: unlike the host's counters, which all nodes share, these are each node's own."""


@dataclass(frozen=True, slots=True)
class FeatureRow:
    """One reading on one node after the other."""

    name: str
    unit: str
    source: str
    idle: tuple[float | None, ...]
    loaded: tuple[float | None, ...]

    @property
    def remark(self) -> str:
        """What its values say about this kind of cluster."""
        values = [*self.idle, *self.loaded]
        if all(value is None for value in values):
            return "missing: nobody measures it here"
        if not any(values):
            return "zero, idle and loaded"
        return ""


def measure(api: ApiClient, kubeconfig: Path, image: str, settle_s: float) -> tuple[list[str], list[FeatureRow]]:
    """Nodes, and a row for each input and reading: first with nothing running, then with every function busy on every worker."""
    _prepare(api)
    try:
        time.sleep(settle_s)
        idle, idle_readings = _probe(api, kubeconfig, image, "idle"), _readings(api)
        for node in idle:
            for function in FUNCTIONS:
                code = repeated(function, 4 * settle_s)
                api.create(_PODS, call_pod(f"{function.name}-{node}", function, image, scheduler="default-scheduler", node=node, code=code))
        _wait(api, len(idle) * len(FUNCTIONS) + 1)
        time.sleep(settle_s)
        loaded, loaded_readings = _probe(api, kubeconfig, image, "loaded"), _readings(api)
    finally:
        api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    nodes = sorted(idle)
    own = [
        FeatureRow(name, unit, source, *(tuple(values[name].get(node) for node in nodes) for values in (idle_readings, loaded_readings)))
        for name, unit, source, _ in _OWN
    ]
    return nodes, rows(nodes, idle, loaded) + own


def rows(nodes: Sequence[str], idle: Values, loaded: Values) -> list[FeatureRow]:
    """One row for each feature, in the order of the schema."""
    return [
        FeatureRow(f.name, f.unit, f.source, tuple(idle[n].get(f.name) for n in nodes), tuple(loaded[n].get(f.name) for n in nodes))
        for f in FEATURES
    ]


def _readings(api: ApiClient) -> Values:
    """Reading → node → value."""
    found: dict[str, dict[str, float | None]] = {}
    for name, _, _, query in _OWN:
        answer = api.get(f"{monitoring.PROXY}/api/v1/query", query=query)
        found[name] = {series["metric"]["node"]: float(series["value"][1]) for series in answer["data"]["result"]}
    return found


def _prepare(api: ApiClient) -> None:
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    body = {"apiVersion": "tiphys.io/v1alpha1", "kind": "SchedulingPolicy", "metadata": {"name": "all"}, "spec": POLICY}
    api.create(f"/apis/tiphys.io/v1alpha1/namespaces/{NAMESPACE}/schedulingpolicies", body)


def _probe(api: ApiClient, kubeconfig: Path, image: str, name: str) -> Values:
    """Let Tiphys decide a pod, and ask it what it saw."""
    _when_allowed(api, call_pod(name, FUNCTIONS[0], image, code="import time; time.sleep(3600)"))
    end = time.monotonic() + _DEADLINE_S
    while time.monotonic() < end:
        pod = api.get(f"{_PODS}/{name}")
        if pod["spec"].get("nodeName"):
            record, _ = ask_extenders(api, kubeconfig, "", "", NAMESPACE, name, pod)
            if features := record.get("features"):
                return dict(features)
            raise ClusterError(f"the decision on {name} has no features: {record.get('outcome')} {record.get('reason')}")
        time.sleep(0.5)
    raise ClusterError(f"pod {name} was not placed within {_DEADLINE_S:.0f} s")


def _when_allowed(api: ApiClient, pod: dict[str, Any]) -> None:
    """A new namespace has its ServiceAccount a moment later."""
    end = time.monotonic() + _DEADLINE_S
    while True:
        try:
            api.create(_PODS, pod)
        except RequestRefused as error:
            if error.status != 403 or time.monotonic() > end:
                raise
            time.sleep(0.2)
        else:
            return


def _wait(api: ApiClient, count: int) -> None:
    end = time.monotonic() + _DEADLINE_S
    while sum(pod["status"].get("phase") == "Running" for pod in api.items(_PODS)) < count:
        if time.monotonic() > end:
            raise ClusterError(f"the load did not run within {_DEADLINE_S:.0f} s")
        time.sleep(0.5)
