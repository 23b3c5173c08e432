"""Tables of `tiphys bench placement` for people: thousands of rows stay in result.json."""

from __future__ import annotations

from collections.abc import Sequence

from tiphys_cli.bench.report import Result, Row

_FIGURES = ("mean_s", "p95_s", "p99_s", "cold_starts", "inflight_lower_share", "jain_fairness")


def tables(result: Result) -> Sequence[tuple[str, Sequence[Row]]]:
    """Policies on M1-M10, policies by workload, policies by scenario, FaaSRank over its comparators."""
    return (
        ("M1-M10, default scenario", _policies(result.summary)),
        ("% of hashing by workload", _grid([s for s in result.summary if s["scenario"] == "default"], "workload")),
        ("% of hashing by scenario, M1-M10", _grid([s for s in result.summary if s["workload"] == "M1-M10"], "scenario")),
        ("completion time over a comparator's, M1-M10", _ratios(result.summary)),
        ("training seeds, the shipped one first", _training(result)),
        ("simulator, calls in a second of one core", _speed(result.summary)),
    )


def _policies(summary: Sequence[Row]) -> list[Row]:
    lines: dict[str, Row] = {}
    for s in summary:
        if (s["scenario"], s["workload"]) != ("default", "M1-M10") or s["metric"] not in ("pct_of_hashing", *_FIGURES):
            continue
        line = lines.setdefault(s["policy"], {"policy": s["policy"]})
        if s["metric"] == "pct_of_hashing":
            line |= {"% of hashing": _number(s["mean"]), "95 %": _span(s), "seeds": s["n"]}
        else:
            line[s["metric"]] = _number(s["mean"])
    return sorted(lines.values(), key=lambda line: -float(line["% of hashing"]))


def _grid(summary: Sequence[Row], by: str) -> list[Row]:
    lines: dict[str, Row] = {}
    for s in summary:
        if s["metric"] == "pct_of_hashing":
            lines.setdefault(s[by], {by: s[by]})[s["policy"]] = _number(s["mean"])
    return list(lines.values())


def _ratios(summary: Sequence[Row]) -> list[Row]:
    lines: dict[str, Row] = {}
    for s in summary:
        if s["metric"].startswith("over ") and s["workload"] == "M1-M10":
            lines.setdefault(s["scenario"], {"scenario": s["scenario"]})[s["metric"]] = f"{s['mean']:.3f} ({_span(s)})"
    return list(lines.values())


def _training(result: Result) -> list[Row]:
    keys = ("seed", "validation_pct_of_hashing", "test_pct_of_hashing", "episodes", "seconds")
    found = result.inputs.get("training", {})
    return [{"policy": policy} | {key: seed.get(key) for key in keys} for policy, seeds in found.items() for seed in seeds]


def _speed(summary: Sequence[Row]) -> list[Row]:
    return [{key: s[key] for key in ("policy", "median", "fastest", "n")} for s in summary if s["metric"] == "calls_per_s"]


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _span(s: Row) -> str:
    return f"{s['ci95_low']:.3f}-{s['ci95_high']:.3f}" if abs(s["mean"]) < 10 else f"{s['ci95_low']:.1f}-{s['ci95_high']:.1f}"
