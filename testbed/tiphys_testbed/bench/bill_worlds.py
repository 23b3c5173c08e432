"""The worlds and lanes of `tiphys bench bill`, as the objects and configurations that make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tiphys_models.placement.registry import PolicyName
from tiphys_testbed.bench.bill_trace import BatchPod, Service
from tiphys_testbed.cluster.nodes import KWOK_LABEL
from tiphys_testbed.cluster.options import SchedulerOptions
from tiphys_testbed.tools.programs import KARPENTER, KARPENTER_MODEL_TIME
from tiphys_testbed.tools.substitutions import MODEL_TIME

NAMESPACE, SCHEDULER = "bill", "tiphys"
TRACE_LABEL, KIND_LABEL = "tiphys.io/bill-pod", "tiphys.io/bill-kind"
RUN_TIME = "tiphys.io/simulated-run-time"
PROTECT = "karpenter.sh/do-not-disrupt"
STOCK_BATCH: Mapping[str, str] = {"BATCH_IDLE_DURATION": "1s", "BATCH_MAX_DURATION": "10s"}
"""Karpenter's own defaults."""


@dataclass(frozen=True, slots=True)
class World:
    """What is different in each; seconds of model time, whole multiples of the factor."""

    protected: bool
    """Whether batch pods carry do-not-disrupt."""
    consolidate_after_s: float
    registration_s: float = 45.0
    factor: int = MODEL_TIME
    """Seconds of model time in one of the wall clock; 1: Karpenter as it is built by everybody, with its own timers."""

    def wall(self, model_s: float) -> str:
        """A time of the model on the wall clock, in the whole seconds that Karpenter takes."""
        return f"{round(model_s / self.factor)}s"

    @property
    def program(self) -> str:
        """The Karpenter that its nodes are made by."""
        return KARPENTER if self.factor == 1 else KARPENTER_MODEL_TIME

    @property
    def karpenter_settings(self) -> Mapping[str, str]:
        """How long Karpenter gathers pods before it opens nodes for them."""
        return STOCK_BATCH if self.factor == 1 else {"BATCH_IDLE_DURATION": "100ms", "BATCH_MAX_DURATION": "1s"}


WORLDS: Mapping[str, World] = {
    "h": World(protected=True, consolidate_after_s=60.0),
    "e": World(protected=False, consolidate_after_s=300.0),
    "slow-births": World(protected=True, consolidate_after_s=60.0, registration_s=180.0),
    "real-time": World(protected=True, consolidate_after_s=60.0, factor=1),
}
REGULAR_WORLDS = tuple(name for name, world in WORLDS.items() if world.factor == MODEL_TIME)
"""What is played without being asked for by name: a run in real time takes three quarters of an hour."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Who places the pods."""

    name: str
    strategy: Literal["stock", "most", "most-only"] = "stock"
    policy: str = ""
    """A placement policy, asked through the extender; empty: none."""
    protect: Literal["as-world", "learned"] = "as-world"
    """`learned`: batch pods are protected for the run time that nine in ten ended pods of their application had. The benchmark's own
    driver writes the annotation."""
    wait_s: float = 0.0
    """How long the benchmark's own driver keeps batch pods that fit nowhere behind the scheduling gate, in model time."""


BAR = "most-allocated"
LONGEST_WAIT_S = 120.0
"""Two births of a node: with its birth after that a pod still meets its deadline."""
LANES: Mapping[str, Lane] = {
    lane.name: lane
    for lane in (
        Lane("kube-default"),
        Lane(BAR, "most"),
        Lane("most-allocated-only", "most-only"),
        Lane("lifetimes", policy=PolicyName.LIFETIMES),
        Lane("consolidation-aware", policy=PolicyName.CONSOLIDATION_AWARE),
        Lane(f"{BAR}+protect", "most", protect="learned"),
        Lane("consolidation-aware+protect", policy=PolicyName.CONSOLIDATION_AWARE, protect="learned"),
        Lane(f"{BAR}+waits", "most", wait_s=LONGEST_WAIT_S),
        Lane("consolidation-aware+waits", policy=PolicyName.CONSOLIDATION_AWARE, wait_s=LONGEST_WAIT_S),
    )
}


