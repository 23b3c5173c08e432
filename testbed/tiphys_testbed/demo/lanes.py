"""Lanes: one scheduler or policy each, with a namespace and a pool of machines of its own, all alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tiphys_models.api.base import API_VERSION
from tiphys_models.api.scheduling_policy import KIND, Mode
from tiphys_models.base.facts import FUNCTION_LABEL
from tiphys_models.placement.gate import MAY_WAIT
from tiphys_models.placement.registry import PolicyName
from tiphys_models.placement.sim.functions import FUNCTIONS, FunctionModel
from tiphys_testbed.cluster.nodes import GIB, POOL_LABEL, MachineType, SimulatedImage, SimulatedNode, fleet
from tiphys_testbed.demo.functions import cpu_milli, image, memory_bytes

RUN_LABEL = "tiphys.io/demo-run"
LANE_LABEL = "tiphys.io/demo-lane"
CONTROL = "kube-scheduler"
"""The lane of the plain scheduler."""
SHADOW_SUFFIX = "-shadow"
DEFAULT_POLICIES = (PolicyName.ESTIMATOR, PolicyName.WARM_FIRST)
PATIENT = (PolicyName.WARM_FIRST_WAITS, PolicyName.RULE_6, PolicyName.ESTIMATOR, PolicyName.ESTIMATOR_NETWORK)
"""Policies that may hold a pod until an instance is free."""
NODES_PER_LANE = 10
MACHINE = MachineType("F8", 8, 2 * GIB, 0.333)
"""The simulator's node: 8 cores, 2 GiB for functions."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A scheduler or policy and the namespace whose calls it places."""

    name: str
    policy: PolicyName | None
    """None: the plain kube-scheduler."""
    mode: Mode = "Active"
    scheduler: str = ""
    """What its pods put into `spec.schedulerName` where that is neither ours nor the default one."""
    may_wait: bool = False
    """Whether its pods let themselves be held by a scheduling gate."""

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
        if self.scheduler:
            return self.scheduler
        return "default-scheduler" if self.policy is None else "tiphys"


def make_lanes(policies: Sequence[PolicyName] = DEFAULT_POLICIES, shadow: PolicyName | None = None) -> list[Lane]:
    """The control first, then one lane a policy; last one where a policy is only asked what it would have done."""
    if len(set(policies)) != len(policies) or not policies:
        raise ValueError("name at least one policy, and each only once")
    lanes = [Lane(CONTROL, None), *(Lane(str(policy), policy, may_wait=policy in PATIENT) for policy in policies)]
    return lanes if shadow is None else [*lanes, Lane(f"{shadow}{SHADOW_SUFFIX}", shadow, "Shadow")]


def lane_nodes(lane: Lane, count: int = NODES_PER_LANE, machine: MachineType = MACHINE, *, pulled: bool = True) -> list[SimulatedNode]:
    """The machines of a lane, bare: the demo plays their kubelets itself. The functions' images lie on all of them, as platforms do that
    pull ahead; where they are not `pulled`, no node lists any."""
    images = tuple(SimulatedImage(image(function)) for function in FUNCTIONS) if pulled else ()
    return fleet(count, pool=lane.pool, machines=(machine,), images=lambda _: images, bare=True)


def namespace_manifest(lane: Lane) -> dict[str, Any]:
    """The manifest of the lane's namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": lane.namespace, "labels": {LANE_LABEL: lane.name}}}


def policy_manifest(lane: Lane) -> dict[str, Any]:
    """The SchedulingPolicy that decides every function pod of the namespace."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": lane.name, "namespace": lane.namespace},
        "spec": {
            "selector": {"matchExpressions": [{"key": FUNCTION_LABEL, "operator": "Exists"}]},
            "mode": lane.mode,
            "policy": str(lane.policy),
        },
    }


def pod_manifest(lane: Lane, name: str, function: FunctionModel, run: str) -> dict[str, Any]:
    """One call as a pod: what a function platform would create."""
    labels = {FUNCTION_LABEL: function.name, RUN_LABEL: run, LANE_LABEL: lane.name, **({MAY_WAIT: "true"} if lane.may_wait else {})}
    requests = {"cpu": f"{cpu_milli(function)}m", "memory": str(memory_bytes(function))}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": lane.namespace,
            "labels": labels,
        },
        "spec": {
            "schedulerName": lane.scheduler_name,
            "nodeSelector": {POOL_LABEL: lane.pool},
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [{"name": "function", "image": image(function), "resources": {"requests": requests}}],
        },
    }
