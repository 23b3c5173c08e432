"""A real Karpenter opens a node for a pod that fits nowhere and closes it when it is empty. Needs its program in the cache."""

from __future__ import annotations

import time

import pytest

from tiphys_testbed.bench.bill_plane import plane
from tiphys_testbed.bench.bill_trace import BatchPod
from tiphys_testbed.bench.bill_watch import CLAIMS, PODS, Watcher
from tiphys_testbed.bench.bill_worlds import LANES, WORLDS, batch_pod
from tiphys_testbed.tools.programs import KARPENTER_MODEL_TIME
from tiphys_testbed.tools.toolbox import Toolbox

DEADLINE_S = 60.0


@pytest.mark.timeout(240)
def test_a_node_is_opened_for_a_pod_and_closed_after_its_end() -> None:
    toolbox = Toolbox()
    if toolbox.find(KARPENTER_MODEL_TIME) is None:
        pytest.skip(f"tiphys tools build {KARPENTER_MODEL_TIME}")
    with plane("e2e-bill", WORLDS["h"], LANES["consolidation-aware"], toolbox) as running:
        lost: list[str] = []
        watcher = Watcher(running.cluster.api, lambda life: lost.append(life.name))
        running.open_pool()
        job = BatchPod("b0", "app", 0.0, 30.0, 600.0, 1000, 1024)
        running.cluster.api.create(PODS, batch_pod(job, 0, running.world.factor, {"karpenter.sh/do-not-disrupt": "true"}))
        end_s = time.monotonic() + DEADLINE_S
        while not any(claim.end_s < end_s + DEADLINE_S for claim in watcher.books.claims.values()) and time.monotonic() < end_s:
            time.sleep(0.2)
        watcher.close()
        (claim,) = watcher.books.claims.values()
        life = watcher.books.pods["b0-0"]
        assert life.succeeded
        assert life.ready_s - life.created_s > 3.0  # the node took its time to be born
        assert claim.begin_s < life.ready_s < life.ended_s < claim.end_s
        assert claim.usd_per_hour > 0.05
        assert not running.cluster.api.items(CLAIMS)
        assert (lost, running.dead(), watcher.troubles) == ([], [], [])
