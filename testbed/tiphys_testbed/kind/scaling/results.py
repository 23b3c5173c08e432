"""Rows of results from what lanes left behind, and the claims that follow from the rows. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tiphys_models.lab.report import Claim, Row
from tiphys_testbed.kind.scaling.lanes import PlayedLane
from tiphys_testbed.kind.scaling.plan import OBJECTIVE, ComparisonPlan, LaneLoad
from tiphys_testbed.kind.scaling.watching import grown_after_s, use
from tiphys_testbed.workloads.load import fell_behind, histogram, windows

PEERS = ("hpa", "vpa")
NEAR = 0.02
"""Share of windows within which costs are compared: far below ours, less CPU is no merit."""


def row(played: PlayedLane, plan: ComparisonPlan, load: LaneLoad) -> Row:
    """The row of one lane."""
    found = windows(played.sent, float(plan.window_s), plan.windows, OBJECTIVE.target_s)
    kept = [window.kept(OBJECTIVE.percentile) for window in found]
    latencies = [each.latency_s for each in played.sent]
    used = use(played.looks, played.begin_s, played.begin_s + plan.seconds)
    made: Row = {
        "shape": plan.shape,
        "lane": played.lane,
        "seed": plan.seed,
        "windows": len(found),
        "slo_attained": sum(kept) / len(found),
        "requests": len(latencies),
        "requests_attained": sum(x <= OBJECTIVE.target_s for x in latencies) / len(latencies),
        "never_served": sum(not math.isfinite(x) for x in latencies) / len(latencies),
        "p90_ms": _ms(histogram(latencies).quantile(0.9)),
        "cpu_hours": used.cpu_hours,
        "replica_hours": used.pod_hours,
        "cost": used.cost,
        "most_pods": used.most_pods,
        "switches": used.switches,
        "restarts": used.restarts,
        "generator_late": fell_behind(played.sent),
        "start": {name: {"pods": begin.pods, "cpu_m": begin.cpu_m} for name, begin in played.started.items()},
    }
    return made | _after_the_jump(played, plan, load, kept)


def _after_the_jump(played: PlayedLane, plan: ComparisonPlan, load: LaneLoad, kept: Sequence[bool]) -> Row:
    jump_s, calm_s = load.jump_s, load.calm_s
    made: Row = {"jump_s": jump_s, "cpu_up_s": None, "in_place_s": None, "p90_back_s": None, "jump_lasts_s": None}
    if jump_s is None:
        return made
    made["jump_lasts_s"] = (calm_s or float(plan.seconds)) - jump_s
    for key, in_place in (("cpu_up_s", False), ("in_place_s", True)):
        made[key] = grown_after_s(played.granted, played.begin_s + jump_s, in_place=in_place)
    first = int(jump_s // plan.window_s)
    last = min(math.ceil((calm_s or plan.seconds) / plan.window_s), len(kept))
    missed = [number for number in range(first, last) if not kept[number]]
    # back when the last missed window of the jump has ended; 0 if none was missed, None if it was missed to the end
    back = (missed[-1] + 1) * plan.window_s - jump_s if missed else 0.0
    made["p90_back_s"] = None if missed and missed[-1] == last - 1 else back
    return made


def claims(rows: Sequence[Row], window_s: int) -> list[Claim]:
    """What must be shown on real kubelets, of every lane that was played; the worst of several seeds."""
    ours = [row for row in rows if row["lane"] == "tiphys"]
    made: list[Claim] = []
    if ours:
        made += [
            Claim("kind-in-place-cpu-up-s", _worst(row["in_place_s"] for row in ours), float(window_s), "<="),
            Claim("kind-p90-back-share-of-jump", _worst(_share(row) for row in ours), 1.0, "<="),
            Claim("kind-restarts", _worst(row["restarts"] for row in ours), 0.0, "<="),
        ]
    for peer in PEERS:
        pairs = [(mine, row) for mine in ours for row in rows if row["lane"] == peer and row["seed"] == mine["seed"]]
        if not pairs:
            continue
        ahead = [mine["slo_attained"] - theirs["slo_attained"] for mine, theirs in pairs]
        made.append(Claim(f"kind-windows-ahead-of-{peer}", round(min(ahead), 4), 0.0, ">="))
        near = [mine["cost"] / theirs["cost"] for mine, theirs in pairs if theirs["slo_attained"] >= mine["slo_attained"] - NEAR]
        if near:
            made.append(Claim(f"kind-cost-of-{peer}", round(max(near), 4), 0.9999, "<="))
    return made


COLUMNS: Mapping[str, tuple[str, str]] = {
    "lane": ("scaled by", "{}"),
    "seed": ("seed", "{}"),
    "slo_attained": ("windows within SLO", "{:.1%}"),
    "requests_attained": ("requests within SLO", "{:.1%}"),
    "never_served": ("never served", "{:.1%}"),
    "p90_ms": ("p90 ms", "{:.0f}"),
    "cpu_hours": ("CPU-hours", "{:.4f}"),
    "replica_hours": ("pod-hours", "{:.4f}"),
    "cost": ("cost", "{:.4f}"),
    "cpu_up_s": ("more CPU after s", "{:.1f}"),
    "in_place_s": ("in place after s", "{:.1f}"),
    "p90_back_s": ("p90 back after s", "{:.1f}"),
    "most_pods": ("most pods", "{}"),
    "switches": ("switches", "{:.0f}"),
    "restarts": ("restarts", "{}"),
}


_WORST_OF = ("most_pods", "restarts")


def with_means(rows: Sequence[Row]) -> list[Row]:
    """The rows and, with several seeds, one more for each lane: means, and the most pods and restarts; empty where a seed has no value."""
    lanes = list(dict.fromkeys(row["lane"] for row in rows))
    if len(rows) == len(lanes):
        return list(rows)
    made: list[Row] = []
    for lane in lanes:
        mine = [row for row in rows if row["lane"] == lane]
        mean: Row = {"lane": lane, "seed": "all"}
        for key in COLUMNS.keys() - mean.keys():
            found = [row[key] for row in mine]
            if any(value is None for value in found):
                mean[key] = None
            else:
                mean[key] = max(found) if key in _WORST_OF else sum(found) / len(found)
        made.append(mean)
    return [*rows, *made]


def line(found: Row) -> list[str]:
    """A row as text; a dash where something never happened."""
    return ["–" if found[key] is None else form.format(found[key]) for key, (_, form) in COLUMNS.items()]


def _worst(values: Any) -> float | None:
    found = list(values)
    return None if any(value is None for value in found) else round(max(found), 3)


def _share(found: Row) -> float | None:
    return None if found["p90_back_s"] is None or not found["jump_lasts_s"] else found["p90_back_s"] / found["jump_lasts_s"]


def _ms(seconds: float) -> float | None:
    return round(1000 * seconds, 1) if math.isfinite(seconds) else None
