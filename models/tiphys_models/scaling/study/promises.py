"""What `rule+` is held to, and what a network is held to over it: figures of rows, with their bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from tiphys_models.lab.intervals import FloatArray, IntArray, Interval, of_statistic
from tiphys_models.lab.report import Claim, Row, Trivial
from tiphys_models.scaling.sim.frontier import cost_at
from tiphys_models.scaling.sim.noise import NOISY, noisy_ending
from tiphys_models.scaling.sim.scenario import DEFAULT_SCENARIO
from tiphys_models.scaling.sim.shapes import SHAPES, SMOOTH
from tiphys_models.scaling.study.play import JOINT, PER_POD
from tiphys_models.scaling.study.settings import TUNED, hpa_name

DEFAULT, LATE, SLOW = DEFAULT_SCENARIO.name, "resizes-late", "resizes-3s"
JUMPS = ("flash", "recurring", "bursty")
WANTED = {"flash": 0.95, "bursty": 0.90, "recurring": 0.93}
"""Share of windows at which costs are compared; 0.97 elsewhere."""
KEPT = {"flash": 0.95, "recurring": 0.91, "bursty": 0.91}
KEPT_SMOOTH = 0.98
KEPT_NOISY = {"20": 0.96, "35": 0.96, "50": 0.93}
KEPT_PER_POD = {"flash": 0.92, "recurring": 0.87}
REQUESTS = {"flash": 0.92, "bursty": 0.91}
REQUESTS_SMOOTH = 0.99
OVER_RULE = {"constant": 1.0, "ramp": 1.0, "diurnal": 0.97, "flash": 0.97}
OVER_HPA = {**dict.fromkeys(SMOOTH, 0.87), "flash": 0.60, "recurring": 0.35, "bursty": 0.90}
ONE_HPA, ONE_HPA_NOISY = 0.80, 0.88
NEVER_BEHIND = 1.02
NETWORK_ALL, NETWORK_SOME, NETWORK_SHAPES = 1.01, 0.98, 3
LOST, RELEASE_COST, BELIEF_COST = 1.5, 1.122, 1.02
"""Points of windows kept, and cost, beside the exact case; a release half way is ten per cent more work, and two more are allowed."""
LOST_ALL = {"flash": 7.0, "bursty": 9.0, "recurring": 15.0}
LOST_ALL_SMOOTH, COST_ALL = 3.0, 1.35
SWEPT = 100
"""Settings of HPA from which on it counts as tuned for each shape."""


@dataclass(frozen=True, slots=True)
class Frontiers:
    """Two agents' settings on one shape, [settings, seeds]: what one costs over what the other costs where both attain the same."""

    attained: FloatArray
    cost: FloatArray
    bar_attained: FloatArray
    bar_cost: FloatArray
    wanted: float

    def ratio(self, seeds: IntArray | None = None) -> float:
        """Over these seeds, or all; inf where the agent never attains as much, 0 where only the bar does not."""
        rows = np.arange(self.cost.shape[1]) if seeds is None else seeds
        mine, bar = (
            cost_at(a[:, rows].mean(axis=1), c[:, rows].mean(axis=1), self.wanted)
            for a, c in ((self.attained, self.cost), (self.bar_attained, self.bar_cost))
        )
        return float("inf") if np.isinf(mine) else mine / bar

    def interval(self) -> Interval:
        """The ratio with the interval of the same estimator."""
        return of_statistic(self.ratio, self.cost.shape[1])


def frontiers(rows: Sequence[Row], agent: str, bar: str, shape: str, scenario: str = DEFAULT) -> Frontiers | None:
    """Of seeds that every setting of both has; None where one of them was not played. A bar that resizes nothing has its default rows."""
    mine, theirs = (_points(rows, name, shape, scenario) for name in (agent, bar))
    theirs = theirs or _points(rows, bar, shape, DEFAULT)
    if not mine or not theirs:
        return None
    seeds = sorted(set.intersection(*(set(point) for point in (*mine, *theirs))))
    if not seeds:
        return None
    (attained, cost), (bar_attained, bar_cost) = (
        [np.array([[point[seed][which] for seed in seeds] for point in points]) for which in (0, 1)] for points in (mine, theirs)
    )
    return Frontiers(attained, cost, bar_attained, bar_cost, WANTED.get(shape, 0.97))


