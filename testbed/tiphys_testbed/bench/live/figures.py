"""From rows to figures: ratios paired by run, claims, and the tables of the document."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Claim, Result, Row, Trivial
from tiphys_models.placement.waiting import LONGEST_S
from tiphys_testbed.bench.live.lanes import AGAIN, BASE, STOCK, TRIMARAN

DEFAULT, STRONGEST = "estimator", "rule-6"
BOUNDS = {"standard": 0.95, "readings-15s": 0.75, "dear-starts": 0.70}
"""What the default's mean completion time over warm-first's must stay below."""
GRACE_S = 5.0
"""How much longer than the bound anybody may be held, whatever has died."""
_METRICS = ("mean_s", "p99_s", "sim_mean_s")


def ratios(rows: Sequence[Row], world: str, lane: str, other: str, metric: str = "mean_s") -> list[float]:
    """One a run that was not disturbed, both lanes of the same run; a lane that stands in several groups has several."""
    kept = [row for row in rows if row["world"] == world and not row["void"] and not row["fault"] and row[metric] is not None]
    base = {(row["group"], row["pair"]): row[metric] for row in kept if row["lane"] == other}
    return [row[metric] / base[key] for row in kept if row["lane"] == lane and (key := (row["group"], row["pair"])) in base]


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Every lane over warm-first and over rule-6, live and simulated, paired."""
    result: list[Row] = []
    lanes = list(dict.fromkeys(row["lane"] for row in rows))
    for world in dict.fromkeys(row["world"] for row in rows if not row["fault"]):
        for lane in lanes:
            for other in (BASE, STRONGEST):
                for metric in _METRICS:
                    if lane != other and (found := ratios(rows, world, lane, other, metric)):
                        line: Row = {"world": world, "lane": lane, "metric": f"{metric} over {other}"}
                        result.append(line | interval(found).as_json(4))
    return result


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The default ahead of warm-first by so much, and nobody held beyond the bound, with a process killed or without."""
    result: list[Claim] = []
    for world, bound in BOUNDS.items():
        if found := ratios(rows, world, DEFAULT, BASE):
            figures = interval(found)
            name = f"live-{world}-{DEFAULT}-over-{BASE}"
            result.append(Claim(name, round(figures.mean, 4), bound, "<=", Trivial(BASE, 1.0)))
            result.append(Claim(f"{name}-ci95-high", round(figures.ci95_high, 4), 0.9999, "<=", Trivial(BASE, 1.0)))
    for fault in dict.fromkeys(row["fault"] for row in rows):
        longest_s = max(row["longest_hold_s"] for row in rows if row["fault"] == fault)
        result.append(Claim(f"live-longest-hold-s{f'-{fault}-killed' if fault else ''}", longest_s, LONGEST_S + GRACE_S, "<="))
    return result


def shown_name(lane: str, *, plugins: bool = True) -> str:
    """How documents call a lane."""
    if lane == AGAIN:
        return f"`{BASE}`, once more"
    if lane in TRIMARAN:
        return f"Trimaran's {TRIMARAN[lane]}" if plugins else f"formula of Trimaran's {TRIMARAN[lane]}, as an extender lane"
    return f"stock scheduler, `{lane}`" if lane in STOCK else f"`{lane}`"


def table(rows: Sequence[Row]) -> list[Row]:
    """Worlds and lanes for people; rows of several groups of one lane stand in one line."""
    lines = []
    for world, lane in dict.fromkeys((row["world"], row["lane"]) for row in rows if not row["fault"]):
        own = [row for row in rows if (row["world"], row["lane"], row["fault"]) == (world, lane, "") and not row["void"]]
        if own:
            simulated = [row["sim_mean_s"] for row in own if row["sim_mean_s"] is not None]
            lines.append(
                {
                    "world": world,
                    "placed by": shown_name(lane),
                    "runs": len(own),
                    "mean s": f"{np.mean([row['mean_s'] for row in own]):.2f}",
                    "simulated": f"{np.mean(simulated):.2f}" if simulated else "",
                    f"over `{BASE}`": _shown(ratios(rows, world, lane, BASE)),
                    "simulated, over it": _shown(ratios(rows, world, lane, BASE, "sim_mean_s")),
                    f"over `{STRONGEST}`": _shown(ratios(rows, world, lane, STRONGEST)),
                    f"p99 over `{BASE}`": _shown(ratios(rows, world, lane, BASE, "p99_s")),
                    "cold starts": f"{np.mean([row['cold_starts'] for row in own]):.0f}",
                    "held": f"{np.mean([row['held_share'] for row in own]):.0%}",
                    "longest s": f"{max(row['longest_hold_s'] for row in own):.1f}",
                }
            )
    return lines


def fault_table(rows: Sequence[Row]) -> list[Row]:
    """What a killed process cost those who waited."""
    return [
        {
            "killed": row["fault"],
            "placed by": shown_name(row["lane"]),
            "run": row["run"],
            "mean s": f"{row['mean_s']:.2f}",
            "held": f"{row['held_share']:.0%}",
            "longest s": f"{row['longest_hold_s']:.1f}",
            "never done": row["lost"],
        }
        for row in rows
        if row["fault"]
    ]


def _shown(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}" if values else ""
    found = interval(list(values))
    return f"{found.mean:.3f} ({found.ci95_low:.3f}–{found.ci95_high:.3f})"


def tables(result: Result) -> Sequence[tuple[str, Sequence[Row]]]:
    """What people are shown."""
    shown = [("live placement", table(result.rows)), ("with a process killed", fault_table(result.rows))]
    return [(title, lines) for title, lines in shown if lines]
