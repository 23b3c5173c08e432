"""Tables of the scaling study: agents below each other, shapes beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tiphys_models.lab.documents import Tables
from tiphys_models.lab.intervals import Interval
from tiphys_models.lab.report import Result, Row
from tiphys_models.scaling.sim.scenario import DEFAULT_SCENARIO
from tiphys_models.scaling.study import promises
from tiphys_models.scaling.study.figures import over_bar
from tiphys_models.scaling.study.play import BOUND, JOINT, PER_POD
from tiphys_models.scaling.study.settings import COMPARED, SCALERS

TITLES = (
    "run",
    "cost of the chosen settings",
    "windows kept by the chosen settings, %",
    "requests in time, and never served, with the chosen settings, %",
    "changes of size with the chosen settings",
    "combined over the rules' cost at what they attain",
    "every setting: cost (windows kept, %)",
    "three services: cost (windows kept, %)",
    "per-pod queues: cost (windows kept, %)",
    "settling at constant rates",
    "noise: cost (windows kept from the second hour, %)",
    "rule+ over others where both attain the same",
    "wrong numbers: windows kept, % (cost)",
)
_Means = dict[str, Row]
"""Summary objects of one shape, agent and setting, by metric."""


def titles(agents: Sequence[str], *, requests: bool) -> list[str]:
    """The tables that a run with these agents will have; queues for every pod are simulated by requests only."""
    wanted = {
        "combined over the rules' cost at what they attain": "combined" in agents,
        "three services: cost (windows kept, %)": "dqn-horizontal" in agents,
        "per-pod queues: cost (windows kept, %)": requests,
        "settling at constant rates": "dqn-vertical" in agents,
        "noise: cost (windows kept from the second hour, %)": bool({*agents} & {*SCALERS, BOUND}),
        "rule+ over others where both attain the same": "rule+" in agents and bool({*agents} & {*COMPARED} - {"rule+"}),
        "wrong numbers: windows kept, % (cost)": bool({*agents} & {*SCALERS}),
    }
    return [title for title in TITLES if wanted.get(title, True)]


def tables(result: Result) -> Tables:
    """The run; the chosen settings figure by figure; `combined` at equal attainment; every setting; rows of their own."""
    cells = _cells(result)
    plain = [shape for shape in dict.fromkeys(shape for shape, _, _ in cells) if not _special(shape)]
    chosen = {key: means for key, means in cells.items() if result.inputs["chosen"].get(key[1], key[2]) == key[2]}
    own_queues = {(s.removesuffix(PER_POD), a, name): means for (s, a, name), means in chosen.items() if s.endswith(PER_POD)}
    noise = promises.noisy(result.rows)
    plain = [shape for shape in plain if shape not in noise]
    made = [
        [_run(result)],
        _lines(chosen, plain, _cost),
        _lines(chosen, plain, _kept),
        _lines(chosen, plain, _requests),
        _lines(chosen, plain, lambda m: f"{m['switches']['mean']:.0f}"),
        list(_over_bars(result, plain)),
        _lines(cells, plain, _cost_and_kept),
        _lines(chosen, [JOINT], _cost_and_kept),
        _lines(own_queues, plain, _cost_and_kept),
        list(_settling(result.rows)),
        _lines(cells, noise, _cost_and_kept_later),
        list(_over_others(result, [*plain, *noise])),
        _wrong(result, plain),
    ]
    return [(title, rows) for title, rows in zip(TITLES, made, strict=True) if rows]


def _cells(result: Result) -> dict[tuple[str, str, str], _Means]:
    found: dict[tuple[str, str, str], _Means] = {}
    for s in result.summary:
        if s["scenario"] != DEFAULT_SCENARIO.name:
            continue
        found.setdefault((s["shape"], s["agent"], s["setting"]), {})[s["metric"]] = s
    return found


def _special(shape: str) -> bool:
    return shape == JOINT or shape.endswith(PER_POD) or shape.startswith("constant-")


def _run(result: Result) -> Row:
    return {
        "seeds of the test split": ", ".join(map(str, result.seeds)),
        "simulator": result.inputs["simulator"],
        "rows": len(result.rows),
        "minutes": f"{result.wall_seconds / 60:.0f}",
    }


def _lines(cells: dict[tuple[str, str, str], _Means], shapes: Sequence[str], show: Callable[[_Means], str]) -> list[Row]:
    lines: dict[tuple[str, str], Row] = {}
    for (shape, agent, setting), means in cells.items():
        if shape in shapes:
            lines.setdefault((agent, setting), {"agent": agent, "setting": setting})[shape] = show(means)
    return list(lines.values())


def _cost(means: _Means) -> str:
    return f"{means['cost']['mean']:.3f}"


def _kept(means: _Means) -> str:
    m = means["slo_attained"]
    span = "" if m["ci95_low"] is None else f" ({100 * m['ci95_low']:.1f} to {100 * m['ci95_high']:.1f})"
    return f"{100 * m['mean']:.1f}{span}"


def _requests(means: _Means) -> str:
    return f"{100 * means['requests_attained']['mean']:.1f}, {100 * means['never_served']['mean']:.2f}"


def _cost_and_kept(means: _Means) -> str:
    return f"{_cost(means)} ({100 * means['slo_attained']['mean']:.1f})"


def _cost_and_kept_later(means: _Means) -> str:
    """A run that is no longer than an hour has no second one: then of all windows."""
    kept = means.get("slo_attained_after_first_hour", means["slo_attained"])
    return f"{_cost(means)} ({100 * kept['mean']:.1f})"


def _over_others(result: Result, shapes: Sequence[str]) -> Iterator[Row]:
    """Ratios of frontiers, nothing late, and in the row below with resizes that take 3 s."""
    bars = [a for a in COMPARED if a != "rule+" and any(r["agent"] == a for r in result.rows)]
    for scenario in (DEFAULT_SCENARIO.name, promises.SLOW):
        for bar in bars:
            line: Row = {"over": f"`{bar}`", "scenario": scenario}
            for shape in shapes:
                if scenario != DEFAULT_SCENARIO.name and not any((r["agent"], r["scenario"]) == ("rule+", scenario) for r in result.rows):
                    continue
                both = promises.frontiers(result.rows, "rule+", bar, shape, scenario)
                if both is not None and not (bar == "combined" and scenario != DEFAULT_SCENARIO.name):
                    line[f"{shape} at {100 * both.wanted:.0f}"] = _equal(both)
            if len(line) > 2:
                yield line


def _equal(both: promises.Frontiers) -> str:
    found = both.interval()
    if not np.isfinite(found.mean):
        return "never attained"
    if found.mean == 0:
        return "only `rule+` attains"
    half = f" ±{(found.ci95_high - found.ci95_low) / 2:.3f}" if np.isfinite(found.ci95_high - found.ci95_low) else ""
    return f"{found.mean:.3f}{half}"


def _wrong(result: Result, shapes: Sequence[str]) -> list[Row]:
    lines: dict[tuple[str, str], Row] = {}
    by: dict[tuple[str, str, str], _Means] = {}
    for s in result.summary:
        if s["agent"] in SCALERS and result.inputs["chosen"].get(s["agent"], s["setting"]) == s["setting"] and s["shape"] in shapes:
            by.setdefault((s["scenario"], s["agent"], s["shape"]), {})[s["metric"]] = s
    for (scenario, agent, shape), means in by.items():
        line = lines.setdefault((scenario, agent), {"scenario": scenario, "agent": agent})
        line[shape] = f"{100 * means['slo_attained']['mean']:.1f} ({_cost(means)})"
    return list(lines.values())


def _over_bars(result: Result, shapes: Sequence[str]) -> Iterator[Row]:
    """The ratio of mean frontiers, in brackets its interval."""
    there = {r["agent"] for r in result.rows}
    for shape in shapes if "combined" in there else ():
        line: Row = {"shape": shape}
        for bar in ("rule-horizontal", "rule", "hpa"):
            if bar in there:
                setting = result.inputs["chosen"][bar]
                line[f"over `{bar}`, {setting}"] = _ratio(over_bar(result.rows, bar, setting, shape).interval())
        yield line


def _ratio(found: Interval) -> str:
    if not np.isfinite(found.mean):
        return "never attained"
    if np.isfinite(found.ci95_high):
        return f"{found.mean:.3f} ({found.ci95_low:.3f} to {found.ci95_high:.3f})"
    return f"{found.mean:.3f}" + (" (not attained without one of the seeds)" if found.n > 1 else "")


def _settling(rows: Sequence[Row]) -> Iterator[Row]:
    """Means over seeds, both starts beside each other."""
    groups: dict[tuple[str, str], dict[float, list[Row]]] = {}
    for r in rows:
        if "start_m" in r:
            groups.setdefault((r["agent"], r["shape"]), {}).setdefault(r["start_m"], []).append(r)
    for (agent, shape), starts in groups.items():
        smallest = np.mean([r["smallest_m"] for mine in starts.values() for r in mine])
        line: Row = {"agent": agent, "shape": shape, "smallest, m": f"{smallest:.0f}"}
        for start_m, mine in starts.items():
            over = np.mean([r["settled_m"] / r["smallest_m"] for r in mine])
            kept = 100 * np.mean([r["kept_at_last"] for r in mine])
            line[f"from {start_m:g}m: settled over smallest (windows kept, %)"] = f"{over:.2f} ({kept:.1f})"
        yield line
