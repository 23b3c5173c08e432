"""Custom resources of binding that must be taken and ones that must not: the same for the pydantic models (unit) and for the API server (e2e)."""

from __future__ import annotations

from typing import Any

SITE: dict[str, Any] = {"layer": "antenna"}
VARIANT: dict[str, Any] = {
    "task": "detect",
    "model": "yolo",
    "site": "a1",
    "accuracy": 47.1,
    "delayMs": 30,
    "capacityQps": 33,
    "profiledKb": 40,
    "endpoint": {"url": "http://127.0.0.2:8000"},
}
POLICY: dict[str, Any] = {"accessSite": "a1"}


def _probe(**probe: Any) -> dict[str, Any]:
    return SITE | {"probe": probe}


def _delays(*delays: dict[str, Any]) -> dict[str, Any]:
    return SITE | {"delays": list(delays)}


def _endpoint(**endpoint: Any) -> dict[str, Any]:
    return VARIANT | {"endpoint": endpoint}


# kind: {name: (spec, what the API server's message must mention)}
BAD: dict[str, dict[str, tuple[Any, str]]] = {
    "InferenceSite": {
        "no spec": (None, "spec"),
        "no layer": ({}, "spec.layer"),
        "unknown layer": ({"layer": "edge"}, "spec.layer"),
        "access as text": (SITE | {"access": "yes"}, "spec.access"),
        "probe of nothing": (_probe(), "url, or to host and port"),
        "probe of url and host": (_probe(url="http://a", host="a", port=1), "url, or to host and port"),
        "probe of a host without a port": (_probe(host="a"), "url, or to host and port"),
        "probe of port 0": (_probe(host="a", port=0), "spec.probe.port"),
        "probe of a file": (_probe(url="file:///etc/passwd"), "spec.probe.url"),
        "probe with a password": (_probe(url="http://me:word@host/"), "spec.probe.url"),
        "probes that overtake each other": (_probe(url="http://a", timeoutSeconds=3), "timeoutSeconds must not be above intervalSeconds"),
        "probes without a pause": (_probe(url="http://a", intervalSeconds=0), "spec.probe.intervalSeconds"),
        "delay from nowhere": (_delays({"meanMs": 1}), "from"),
        "negative delay": (_delays({"from": "a1", "meanMs": -1}), "meanMs"),
        "delay as text": (_delays({"from": "a1", "meanMs": "1"}), "meanMs"),
        "two delays from one site": (_delays({"from": "a1", "meanMs": 1}, {"from": "a1", "meanMs": 2}), "spec.delays"),
    },
    "ModelVariant": {
        "no spec": (None, "spec"),
        "no task": ({k: v for k, v in VARIANT.items() if k != "task"}, "spec.task"),
        "task with a blank": (VARIANT | {"task": "find cars"}, "spec.task"),
        "accuracy above 100": (VARIANT | {"accuracy": 101}, "spec.accuracy"),
        "accuracy as text": (VARIANT | {"accuracy": "47"}, "spec.accuracy"),
        "no capacity": (VARIANT | {"capacityQps": 0}, "capacityQps"),
        "queries of no size": (VARIANT | {"profiledKb": 0}, "profiledKb"),
        "negative delay": (VARIANT | {"delayMs": -1}, "spec.delayMs"),
        "hardware in capitals": (VARIANT | {"hardware": "GPU"}, "spec.hardware"),
        "no endpoint": ({k: v for k, v in VARIANT.items() if k != "endpoint"}, "spec.endpoint"),
        "endpoint of nothing": (_endpoint(), "a url or a service"),
        "endpoint twice": (_endpoint(url="http://a", service={"name": "a", "port": 1}), "a url or a service"),
        "service without a port": (_endpoint(service={"name": "a"}), "spec.endpoint.service.port"),
        "service of another scheme": (_endpoint(service={"name": "a", "port": 1, "scheme": "grpc"}), "spec.endpoint.service.scheme"),
    },
    "StreamPolicy": {
        "no spec": (None, "spec"),
        "no access site": ({}, "spec.accessSite"),
        "Off without quotes is false": (POLICY | {"mode": False}, "spec.mode"),
        "policy that no name can be": (POLICY | {"policy": "Nearest!"}, "spec.policy"),
        "policy name too long": (POLICY | {"policy": "x" * 64}, "spec.policy"),
        "unknown fallback": (POLICY | {"fallback": "nearest"}, "spec.fallback"),
        "learned fallback": (POLICY | {"policy": "aset", "fallback": "score"}, "spec.fallback"),
        "model of a static policy": (POLICY | {"policy": "closest", "model": "mine"}, "model belongs to a learned policy"),
        "model of the default policy": (POLICY | {"model": "mine"}, "model belongs to a learned policy"),
        "canary without a share": (POLICY | {"mode": "Canary"}, "canary.percent belongs to mode Canary"),
        "share without a canary": (POLICY | {"mode": "Active", "canary": {"percent": 5}}, "canary.percent belongs to mode Canary"),
        "share above all": (POLICY | {"mode": "Canary", "canary": {"percent": 101}}, "spec.canary.percent"),
        "share in pieces": (POLICY | {"mode": "Canary", "canary": {"percent": 2.5}}, "spec.canary.percent"),
        "ceiling of nothing": (POLICY | {"ceiling": 0, "recoveryCeiling": 0}, "ceiling"),
        "no ceiling while recovering": (POLICY | {"recoveryCeiling": 0}, "recoveryCeiling"),
        "almost no ceiling": (POLICY | {"ceiling": 0.05, "recoveryCeiling": 0.05}, "ceiling"),
        "ceiling above all": (POLICY | {"ceiling": 1.1}, "spec.ceiling"),
        "recovery less careful": (POLICY | {"ceiling": 0.5}, "recoveryCeiling must not be above ceiling"),
        "lease of a minute": (POLICY | {"leaseSeconds": 60}, "spec.leaseSeconds"),
        "lease too short to outlast a binder": (POLICY | {"leaseSeconds": 7}, "leaseSeconds must be at least 8"),
        "lease of nothing": (POLICY | {"leaseSeconds": 0}, "leaseSeconds"),
        "lease of a fraction": (POLICY | {"leaseSeconds": 2.5}, "spec.leaseSeconds"),
        "no window": (POLICY | {"windowSeconds": 0}, "spec.windowSeconds"),
    },
}

