"""What a billed run sees of its cluster: one watch on NodeClaims and one on pods, each event stamped when it comes.

Timestamps of objects have a grain of a second, which is fifteen of model time: so the watcher's own clock counts.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError
from tiphys_models.base.quantity import cpu_milli
from tiphys_testbed.bench.bill_books import Books, ClaimLife, PodLife
from tiphys_testbed.bench.bill_gate import Room
from tiphys_testbed.bench.bill_worlds import KIND_LABEL, NAMESPACE, TRACE_LABEL

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_PRICE, _CORES = "eks-node-viewer/instance-price", "karpenter.kwok.sh/instance-cpu"
NODES = "/api/v1/nodes"
_WATCH_S = 3600.0
_Sink = Callable[[str, dict[str, Any], float], None]


class Watcher:
    """Books in seconds of `time.monotonic`, kept by two threads."""

    def __init__(self, api: ApiClient, lost: Callable[[PodLife], None], room: Room | None = None) -> None:
        """`lost` is told of batch pods that have gone without success; `room` of nodes and pods, where somebody waits for it."""
        self.books = Books()
        self.lock = threading.Lock()
        self.troubles: list[str] = []
        self._api, self._lost, self._room, self._closing = api, lost, room, False
        sinks: list[tuple[str, _Sink]] = [(CLAIMS, self.see_claim), (PODS, self.see_pod)]
        if room is not None:
            sinks.append((NODES, lambda kind, node, _: room.see_node(kind, node)))
        for path, see in sinks:
            items, version = api.snapshot(path)
            if items:
                raise ClusterError(f"{path} is not empty: a bill needs a fresh cluster")
            threading.Thread(target=self._follow, args=(path, version, see), daemon=True).start()

    def close(self) -> None:
        """Nothing that is seen from now on counts."""
        with self.lock:
            self._closing = True

    def _follow(self, path: str, version: str, see: _Sink) -> None:
        trouble = "its watch ended"
        try:
            for event in self._api.watch(path, version, _WATCH_S):
                now_s = time.monotonic()
                with self.lock:
                    if self._closing:
                        return
                    see(event["type"], event["object"], now_s)
        except ClusterError as error:
            trouble = str(error)
        with self.lock:
            if not self._closing:
                self.troubles.append(f"{path}: {trouble}")

    def see_claim(self, kind: str, claim: dict[str, Any], now_s: float) -> None:
        """An event of a NodeClaim: its life is from the first to the last."""
        name = claim["metadata"]["name"]
        life = self.books.claims.setdefault(name, ClaimLife(name, now_s))
        labels = claim["metadata"].get("labels") or {}
        if price := labels.get(_PRICE):
            life.usd_per_hour = float(price)
        if cores := labels.get(_CORES):
            life.cores = float(cores)
        if kind == "DELETED":
            life.end_s = now_s

    def see_pod(self, kind: str, pod: dict[str, Any], now_s: float) -> None:
        """An event of a pod: first times of being bound, ready and gone, and why it went."""
        if self._room is not None:
            self._room.see_pod(kind, pod)
        metadata, status = pod["metadata"], pod.get("status") or {}
        life = self.books.pods.get(metadata["name"])
        if life is None:
            labels = metadata.get("labels") or {}
            milli = cpu_milli(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
            life = PodLife(metadata["name"], labels[KIND_LABEL], milli, now_s, trace_name=labels.get(TRACE_LABEL, ""))
            self.books.pods[life.name] = life
        if pod["spec"].get("nodeName"):
            life.bound_s = min(life.bound_s, now_s)
        conditions = {condition["type"] for condition in status.get("conditions") or () if condition["status"] == "True"}
        if "Ready" in conditions:
            life.ready_s = min(life.ready_s, now_s)
        if life.ended_s < math.inf:
            return
        life.succeeded = status.get("phase") == "Succeeded"
        life.evicted = not life.succeeded and "DisruptionTarget" in conditions
        if life.succeeded or life.evicted or kind == "DELETED" or metadata.get("deletionTimestamp") or status.get("phase") == "Failed":
            life.ended_s = now_s
            if life.kind == "batch" and not life.succeeded:
                self._lost(life)
