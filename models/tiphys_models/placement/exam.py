"""What every placement policy is asked by the conformance suite (`seats.checks`), and what its answers must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.base.facts import NodeFacts, PodFacts
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.candidates import CandidateView, PlacementMemory, PlacementRequest
from tiphys_models.placement.protocol import PlacementPolicy
from tiphys_models.placement.registry import adopted
from tiphys_models.placement.schema import NODE_READINGS
from tiphys_models.placement.state import PlacementState
from tiphys_models.seats.checks import Exam

KIND = "placement-policy"
BUDGET_S = 0.05
"""Most seconds for scoring a thousand candidates. A scheduler waits for the answer; ours take a millisecond."""
_GIB = 2**30
_FUNCTION = "shop/thumbnails"
_READ_AT_S, _NOW_S = 990.0, 1000.0
_LARGE = 1000


@dataclass(frozen=True, slots=True)
class Moment:
    """A request and what is known of its candidates."""

    state: PlacementState
    request: PlacementRequest
    view: CandidateView
    memory: PlacementMemory

    def with_rows(self, rows: IntArray) -> Moment:
        """The same request for these candidates."""
        return Moment(self.state, self.request, self.state.view(self.request, rows), self.memory)


def cluster(nodes: int = 9, *, read: bool = True, busy: bool = True, cpu_milli: int = 0) -> PlacementState:
    """Nodes of three sizes, some with pods, images, idle instances and readings; a size given, they are all alike."""
    state = PlacementState()
    for i in range(nodes):
        images = ("docker.io/shop/thumbnails:1",) if i % 3 == 0 and busy else ()
        milli = cpu_milli or (2000, 4000, 16000)[i % 3]
        state.put_node(NodeFacts(_name(i), milli, milli * 2**20 * 4, True, "", images))
    for i in range(2 * nodes if busy else 0):
        if i % 5:  # some nodes stay empty
            state.bound(_pod(f"bound-{i}", _name(i % max(nodes // 2, 1)), _FUNCTION if i % 2 else "shop/other"), _NOW_S - 20 - i)
    if busy:
        for i in range(4):  # a few calls have ended: their functions are known, their instances idle
            state.bound(_pod(f"ran-{i}", _name(i % max(nodes, 1)), _FUNCTION), _NOW_S - 25)
            state.ran(f"ran-{i}", _NOW_S - 22 + i)
        state.put_idle({_FUNCTION: {_name(0): 2.0, _name(nodes - 1): 1.0}}, _READ_AT_S)
        state.put_profiles({name: FunctionProfile(0.4, 1.9, 0.3, 0.9, 1.0) for name in (_FUNCTION, "shop/other")})
    if read:
        names = [_name(i) for i in range(nodes)]
        spread = np.arange(nodes * len(NODE_READINGS)).reshape(nodes, -1) % 17
        state.put_readings(names, np.asarray(1.0 + spread * busy, np.float32), np.full(nodes, _READ_AT_S))
    state.tick(_NOW_S)
    return state


def moment(state: PlacementState, nodes: IntArray | None = None, *, function: str = _FUNCTION, memory_bytes: int = _GIB // 4) -> Moment:
    """A request for these of the state's nodes, for all of them unless said otherwise."""
    namespace = function.split("/", maxsplit=1)[0]
    request = PlacementRequest("pod-1", namespace, function, 250, memory_bytes, ("docker.io/shop/thumbnails:1",))
    everything = state.nodes.rows(sorted(state.nodes.row_of))
    rows = everything if nodes is None else everything[nodes]
    return Moment(state, request, state.view(request, rows), state.memory())


def questions() -> Mapping[str, Moment]:
    """A moment of every sort."""
    full = cluster()
    for i in range(9):
        full.bound(_pod(f"large-{i}", _name(i), "shop/batch", 80 * _GIB), _NOW_S - 5)
    stale = cluster()
    stale.expire(_NOW_S + 3600)  # readings of an hour ago are blanked
    extreme = cluster()
    extreme.put_readings([_name(0), _name(1)], np.full((2, len(NODE_READINGS)), 1e15, np.float32), np.full(2, _READ_AT_S))
    extreme.put_readings([_name(2)], np.zeros((1, len(NODE_READINGS)), np.float32), np.full(1, _READ_AT_S))
    return {
        "several candidates": moment(cluster(), np.array([1, 2, 4, 5, 8])),
        "a single candidate": moment(cluster(), np.array([3])),
        "no candidate": moment(cluster(), np.array([], np.int64)),
        "candidates without any reading": moment(cluster(read=False)),
        "candidates whose readings are stale": moment(stale),
        "candidates that are all alike": moment(cluster(busy=False, cpu_milli=4000)),
        "candidates without room": moment(full, memory_bytes=64 * _GIB),
        "a function that nobody has seen": moment(cluster(), function="new/function"),
        "very large and zero readings": moment(extreme),
    }