def plays(lane: Lane, world: World) -> bool:
    """Whether the lane is one of its own there: where all batch pods are protected for good, nothing is left to be protected."""
    return lane.protect == "as-world" or not world.protected


def node_pool(world: World) -> list[dict[str, Any]]:
    """The class of simulated nodes and the pool that Karpenter opens them in."""
    kind = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    node_class = {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
        "spec": {"nodeRegistrationDelay": world.wall(world.registration_s)},
    }
    wanted = {
        "kubernetes.io/arch": ["amd64"],
        "kubernetes.io/os": ["linux"],
        "karpenter.sh/capacity-type": ["on-demand"],
        "karpenter.kwok.sh/instance-cpu": ["2", "4", "8"],  # without a bound one batch may land on one node of 256 cores
    }
    requirements = [{"key": key, "operator": "In", "values": values} for key, values in wanted.items()]
    spec = {
        "template": {
            "metadata": {"labels": dict(KWOK_LABEL)},
            "spec": {"expireAfter": "Never", "nodeClassRef": kind, "requirements": requirements},
        },
        "limits": {"cpu": "400"},
        "disruption": {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": world.wall(world.consolidate_after_s),
            "budgets": [{"nodes": "100%"}],  # the default of 10 % is one node at a time in a world of ten
        },
    }
    return [node_class, {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": spec}]


def scheduler_config(lane: Lane, kubeconfig: Path, extender_url: str | None) -> str:
    """The lane's KubeSchedulerConfiguration; its back-off, which cannot be divided, is as short as it can be."""
    config = yaml.safe_load(SchedulerOptions(scheduler_name=SCHEDULER, extender_url=extender_url).render(kubeconfig))
    config |= {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
    profile = config["profiles"][0]
    if lane.strategy != "stock":
        resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
        profile["pluginConfig"] = [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated", "resources": resources}}}
        ]
    if lane.strategy == "most-only":
        profile["plugins"] = {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 1}]}}
    return str(yaml.safe_dump(config, sort_keys=False))


def batch_pod(pod: BatchPod, attempt: int, factor: float, annotations: Mapping[str, str]) -> dict[str, Any]:
    """A bare pod, as a workflow engine makes them: whoever evicts it loses its work."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{pod.name}-{attempt}",
            "labels": {"tiphys.io/function": pod.application, KIND_LABEL: "batch", TRACE_LABEL: pod.name},
            "annotations": {RUN_TIME: f"{pod.run_s / factor:.3f}s", **annotations},
        },
        "spec": {"restartPolicy": "Never", **_pod_spec(pod.cpu_milli, pod.memory_mib)},
    }


def deployment(service: Service, replicas: int) -> dict[str, Any]:
    """A service's Deployment."""
    labels = {"tiphys.io/function": service.name, KIND_LABEL: service.name}
    template = {"metadata": {"labels": labels}, "spec": _pod_spec(service.cpu_milli, service.memory_mib)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": service.name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {KIND_LABEL: service.name}}, "template": template},
    }


def _pod_spec(cpu_milli: int, memory_mib: int) -> dict[str, Any]:
    requests = {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"}
    return {
        "schedulerName": SCHEDULER,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "registry.example/b:1", "resources": {"requests": requests}}],
    }


def scheduling_policy(policy: str) -> dict[str, Any]:
    """The object by which the extender obeys the lane's policy."""
    return {
        "apiVersion": "tiphys.io/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "lane", "namespace": NAMESPACE},
        "spec": {"mode": "Active", "policy": policy, "fallback": "most-allocated"},
    }
