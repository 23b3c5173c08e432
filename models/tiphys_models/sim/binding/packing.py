"""What perfect packing would serve: streams moved at every moment, in parts if need be, and queries that never wait. No policy can."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from tiphys_models.binding.kernels import Wish, beside, suits
from tiphys_models.sim.binding.kernel import Streams, World


def packed_share(world: World, streams: Streams, times_s: Sequence[float], ceiling: float) -> float:
    """Share of the queries that live streams ask for at these moments."""
    found = [_served_and_asked(world, streams, at_s, ceiling) for at_s in times_s]
    return float(sum(served for served, _ in found) / max(sum(asked for _, asked in found), 1e-9))


def _served_and_asked(world: World, streams: Streams, at_s: float, ceiling: float) -> tuple[float, float]:
    """Queries a second. A linear programme: which part of every stream goes to which offer that suits it."""
    live = np.flatnonzero((streams.start_s <= at_s) & (streams.end_s > at_s))
    rate, columns = streams.rate_qps[live], world.columns
    offers, idle = len(columns.capacity_qps), np.zeros(len(columns.capacity_qps))
    added = np.zeros((len(live), offers))
    for row, i in enumerate(live):
        wish = Wish(
            streams.rate_qps[i], streams.size_kb[i], streams.max_delay_ms[i], streams.slack_ms[i], streams.min_accuracy[i], streams.draw[i]
        )
        c = beside(columns, world.network_ms[streams.access[i]], idle, wish)
        added[row] = np.where(suits(c), c.added_qps, 0.0)
    stream, offer = np.nonzero(added)
    if not len(stream):
        return 0.0, float(rate.sum())
    parts = np.arange(len(stream))
    loads = coo_array((added[stream, offer], (offer, parts)), (offers + len(live), len(parts)))
    whole = coo_array((np.ones(len(parts)), (offers + stream, parts)), (offers + len(live), len(parts)))
    limits = np.concatenate([ceiling * columns.capacity_qps, np.ones(len(live))])
    solved = linprog(-rate[stream], A_ub=(loads + whole).tocsr(), b_ub=limits, bounds=(0, 1), method="highs")
    return -float(solved.fun), float(rate.sum())
