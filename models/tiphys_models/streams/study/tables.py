"""Tables of the study of streams: success/reject/failure in percent, policies below each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tiphys_models.lab.documents import Tables
from tiphys_models.lab.report import Result, Row
from tiphys_models.streams.rules import PAPER, STATIC
from tiphys_models.streams.sim.topology import TOPOLOGIES
from tiphys_models.streams.study.figures import EVERY, FIGURES
from tiphys_models.streams.study.play import BLIND, FIXED_OF

_AGENT = "aset"
_BY_BOTH = "full-edge, lambda 60: success by scenario and application, %"


def shown(policy: str, training_seed: int | str | None) -> str:
    """A policy's line; an agent has one for every training seed, and one for all."""
    if training_seed is None:
        return policy
    return f"{policy} (all seeds)" if training_seed == EVERY else f"{policy} (seed {training_seed})"


def titles(policies: Sequence[str], arrivals: str | None) -> list[str]:
    """The tables that a run with these policies and this file of arrivals will have lines for."""
    static = [p for p in policies if p in STATIC]
    compared = bool(static) and len(policies) > 1
    found = {"infeasible in an empty system, %": True, "what is asked": True}
    for topology in TOPOLOGIES:
        found[f"{topology}: success/reject/failure, % by lambda"] = True
        found[f"{topology}: success over the best static policy, points by lambda"] = compared
    if arrivals is not None:
        found |= {f"arrivals of {arrivals}": True, f"arrivals of {arrivals}: over the best static": compared}
    found |= {
        "full-edge, lambda 60: success of static policies by application, %": bool({*STATIC, *BLIND, "random"} & set(policies)),
        "full-edge, lambda 60, by scenario": True,
        "full-edge, lambda 60: over the best static policy by scenario, points": compared,
        _BY_BOTH: bool(static) or _AGENT in policies,
        "full-edge: success if streams might move": True,
        "full-edge, lambda 60: shares of what the oracle gains": {"oracle", *PAPER} <= set(policies),
    }
    return [title for title, there in found.items() if there]


def tables(result: Result) -> Tables:
    """Topologies at every rate, applications, the arrivals of a file, scenarios; what is infeasible, whatever the policy."""
    twins = _twins(result.summary)
    summary = [s for s in result.summary if (s["policy"], s["training_seed"]) not in twins]
    default = [s for s in summary if s["scenario"] == "default" and s["application"] == "all"]
    poisson = [s for s in default if s["arrivals"] == "poisson"]
    found: list[tuple[str, Sequence[Row]]] = [
        ("infeasible in an empty system, %", list(_infeasible(result))),
        ("what is asked", [result.inputs["workload"]]),
    ]
    for topology in dict.fromkeys(s["topology"] for s in poisson):
        here = [s for s in poisson if s["topology"] == topology]
        found.append((f"{topology}: success/reject/failure, % by lambda", _triples(here, "lambda_per_min")))
        found.append((f"{topology}: success over the best static policy, points by lambda", _over(here, "lambda_per_min")))
    for arrivals in dict.fromkeys(s["arrivals"] for s in default if s["arrivals"] != "poisson"):
        here = [s for s in default if s["arrivals"] == arrivals]
        found += [
            (f"arrivals of {arrivals}", _triples(here, "arrivals")),
            (f"arrivals of {arrivals}: over the best static", _over(here, "arrivals")),
        ]
    edge = [s for s in summary if s["topology"] == "full-edge" and s["arrivals"] == "poisson" and s["lambda_per_min"] == 60.0]
    applications = [s for s in edge if s["scenario"] == "default" and s["application"] != "all" and s["policy"] in _static(result)]
    found.append(
        ("full-edge, lambda 60: success of static policies by application, %", _triples(applications, "application", ("success",)))
    )
    scenarios = [s for s in edge if s["application"] == "all"]
    found.append(("full-edge, lambda 60, by scenario", _triples(scenarios, "scenario")))
    found.append(("full-edge, lambda 60: over the best static policy by scenario, points", _over(scenarios, "scenario")))
    found.append((_BY_BOTH, list(_by_scenario_and_application(edge))))
    if moved := result.inputs.get("if_streams_moved"):
        found.append(("full-edge: success if streams might move", moved))
    if shares := result.inputs.get("shares_of_oracle_gain"):
        silent = {f"{policy}-{seed}" for policy, seed in twins}
        told = {name: f"{value:.2f}" for name, value in shares.items() if name not in silent}
        found.append(("full-edge, lambda 60: shares of what the oracle gains", [told]))
    return [(title, rows) for title, rows in found if rows]


def _twins(summary: Sequence[Row]) -> set[tuple[str, int | str | None]]:
    """Fixed actions of agents that never switched: they say the same again."""
    means: dict[tuple[str, int | str | None], list[float]] = {}
    for s in summary:
        means.setdefault((s["policy"], s["training_seed"]), []).append(s["mean"])
    return {(p, seed) for (p, seed), values in means.items() if p in FIXED_OF and values == means.get((FIXED_OF[p], seed))}


def _static(result: Result) -> set[str]:
    return {s["best_static"] for s in result.summary} | {s["policy"] for s in result.summary if s["training_seed"] is None} - {
        "score",
        "oracle",
    }


def _infeasible(result: Result) -> Iterator[Row]:
    for name, topology in result.inputs["topologies"].items():
        by_application = {k: f"{100 * v:.1f}" for k, v in topology["infeasible_by_application"].items()}
        yield {"topology": name, "offers": topology["offers"], "all": f"{100 * topology['infeasible_when_empty']:.1f}", **by_application}


def _by_scenario_and_application(summary: Sequence[Row]) -> Iterator[Row]:
    """The best static policy of each scenario, and below it the agent, in the mean over its training seeds."""
    success = [s for s in summary if s["metric"] == "success" and s["training_seed"] != EVERY]
    for scenario in dict.fromkeys(s["scenario"] for s in success):
        here = [s for s in success if s["scenario"] == scenario]
        static = next(s["best_static"] for s in here if s["application"] == "all")
        for policy in (static, _AGENT):
            found: dict[str, list[float]] = {}
            for s in here:
                if s["policy"] == policy:
                    found.setdefault(s["application"], []).append(100 * s["mean"])
            if found:
                yield {"scenario": scenario, "policy": policy, **{name: f"{np.mean(values):.1f}" for name, values in found.items()}}


def _triples(summary: Sequence[Row], column: str, figures: Sequence[str] = FIGURES) -> list[Row]:
    cells: dict[tuple[str, str], dict[str, float]] = {}
    for s in summary:
        if s["metric"] in figures:
            cells.setdefault((shown(s["policy"], s["training_seed"]), _head(s[column])), {})[s["metric"]] = 100 * s["mean"]
    lines: dict[str, Row] = {}
    for (policy, head), triple in cells.items():
        lines.setdefault(policy, {"policy": policy})[head] = "/".join(f"{triple[figure]:.1f}" for figure in figures)
    return list(lines.values())


def _over(summary: Sequence[Row], column: str) -> list[Row]:
    lines: dict[str, Row] = {}
    for s in summary:
        if s["metric"] == "over_best_static_points" and s["policy"] != s["best_static"]:
            policy = shown(s["policy"], s["training_seed"])
            span = "" if s["ci95_low"] is None else f" ({s['ci95_low']:+.1f}..{s['ci95_high']:+.1f})"
            cell = f"{s['mean']:+.1f}{span}"
            lines.setdefault(policy, {"policy": policy})[_head(s[column])] = cell
    return list(lines.values())


def _head(value: float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else value
