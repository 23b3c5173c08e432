"""What calls of a function are like, learned from calls that ended: how long a start takes, the work of a warm and of a cold call, and
how many cores one call uses.

Plain functions of one row of numbers a function: the extender calls them for every pod that ends, the simulator compiles them. Sums
fade with every call, so that a release is forgotten within some fifty calls. What somebody declared is a prior: it is worth a few
calls and no more, because profiles taken at their word are what hurts when they are wrong.
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import FloatArray

STARTS, START_SUM, WARMS, WARM_SUM, COLDS, COLD_SUM, PARALLELISM, ENDED, SPREADS, SPREAD_SUM = range(10)
"""Columns of a row: faded counts and sums of start seconds and core-seconds, cores used, calls ended, squared logarithms of surprise."""
WIDTH = 10
START_S, WARM_WORK, COLD_WORK, CORES_USED = range(4)
"""Places in a profile that is believed: seconds, core-seconds, core-seconds, cores."""

NODE_CALLS, NODE_SUM = range(2)
"""Columns of a node's row: faded count of calls that ended there, sum of the logarithms of their surprise."""
_NODE_FADE = 0.99
_KNOWN = 4.0
_DOUBT = 1.5
"""Standard deviations by which the differences of nodes must exceed what chance makes of nodes that are alike."""
FADE = 0.95
"""What is left of a sum when another call ends."""
DECLARED_CALLS, TYPICAL_CALLS = 3.0, 0.5
"""How many calls a declared profile is worth, and what is usual elsewhere where nobody declared one."""
NOTHING_KNOWN = (2.0, 2.0, 4.0, 2.0)
"""What a function is taken for where nobody has declared any profile."""
ENOUGH = 3.0
"""Calls that must have ended before a function without a declared profile is judged by what was learned."""
_UP, _DOWN = 0.5, 0.05
_LEAST_S, _LEAST_CORES = 1e-3, 0.05
_LEAST_LEFT, _MOST_LEFT = 0.6, 0.75


def new_rows(functions: int) -> FloatArray:
    """Rows of functions of which nothing has been seen."""
    return np.zeros((functions, WIDTH))


def learn(row: FloatArray, believed: FloatArray, cold: bool, start_s: float, run_s: float, work_core_s: float) -> None:
    """A call has ended that started within `start_s`, then ran for `run_s` and used so much processor time.

    Cores used are believed quickly when they are more than before and slowly when they are fewer: a crowded node gives a call less than
    it could use, and none gives it more.
    """
    expected = believed[COLD_WORK] if cold else believed[WARM_WORK]
    surprise = np.log(max(work_core_s, _LEAST_S) / max(expected, _LEAST_S))
    row[SPREADS] = row[SPREADS] * FADE + 1.0
    row[SPREAD_SUM] = row[SPREAD_SUM] * FADE + surprise * surprise
    if cold:
        row[STARTS] = row[STARTS] * FADE + 1.0
        row[START_SUM] = row[START_SUM] * FADE + start_s
        row[COLDS] = row[COLDS] * FADE + 1.0
        row[COLD_SUM] = row[COLD_SUM] * FADE + work_core_s
    else:
        row[WARMS] = row[WARMS] * FADE + 1.0
        row[WARM_SUM] = row[WARM_SUM] * FADE + work_core_s
    if run_s > _LEAST_S:
        used = max(work_core_s / run_s, _LEAST_CORES)
        before = row[PARALLELISM] if row[PARALLELISM] > 0 else believed[CORES_USED]
        row[PARALLELISM] = before + (used - before) * (_UP if used > before else _DOWN)
    row[ENDED] += 1.0


def new_node_rows(nodes: int) -> FloatArray:
    """Rows of nodes on which nothing has been seen to end."""
    return np.zeros((nodes, 2))


def learn_node(row: FloatArray, function: FloatArray, believed: FloatArray, cold: bool, work_core_s: float) -> None:
    """A call has ended on the node and used so much processor time there, whatever the node's speed.

    Only calls of functions that are known from several such calls count: others surprise because nobody knew the function.
    """
    if (function[COLDS] if cold else function[WARMS]) < _KNOWN:
        return
    expected = believed[COLD_WORK] if cold else believed[WARM_WORK]
    row[NODE_CALLS] = row[NODE_CALLS] * _NODE_FADE + 1.0
    row[NODE_SUM] = row[NODE_SUM] * _NODE_FADE + np.log(max(work_core_s, _LEAST_S) / max(expected, _LEAST_S))


