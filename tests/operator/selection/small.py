"""A live cluster by hand: nodes of the three types, pods that come, run and end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.builders import policy_object
from tiphys_models.api.routing import Route, Router, route_of
from tiphys_models.api.selection import SelectSpec
from tiphys_operator.cluster.live import LiveNode, LivePod
from tiphys_operator.selection.chooser import Chooser
from tiphys_operator.selection.interval import Result, View, run_interval
from tiphys_operator.selection.memory import Memory
from tiphys_operator.selection.prices import PriceTable

START_S = 1_800_000_000.0
SIZES = {"B2s": (2.0, 4096.0), "B4ms": (4.0, 16384.0), "B8ms": (8.0, 32768.0)}
ONLY_COST = {"cost": 1, "energy": 0, "response": 0, "sla": 0}
ONLY_ENERGY = {"cost": 0, "energy": 1, "response": 0, "sla": 0}


def node(name: str, kind: str = "B2s", *, usable: bool = True, **labels: str) -> LiveNode:
    return LiveNode(name, kind, *SIZES.get(kind, (4.0, 8192.0)), labels, usable)


def pod(uid: str, function: str = "f", **changes: Any) -> LivePod:
    facts: dict[str, Any] = {
        "namespace": "default", "labels": {}, "node": "", "scheduler_name": "tiphys", "cores": 0.5, "ram_mib": 256.0, "node_selector": (),
        "of_machine": False, "created_s": START_S, "scheduled_s": None, "finished_s": None,
    }  # fmt: skip
    return LivePod(uid=uid, function=f"default/{function}", **(facts | changes))


def policy(policy_mode: str = "Active", **select: Any) -> tuple[Route, SelectSpec]:
    obj = policy_object(mode=policy_mode, select={"by": "preview", **select})
    obj["metadata"] |= {"generation": 3, "uid": "policy-uid"}
    route = route_of(obj)
    assert route.spec.select is not None
    return route, route.spec.select


class Live:
    """One policy over a cluster that a test changes between intervals."""

    def __init__(self, *nodes: LiveNode, policy_mode: str = "Active", **select: Any) -> None:
        self.nodes = {n.name: n for n in nodes or [node(f"b2s-{i}") for i in range(4)] + [node("b8ms-0", "B8ms")]}
        self.pods: dict[str, LivePod] = {}
        self.route, self.spec = policy(policy_mode, **select)
        self.memory = Memory()
        self.chooser = Chooser(self.spec)
        self.now_s = START_S
        self.busy_cores: dict[str, float] = {}
        self.prices = PriceTable()
        self.others: list[Route] = []

    def create(self, count: int, prefix: str = "p", **changes: Any) -> None:
        for index in range(count):
            uid = f"{prefix}-{index}"
            self.pods[uid] = pod(uid, created_s=self.now_s, **changes)

    def bind(self, host: str, prefix: str = "") -> None:
        for uid, one in self.pods.items():
            if not one.node and uid.startswith(prefix):
                self.pods[uid] = replace(one, node=host, scheduled_s=self.now_s)

    def end(self, prefix: str = "") -> None:
        for uid, one in self.pods.items():
            if one.node and one.finished_s is None and uid.startswith(prefix):
                self.pods[uid] = replace(one, finished_s=self.now_s)

    def interval(self, after_s: float = 10.0) -> Result:
        self.now_s += after_s
        kinds = self.prices.host_types(self.nodes.values())
        view = View(self.nodes, self.pods, kinds, Router([self.route, *self.others]), self.busy_cores)
        return run_interval(self.memory, self.route, self.spec, "tiphys", self.chooser, view, self.now_s)
