"""Summaries and claims of the placement study, made of rows of `tiphys bench placement`: nothing here plays anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Claim, Row
from tiphys_models.placement.sim.scenario import AGES, MIXED, NODE_LOSS, PROFILED, SENSITIVITY, SIZES
from tiphys_models.placement.sim.workloads import MULTI

FIVE = ("hashing", "round-robin", "least-connections", "greedy", "static-rank")
"""The five baselines of the FaaSRank paper."""
COMPARATORS = ("warm-first", "static-rank-tuned")
LEARNED = ("faasrank", "faasrank-paper")
_BEHIND = 1.02
_EPISODES = 500
_EPISODES_S = 120.0
_TRAINING_SEEDS = 5


def _table(rows: Sequence[Row], scenario: str, workloads: Sequence[str], column: str = "mean_s") -> dict[str, np.ndarray[Any, Any]]:
    """policy -> [seeds, workloads]; only seeds that every workload has."""
    chosen = [r for r in rows if r["scenario"] == scenario and r["workload"] in workloads]
    names = [w for w in workloads if any(r["workload"] == w for r in chosen)]
    seeds = sorted({r["seed"] for r in chosen})
    found: dict[str, dict[tuple[int, str], float]] = {}
    for r in chosen:
        found.setdefault(r["policy"], {})[r["seed"], r["workload"]] = r[column]
    return {p: np.array([[cells[s, w] for w in names] for s in seeds]) for p, cells in found.items()}


def _groups(rows: Sequence[Row]) -> list[tuple[str, str, tuple[str, ...]]]:
    groups = [("default", name, (name,)) for name in dict.fromkeys(r["workload"] for r in rows if r["scenario"] == "default")]
    return groups + [(scenario, "M1-M10", MULTI) for scenario in dict.fromkeys(r["scenario"] for r in rows)]


def summarise(rows: Sequence[Row]) -> list[Row]:
    """Percent of hashing, with intervals over paired seeds of the mean over workloads."""
    result: list[Row] = []
    for scenario, label, workloads in _groups(rows):
        table = _table(rows, scenario, workloads, "mean_s")
        for policy in table:
            percents = 100 * (table[policy] / table["hashing"]).mean(axis=1)
            line: Row = {"scenario": scenario, "workload": label, "policy": policy, "metric": "pct_of_hashing"}
            result.append(line | interval(percents.tolist()).as_json(4))
            for metric in ("mean_s", "p95_s", "p99_s", "cold_starts", "inflight_lower_share", "jain_fairness"):
                if scenario == "default":
                    values = _table(rows, scenario, workloads, metric)[policy]
                    if not any(v is None for v in values.ravel().tolist()):
                        figures = interval(values.mean(axis=1).tolist()).as_json(4)
                        result.append({"scenario": scenario, "workload": label, "policy": policy, "metric": metric} | figures)
        for other in ("static-rank", "least-connections", *COMPARATORS):
            if "faasrank" in table and other in table:
                figures = interval((table["faasrank"] / table[other]).mean(axis=1).tolist()).as_json(4)
                line = {"scenario": scenario, "workload": label, "policy": "faasrank", "metric": f"over {other}"}
                result.append(line | figures)
    return result


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The published claims that these rows can answer."""
    table = _table(rows, "default", MULTI)
    if "faasrank" not in table:
        return []
    mine = table["faasrank"]
    result = [Claim("faasrank-mean-pct-of-hashing", _pct(mine, table["hashing"]), 58, "<=")]
    if all(p in table for p in FIVE):
        best = np.min([table[p].mean(axis=0) for p in FIVE], axis=0)
        result.append(Claim("faasrank-best-of-five-workloads", float((mine.mean(axis=0) <= best).sum()), float(mine.shape[1]), ">="))
    if "static-rank" in table:
        result.append(Claim("faasrank-over-static-rank", _ratio(mine, table["static-rank"])[0], 0.82, "<="))
    for other in COMPARATORS:
        if other in table:
            mean, high = _ratio(mine, table[other])
            result += [Claim(f"faasrank-over-{other}", mean, 0.97, "<="), Claim(f"faasrank-over-{other}-ci95-high", high, 0.9999, "<=")]
    if "clairvoyant" in table and "static-rank" in table:
        static, bound = (100 * (table[p] / table["hashing"]).mean() for p in ("static-rank", "clairvoyant"))
        own = 100 * (mine / table["hashing"]).mean()
        result.append(Claim("faasrank-gap-closed", round(float((static - own) / (static - bound)), 4), 0.65, ">="))
    azure = _table(rows, "default", ("azure",))
    if "faasrank" in azure:
        result.append(Claim("faasrank-azure-pct-of-hashing", _pct(azure["faasrank"], azure["hashing"]), 54, "<="))
        worst = max((_ratio(azure["faasrank"], azure[p])[1] for p in (*FIVE, *COMPARATORS) if p in azure), default=None)
        result.append(Claim("faasrank-azure-over-best-comparator-ci95-high", worst, 0.9999, "<="))
    little_known = tuple(s.name for s in PROFILED)
    for scenario in ("default", *(s.name for s in (*AGES, *SIZES, MIXED, NODE_LOSS, *SENSITIVITY)), *little_known):
        there = _table(rows, scenario, MULTI)
        for policy in ("static-rank", "least-connections", *(("warm-first",) if scenario in little_known else ())):
            if policy in there and "faasrank" in there:
                result.append(Claim(f"never-behind-{policy}-{scenario}", _ratio(there["faasrank"], there[policy])[1], _BEHIND, "<="))
    return result


def training_claims(training: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Claim]:
    """What the models' cards say of their training: {policy: one entry a training seed, the chosen one first}."""
    result = []
    for policy, seeds in training.items():
        slowest = max((s["seconds"] * _EPISODES / s["episodes"] for s in seeds), default=None)
        result.append(Claim(f"{policy}-training-seeds", float(len(seeds)), _TRAINING_SEEDS, ">="))
        result.append(Claim(f"{policy}-{_EPISODES}-training-episodes-s", slowest and round(slowest, 1), _EPISODES_S, "<="))
        if seeds:
            best = min(s["validation_pct_of_hashing"] for s in seeds)
            result.append(Claim(f"{policy}-shipped-over-best-on-validation", seeds[0]["validation_pct_of_hashing"] / best, 1.0, "<="))
    return result


def _pct(mine: np.ndarray[Any, Any], hashing: np.ndarray[Any, Any]) -> float:
    return round(100 * float((mine / hashing).mean()), 3)


def _ratio(mine: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> tuple[float, float]:
    """(mean, upper end of the interval) of the ratio."""
    found = interval((mine / other).mean(axis=1).tolist())
    return round(found.mean, 4), round(found.ci95_high, 4)
