"""What a placement policy of ours decides, as one digest: the nodes it chooses for the pods of a short trace, learning as it goes.

The journal of `tiphys bench bill` keeps runs of our policies for as long as they decide the same, however their code is written.
"""

from __future__ import annotations

import heapq
from functools import cache
from hashlib import sha256

import numpy as np

from tiphys_models.base.facts import NodeFacts, PodFacts
from tiphys_models.placement.candidates import CPU_REQUESTED_MILLI, PlacementRequest
from tiphys_models.placement.registry import make_policy
from tiphys_models.placement.state import PlacementState
from tiphys_testbed.bench.bill_trace import BatchPod, make_trace

_CORES = (2, 4, 8, 8, 4, 8)
_GIB = 2**30
_MIB = 2**20
_SAME = 1e-6
_BEGIN_S = 1_000_000.0


@cache
def choices_digest(policy_name: str) -> str:
    """sha256 of the policy's choices on six nodes, every other pod protected; scores that are nearly the same count as the same."""
    policy, state = make_policy(policy_name), PlacementState()
    for n, cores in enumerate(_CORES):
        state.put_node(NodeFacts(f"n{n}", 1000 * cores, 4 * cores * _GIB, True, "", ()))
    rows = state.nodes.rows([f"n{n}" for n in range(len(_CORES))])
    running: list[tuple[float, str]] = []
    chosen = []
    for n, pod in enumerate(make_trace(0, lead_s=0.0, window_s=2000.0, tail_s=0.0).batch):
        now_s = _BEGIN_S + pod.arrive_s
        while running and running[0][0] <= now_s:
            ended_s, uid = heapq.heappop(running)
            state.tick(ended_s)
            state.ran(uid, ended_s)
        state.expire(now_s)
        request = PlacementRequest(pod.name, "bill", f"bill/{pod.application}", pod.cpu_milli, pod.memory_mib * _MIB, (), n % 2 == 1)
        view = state.view(request, rows)
        free = view.cores * 1000 - view.numbers[:, CPU_REQUESTED_MILLI] >= pod.cpu_milli
        if not free.any():
            continue
        scores = np.where(free, policy.score(view, state.memory()), -np.inf)
        best = int(np.flatnonzero(scores >= scores.max() - _SAME)[0])
        chosen.append(best)
        state.bound(_facts(request, pod, f"n{best}", now_s), now_s)
        heapq.heappush(running, (now_s + pod.run_s, pod.name))
    return sha256(bytes(chosen)).hexdigest()


def _facts(request: PlacementRequest, pod: BatchPod, node: str, now_s: float) -> PodFacts:
    return PodFacts(
        uid=pod.name,
        namespace=request.namespace,
        name=pod.name,
        function=request.function,
        node=node,
        scheduler_name="tiphys",
        cpu_milli=request.cpu_milli,
        memory_bytes=request.memory_bytes,
        finished=False,
        from_daemon_set=False,
        images=(),
        scheduled_s=now_s,
        ready_s=now_s,
        protected=request.protected,
    )
