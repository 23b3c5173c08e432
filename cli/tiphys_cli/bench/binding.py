"""`tiphys bench binding`: static and learned binding policies on the same streams in the simulated edge and cloud.

Rows are one topology, scenario, arrivals, rate, policy, training seed, application and seed each; summaries and claims are computed
from rows alone. Policies whose weights are missing are left out, and claims about them are not made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tiphys_cli.bench.binding_claims import claims
from tiphys_cli.bench.binding_play import (
    AGENTS,
    BLIND,
    PAPER_AGENT,
    POLICIES,
    TUNING_SEEDS,
    Blind,
    Job,
    Played,
    artifacts,
    available,
    play_all,
    tune_blind,
)
from tiphys_cli.bench.binding_summary import oracle_shares, summarise, tables, with_blind
from tiphys_cli.bench.report import Result, Row
from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.binding.agent import ACTIONS
from tiphys_models.domain.errors import InvalidInput
from tiphys_models.sim.binding.kernel import empty_feasible
from tiphys_models.sim.binding.packing import what_moving_gains
from tiphys_models.sim.binding.scenario import DEFAULT_SCENARIO, HORIZON_S, LAMBDA, SENSITIVITY, UNSEEN_LAMBDAS, Scenario
from tiphys_models.sim.binding.topology import ANTENNAS, TOPOLOGIES, make_topology
from tiphys_models.sim.binding.workloads import NAMES, Arrivals, make_streams, read_arrivals

_SCENARIO_SEEDS = 10
"""When a modelling choice is changed; query by query, the next."""
_EVENT_SEEDS = 3
_ORACLE_SEEDS = 3
_MOVED_SEEDS = 10
_QUICK_HORIZON_S = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played."""

    seeds: tuple[int, ...]
    policies: tuple[str, ...] = POLICIES
    file: Path | None = None
    quick: bool = False
    jobs: int = 0
    """Processes; 0: one a core."""
    sensitivity: bool = True
    """Whether modelling choices are changed one at a time, too: a third of the time."""

    @property
    def horizon_s(self) -> float:
        """Of every episode."""
        return _QUICK_HORIZON_S if self.quick else HORIZON_S

    @property
    def _scenarios(self) -> tuple[Scenario, ...]:
        if not self.sensitivity:
            return ()
        return SENSITIVITY[:2] if self.quick else SENSITIVITY

    def cells(self, blind: dict[str, Blind]) -> Iterator[Job]:
        """Full-edge at every rate, the others at 20, 60 and 100; the file; then one modelling choice changed at a time."""
        no_oracle, edge = tuple(p for p in self.policies if p != "oracle"), blind.get("full-edge")
        for topology in TOPOLOGIES:
            for rate in sorted((LAMBDA, *UNSEEN_LAMBDAS) if topology == "full-edge" else (20.0, LAMBDA, 100.0)):
                for index, seed in enumerate(self.seeds):
                    shown = topology == "full-edge" and rate == LAMBDA
                    policies = self.policies if shown and index < _ORACLE_SEEDS else no_oracle
                    traced = rate == LAMBDA and index == 0
                    yield Job(topology, DEFAULT_SCENARIO, rate, seed, policies, blind.get(topology), self.horizon_s, trace=traced)
        for seed in self.seeds if self.file is not None else ():
            yield Job("full-edge", DEFAULT_SCENARIO, LAMBDA, seed, no_oracle, edge, self.horizon_s, str(self.file))
        for scenario in self._scenarios:
            for seed in self.seeds[: _EVENT_SEEDS if scenario.events else _SCENARIO_SEEDS]:
                yield Job("full-edge", scenario, LAMBDA, seed, no_oracle, edge, self.horizon_s)


def run(plan: Plan, tell: Callable[[str], None]) -> Result:
    """Play everything; InvalidInput names what cannot be."""
    started = time.monotonic()
    unknown = [p for p in plan.policies if p not in POLICIES]
    if unknown:
        raise InvalidInput(f"--policies: {unknown[0]!r} is none of {', '.join(POLICIES)}")
    plan = replace(plan, policies=available(plan.policies))
    file = None if plan.file is None else read_arrivals(plan.file)
    blind = tuned(plan, tell)
    played = play_all(list(plan.cells(blind)), plan.jobs or os.cpu_count() or 1, tell)
    rows = with_blind([row for p in played for row in p.rows])
    seconds = time.monotonic() - started
    inputs = _inputs(plan, played, blind, file)
    inputs["shares_of_oracle_gain"] = oracle_shares(tables(rows).get(("full-edge", "default", "poisson", LAMBDA, "all"), {}))
    return Result("binding", plan.quick, plan.seeds, seconds, inputs, rows, summarise(rows), claims(rows))


def tuned(plan: Plan, tell: Callable[[str], None]) -> dict[str, Blind]:
    """Three quarters of a minute on one core; nothing where no blind comparator is played."""
    if not set(plan.policies) & set(BLIND):
        return {}
    tell("tuning the blind comparators on training seeds")
    return {topology: tune_blind(topology, TUNING_SEEDS[: 1 if plan.quick else None]) for topology in TOPOLOGIES}


def _inputs(plan: Plan, played: list[Played], blind: dict[str, Blind], file: Arrivals | None) -> dict[str, Any]:
    speed = None if file is None else ANTENNAS * LAMBDA / 60 / file.rate_per_s
    return {
        "topologies": {name: topology_facts(name, plan.seeds[0]) for name in TOPOLOGIES},
        "workload": _workload(plan.seeds),
        "if_streams_moved": _moved(plan, file),
        "models": {path.stem: sha256(path.with_suffix(".safetensors").read_bytes()).hexdigest() for path in _cards()},
        "blind": {name: _blind(b) for name, b in blind.items()},
        "arrivals": None if file is None else {"name": file.name, "sha256": file.sha256, "times": len(file.times_s), "sped_up": speed},
        "over_time": {p.job.topology: p.over_time for p in played if p.over_time},
        "switched": {p.job.topology: p.switched for p in played if p.job.trace},
    }


def _cards() -> list[Path]:
    score = SHIPPED / "score.json"
    return [*([score] if score.exists() else []), *(path for name in (*AGENTS, PAPER_AGENT) for path in artifacts(name).values())]


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


def _workload(seeds: Sequence[int]) -> Row:
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


def _moved(plan: Plan, file: Arrivals | None) -> list[Row]:
    """Full-edge: what relative load serves, and what would be served if all streams might move, at the same moments."""
    world, seeds = make_topology("full-edge").world, plan.seeds[: 1 if plan.quick else _MOVED_SEEDS]
    cells: list[tuple[str, float, Arrivals | None]] = [(f"{rate:g}", rate, None) for rate in sorted((LAMBDA, *UNSEEN_LAMBDAS))]
    cells += [(file.name, LAMBDA, file)] if file else []
    found = []
    for name, rate, arrivals in cells:
        each = [
            what_moving_gains(world, make_streams("test", seed, rate, arrivals, horizon_s=plan.horizon_s), plan.horizon_s) for seed in seeds
        ]
        asked, bound, moved = np.sum(each, axis=0).tolist()
        found.append({
            "lambda_or_arrivals": name, "relative_load_pct": round(100 * bound / asked, 1), "moved_pct": round(100 * moved / asked, 1),
            "points": round(100 * (moved - bound) / asked, 1),
        })  # fmt: skip
    return found


def _blind(blind: Blind) -> Row:
    return {"schedule": blind.schedule, "turns": blind.turns, "table": dict(zip(NAMES, (ACTIONS[k] for k in blind.table), strict=True))}
