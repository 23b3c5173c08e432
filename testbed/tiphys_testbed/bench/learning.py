"""`tiphys bench extender --learning`: what it costs to learn online, at a hundred decisions a second.

The same pods are decided about by the estimator, bound, started and ended on two states of placements: one keeps books of idle instances
and learns what calls and nodes are like, the other turns a deaf ear to all of it. Rounds alternate, and processor time is counted, not
wall time. Decisions are part of both: what a decision has to look at anew because something was learned before it counts as learning.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.base.facts import PodFacts, node_facts
from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Claim, Result, Row
from tiphys_models.placement.beliefs import Beliefs
from tiphys_models.placement.books import Books
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.candidates import PlacementRequest
from tiphys_models.placement.patient import Estimator
from tiphys_models.placement.placed import CallEnd, Placement
from tiphys_models.placement.rank import order, tie_breakers
from tiphys_models.placement.state import PlacementState
from tiphys_testbed.bench.workload import MANY_FUNCTIONS, NAMESPACE
from tiphys_testbed.cluster.nodes import fleet, node_manifest

DECISIONS_PER_S = 100
MOST_SHARE = 0.02
"""Of one core, at that rate."""
_NAMES = tuple(f"{NAMESPACE}/{function}" for function in MANY_FUNCTIONS)
_MEMORY_BYTES = 32 * 2**20
_START_S, _RUN_S = 0.5, 5.0
_READINGS_EVERY = 1500
"""Decisions between two readings of idle instances: fifteen seconds."""


@dataclass(frozen=True, slots=True)
class LearningPlan:
    """How much is played."""

    nodes: int = 5000
    names: int = 500
    decisions: int = 3000
    """Of one round, on either state."""
    rounds: int = 6
    seed: int = 0
    quick: bool = False

    @classmethod
    def quickly(cls, seed: int) -> LearningPlan:
        """The same code for a look in passing."""
        return cls(decisions=600, rounds=2, seed=seed, quick=True)


class _DeafBooks(Books):
    """Books in which nothing is ever written."""

    def report(self, reported: Mapping[str, Mapping[int, float]], rows: IntArray, sampled_s: FloatArray) -> None:
        """Nobody reads it."""


class _DeafBeliefs(Beliefs):
    """What is declared is believed for good."""

    def placed(self, placement: Placement, row: int, bytes_: float) -> bool:
        """Nobody keeps books: every call is taken to start cold."""
        return True

    def ended(self, placement: Placement, now_s: float, end: CallEnd) -> None:
        """Nothing is learned of it."""


def run(plan: LearningPlan, tell: Callable[[str], None]) -> Result:
    """Play both in turns and compare their processor time."""
    began_s = time.monotonic()
    stages = {"on": _Stage(plan, deaf=False), "off": _Stage(plan, deaf=True)}
    for stage in stages.values():
        stage.play(max(plan.decisions // 3, int(2 * _RUN_S * DECISIONS_PER_S)))  # until as many pods end as come
    rows: list[Row] = []
    for number in range(plan.rounds):
        for name in ("on", "off") if number % 2 else ("off", "on"):
            cpu_s = stages[name].play(plan.decisions)
            share = cpu_s / plan.decisions * DECISIONS_PER_S
            rows.append({
                "learning": name, "round": number, "decisions": plan.decisions, "names": plan.names,
                "us_per_decision": round(cpu_s / plan.decisions * 1e6, 1), "core_share": round(share, 5),
            })  # fmt: skip
        tell(", ".join(f"learning {row['learning']}: {row['us_per_decision']} µs a decision" for row in rows[-2:]))
    by_round = {name: [row["core_share"] for row in sorted(_of(rows, name), key=lambda r: r["round"])] for name in stages}
    more = [on - off for on, off in zip(by_round["on"], by_round["off"], strict=True)]
    summary: list[Row] = [
        {"metric": f"core_share, {name}", **interval(values).as_json(5)} for name, values in (*by_round.items(), ("difference", more))
    ]
    inputs = {"nodes": plan.nodes, "functions": len(_NAMES), "decisions_per_s": DECISIONS_PER_S, "readings_every": _READINGS_EVERY}
    claims = [Claim("learning-core-share", round(sum(more) / len(more), 5), MOST_SHARE, "<=")]
    return Result("extender-learning", plan.quick, (plan.seed,), time.monotonic() - began_s, inputs, rows, summary, claims)


def _of(rows: list[Row], name: str) -> list[Row]:
    return [row for row in rows if row["learning"] == name]


class _Stage:
    """A cluster on which pods come, start and end at a steady rate."""

    def __init__(self, plan: LearningPlan, *, deaf: bool) -> None:
        self._rng = np.random.default_rng([plan.seed, plan.nodes])
        self.state = state = PlacementState()
        if deaf:
            state.beliefs = _DeafBeliefs(state.nodes, state.functions, state._calls, 0.0)
            state.beliefs.books = _DeafBooks(state.nodes, 0.0)
        self._nodes = [node.name for node in fleet(plan.nodes, pool="node", bare=True)]
        for node in fleet(plan.nodes, pool="node", bare=True):
            state.put_node(node_facts(node_manifest(node)))
        warm_s = self._rng.uniform(0.5, 4.0, len(_NAMES))
        self._cores = self._rng.integers(1, 5, len(_NAMES)).astype(float)
        state.put_profiles(
            {name: FunctionProfile(s, 2 * s, s * c, 2 * s * c, c) for name, s, c in zip(_NAMES, warm_s, self._cores, strict=True)}
        )
        self._work = warm_s * self._cores
        self._policy, self._names, self._count, self._now_s = Estimator(), plan.names, 0, 1000.0
        self._starting: deque[PodFacts] = deque()
        self._running: deque[tuple[PodFacts, int]] = deque()
        self._idle: dict[str, dict[str, int]] = {name: {} for name in _NAMES}
        """Idle instances as they are, which is what readings say."""
        self._meet_all()

    def _meet_all(self) -> None:
        """A call has ended on every node before anything is measured: what is learned of nodes costs by how many have been met."""
        for index, node in enumerate(self._nodes):
            function = index % len(_NAMES)
            self.state.bound(self._pod(f"first-{index}", function, node, self._now_s - _RUN_S), self._now_s - _RUN_S)
            self._idle[_NAMES[function]][node] = 1
            self.state.ran(f"first-{index}", self._now_s, CallEnd(start_s=_START_S, core_seconds=float(self._work[function])))

    @staticmethod
    def _pod(uid: str, function: int, node: str, at_s: float) -> PodFacts:
        return PodFacts(uid, NAMESPACE, uid, _NAMES[function], node, "tiphys", 10, _MEMORY_BYTES, False, False, (), at_s, None)

    def play(self, decisions: int) -> float:
        """Processor seconds of so many decisions and all that follows from them."""
        before_s = time.process_time()
        for _ in range(decisions):
            self._step()
        return time.process_time() - before_s

    def _step(self) -> None:
        state, rng, now_s = self.state, self._rng, self._now_s
        state.tick(now_s)
        while self._starting and (self._starting[0].scheduled_s or 0.0) + _START_S <= now_s:
            state.put_pod(replace(self._starting.popleft(), started_s=now_s), now_s)
        while self._running and (self._running[0][0].scheduled_s or 0.0) + _RUN_S <= now_s:
            pod, function = self._running.popleft()
            work = float(self._work[function] * rng.lognormal(0.0, 0.3))
            state.ran(pod.uid, now_s, CallEnd(start_s=_START_S, core_seconds=work))
            self._idle[pod.function][pod.node] = self._idle[pod.function].get(pod.node, 0) + 1
        self._decide(now_s, int(rng.integers(len(_NAMES))))
        if self._count % _READINGS_EVERY == 0:
            reported = {name: {node: float(count) for node, count in there.items() if count} for name, there in self._idle.items()}
            state.put_idle(reported, now_s)
        self._now_s = now_s + 1.0 / DECISIONS_PER_S

    def _decide(self, now_s: float, function: int) -> None:
        state, uid = self.state, f"pod-{self._count}"
        self._count += 1
        first = self._count * 73 % len(self._nodes)
        rows = (np.arange(first, first + self._names) % len(self._nodes)).astype(np.int64)
        request = PlacementRequest(uid, NAMESPACE, _NAMES[function], 10, _MEMORY_BYTES)
        view = state.view(request, rows)
        scores = self._policy.score(view, state.memory())
        best = int(order(scores, tie_breakers(uid, view.name_hash), self._policy.epsilon)[0])
        self._policy.not_yet(view, scores, best, 0)
        node = state.nodes.names[int(rows[best])]
        state.decided(request, node, now_s)
        pod = self._pod(uid, function, node, now_s)
        state.bound(pod, now_s)
        idle = self._idle[pod.function]
        idle[node] = max(idle.get(node, 0) - 1, 0)
        self._starting.append(pod)
        self._running.append((pod, function))
