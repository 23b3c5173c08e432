"""Lanes: one scheduler or policy each, with a namespace and a pool of machines of its own, all alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tiphys_cli.cluster.nodes import POOL_LABEL, SimulatedImage, SimulatedNode, fleet
from tiphys_cli.demo.functions import FUNCTIONS, FunctionProfile
from tiphys_models.api.scheduling_policy import API_VERSION, KIND
from tiphys_models.domain.facts import FUNCTION_LABEL
from tiphys_models.policies.registry import PolicyName, is_learned

RUN_LABEL = "tiphys.io/demo-run"
LANE_LABEL = "tiphys.io/demo-lane"
CONTROL = "kube-scheduler"
"""The lane of the plain scheduler."""
DEFAULT_POLICIES = (PolicyName.WARM_FIRST, PolicyName.STATIC_RANK, PolicyName.LEAST_CONNECTIONS)
NODES_PER_LANE = 21


@dataclass(frozen=True, slots=True)
class Lane:
    """Who places the calls of one namespace."""

    name: str
    policy: PolicyName | None
    """None: the plain kube-scheduler."""

    @property
    def namespace(self) -> str:
        """Where its pods live."""
        return f"demo-{self.name}"

    @property
    def pool(self) -> str:
        """Its machines, and the prefix of their names."""
        return self.name

    @property
    def scheduler_name(self) -> str:
        """What its pods put into `spec.schedulerName`."""
        return "default-scheduler" if self.policy is None else "tiphys"


def make_lanes(policies: Sequence[PolicyName] = DEFAULT_POLICIES) -> list[Lane]:
    """The control first, then one lane a policy."""
    learned = [policy for policy in policies if is_learned(policy)]
    if learned:
        raise ValueError(f"{learned[0]} needs a trained model, and the demo has none; choose among the rules: tiphys policies")
    if len(set(policies)) != len(policies) or not policies:
        raise ValueError("name at least one policy, and each only once")
    return [Lane(CONTROL, None), *(Lane(str(policy), policy) for policy in policies)]


def lane_nodes(lane: Lane, count: int = NODES_PER_LANE) -> list[SimulatedNode]:
    """The machines of a lane, bare: the demo plays their kubelets itself. The functions' images lie on all of them, as
    platforms do that pull ahead."""
    images = tuple(SimulatedImage(function.image) for function in FUNCTIONS)
    return fleet(count, pool=lane.pool, images=lambda _: images, bare=True)


def namespace_manifest(lane: Lane) -> dict[str, Any]:
    """The namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": lane.namespace, "labels": {LANE_LABEL: lane.name}}}


def policy_manifest(lane: Lane) -> dict[str, Any]:
    """The SchedulingPolicy that decides every function pod of the namespace."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": lane.name, "namespace": lane.namespace},
        "spec": {
            "selector": {"matchExpressions": [{"key": FUNCTION_LABEL, "operator": "Exists"}]},
            "mode": "Active",
            "policy": str(lane.policy),
        },
    }


def pod_manifest(lane: Lane, name: str, function: FunctionProfile, run: str) -> dict[str, Any]:
    """One call as a pod: what a function platform would create."""
    requests = {"cpu": f"{function.cpu_milli}m", "memory": str(function.memory_bytes)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": lane.namespace,
            "labels": {FUNCTION_LABEL: function.name, RUN_LABEL: run, LANE_LABEL: lane.name},
        },
        "spec": {
            "schedulerName": lane.scheduler_name,
            "nodeSelector": {POOL_LABEL: lane.pool},
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [{"name": "function", "image": function.image, "resources": {"requests": requests}}],
        },
    }
