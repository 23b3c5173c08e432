"""Records, decisions and results of demo runs that never happened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiphys_models.placement.registry import PolicyName
from tiphys_testbed.demo.decisions import LaneDecisions
from tiphys_testbed.demo.lanes import CONTROL, lane_nodes, make_lanes
from tiphys_testbed.demo.records import CallRecord
from tiphys_testbed.demo.report import DemoResult
from tiphys_testbed.demo.results import (
    ReplayResult,
    lane_result,
    problems,
    summarize,
)


def record(lane: str = "a", due_s: float = 0.0, took_s: float | None = 1.0, **changes: Any) -> CallRecord:
    done_s = None if took_s is None else due_s + took_s
    facts: dict[str, Any] = {
        "pod": f"p-{due_s:g}",
        "function": "dh",
        "created_s": due_s,
        "bound_s": due_s + 0.1,
        "node": f"{lane}-0000",
        "cold": False,
    }
    return CallRecord(lane=lane, due_s=due_s, done_s=done_s, **(facts | changes))


def decision(pod: str, best: str = "n", outcome: str = "scored", namespace: str = "demo-a", **changes: Any) -> dict[str, Any]:
    top = [{"node": best, "score": 10, "raw": 1.0}, {"node": "other", "score": 9, "raw": 0.5}]
    return {
        "seq": 1,
        "namespace": namespace,
        "pod": pod,
        "outcome": outcome,
        "reason": "",
        "candidates": 21,
        "top": top,
        "durationMs": 0.5,
    } | changes


def replayed(seed: int, control_s: float, policy_s: float, decisions: LaneDecisions | None = None) -> ReplayResult:
    said = decisions or LaneDecisions(scored=2, best_bound=2, reasons={})
    records = [record(lane, due_s, took_s) for lane, took_s in ((CONTROL, control_s), ("warm-first", policy_s)) for due_s in (0.0, 1.0)]
    lanes = tuple(
        lane_result(lane, seed, [r for r in records if r.lane == lane], 10.0, None if lane == CONTROL else said)
        for lane in (CONTROL, "warm-first")
    )
    return ReplayResult(seed, 10.0, 12.0, lanes, tuple(records))


def demo_result(replays: Sequence[ReplayResult]) -> DemoResult:
    nodes = {node.name: node for lane in make_lanes([PolicyName.WARM_FIRST]) for node in lane_nodes(lane, 6)}
    return DemoResult(
        "0.1.0", "v1.36.3", 90.0, tuple(replays), tuple(summarize(replays, CONTROL)), tuple(problems(replays)), nodes, "M10", True
    )
