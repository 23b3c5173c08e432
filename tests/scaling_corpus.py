"""ScalingPolicies that must be taken and ones that must not: the same for the pydantic model (unit) and for the API server (e2e)."""

from __future__ import annotations

from typing import Any

LEAST: dict[str, Any] = {
    "targetRef": {"kind": "Deployment", "name": "web"},
    "objective": {"latencyMilliseconds": 400},
    "horizontal": {},
}


def _with(**changes: Any) -> dict[str, Any]:
    return LEAST | changes


def _horizontal(**changes: Any) -> dict[str, Any]:
    return _with(horizontal=changes)


def _up(**rules: Any) -> dict[str, Any]:
    return _horizontal(behavior={"scaleUp": rules})


# name: (spec, what the API server's message must mention)
BAD: dict[str, tuple[Any, str]] = {
    "no spec": (None, "spec"),
    "nothing to scale": ({k: v for k, v in LEAST.items() if k != "horizontal"}, "set horizontal, vertical or both"),
    "no target": ({k: v for k, v in LEAST.items() if k != "targetRef"}, "spec.targetRef"),
    "no objective": ({k: v for k, v in LEAST.items() if k != "objective"}, "spec.objective"),
    "target of another kind": (_with(targetRef={"kind": "DaemonSet", "name": "web"}), "spec.targetRef.kind"),
    "target of another API": (_with(targetRef={"apiVersion": "v1", "kind": "Deployment", "name": "web"}), "spec.targetRef.apiVersion"),
    "target without a name": (_with(targetRef={"kind": "Deployment"}), "spec.targetRef.name"),
    "Off without quotes is false": (_with(mode=False), "spec.mode"),
    "unknown mode": (_with(mode="On"), "spec.mode"),
    "Canary without its share": (_with(mode="Canary"), "canary belongs to mode Canary"),
    "a share without Canary": (_with(mode="Active", canary={"percent": 10}), "canary belongs to mode Canary"),
    "all of a canary": (_with(mode="Canary", canary={"percent": 100}), "spec.canary.percent"),
    "a block that is all wash-out": (
        _with(mode="Canary", canary={"percent": 10, "blockWindows": 4, "washOutWindows": 4}),
        "washOutWindows must be below blockWindows",
    ),
    "latency of 0": (_with(objective={"latencyMilliseconds": 0}), "spec.objective.latencyMilliseconds"),
    "latency as text": (_with(objective={"latencyMilliseconds": "400ms"}), "spec.objective.latencyMilliseconds"),
    "percentile of 100": (_with(objective={"latencyMilliseconds": 1, "percentile": 100}), "spec.objective.percentile"),
    "unknown preset": (_with(objective={"latencyMilliseconds": 1, "metrics": {"preset": "nginx"}}), "spec.objective.metrics.preset"),
    "a query instead of a metric": (
        _with(objective={"latencyMilliseconds": 1, "metrics": {"histogram": "sum(a)"}}),
        "spec.objective.metrics.histogram",
    ),
    "more than most": (_horizontal(minReplicas=3, maxReplicas=2), "minReplicas must not be above maxReplicas"),
    "more than the default most": (_horizontal(minReplicas=11), "minReplicas must not be above maxReplicas"),
    "none at all": (_horizontal(minReplicas=0), "spec.horizontal.minReplicas"),
    "a billion": (_horizontal(maxReplicas=10**9), "spec.horizontal.maxReplicas"),
    "CPU bounds crossed": (_with(vertical={"minCpuMilli": 200, "maxCpuMilli": 100}), "minCpuMilli must not be above maxCpuMilli"),
    "CPU finer than a step": (_with(vertical={"minCpuMilli": 55}), "multiples of 10"),
    "CPU as a quantity": (_with(vertical={"maxCpuMilli": "1"}), "spec.vertical.maxCpuMilli"),
    "window of two hours": (_up(stabilizationWindowSeconds=7200), "stabilizationWindowSeconds"),
    "window as text": (_up(stabilizationWindowSeconds="5"), "stabilizationWindowSeconds"),
    "tolerance above all": (_up(tolerancePercent=101), "tolerancePercent"),
    "rate of nothing": (_up(policies=[{"type": "Percent", "value": 0, "periodSeconds": 15}]), "value"),
    "rate without a period": (_up(policies=[{"type": "Percent", "value": 1}]), "periodSeconds"),
    "rate of another type": (_up(policies=[{"type": "Pods", "value": 1, "periodSeconds": 15}]), "type"),
    "a plus too many": (_with(agent={"kind": "rule++"}), "spec.agent.kind"),
    "agent in capitals": (_with(agent={"kind": "DQN"}), "spec.agent.kind"),
    "CPU time of nothing": (_with(agent={"requestCpuMicroseconds": 0}), "spec.agent.requestCpuMicroseconds"),
    "interval of a second": (_with(intervalSeconds=1), "spec.intervalSeconds"),
}

GOOD: dict[str, dict[str, Any]] = {
    "the least": LEAST,
    "vertical alone": {**{k: v for k, v in LEAST.items() if k != "horizontal"}, "vertical": {}},
    "both": _with(vertical={"container": "main", "minCpuMilli": 100, "maxCpuMilli": 2000}),
    "Off": _with(mode="Off"),
    "Shadow": _with(mode="Shadow"),
    "Canary": _with(mode="Canary", canary={"percent": 50}),
    "Canary with short blocks": _with(mode="Canary", canary={"percent": 1, "blockWindows": 2, "washOutWindows": 0}),
    "nulls are missing": _with(vertical=None, mode=None),
    "rates": _up(policies=[{"type": "Units", "value": 2, "periodSeconds": 30}], selectPolicy="Min", tolerancePercent=0),
    "its own histogram": _with(
        objective={"latencyMilliseconds": 250, "metrics": {"histogram": "a:b_c", "unit": "milliseconds", "matchers": {"job": "x y"}}}
    ),
    "somebody else's agent": _with(agent={"kind": "my-agent", "requestCpuMicroseconds": 1500}),
    "the rule with what it learns": _with(agent={"kind": "rule+"}),
    "unknown fields are left out": _with(colour="red"),
}
