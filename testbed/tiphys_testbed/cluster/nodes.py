"""Simulated nodes: machine types with prices, pools over zones, made by the thousand."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tiphys_cli.kube.api import JSON_PATCH, ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_models.base.facts import PRICE_ANNOTATION

POOL_LABEL = "tiphys.io/pool"
KWOK_LABEL = {"type": "kwok"}
GIB = 1024**3
NOT_READY_TAINT = "node.kubernetes.io/not-ready"


@dataclass(frozen=True, slots=True)
class MachineType:
    """What a node is made of and what an hour of it costs."""

    name: str
    cores: int
    memory_bytes: int
    price_usd_per_hour: float


# Burstable machines of one cloud, list prices as used in the MetaNet experiments.
B2S = MachineType("B2s", 2, 4 * GIB, 0.0472)
B4MS = MachineType("B4ms", 4, 16 * GIB, 0.166)
B8MS = MachineType("B8ms", 8, 32 * GIB, 0.333)
MACHINE_TYPES = (B2S, B4MS, B8MS)
ZONES = ("zone-a", "zone-b", "zone-c")
REGION = "simulated"


@dataclass(frozen=True, slots=True)
class SimulatedImage:
    """A container image that lies on a node."""

    name: str
    """The image's name with registry and tag, as a kubelet reports it."""
    size_bytes: int = 100_000_000


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """One node to be made."""

    name: str
    machine: MachineType
    zone: str
    pool: str = "default"
    images: tuple[SimulatedImage, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    max_pods: int = 110
    bare: bool = False
    """Ready for good and managed by nobody: for benchmarks in which kwok and the controllers are paused. Raise
    `LocalOptions.node_monitor_grace_s` where the controller-manager runs: a bare node renews no lease."""


def fleet(
    count: int,
    *,
    pool: str = "default",
    machines: Sequence[MachineType] = MACHINE_TYPES,
    zones: Sequence[str] = ZONES,
    images: Callable[[int], tuple[SimulatedImage, ...]] = lambda _: (),
    bare: bool = False,
    max_pods: int = 110,
) -> list[SimulatedNode]:
    """`count` nodes that alternate through the machine types, and through the zones once per round of types.

    Names are `POOL-0000` and so on; `images` says what lies on the n-th node.
    """
    width = max(4, math.ceil(math.log10(count + 1)))
    return [
        SimulatedNode(
            name=f"{pool}-{index:0{width}d}",
            machine=machines[index % len(machines)],
            zone=zones[index // len(machines) % len(zones)],
            pool=pool,
            images=images(index),
            bare=bare,
            max_pods=max_pods,
        )
        for index in range(count)
    ]


def node_manifest(node: SimulatedNode) -> dict[str, Any]:
    """The Node object to create. A kubelet registers with its status, so ours may too."""
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": node.machine.name,
        "topology.kubernetes.io/zone": node.zone,
        "topology.kubernetes.io/region": REGION,
        POOL_LABEL: node.pool,
        **({} if node.bare else KWOK_LABEL),
        **node.labels,
    }
    resources = {
        "cpu": str(node.machine.cores),
        "memory": str(node.machine.memory_bytes),
        "ephemeral-storage": "100Gi",
        "pods": str(node.max_pods),
    }
    status: dict[str, Any] = {"capacity": resources, "allocatable": resources}
    if node.images:
        status["images"] = [{"names": [image.name], "sizeBytes": image.size_bytes} for image in node.images]
    if node.bare:
        status["conditions"] = [{"type": "Ready", "status": "True", "reason": "Simulated", "message": "a bare simulated node"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": labels,
            "annotations": {PRICE_ANNOTATION: f"{node.machine.price_usd_per_hour:g}"},
        },
        "status": status,
    }


def create_nodes(api: ApiClient, nodes: Iterable[SimulatedNode], threads: int = 8) -> None:
    """Create nodes; those that exist already stay as they are.

    A bare node costs a second request, which lifts admission's taint; an API server started with
    `--disable-admission-plugins=TaintNodesByCondition` does not set it and saves that request.
    """

    def create(node: SimulatedNode) -> None:
        try:
            made = api.create("/api/v1/nodes", node_manifest(node))
        except RequestRefused as error:
            if error.reason != "AlreadyExists":
                raise
            return
        if node.bare:
            _untaint(api, made)

    api.each(create, nodes, threads)


def delete_nodes(api: ApiClient, names: Iterable[str], threads: int = 8) -> None:
    """Delete nodes; those that are gone already do not matter."""

    def delete(name: str) -> None:
        try:
            api.delete(f"/api/v1/nodes/{name}")
        except RequestRefused as error:
            if error.status != 404:
                raise

    api.each(delete, names, threads)


def _untaint(api: ApiClient, node: dict[str, Any]) -> None:
    """Admission taints every new node; the controller that would lift it may be paused."""
    taints = node.get("spec", {}).get("taints") or []
    kept = [taint for taint in taints if taint["key"] != NOT_READY_TAINT]
    if len(kept) == len(taints):
        return
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    # The test guards against the controller-manager, which may lift the taint at the same moment.
    change = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": node["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/spec/taints", "value": kept},
    ]
    try:
        api.patch(path, change, JSON_PATCH)
    except RequestRefused as error:
        if error.status not in (409, 422):
            raise
        _untaint(api, api.get(path))
