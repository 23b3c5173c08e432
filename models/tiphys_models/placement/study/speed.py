"""How many calls the simulator plays in a second of one core, readings and everything else included.

Seconds are of processor time: the simulator has one thread, and a benchmark must not depend on who else uses the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Claim, Row, median
from tiphys_models.placement.sim.episode import Player, simulate
from tiphys_models.placement.sim.scenario import FaasScenario
from tiphys_models.placement.sim.workloads import MULTI, make_workload

SPEED_BARS: Mapping[str, float] = MappingProxyType(
    {"round-robin": 100_000.0, "least-connections": 100_000.0, "static-rank": 100_000.0, "faasrank": 15_000.0}
)
"""Calls a second that each policy is held to."""
_METRIC = "calls_per_s"
_ROUNDS = 9


def measure_speed(players: Sequence[Player], tell: Callable[[str], None], *, quick: bool = False) -> list[Row]:
    """One summary row a policy. A round is M1-M10 once; compilation comes before the first, rounds of the policies alternate."""
    workloads = [make_workload(name, "train", 0) for name in MULTI]
    calls = sum(len(workload) for workload in workloads)
    started = time.monotonic()
    for player in players:
        simulate(workloads[0], player, FaasScenario())
    tell(f"compiled, or found in the cache, in {time.monotonic() - started:.0f} s")
    rounds: dict[str, list[float]] = {player.name: [] for player in players}
    for _ in range(2 if quick else _ROUNDS):
        for player in players:
            before = time.process_time()
            for workload in workloads:
                simulate(workload, player, FaasScenario())
            rounds[player.name].append(calls / (time.process_time() - before))
    return [_row(policy, speeds) for policy, speeds in rounds.items()]


def speed_claims(rows: Sequence[Row]) -> list[Claim]:
    """The median round against its bar."""
    return [Claim(f"simulator-{row['policy']}-calls-per-s", row["median"], SPEED_BARS[row["policy"]], ">=") for row in rows]


def _row(policy: str, speeds: Sequence[float]) -> Row:
    figures = interval(speeds).as_json(0)
    line: Row = {"scenario": "default", "workload": "M1-M10, train", "policy": policy, "metric": _METRIC}
    return line | figures | {"median": round(median(speeds) or 0.0), "fastest": round(max(speeds))}
