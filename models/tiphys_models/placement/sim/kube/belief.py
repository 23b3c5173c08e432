"""What policies believe of the cluster beyond what is scraped: books of idle instances, profiles learned, calls that are open.

The same books as `placement.books`, as arrays that compiled code can move; a test holds the two together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.placement import learned_profiles
from tiphys_models.placement.learned_profiles import CORES_USED, ENDED, WIDTH

LISTED = 64
"""Most idle instances that are listed of one node."""
CHANGES = 256
"""Changes of a node's list that are remembered, so that a reading can be compared with the list as it was when the node was sampled."""

_learn = compiled(learned_profiles.learn)
_learn_node = compiled(learned_profiles.learn_node)
_differences = compiled(learned_profiles.differences)
_speeds = compiled(learned_profiles.speeds)
_believe = compiled(learned_profiles.believe)


class Belief(NamedTuple):
    """Arrays over nodes and functions, and over calls."""

    listed: IntArray
    function: IntArray
    """[N, LISTED]: of whom the listed instances are, in the order in which they became idle."""
    since_s: FloatArray
    idle_bytes: FloatArray
    """[N]: memory of listed instances."""
    read_s: FloatArray
    """[N]: sample time of the last reading that corrected the list."""
    changes: IntArray
    """[N]: how often the list has changed."""
    change_s: FloatArray
    """[N, CHANGES], a ring: when, of whom, by how many."""
    change_function: IntArray
    change_by: IntArray
    learned: FloatArray
    """[F, WIDTH] of `learned_profiles`."""
    prior: FloatArray
    """[F, 4]: what was declared, or is usual."""
    prior_calls: FloatArray
    believed: FloatArray
    """[F, 4]: what follows from both."""
    measured: FloatArray
    """[F]: ended calls whose processor time was seen."""
    cold: BoolArray
    """[K]: whether each call was placed where no idle instance was listed."""
    node_rows: FloatArray
    speed: FloatArray
    """[N]: what is believed of each node's speed."""
    held_s: FloatArray
    """[K]: when each call was first told "not yet"; NaN never."""


def new_belief(
    nodes: int, calls: int, prior: FloatArray, prior_calls: FloatArray, learned: FloatArray | None = None, *, measured: bool = True
) -> Belief:
    """An empty cluster, known to be empty; `learned` is what was learned before, with processor time seen if it was `measured`."""
    functions = len(prior)
    belief = Belief(
        np.zeros(nodes, np.int64), np.zeros((nodes, LISTED), np.int64), np.zeros((nodes, LISTED)), np.zeros(nodes), np.full(nodes, -np.inf),
        np.zeros(nodes, np.int64), np.zeros((nodes, CHANGES)), np.zeros((nodes, CHANGES), np.int64), np.zeros((nodes, CHANGES), np.int64),
        np.zeros((functions, WIDTH)) if learned is None else learned.copy(), prior, prior_calls, np.zeros((functions, 4)),
        np.zeros(functions) if learned is None or not measured else learned[:, ENDED].copy(),
        np.zeros(calls, np.bool_), learned_profiles.new_node_rows(nodes), np.ones(nodes), np.full(calls, np.nan),
    )  # fmt: skip
    for f in range(functions):
        belief.believed[f] = learned_profiles.believe(belief.learned[f], prior[f], prior_calls[f])
    return belief


@compiled
def note(b: Belief, n: int, f: int, by: int, t: float) -> None:
    """The list of node n has changed."""
    at = b.changes[n] % CHANGES
    b.change_s[n, at] = t
    b.change_function[n, at] = f
    b.change_by[n, at] = by
    b.changes[n] += 1


@compiled
def strike(b: Belief, n: int, s: int, memory: FloatArray, t: float) -> None:
    """Entry s leaves the list."""
    f = b.function[n, s]
    b.listed[n] -= 1
    for after in range(s, b.listed[n]):
        b.function[n, after] = b.function[n, after + 1]
        b.since_s[n, after] = b.since_s[n, after + 1]
    b.idle_bytes[n] -= memory[f]
    note(b, n, f, -1, t)


