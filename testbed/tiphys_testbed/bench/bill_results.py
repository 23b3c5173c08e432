"""Figures of `tiphys bench bill`: ratios to `most-allocated` on the same trace, a lane's noise against itself, and what is claimed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Claim, Row
from tiphys_testbed.bench.bill_worlds import BAR

METRICS = ("usd", "node_hours", "energy_kwh")
ABSOLUTE = (
    "evictions_batch",
    "evictions_service",
    "lost_core_hours",
    "missed_share",
    "service_shortfall",
    "pending_p95_s",
    "decision_p50_ms",
)
_STOCK = ("kube-default", "most-allocated-only", BAR)
NOT_DEARER, CHEAPER = 1.01, 0.97


def good(rows: Sequence[Row], world: str) -> list[Row]:
    """The world's runs that are not void."""
    return [row for row in rows if row["world"] == world and not row["void"]]


def ratios(rows: Sequence[Row], world: str, lane: str, metric: str = "usd", other: str = BAR) -> list[float]:
    """The lane's first run over the other's on the same trace, one a seed."""
    first = [row for row in good(rows, world) if row["repetition"] == 0]
    base = {row["seed"]: row[metric] for row in first if row["lane"] == other}
    return [row[metric] / base[row["seed"]] for row in first if row["lane"] == lane and row["seed"] in base]


def differences(rows: Sequence[Row], world: str, lane: str, metric: str) -> list[float]:
    """The lane's figure less the bar's on the same trace, one a seed: for what may be zero."""
    first = [row for row in good(rows, world) if row["repetition"] == 0 and row[metric] is not None]
    base = {row["seed"]: row[metric] for row in first if row["lane"] == BAR}
    return [row[metric] - base[row["seed"]] for row in first if row["lane"] == lane and row["seed"] in base]


def repeats(rows: Sequence[Row], world: str, metric: str = "usd") -> list[float]:
    """The second run of a lane over its first on the same trace: what the machine alone makes."""
    kept = good(rows, world)
    first = {(row["seed"], row["lane"]): row[metric] for row in kept if row["repetition"] == 0}
    return [row[metric] / first[row["seed"], row["lane"]] for row in kept if row["repetition"] and (row["seed"], row["lane"]) in first]


def noise(rows: Sequence[Row], world: str) -> float | None:
    """How far apart the two bills of a lane are on average, as a share; None of nothing."""
    found = repeats(rows, world)
    return float(np.mean([abs(ratio - 1) for ratio in found])) if found else None


def told(rows: Sequence[Row], world: str, lane: str) -> bool:
    """Whether the lane's bill differs from the bar's: the interval excludes 1, and the mean is farther from it than the noise."""
    found, spread = ratios(rows, world, lane), noise(rows, world)
    if len(found) < 2 or spread is None:
        return False
    one = interval(found)
    return (one.ci95_high < 1 or one.ci95_low > 1) and abs(one.mean - 1) > spread


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Of each world and lane: ratios to the bar, other figures as they are, and the noise."""
    result: list[Row] = []
    for world, lane in _groups(rows):
        own = firsts(rows, world, lane)
        found = {f"{metric} over {BAR}": ratios(rows, world, lane, metric) for metric in METRICS if lane != BAR}
        found["usd over bound"] = [row["usd"] / row["bound_usd"] for row in own]
        found |= {metric: [row[metric] for row in own if row[metric] is not None] for metric in ABSOLUTE}
        group = {"world": world, "lane": lane}
        result += [group | {"metric": metric} | interval(values).as_json(5) for metric, values in found.items() if values]
    for world in dict.fromkeys(row["world"] for row in rows):
        if again := repeats(rows, world):
            group = {"world": world, "lane": "any, once more"}
            result.append(group | {"metric": "usd over its first run"} | interval(again).as_json(5))
            result.append(group | {"metric": "noise", "mean": round(noise(rows, world) or 0.0, 5)})
    return result


def claims(rows: Sequence[Row]) -> list[Claim]:
    """No policy of ours dearer than the bar in any world, one cheaper by three per cent in one, and not by evicting or losing more."""
    result: list[Claim] = []
    best: list[float] = []
    for world, lane in _groups(rows):
        found = ratios(rows, world, lane)
        if lane in _STOCK or len(found) < 2:
            continue
        result.append(Claim(f"bill-{world}-{lane}-usd-ci95-high", round(interval(found).ci95_high, 4), NOT_DEARER, "<="))
        for metric in ("evictions_batch", "evictions_service", "lost_core_hours", "missed_share"):
            mean = float(np.mean(differences(rows, world, lane, metric)))
            result.append(Claim(f"bill-{world}-{lane}-{metric.replace('_', '-')}-more", round(mean, 4), 0.0, "<="))
        if told(rows, world, lane):
            best.append(interval(found).mean)
    if result:
        result.append(Claim("bill-cheapest-over-most-allocated", round(min(best), 4) if best else None, CHEAPER, "<="))
    return result


def table(rows: Sequence[Row]) -> list[Row]:
    """Worlds and lanes for people."""
    lines = []
    for world, lane in _groups(rows):
        own = firsts(rows, world, lane)
        mean = {metric: _mean(own, metric) for metric in (*METRICS, *ABSOLUTE, "claims", "cpu_share")}
        lines.append(
            {
                "world": f"`{world}`",
                "lane": f"`{lane}`",
                "runs": len(own),
                "US$": f"{mean['usd']:.3f}",
                f"over `{BAR}`": _shown(ratios(rows, world, lane)) if lane != BAR else "1",
                "told apart": "yes" if told(rows, world, lane) else "",
                "over the bound": f"{np.mean([row['usd'] / row['bound_usd'] for row in own]):.2f}",
                "node-hours": f"{mean['node_hours']:.2f}",
                "claims": f"{mean['claims']:.0f}",
                "CPU": f"{mean['cpu_share']:.0%}",
                "evicted, batch / service": f"{mean['evictions_batch']:.1f} / {mean['evictions_service']:.0f}",
                "lost core-h": f"{mean['lost_core_hours']:.2f}",
                "missed": f"{mean['missed_share']:.1%}",
                "services lacked": f"{mean['service_shortfall']:.1%}",
                "pending p95 s": f"{mean['pending_p95_s']:.0f}",
            }
        )
    return lines


def noise_table(rows: Sequence[Row]) -> list[Row]:
    """What a lane differs from itself, for each world."""
    lines = []
    for world in dict.fromkeys(row["world"] for row in rows):
        found, spread = repeats(rows, world), noise(rows, world)
        if spread is not None:
            voids = sum(bool(row["void"]) for row in rows if row["world"] == world)
            lines.append(
                {
                    "world": f"`{world}`",
                    "pairs": len(found),
                    "mean difference": f"{spread:.1%}",
                    "largest": f"{max(abs(r - 1) for r in found):.1%}",
                    "void runs": voids,
                }
            )
    return lines


def firsts(rows: Sequence[Row], world: str, lane: str) -> list[Row]:
    """The lane's first run on each trace: the second one is there for the noise alone."""
    return [row for row in good(rows, world) if row["lane"] == lane and row["repetition"] == 0]


def _groups(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [pair for pair in dict.fromkeys((row["world"], row["lane"]) for row in rows) if firsts(rows, *pair)]


def _mean(rows: Sequence[Row], metric: str) -> float:
    values = [row[metric] for row in rows if row[metric] is not None]
    return float(np.mean(values)) if values else float("nan")


def _shown(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}" if values else ""
    found = interval(values)
    return f"{found.mean:.3f} ({found.ci95_low:.3f}–{found.ci95_high:.3f})"
