"""`tiphys bench live-placement`: policies on the live control plane, and the same calls in the simulator.

The lanes of the demo at the same time, nodes of the simulator's default; a row is one lane, seed and setting of reuse. What a live
completion time has more than a simulated one is told apart: latencies of the control plane (live less the same choices without
them) and other choices (those less what the simulator chose).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tiphys_cli.kube.errors import ClusterError
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Claim, Result, Row
from tiphys_models.placement.registry import PolicyName
from tiphys_models.placement.sim.scenario import FaasScenario
from tiphys_models.placement.sim.workloads import KINDS
from tiphys_testbed.bench.live_twin import policy_of, replayed_mean_s, simulate
from tiphys_testbed.demo.lanes import CONTROL, Lane
from tiphys_testbed.demo.records import CallRecord
from tiphys_testbed.demo.report import DemoResult
from tiphys_testbed.demo.results import LaneResult
from tiphys_testbed.demo.services import READINGS_INTERVAL_S
from tiphys_testbed.demo.session import WORKLOAD, DemoOptions, play
from tiphys_testbed.demo.stage import staged
from tiphys_testbed.tools.progress import Progress
from tiphys_testbed.tools.toolbox import Toolbox

POLICIES = (PolicyName.FAASRANK, PolicyName.WARM_FIRST, PolicyName.STATIC_RANK)
NAME = "bench-live"
OLDER_S = READINGS_INTERVAL_S / 2
"""The simulator's samples are half a second old on average; a live one is taken as often, and then waits for the next poll."""
_QUICK_S = 15.0
_CALM_CREATE_S = 0.1
_STAGES = ("create_s", "bind_s", "wait_s", "run_s", "report_s")
_SIMULATED = ("sim_s", "kubernetes_sim_s", "aged_sim_s")
_FIGURES = ("mean_s", *_SIMULATED, "replayed_s", "latency_s", "choices_s", *_STAGES)


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What is compared: policies, workload, seeds, and with or without reuse of containers."""

    seeds: tuple[int, ...]
    workload: str = WORKLOAD
    reuse: tuple[bool, ...] = (True, False)
    policies: tuple[PolicyName, ...] = POLICIES
    quick: bool = False

    @classmethod
    def asked(cls, seeds: tuple[int, ...], workload: str, reuse: str, *, quick: bool) -> LivePlan:
        """What the options say; InvalidInput names what there is not."""
        settings = {"on": (True,), "off": (False,), "both": (True, False)}
        if workload not in KINDS or reuse not in settings:
            raise InvalidInput(f"--workload wants one of {', '.join(KINDS)} and --reuse one of {', '.join(settings)}")
        return cls(seeds[:2] if quick else seeds, workload, settings[reuse], quick=quick)

    def options(self, reuse: bool) -> DemoOptions:
        """Options of the demo, which plays the plan."""
        return DemoOptions(
            policies=self.policies,
            seeds=self.seeds,
            workload=self.workload,
            first_s=_QUICK_S if self.quick else math.inf,
            reuse=reuse,
            shadow=PolicyName.FAASRANK,
            name=NAME,
        )


def run(plan: LivePlan, tell: Callable[[str], None]) -> Result:
    """Play everything live, then in the simulator."""
    started = time.monotonic()
    rows: list[Row] = []
    kubernetes = ""
    for reuse in plan.reuse:
        options = plan.options(reuse)
        with staged(options.scene, Toolbox(progress=Progress())) as stage:
            result = asyncio.run(play(stage, options, _Teller(tell, reuse)))
        if result.problems:
            raise ClusterError("; ".join(result.problems))
        kubernetes = result.kubernetes
        tell("the same calls in the simulator")
        rows += rows_of(result, options, stage.lanes)
    if found := disturbed(rows):
        tell(f"the machine was busy with other things in {len(found)} of {len(plan.seeds) * len(plan.reuse)} runs: do not quote them")
    inputs: dict[str, Any] = {
        "workload": plan.workload,
        "split": "test",
        "nodes_per_lane": plan.options(True).nodes_per_lane,
        "kubernetes": kubernetes,
        "disturbed": disturbed(rows),
        "models": {str(PolicyName.FAASRANK): getattr(policy_of(PolicyName.FAASRANK), "digest", "")},
    }
    wall_s = time.monotonic() - started
    return Result("live-placement", plan.quick, plan.seeds, wall_s, inputs, rows, summarise(rows), claims(rows))


def rows_of(result: DemoResult, options: DemoOptions, lanes: Sequence[Lane]) -> list[Row]:
    """One a lane and seed, with the simulator's figures beside the live ones."""
    by_name = {lane.name: lane for lane in lanes}
    rows = []
    for replay in result.replays:
        calls = options.calls(replay.seed)
        for live in replay.lanes:
            lane = by_name[live.lane]
            placed_by = lane.policy if lane.mode == "Active" else None
            scenario = FaasScenario(nodes=options.nodes_per_lane, reuse=options.reuse)
            plain = simulate(calls, placed_by, scenario)
            kubernetes = simulate(calls, placed_by, scenario, kubernetes=True)
            aged = simulate(calls, placed_by, replace(scenario, delay_s=OLDER_S), kubernetes=True)
            records = replay.records_of(live.lane)
            pool = [(n.name, n.machine.cores, n.machine.memory_bytes) for n in result.nodes.values() if n.pool == lane.pool]
            replayed_s = replayed_mean_s(records, pool, reuse=options.reuse)
            simulated = {
                "sim_s": plain.mean_s,
                "kubernetes_sim_s": kubernetes.mean_s,
                "aged_sim_s": aged.mean_s,
                "aged_sim_cold_starts": aged.cold_starts,
                "replayed_s": replayed_s,
                "latency_s": live.mean_s - replayed_s,
                "choices_s": replayed_s - plain.mean_s,
            }
            rows.append(_rounded({"workload": options.workload, "reuse": options.reuse} | _live(live) | stages(records) | simulated))
    return rows


