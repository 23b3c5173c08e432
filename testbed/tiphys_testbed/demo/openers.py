"""Who can open gates, said by hand: beside a control plane without kubelets no pod's readiness says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OPENERS = ("tiphys-scheduler-0", "tiphys-operator-0")
"""Pods as the chart's admission policy knows them by the beginning of their names: that with the extender, and the operator's."""
SERVICE = "tiphys-openers"
_ADDRESSES = {"IPv4": "10.0.0.{}", "IPv6": "fd00::{}"}


def opener_slice(namespace: str, ready: Mapping[str, bool], name: str = "openers-by-hand", family: str = "IPv4") -> dict[str, Any]:
    """The EndpointSlice of the openers' Service in which these pods are ready, or are not."""
    endpoints = [
        {
            "addresses": [_ADDRESSES[family].format(place)],
            "conditions": {"ready": is_ready},
            "targetRef": {"kind": "Pod", "name": pod, "namespace": namespace},
        }
        for place, (pod, is_ready) in enumerate(ready.items(), start=1)
    ]
    labels = {"kubernetes.io/service-name": SERVICE}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{name}-{family.lower()}", "namespace": namespace, "labels": labels},
        "addressType": family,
        "endpoints": endpoints,
        "ports": [{"name": "status", "port": 8080}],
    }