@compiled
def expire_listed(b: Belief, n: int, memory: FloatArray, keep_alive_s: float, t: float) -> None:
    """Entries past the keep-alive leave the list."""
    while b.listed[n] > 0 and t - b.since_s[n, 0] > keep_alive_s:
        strike(b, n, 0, memory, t)


@compiled
def is_listed(b: Belief, n: int, f: int) -> bool:
    """Whether an idle instance of f is listed on node n."""
    return bool((b.function[n, : b.listed[n]] == f).any())


@compiled
def take(b: Belief, n: int, f: int, memory: FloatArray, open_bytes: float, capacity: float, t: float) -> bool:
    """A call is placed: the youngest instance of its function serves it, or it starts cold and the oldest instances make room.

    `open_bytes` counts the call itself. Whether it starts cold is returned.
    """
    for s in range(b.listed[n] - 1, -1, -1):
        if b.function[n, s] == f:
            strike(b, n, s, memory, t)
            return False
    while b.listed[n] > 0 and open_bytes + b.idle_bytes[n] > capacity:
        strike(b, n, 0, memory, t)
    return True


@compiled
def give_back(b: Belief, n: int, f: int, memory: FloatArray, t: float) -> None:
    """A call has ended: its instance is idle from now on."""
    if b.listed[n] == LISTED:
        strike(b, n, 0, memory, t)
    s = b.listed[n]
    b.function[n, s] = f
    b.since_s[n, s] = t
    b.listed[n] = s + 1
    b.idle_bytes[n] += memory[f]
    note(b, n, f, 1, t)


@compiled
def correct(b: Belief, n: int, counts: FloatArray, memory: FloatArray, sampled_s: float) -> None:
    """A reading of node n, by function, as of when it was sampled: too many entries lose their oldest, too few gain older ones.

    What has happened since the sample is taken back first: an instance that became idle meanwhile would be counted twice, or not at all.
    """
    first = max(b.changes[n] - CHANGES, 0)
    if sampled_s <= b.read_s[n] or (first > 0 and b.change_s[n, first % CHANGES] > sampled_s):
        return  # an older reading than the last one, or so old that nobody remembers what has happened since
    b.read_s[n] = sampled_s
    for f in range(len(counts)):
        surplus = -counts[f]
        for s in range(b.listed[n]):
            if b.function[n, s] == f:
                surplus += 1
        for i in range(first, b.changes[n]):
            at = i % CHANGES
            if b.change_s[n, at] > sampled_s and b.change_function[n, at] == f:
                surplus -= b.change_by[n, at]
        s = 0
        while surplus >= 1 and s < b.listed[n]:
            if b.function[n, s] == f and b.since_s[n, s] <= sampled_s:
                strike(b, n, s, memory, sampled_s)
                surplus -= 1
            else:
                s += 1
        while surplus <= -1 and b.listed[n] < LISTED:
            oldest_s = min(sampled_s, b.since_s[n, 0]) if b.listed[n] > 0 else sampled_s
            for after in range(b.listed[n], 0, -1):
                b.function[n, after] = b.function[n, after - 1]
                b.since_s[n, after] = b.since_s[n, after - 1]
            b.function[n, 0] = f
            b.since_s[n, 0] = oldest_s
            b.listed[n] += 1
            b.idle_bytes[n] += memory[f]
            note(b, n, f, 1, sampled_s)
            surplus += 1


@compiled
def learn_call(b: Belief, n: int, f: int, cold: bool, start_s: float, run_s: float, work_core_s: float, seen: bool) -> None:
    """A call of f has ended; `seen` says whether anybody has measured its processor time."""
    speed = b.speed[n]
    if seen:
        b.measured[f] += 1.0
        _learn_node(b.node_rows[n], b.learned[f], b.believed[f], cold, work_core_s)
        _learn(b.learned[f], b.believed[f], cold, start_s * speed, run_s * speed, work_core_s * speed)
        b.speed[:] = _speeds(b.node_rows, _differences(b.node_rows, b.learned))
    else:
        _learn(b.learned[f], b.believed[f], cold, start_s, 0.0, run_s * b.believed[f, CORES_USED])
    b.believed[f] = _believe(b.learned[f], b.prior[f], b.prior_calls[f])