def fault(asked: Moment, scores: FloatArray) -> str:
    """What is wrong with scores."""
    count = len(asked.view.rows)
    if not isinstance(scores, np.ndarray) or scores.shape != (count,) or scores.dtype.kind not in "fiu":
        return f"{count} candidates need an array of {count} numbers, not {_shown(scores)}"
    if np.isinf(scores).any():
        return "a score is infinite"
    unread = np.isnan(asked.view.node_readings).all(axis=1) if count else np.zeros(0, np.bool_)
    return "a node with readings has no score" if np.isnan(scores[~unread]).any() else ""


def _shown(answer: object) -> str:
    return f"{type(answer).__name__} {getattr(answer, 'dtype', '')} {getattr(answer, 'shape', '')}".strip()


def _same(a: FloatArray, b: FloatArray) -> bool:
    """Sums over candidates may differ in the last digits when they are added in another order."""
    return bool(np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True))


def _trace(asked: Moment) -> bytes:
    view = asked.view
    arrays = (view.rows, view.node_readings, view.numbers, view.available_memory_bytes, view.idle_instances, asked.state.nodes.numbers)
    calls = view.calls()
    b = view.believed()
    further = (
        asked.state.nodes.readings,
        calls.at_s,
        calls.profiles,
        calls.idle_memory_bytes,
        calls.read_at_s,
        b.profiles,
        b.warm,
        b.speed(view.rows),
    )
    return b"|".join(np.ascontiguousarray(a).tobytes() for a in (*arrays, *further)) + repr((asked.request, asked.memory)).encode()


def _permuted(asked: Moment) -> tuple[Moment, Callable[[FloatArray], FloatArray]]:
    order = np.argsort((np.arange(len(asked.view.rows)) * 7 + 3) % 11, kind="stable")
    return asked.with_rows(asked.view.rows[order]), lambda scores: np.asarray(scores)[np.argsort(order)]


def _ask(policy: PlacementPolicy, asked: Moment) -> FloatArray:
    return policy.score(asked.view, asked.memory)


def _describes_itself(factory: Any) -> str:
    policy = _make(factory)
    if not (isinstance(policy.epsilon, float | int) and 0 <= policy.epsilon < np.inf):
        return "epsilon must be a number of at least 0"
    return "" if isinstance(policy.row_wise, bool) and isinstance(policy.digest, str) else "row_wise must be true or false, digest a text"


def _row_wise(factory: Any) -> str:
    """Scores of such policies are kept until the node's own row changes."""
    policy = _make(factory)
    for name, asked in questions().items() if policy.row_wise else ():
        some = np.arange(0, len(asked.view.rows), 2)
        if not _same(_ask(policy, asked)[some], _ask(policy, asked.with_rows(asked.view.rows[some]))):
            return f"it says that a score depends on its own row only, and it does not when asked {name}"
    return ""


def _make(factory: Any) -> PlacementPolicy:
    return adopted(factory(), "checked")


EXAMS: Mapping[str, Exam[Any, Any]] = {
    KIND: Exam(
        make=_make,
        ask=_ask,
        questions=questions,
        fault=fault,
        same=_same,
        trace=_trace,
        large=lambda: moment(cluster(_LARGE)),
        budget_s=BUDGET_S,
        permuted=_permuted,
        further={"describes itself": _describes_itself, "scores rows alone if it says so": _row_wise},
    )
}


def _name(i: int) -> str:
    return f"node-{i:04d}"


def _pod(uid: str, node: str, function: str, memory_bytes: int = _GIB // 4) -> PodFacts:
    return PodFacts(uid, "shop", uid, function, node, "tiphys", 250, memory_bytes, False, False, (), _NOW_S - 30, _NOW_S - 29)
