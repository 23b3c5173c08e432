"""What the full plane asks of Tiphys: a scaled service, a namespace whose policy selects, sites and variants for streams."""

from __future__ import annotations

from typing import Any

from tiphys_testbed.plane.service import deployment, policy

RELEASE_NAMESPACE = "tiphys-system"
SHOP, WEB = "shop", "web"
CALLS, SELECT = "calls", "select"
ACCESS_SITE, STREAMS = "edge", "streams"
POOL = "plane"
WINDOW_S = 5
INTERVAL_S = 5
SITE_ADDRESSES = {"edge": "127.0.0.2", "cloud": "127.0.0.3"}
"""Loopback has as many addresses as there are sites; a site's way and service times are its server's."""
WAYS_MS = {"edge": 2.0, "cloud": 20.0}
SERVICE_MS = {"edge": 20.0, "cloud": 10.0}
REPLICAS = {"edge": 2, "cloud": 8}


def tenants() -> list[dict[str, Any]]:
    """The tenants' objects: a Deployment that an Active ScalingPolicy scales, and a policy that selects every few seconds."""
    select = {
        "mode": "Active",
        "select": {
            "by": "preview",
            "among": ["cost-lean", "energy-lean", "one-per-host", "least-connections"],
            "intervalSeconds": INTERVAL_S,
            "maxSwitchesPerHour": 60,
            "weights": {"cost": 2, "energy": 1, "response": 1, "sla": 2},
        },
        "fallback": "least-connections",
    }
    web = deployment(WEB, 1, POOL)
    scaling = policy(WEB, WEB, "Active", intervalSeconds=WINDOW_S)
    return [
        web | {"metadata": {"name": WEB, "namespace": SHOP}},
        scaling | {"metadata": {"name": WEB, "namespace": SHOP}},
        _own("SchedulingPolicy", SELECT, CALLS, select),
    ]


def streams(site_urls: dict[str, str]) -> list[dict[str, Any]]:
    """Two sites, a variant at each, and the policy that binds streams which enter at the first."""
    objects = []
    for site, url in site_urls.items():
        probe = {"url": f"{url}/healthz", "intervalSeconds": 2, "timeoutSeconds": 1}
        delays = [{"from": ACCESS_SITE, "meanMs": WAYS_MS[site], "sigmaMs": 0.5}]
        layer = "antenna" if site == ACCESS_SITE else "cloud"
        spec = {"layer": layer, "access": site == ACCESS_SITE, "probe": probe, "delays": delays}
        objects.append(_own("InferenceSite", site, RELEASE_NAMESPACE, spec))
        variant = {"task": "detect", "model": "yolo", "site": site, "accuracy": 40, "delayMs": SERVICE_MS[site], "profiledKb": 40}
        capacity_qps = REPLICAS[site] * 1000 / SERVICE_MS[site] / 2
        objects.append(
            _own("ModelVariant", f"at-{site}", RELEASE_NAMESPACE, variant | {"capacityQps": capacity_qps, "endpoint": {"url": url}})
        )
    policy_spec = {"accessSite": ACCESS_SITE, "mode": "Active", "policy": "relative-load", "leaseSeconds": 10}
    objects.append(_own("StreamPolicy", STREAMS, RELEASE_NAMESPACE, policy_spec))
    return objects


def pulse_pod(name: str) -> dict[str, Any]:
    """A pod that our scheduler places under the policy that selects."""
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    return {
        "metadata": {"name": name, "labels": {"tiphys.io/function": "pulse"}},
        "spec": {
            "schedulerName": "tiphys",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.example/pulse:1", "resources": resources}],
        },
    }


def _own(kind: str, name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "tiphys.io/v1alpha1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