def differences(nodes: FloatArray, functions: FloatArray) -> FloatArray:
    """float64[3]: the middle of what surprised on all nodes, how much of their variance cannot be chance, and how much single calls vary.

    Where nodes differ no more than single calls do, all of them count as alike: nothing cannot be chance.
    """
    found = np.zeros(3)
    known = np.flatnonzero(nodes[:, NODE_CALLS] > 0)
    seen = functions[:, SPREADS].sum()
    if len(known) < 2 or seen < 1.0:
        return found
    calls = nodes[known, NODE_CALLS]
    mean = nodes[known, NODE_SUM] / calls
    within = functions[:, SPREAD_SUM].sum() / seen
    others = len(known) - 1.0
    chance = (within / calls).mean() * (1.0 + _DOUBT * np.sqrt(2.0 / others))
    found[0] = mean.mean()
    found[1] = max(((mean - found[0]) ** 2).sum() / others - chance, 0.0)
    found[2] = within
    return found


def speeds(nodes: FloatArray, between: FloatArray) -> FloatArray:
    """How fast these nodes are beside all: the share of their surprises that cannot be chance, as `differences` found it."""
    if not between[1] > 0.0:
        return np.ones(len(nodes))
    calls = np.maximum(nodes[:, NODE_CALLS], 1e-9)
    share = between[1] / (between[1] + between[2] / calls)
    return np.exp(-np.where(nodes[:, NODE_CALLS] > 0, (nodes[:, NODE_SUM] / calls - between[0]) * share, 0.0))


def believe(row: FloatArray, prior: FloatArray, calls: float) -> FloatArray:
    """The profile that follows from what was seen and a prior worth so many calls.

    A warm call is never believed to be dearer than a cold one: somebody who has seen cold calls only would otherwise never try a warm one.
    """
    believed = np.empty(4)
    believed[START_S] = (prior[START_S] * calls + row[START_SUM]) / (calls + row[STARTS])
    cold = (prior[COLD_WORK] * calls + row[COLD_SUM]) / (calls + row[COLDS])
    warm = (prior[WARM_WORK] * calls + row[WARM_SUM]) / (calls + row[WARMS])
    believed[COLD_WORK] = cold
    believed[WARM_WORK] = min(warm, cold)
    believed[CORES_USED] = row[PARALLELISM] if row[PARALLELISM] > 0 else prior[CORES_USED]
    return believed


def believe_all(rows: FloatArray, priors: FloatArray, calls: FloatArray) -> FloatArray:
    """The same for all functions at once."""
    believed = np.empty((len(rows), 4))
    believed[:, START_S] = (priors[:, START_S] * calls + rows[:, START_SUM]) / (calls + rows[:, STARTS])
    cold = (priors[:, COLD_WORK] * calls + rows[:, COLD_SUM]) / (calls + rows[:, COLDS])
    warm = (priors[:, WARM_WORK] * calls + rows[:, WARM_SUM]) / (calls + rows[:, WARMS])
    believed[:, COLD_WORK] = cold
    believed[:, WARM_WORK] = np.minimum(warm, cold)
    believed[:, CORES_USED] = np.where(rows[:, PARALLELISM] > 0, rows[:, PARALLELISM], priors[:, CORES_USED])
    return believed


def saved_by_warmth(profile: FloatArray) -> float:
    """Seconds that an idle instance saves a call of its function."""
    return float(profile[0] + max(profile[2] - profile[1], 0.0) / profile[3])


def least_share_left(rows: FloatArray) -> float:
    """How much of its expected time a call that is overdue has still to go, at the least.

    More where the work of calls of one function varies more: how long such a call has run says less of when it ends.
    """
    seen = rows[:, SPREADS].sum()
    if seen < 1.0:
        return _LEAST_LEFT
    variation = np.sqrt(np.expm1(min(rows[:, SPREAD_SUM].sum() / seen, 4.0)))
    left: float = min(max(_LEAST_LEFT + 0.2 * (variation - 0.3), _LEAST_LEFT), _MOST_LEFT)
    return left