def _points(rows: Sequence[Row], agent: str, shape: str, scenario: str) -> list[dict[int, tuple[float, float]]]:
    by: dict[str, dict[int, tuple[float, float]]] = {}
    for r in rows:
        if (r["agent"], r["shape"], r["scenario"]) == (agent, shape, scenario):
            by.setdefault(r["setting"], {})[r["seed"]] = r["slo_attained"], r["cost"]
    return list(by.values())


def files(rows: Sequence[Row]) -> list[str]:
    """Shapes that came from files, without noise."""
    found = {r["shape"] for r in rows if not r["shape"].endswith(PER_POD) and not noisy_ending(r["shape"])}
    return sorted(found - {*SHAPES, *NOISY, JOINT})


def noisy(rows: Sequence[Row]) -> list[str]:
    """Shapes with noise."""
    return sorted({r["shape"] for r in rows if noisy_ending(r["shape"])})


def claims(rows: Sequence[Row], chosen: Mapping[str, str]) -> list[Claim]:
    """Of the agents that were played."""
    there = {r["agent"] for r in rows}
    if "rule+" not in there:
        return []
    look = _Look(rows, chosen)
    made = [*_kept(look), *_over_rule(look), *_over_hpa(look), *_wrong(look)]
    return [*made, *_network(look)] if "combined" in there else made


@dataclass(frozen=True, slots=True)
class _Look:
    """Rows, and the settings that were chosen."""

    rows: Sequence[Row]
    chosen: Mapping[str, str]

    def mean(self, agent: str, shape: str, key: str, scenario: str = DEFAULT, setting: str | None = None) -> float:
        """Of an agent's chosen setting, or of another one; NaN where it was not played."""
        wanted = (agent, shape, scenario, setting or self.chosen.get(agent))
        found = [r[key] for r in self.rows if (r["agent"], r["shape"], r["scenario"], r["setting"]) == wanted and r.get(key) is not None]
        return float(np.mean(found)) if found else float("nan")

    def beside(self, claim: str, value: Callable[[str], float], limit: float, direction: Literal["<=", ">="]) -> Iterator[Claim]:
        """A claim on `rule+` with the rule's value beside it, each by the agent's name; none where nothing was played."""
        mine, rule = value("rule+"), value("rule")
        if not np.isnan(mine):
            yield Claim(f"rule+-{claim}", _rounded(mine), limit, direction, Trivial("rule", _rounded(rule)))


def _rounded(value: float) -> float | None:
    return round(value, 4) if np.isfinite(value) else None


def _kept(look: _Look) -> Iterator[Claim]:
    """At one setting, looks every 3 s, resizes 1 to 3 s late."""
    calm = dict.fromkeys((*SMOOTH, *files(look.rows)), KEPT_SMOOTH)
    requests = {**dict.fromkeys(calm, REQUESTS_SMOOTH), **REQUESTS}
    noise = {shape: KEPT_NOISY[noisy_ending(shape)] for shape in noisy(look.rows)}
    per_pod = {f"{shape}{PER_POD}": bound for shape, bound in KEPT_PER_POD.items()}
    for name, key, bounds, scenario in (
        ("windows-kept", "slo_attained", {**calm, **KEPT}, LATE),
        ("windows-kept", "slo_attained_after_first_hour", noise, LATE),
        ("windows-kept", "slo_attained", per_pod, DEFAULT),
        ("requests-kept", "requests_attained", requests, LATE),
    ):
        for shape, bound in bounds.items():
            yield from look.beside(f"{name}-{shape}", partial(look.mean, shape=shape, key=key, scenario=scenario), bound, ">=")


def _over_rule(look: _Look) -> Iterator[Claim]:
    bounds = {**OVER_RULE, **dict.fromkeys(files(look.rows), 1.02), **dict.fromkeys(noisy(look.rows), 0.94)}
    for shape, bound in bounds.items():
        found = frontiers(look.rows, "rule+", "rule", shape)
        if found is not None:
            yield Claim(f"rule+-cost-over-rule-{shape}", _rounded(found.ratio()), bound, "<=")


