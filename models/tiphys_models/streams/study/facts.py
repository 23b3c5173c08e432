"""What is told of the streams' world beside the rows: topologies, load, and what moving all streams would gain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tiphys_models.lab.report import Row
from tiphys_models.streams.agent import ACTIONS
from tiphys_models.streams.sim.kernel import empty_feasible
from tiphys_models.streams.sim.packing import what_moving_gains
from tiphys_models.streams.sim.scenario import HORIZON_S, LAMBDA, UNSEEN_LAMBDAS
from tiphys_models.streams.sim.topology import ANTENNAS, make_topology
from tiphys_models.streams.sim.workloads import NAMES, Arrivals, make_streams
from tiphys_models.streams.study.play import Blind


def topology_facts(name: str, seed: int) -> Row:
    """Offers, capacity, and the share of queries that could not be bound in an empty system."""
    where, streams = make_topology(name), make_streams("test", seed, LAMBDA)
    feasible = empty_feasible(where.world, streams)
    queries = streams.rate_qps * (np.minimum(streams.end_s, HORIZON_S) - streams.start_s)
    by_application = {
        application: round(float(1 - np.average(feasible[mine], weights=queries[mine])), 4)
        for index, application in enumerate(NAMES)
        if (mine := streams.application == index).any()
    }
    return {
        "offers": len(where.offers), "capacity_qps": float(where.offers.columns.capacity_qps.sum()),
        "infeasible_when_empty": round(float(1 - np.average(feasible, weights=queries)), 4), "infeasible_by_application": by_application,
    }  # fmt: skip


def asked_of_an_antenna(seeds: Sequence[int]) -> Row:
    """What an antenna is asked at lambda 60: in the episode, where streams that begin late are cut off, and in the long run."""
    streams = [make_streams("test", seed, LAMBDA) for seed in seeds]
    asked = [s.rate_qps * (np.minimum(s.end_s, HORIZON_S) - s.start_s) for s in streams]
    frames = [s.rate_qps * (s.end_s - s.start_s) for s in streams]
    per_antenna = HORIZON_S * ANTENNAS * len(streams)
    return {
        "lambda_per_min": LAMBDA, "frames_a_stream": round(float(np.concatenate(frames).mean()), 1),
        "qps_an_antenna": round(float(np.concatenate(asked).sum()) / per_antenna, 1),
        "qps_an_antenna_in_the_long_run": round(float(np.concatenate(frames).sum()) / per_antenna, 1),
    }  # fmt: skip


def if_streams_moved(seeds: Sequence[int], horizon_s: float, file: Arrivals | None) -> list[Row]:
    """Full-edge: what relative load serves, and what would be served if all streams might move, at the same moments."""
    world = make_topology("full-edge").world
    cells: list[tuple[str, float, Arrivals | None]] = [(f"{rate:g}", rate, None) for rate in sorted((LAMBDA, *UNSEEN_LAMBDAS))]
    cells += [(file.name, LAMBDA, file)] if file else []
    found = []
    for name, rate, arrivals in cells:
        each = [what_moving_gains(world, make_streams("test", seed, rate, arrivals, horizon_s=horizon_s), horizon_s) for seed in seeds]
        asked, bound, moved = np.sum(each, axis=0).tolist()
        found.append({
            "lambda_or_arrivals": name, "relative_load_pct": round(100 * bound / asked, 1), "moved_pct": round(100 * moved / asked, 1),
            "points": round(100 * (moved - bound) / asked, 1),
        })  # fmt: skip
    return found


def in_words(blind: Blind) -> Row:
    """A comparator with its policies by name."""
    return {"schedule": blind.schedule, "turns": blind.turns, "table": dict(zip(NAMES, (ACTIONS[k] for k in blind.table), strict=True))}
