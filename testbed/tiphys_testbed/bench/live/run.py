"""`tiphys bench live-placement`: stock schedulers and placement policies on a live control plane, and the same calls simulated."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tiphys_models.lab.report import Result, Row
from tiphys_models.placement.study import kube
from tiphys_models.placement.waiting import LONGEST_S
from tiphys_testbed.bench.live.figures import DEFAULT, claims, summarise
from tiphys_testbed.bench.live.journal import Journal
from tiphys_testbed.bench.live.lanes import AGAIN, LOADS_FROM, TRIMARAN
from tiphys_testbed.bench.live.plan import LivePlan, Run
from tiphys_testbed.bench.live.play import ATTEMPTS, play_world
from tiphys_testbed.bench.live.twins import simulated_mean_s
from tiphys_testbed.bench.live.worlds import WORLDS
from tiphys_testbed.tools.programs import DEFAULT_KUBERNETES, programs

CORE_SECONDS_TOLD = False
"""Nobody tells the extender the processor time of a pod here, so that simulated policies do without it, too."""


def run(plan: LivePlan, tell: Callable[[str], None]) -> Result:
    """Play what the journal does not have, and report all that was asked for."""
    began_s = time.monotonic()
    journal = Journal(plan.journal, read=not plan.fresh)
    for world in plan.worlds:
        runs = plan.runs(world)
        if left := [one for one in runs if not finished(journal, one)]:
            tell(f"{world}: {len(left)} of {len(runs)} runs to play")
            play_world(WORLDS[world], plan, left, lambda one, rows: journal.add(one.key, rows), tell)
    rows = [row for world in plan.worlds for one in plan.runs(world) for row in _rows(journal, one)]
    inputs: dict[str, Any] = {
        "default": DEFAULT,
        "kubernetes": DEFAULT_KUBERNETES,
        "split": "test",
        "groups": {name: list(lanes) for name, lanes in plan.groups.items()},
        "noise": AGAIN,
        "bound_s": LONGEST_S,
        "gate": "put on by the chart's admission policy",
        "learned_before": "nothing: the extender is started anew for each run",
        "simulated": "the same calls and worlds, with the same policies, without the processor time of pods; rule-6 with its one setting",
        "estimator": kube.digest()[:16],
        "code": sorted({row["code"] for row in rows}),
        "void_runs": sum(rows[0]["void"] for world in plan.worlds for one in plan.runs(world) for rows in journal.attempts(one.key)),
    }
    if set(plan.lanes) & set(TRIMARAN):
        inputs["trimaran"] = {"scheduler-plugins": programs()["scheduler-plugins"].module.version, "loads": LOADS_FROM}
    shown = [{key: value for key, value in row.items() if key != "code"} for row in rows]
    wall_s = time.monotonic() - began_s
    return Result("live-placement", plan.quick, plan.seeds, wall_s, inputs, shown, summarise(shown), claims(shown))


def finished(journal: Journal, one: Run) -> bool:
    """Whether the journal has a run that counts, or as many void ones as are tried."""
    attempts = journal.attempts(one.key)
    return len(attempts) >= ATTEMPTS or any(not rows[0]["void"] for rows in attempts)


def _rows(journal: Journal, one: Run) -> list[Row]:
    """Rows of the newest run that counts, else of the last void one, with the simulator's figures beside them."""
    attempts = journal.attempts(one.key)
    if not attempts:
        return []
    found = next((rows for rows in reversed(attempts) if not rows[0]["void"]), attempts[-1])
    calls = one.calls()
    simulated = {}
    for lane in one.lanes:
        mean_s = simulated_mean_s(lane, calls, one.world.scenario, core_seconds=CORE_SECONDS_TOLD)
        simulated[lane] = None if mean_s is None else round(mean_s, 4)
    return [row | {"pair": one.pair, "sim_mean_s": simulated[row["lane"]]} for row in found]