GOOD: dict[str, dict[str, dict[str, Any]]] = {
    "InferenceSite": {
        "the least": SITE,
        "url": _probe(url="https://a1.example:8443/healthz", intervalSeconds=5, timeoutSeconds=5),
        "TCP": _probe(host="10.0.0.7", port=443),
        "IPv6": _probe(host="fd00::7", port=443),
        "access": SITE | {"access": True, "delays": [{"from": "a1", "meanMs": 1, "sigmaMs": 0.2}, {"from": "a2", "meanMs": 4}]},
        "nulls are missing": SITE | {"probe": None, "access": None},
        "unknown fields are left out": SITE | {"colour": "red"},
    },
    "ModelVariant": {
        "the least": VARIANT,
        "service": _endpoint(service={"name": "yolo", "port": 8000}),
        "service over TLS": _endpoint(service={"name": "yolo", "port": 8443, "scheme": "https"}),
        "GPU with a price": VARIANT | {"hardware": "gpu", "cost": 0.52},
        "whole numbers": VARIANT | {"accuracy": 47, "delayMs": 0},
    },
    "StreamPolicy": {
        "the least": POLICY,
        "Active": POLICY | {"mode": "Active", "policy": "least-impedance", "fallback": "closest"},
        "Shadow": POLICY | {"mode": "Shadow", "policy": "aset"},
        "Canary": POLICY | {"mode": "Canary", "policy": "score", "canary": {"percent": 10}},
        "agent": POLICY | {"policy": "aset", "model": "aset-ours", "windowSeconds": 10},
        "careful": POLICY | {"ceiling": 0.6, "recoveryCeiling": 0.5, "leaseSeconds": 8},
        "nulls are missing": POLICY | {"model": None, "mode": None},
    },
}

CASES = [(kind, name) for kind, cases in BAD.items() for name in cases]
GOOD_CASES = [(kind, name) for kind, cases in GOOD.items() for name in cases]
