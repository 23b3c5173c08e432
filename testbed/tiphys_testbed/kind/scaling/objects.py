"""Objects of a lane: every service of a workload as a Deployment behind a node port, and whoever scales it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from tiphys_testbed.kind.autoscalers import HPA_PATH, VPA_PATH, horizontal_pod_autoscaler, vertical_pod_autoscaler
from tiphys_testbed.kind.monitoring import SCRAPE_PORT
from tiphys_testbed.kind.scaling.plan import OBJECTIVE, ComparisonPlan, Start

NAME = "fibonacci"
PORT = 8080
FIB_N = 21
"""Small requests: of large ones a window of 5 s holds so few that their number alone says little about the load."""
PATH = f"/?n={FIB_N}"
POLICIES = "/apis/tiphys.io/v1alpha1/namespaces/{}/scalingpolicies"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
_CODE_PATH = "/workloads"
_SCRAPE_AND_DRAIN_S = 3
_USUAL_WINDOW_S = 15
_USUAL_DOWN_S = {"pods": 300, "cpu": 30}
"""Stabilisation of windows of 15 s; shorter windows shorten it, for HPA too."""


@dataclass(frozen=True, slots=True)
class ScaledService:
    """One service, scaled by itself."""

    name: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class App:
    """What is played to."""

    name: str
    parts: tuple[ScaledService, ...]
    """The first is asked."""
    path: str


FIBONACCI = App(NAME, (ScaledService(NAME),), PATH)
HOTEL = App(
    "hotel-app",
    # the front end only waits for the other two: one request at a time would make it the bottleneck, whatever CPU it has
    (ScaledService("front", ("--threads", "16")), ScaledService("geo"), ScaledService("profile")),
    "/?lat=37.78&lon=-122.42",
)
APPS: Mapping[str, App] = {app.name: app for app in (FIBONACCI, HOTEL)}


def service(image: str, start: Start, part: ScaledService = FIBONACCI.parts[0]) -> list[dict[str, Any]]:
    """A Deployment of one of our services with its code, and a node port that leads to its pods."""
    name = part.name
    code = f"{name}-code"
    resources = {"cpu": f"{start.cpu_m}m", "memory": "64Mi"}
    container = {
        "name": "main",
        "image": image,
        "command": ["python", "-m", "tiphys_testbed.workloads", name, *part.arguments, "--port", str(PORT)],
        "env": [{"name": "PYTHONPATH", "value": _CODE_PATH}],
        "volumeMounts": [{"name": "code", "mountPath": _CODE_PATH, "readOnly": True}],
        "ports": [{"containerPort": PORT}],
        "resources": {"requests": resources, "limits": resources},
        # Patient: a pod that is behind with its work is slow, not broken.
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": PORT}, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 6},
        # Other nodes go on sending for a moment after a pod was told to end.
        "lifecycle": {"preStop": {"sleep": {"seconds": _SCRAPE_AND_DRAIN_S}}},
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "allowPrivilegeEscalation": False},
    }
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels, "annotations": {SCRAPE_PORT: str(PORT)}},
        "spec": {"terminationGracePeriodSeconds": 10, "containers": [container], "volumes": [_volume(code)]},
    }
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": code}, "data": _sources()},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"replicas": start.pods, "selector": {"matchLabels": labels}, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"type": "NodePort", "selector": labels, "ports": [{"port": PORT}]},
        },
    ]


def _sources() -> dict[str, str]:
    """Text of the services' modules by file name: images of Tiphys hold no workload, and these need nothing but Python."""
    package = files("tiphys_testbed.workloads")
    return {item.name: item.read_text(encoding="utf-8") for item in package.iterdir() if item.name.endswith(".py")}


def _volume(code: str) -> dict[str, Any]:
    """The modules as the package that they are; a package without `__init__.py` is a namespace, which does for the parent."""
    items = [{"key": name, "path": f"tiphys_testbed/workloads/{name}"} for name in sorted(_sources())]
    return {"name": "code", "configMap": {"name": code, "items": items}}


def scaler(lane: str, namespace: str, plan: ComparisonPlan, agent: str, name: str = NAME) -> tuple[str, dict[str, Any]] | None:
    """The collection and the object of the lane's autoscaler; None for a lane without one."""
    sizes = plan.sizes
    if lane == "tiphys":
        return POLICIES.format(namespace), scaling_policy(plan, agent, name)
    if lane == "hpa":
        hpa = horizontal_pod_autoscaler(name, name, replicas=(1, sizes.hpa_most_pods), scale_down_window_s=_shortened(plan, "pods"))
        return HPA_PATH.format(namespace), hpa
    if lane == "vpa":
        return VPA_PATH.format(namespace), vertical_pod_autoscaler(name, name, cpu=(f"{sizes.least_m}m", f"{sizes.most_m}m"))
    return None


def scaling_policy(plan: ComparisonPlan, agent: str, name: str = NAME) -> dict[str, Any]:
    """A ScalingPolicy in mode Active for both dimensions. The CPU of a request is not given: it is measured."""
    sizes = plan.sizes

    def down(dimension: str) -> dict[str, Any]:
        return {"behavior": {"scaleDown": {"stabilizationWindowSeconds": _shortened(plan, dimension)}}}

    return {
        "apiVersion": "tiphys.io/v1alpha1",
        "kind": "ScalingPolicy",
        "metadata": {"name": name},
        "spec": {
            "mode": "Active",
            "targetRef": {"kind": "Deployment", "name": name},
            "objective": {
                "latencyMilliseconds": round(1000 * OBJECTIVE.target_s),
                "percentile": round(100 * OBJECTIVE.percentile),
                "attainmentPercent": round(100 * OBJECTIVE.attainment),
                "metrics": {"inFlight": "http_requests_in_flight"},
            },
            "horizontal": {"minReplicas": 1, "maxReplicas": sizes.most_pods, **down("pods")},
            "vertical": {"minCpuMilli": sizes.least_m, "maxCpuMilli": sizes.most_m, **down("cpu")},
            "agent": {"kind": agent},
            "intervalSeconds": plan.window_s,
        },
    }


def _shortened(plan: ComparisonPlan, dimension: str) -> int:
    return round(_USUAL_DOWN_S[dimension] * plan.window_s / _USUAL_WINDOW_S)