def _over_hpa(look: _Look) -> Iterator[Claim]:
    """Tuned for each shape where the grid was played, tuned once, and on requests a second."""
    rows = look.rows
    if len({r["setting"] for r in rows if r["agent"] == "hpa"}) >= SWEPT:
        bounds = {**OVER_HPA, **dict.fromkeys(files(rows), 0.84), **dict.fromkeys(noisy(rows), 1.03)}
        for shape, bound in bounds.items():
            yield from _equal(look, "hpa", "cost-over-hpa-tuned", shape, bound)
    for shape in (*SHAPES, *files(rows), *noisy(rows)):
        bound = ONE_HPA_NOISY if noisy_ending(shape) else ONE_HPA
        yield from look.beside(f"cost-over-one-hpa-{shape}", partial(_over_one, look, shape=shape), bound, "<=")
    for shape in ("flash", "recurring"):
        yield from _equal(look, "rps-hpa", "cost-over-rps-hpa", shape, NEVER_BEHIND)


def _over_one(look: _Look, agent: str, shape: str) -> float:
    setting = hpa_name("hpa", *TUNED[shape in JUMPS])
    return look.mean(agent, shape, "cost") / look.mean("hpa", shape, "cost", setting=setting)


def _equal(look: _Look, bar: str, name: str, shape: str, bound: float) -> Iterator[Claim]:
    mine, rule = (frontiers(look.rows, agent, bar, shape) for agent in ("rule+", "rule"))
    if mine is not None:
        value = None if rule is None else _rounded(rule.ratio())
        yield Claim(f"rule+-{name}-{shape}", _rounded(mine.ratio()), bound, "<=", Trivial("rule", value))


def _wrong(look: _Look) -> Iterator[Claim]:
    """Points of windows and cost beside the exact case of the same policy, the worst of all shapes."""
    there, named = {r["scenario"] for r in look.rows}, (*SHAPES, *files(look.rows))
    for scenario, cost in (("cpu-off-30", BELIEF_COST), ("cpu-over-30", BELIEF_COST), ("release", RELEASE_COST)):
        if scenario in there:
            case: dict[str, Any] = {"scenario": scenario, "shapes": named}
            yield from look.beside(f"points-lost-{scenario}", partial(_lost, look, **case), LOST, "<=")
            yield from look.beside(f"cost-times-{scenario}", partial(_dearer, look, **case), cost, "<=")
    if "all-wrong" in there:
        calm = (*SMOOTH, *files(look.rows))
        for shape, bound in {**dict.fromkeys(calm, LOST_ALL_SMOOTH), **LOST_ALL}.items():
            value = partial(_lost, look, scenario="all-wrong", shapes=(shape,))
            yield from look.beside(f"points-lost-all-wrong-{shape}", value, bound, "<=")
        yield from look.beside("cost-times-all-wrong", partial(_dearer, look, scenario="all-wrong", shapes=calm), COST_ALL, "<=")


def _lost(look: _Look, agent: str, scenario: str, shapes: Sequence[str]) -> float:
    return max(
        100 * (look.mean(agent, shape, "slo_attained") - look.mean(agent, shape, "slo_attained", scenario)) for shape in shapes
    )  # fmt: skip


def _dearer(look: _Look, agent: str, scenario: str, shapes: Sequence[str]) -> float:
    return max(look.mean(agent, shape, "cost", scenario) / look.mean(agent, shape, "cost") for shape in shapes)


def _network(look: _Look) -> Iterator[Claim]:
    """A network must earn its place over `rule+`."""
    found: dict[str, float] = {}
    for shape in (*SHAPES, *files(look.rows), *noisy(look.rows)):
        both = frontiers(look.rows, "combined", "rule+", shape)
        if both is not None:
            found[shape] = both.ratio()
    for shape, value in found.items():
        yield Claim(f"combined-cost-over-rule+-{shape}", _rounded(value), NETWORK_ALL, "<=")
    yield Claim("shapes-of-combined-below-rule+", float(sum(v <= NETWORK_SOME for v in found.values())), NETWORK_SHAPES, ">=")
