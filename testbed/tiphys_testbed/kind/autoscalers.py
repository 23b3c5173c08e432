"""The objects by which a user asks HPA or the vertical pod autoscaler to scale a Deployment."""

from collections.abc import Mapping
from typing import Any, Literal

HPA_PATH = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"
VPA_PATH = "/apis/autoscaling.k8s.io/v1/namespaces/{}/verticalpodautoscalers"
UpdateMode = Literal["Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace"]
"""`InPlaceOrRecreate` evicts what cannot be resized; `InPlace`, alpha, never does."""


def horizontal_pod_autoscaler(
    name: str, deployment: str, *, replicas: tuple[int, int], cpu_percent: int = 80, scale_down_window_s: int = 300
) -> dict[str, Any]:
    """Replicas between two bounds for a mean use of the requested CPU. The default window is HPA's own; shorter runs never scale down."""
    smallest, largest = replicas
    resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": cpu_percent}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": _target(deployment),
            "minReplicas": smallest,
            "maxReplicas": largest,
            "metrics": [{"type": "Resource", "resource": resource}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": scale_down_window_s}},
        },
    }


def vertical_pod_autoscaler(
    name: str, deployment: str, *, cpu: tuple[str, str], container: str = "*", mode: UpdateMode = "InPlaceOrRecreate"
) -> dict[str, Any]:
    """CPU requests and limits between two bounds, moved together; memory and replicas stay as they are."""
    smallest, largest = cpu
    policy = {
        "containerName": container,
        "controlledResources": ["cpu"],
        "controlledValues": "RequestsAndLimits",
        "minAllowed": {"cpu": smallest},
        "maxAllowed": {"cpu": largest},
    }
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "targetRef": _target(deployment),
            "updatePolicy": {"updateMode": mode},
            "resourcePolicy": {"containerPolicies": [policy]},
        },
    }


def recommended_cpu(vpa: Mapping[str, Any]) -> dict[str, str]:
    """Container → the CPU that the recommender wants for it; empty until it has seen the containers run."""
    found = ((vpa.get("status") or {}).get("recommendation") or {}).get("containerRecommendations") or ()
    return {each["containerName"]: each["target"]["cpu"] for each in found if "cpu" in each.get("target", {})}


def _target(deployment: str) -> dict[str, str]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment}
