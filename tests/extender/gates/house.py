"""A gate keeper with a small world, and an API server that is only asked to take gates off."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator, Callable
from typing import Any

import aiohttp

from tests.builders import policy_object
from tests.extender.harness import Extender, pod_json
from tiphys_extender.gates.keeper import GateKeeper, GateLimits
from tiphys_extender.gates.metrics import ExtenderMetrics
from tiphys_extender.gates.process import EndedPods
from tiphys_extender.gates.shapes import NodeShapes, shaped_nodes
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.client import ApiError
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.gate import GATE, MAY_WAIT

SLOW_START = FunctionProfile(0.5, 5.5, 1.0, 1.0, 2.0)
"""Half a second warm, five and a half cold: worth waiting for."""


def node_json(name: str, *, cpu: str = "8", memory: str = "16Gi", pods: str = "110", **spec: Any) -> dict[str, Any]:
    labels = spec.pop("labels", {})
    status = {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "spec": spec, "status": status}


def gated(uid: str, function: str = "f", **changes: Any) -> dict[str, Any]:
    """A pod of a function with the gate on, as the watch shows it."""
    spec = {"schedulingGates": [{"name": GATE}], **changes.pop("spec", {})}
    pod = pod_json(uid, function=function, spec=spec, **changes)
    pod["metadata"]["labels"][MAY_WAIT] = "true"
    pod["metadata"]["resourceVersion"] = "1"
    return pod


def bound(uid: str, node: str, function: str = "f", namespace: str = "default") -> dict[str, Any]:
    return pod_json(uid, namespace, function, spec={"nodeName": node}, status={"phase": "Running"})


class FakePods:
    """The pods of an API server, as far as a JSON patch that takes off a gate needs them."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        """By path."""
        self.asked: list[tuple[str, str]] = []
        self.faults: list[Exception] = []
        """What the next requests get instead."""
        self.hold = asyncio.Event()
        """While it is not set nobody is answered."""
        self.hold.set()
        self.in_flight = self.most_in_flight = 0

    def put(self, pod: dict[str, Any]) -> dict[str, Any]:
        self.pods[_path(pod)] = copy.deepcopy(pod)
        return pod

    def gates(self, uid: str) -> list[str]:
        pod = next(pod for pod in self.pods.values() if pod["metadata"]["uid"] == uid)
        return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        deadline: aiohttp.ClientTimeout | None = None,
    ) -> Any:
        self.asked.append((method, path))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            async with asyncio.timeout(None if deadline is None else deadline.total):  # wait_for of 3.11 may swallow a cancellation
                await self.hold.wait()
        except TimeoutError as error:
            raise Unavailable("too late") from error
        finally:
            self.in_flight -= 1
        if self.faults:
            raise self.faults.pop(0)
        if path not in self.pods:
            raise ApiError(404, "NotFound", "no such pod")
        if method == "PATCH":
            self._patch(self.pods[path], body)
        return copy.deepcopy(self.pods[path])

    def _patch(self, pod: dict[str, Any], operations: list[dict[str, Any]]) -> None:
        uid, name, remove = operations
        index = int(remove["path"].rpartition("/")[2])
        gates = pod["spec"].get("schedulingGates") or []
        if pod["metadata"]["uid"] != uid["value"] or index >= len(gates) or gates[index]["name"] != name["value"]:
            raise ApiError(422, "Invalid", "the test failed")
        del gates[index]


def _path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


class House(Extender):
    """Four nodes and a policy, and on n2 a call of function f that has run for five seconds and is about to end."""

    def __init__(
        self, policy: str = "estimator", mode: str = "Active", nodes: int = 4, *, busy: bool = True, bound_s: float = 10.0, **spec: Any
    ) -> None:
        super().__init__(nodes=0, policies=[policy_object("p", mode=mode, policy=policy, **spec)], clock=ManualClock())
        assert isinstance(self.clock, ManualClock)
        self.time: ManualClock = self.clock
        self.metrics = ExtenderMetrics()
        self.answerer._metrics = self.metrics
        self.shapes = NodeShapes(self.state.nodes)
        self.nodes = shaped_nodes(self.world, self.shapes)
        for index in range(nodes):
            self.nodes.put(node_json(f"n{index}"))
        self.server = FakePods()
        self.doubt = ""
        self.keeper = GateKeeper(
            self.world,
            self.shapes,
            self.server,
            self.metrics.of_gates,
            self.clock,
            self.clock,
            GateLimits(bound_s, 10.0),
            lambda: self.doubt,
        )
        self.answerer.gates = self.keeper
        self.pods = EndedPods(self.world, self.decisions, self.clock, self.keeper)
        self.state.put_profiles({"default/f": SLOW_START, "default/g": SLOW_START})
        if busy:
            self.pods.put(bound("busy", "n2"))
            self.time.advance(5.0)

    def comes(self, uid: str, function: str = "f", **changes: Any) -> None:
        """A pod with the gate is created and seen."""
        self.keeper.put(self.server.put(gated(uid, function, **changes)))

    def ends(self, uid: str = "busy", node: str = "n2", function: str = "f", phase: str = "Succeeded") -> None:
        """A pod that ran there is over."""
        self.pods.drop(bound(uid, node, function) | {"status": {"phase": phase}})

    def opened(self, **labels: str) -> float:
        """How many gates were taken off for a reason."""
        return self.counted("gates_opened_total", **labels)

    async def until(self, what: Callable[[], bool], within_s: float = 20.0) -> None:
        async with asyncio.timeout(within_s):
            while not what():  # noqa: ASYNC110 - what other tasks have done has no event of its own
                await asyncio.sleep(0.005)

    async def looked(self) -> None:
        """Every pod here has been looked at once more."""
        before = self.counted("gate_looks_total")
        waiting = sum(1 for _ in self.keeper._room)
        self.time.advance(0.2)
        await self.until(lambda: self.counted("gate_looks_total") >= before + waiting)


@contextlib.asynccontextmanager
async def at_work(house: House) -> AsyncGenerator[House, None]:
    """The keeper's loop and its patches run."""
    running = asyncio.create_task(house.keeper.run())
    try:
        yield house
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
