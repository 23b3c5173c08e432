"""That pods which may wait are held: whoever can open their gates is said to be ready, as a cluster would say of pods."""

from __future__ import annotations

import json
import time

from tiphys_cli.kube.errors import ClusterError
from tiphys_models.placement.gate import GATE
from tiphys_models.placement.sim.functions import FUNCTIONS
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.demo.chart import NAMESPACE
from tiphys_testbed.demo.lanes import Lane, pod_manifest
from tiphys_testbed.demo.openers import OPENERS, opener_slice

_POLL_S = 0.2


def say_ready(cluster: LocalCluster, *, extender: bool = True, operator: bool = True) -> None:
    """Say of each of the two whether it can open gates."""
    cluster.apply(json.dumps(opener_slice(NAMESPACE, dict(zip(OPENERS, (extender, operator), strict=True)))))


def wait_until_held(cluster: LocalCluster, lane: Lane, deadline_s: float) -> None:
    """The API server hears of policies and their parameters a moment later: wait until it would hold a pod of the lane."""
    end_s = time.monotonic() + deadline_s
    asked = pod_manifest(lane, "asked", FUNCTIONS[0], "asked")
    while True:
        made = cluster.api.create(f"/api/v1/namespaces/{lane.namespace}/pods?dryRun=All", asked)
        if any(gate["name"] == GATE for gate in made["spec"].get("schedulingGates") or ()):
            return
        if time.monotonic() > end_s:
            raise ClusterError(f"admission holds no pod that may wait after {deadline_s:.0f} s")
        time.sleep(_POLL_S)