def _live(live: LaneResult) -> Row:
    return {
        "policy": live.lane,
        "seed": live.seed,
        "calls": live.calls,
        "mean_s": live.mean_s,
        "p50_s": live.p50_s,
        "p95_s": live.p95_s,
        "p99_s": live.p99_s,
        "cold_starts": live.cold_starts,
        "decided": live.scored_share,
        "bound_to_first_choice": live.best_bound_share,
    }


def stages(records: Sequence[CallRecord]) -> dict[str, float]:
    """Where the time of a call goes, on average; the five add up to its completion time."""
    times = [
        (r.due_s, r.created_s, r.taken_s, r.begun_s, r.finished_s, r.done_s)
        for r in records
        if None not in (r.created_s, r.taken_s, r.begun_s, r.finished_s, r.done_s)
    ]
    # The watch may show a pod's node before the answer to its creation has come: then nothing is left of the second stage.
    array = np.maximum.accumulate(np.array(times, np.float64).reshape(-1, len(_STAGES) + 1), axis=1)
    return dict(zip(_STAGES, np.diff(array, axis=1).mean(axis=0).tolist(), strict=True))


def disturbed(rows: Sequence[Row]) -> list[Row]:
    """Runs in which a pod took long to be created: that is the API server waiting for a core, not placement."""
    runs = {(row["reuse"], row["seed"]) for row in rows if row["create_s"] > _CALM_CREATE_S}
    return [{"reuse": reuse, "seed": seed} for reuse, seed in sorted(runs)]


# ---- from rows to figures --------------------------------------------------------------------------------------------


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Every lane's figures, and its mean completion time over the plain scheduler's, seed by seed: live and in the simulator."""
    summary = []
    for reuse in dict.fromkeys(row["reuse"] for row in rows):
        own = [row for row in rows if row["reuse"] == reuse]
        for policy in dict.fromkeys(row["policy"] for row in own):
            lane = [row for row in own if row["policy"] == policy]
            group = {"reuse": reuse, "policy": policy}
            summary += [group | {"metric": metric} | _interval([row[metric] for row in lane]) for metric in _FIGURES]
            if policy != CONTROL:
                for metric in ("mean_s", *_SIMULATED):
                    summary.append(group | {"metric": f"{metric} over {CONTROL}"} | _interval(ratios(own, policy, metric)))
            if lane[0]["bound_to_first_choice"] is not None:
                shares = [row["bound_to_first_choice"] for row in lane]
                summary.append(group | {"metric": "bound_to_first_choice"} | _interval(shares))
    return summary


def ratios(rows: Sequence[Row], policy: str, metric: str = "mean_s", over: str = CONTROL) -> list[float]:
    """The policy's metric over the control's, paired by seed."""
    control = {row["seed"]: row[metric] for row in rows if row["policy"] == over}
    return [row[metric] / control[row["seed"]] for row in rows if row["policy"] == policy]


def claims(rows: Sequence[Row]) -> list[Claim]:
    """What the live comparison has to show with warm reuse; the figures without it stand in the summary."""
    result = []
    found = ratios([row for row in rows if row["reuse"]], PolicyName.FAASRANK)
    if found:
        figures = interval(found)
        result = [
            Claim("live-faasrank-over-default", round(figures.mean, 4), 0.90, "<="),
            Claim("live-faasrank-over-default-ci95-high", round(figures.ci95_high, 4), 0.9999, "<="),
        ]
    decided = [row["decided"] for row in rows if row["policy"] == PolicyName.FAASRANK]
    return [*result, Claim("live-faasrank-decided", min(decided), 0.95, ">=")] if decided else result


def _interval(values: Sequence[float]) -> Row:
    return interval(values).as_json(4)


def _rounded(row: Row) -> Row:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}


@dataclass(slots=True)
class _Teller:
    """A listener of the demo that prints a line for each seed."""

    tell: Callable[[str], None]
    reuse: bool
    _seed: int = field(default=-1)

    def started(self, seed: int) -> None:
        self.tell(f"seed {seed}, {'warm' if self.reuse else 'no'} reuse")

    def progress(self, elapsed_s: float, records: Sequence[CallRecord]) -> None:
        """Progress within a replay is not printed."""

    def finished(self, result: DemoResult) -> None:
        for summary in result.summaries:
            self.tell(f"  {summary.lane}: mean {summary.mean_s.mean:.2f} s, {summary.pct_of_control.mean:.1f} % of {CONTROL}")
