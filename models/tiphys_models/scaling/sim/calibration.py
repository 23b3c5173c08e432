"""The rules' settings, searched on the train split: one setting a rule for all shapes. They are kept in `base/constants.json`.

A setting is as good as its cost over the clairvoyant's, mean over shapes, if it keeps what every shape is required to keep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.scaling.protocol import ScalingAgent
from tiphys_models.scaling.rules import RuleSetting
from tiphys_models.scaling.sim.clairvoyant import clairvoyant
from tiphys_models.scaling.sim.episode import play
from tiphys_models.scaling.sim.load import Load, draw_load
from tiphys_models.scaling.sim.scenario import DEFAULT_SCENARIO, FIBONACCI
from tiphys_models.scaling.sim.shapes import HOUR_S, SHAPES, make_shape

SEEDS = (0, 1, 2, 3)
REQUIRED = {"constant": 0.97, "ramp": 0.97, "diurnal": 0.97, "flash": 0.95}
"""Share of windows; bursty and recurring jumps are too many for any rule to be held to a share."""
GRID: dict[str, tuple[float, ...]] = {
    "headroom": (0.98, 1.0, 1.02, 1.04, 1.06, 1.08, 1.1, 1.13, 1.16, 1.2, 1.3),
    "last": (1, 2, 3),
    "rise": (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0),
    "spread": (0.0, 0.25, 0.5, 1.0, 1.5),
    "keep": (2, 4, 8, 12, 20, 40, 80),
    "pod_m": (160.0, 200.0, 250.0, 320.0, 400.0, 500.0, 560.0, 600.0),
    "spare_m": (0.0, 5.0, 10.0, 15.0, 20.0),
}
TRIES = 400


@dataclass(frozen=True, slots=True)
class JudgedSetting:
    """A setting's figures on the train split."""

    setting: RuleSetting
    attained: dict[str, float]
    over_clairvoyant: dict[str, float]

    @property
    def missing(self) -> float:
        """How far it is from what is required, all shapes together."""
        return sum(max(REQUIRED.get(shape, 0.0) - kept, 0.0) for shape, kept in self.attained.items())

    @property
    def cost(self) -> float:
        """Mean over shapes of the cost divided by the clairvoyant's."""
        return float(np.mean(list(self.over_clairvoyant.values())))

    @property
    def order(self) -> tuple[float, float]:
        """Sort key, lower is better: first what is missing from the required shares, then the cost."""
        return (round(self.missing, 6), self.cost)


class Bench:
    """The cells of a split, drawn once."""

    def __init__(
        self, split: str = "train", seeds: Sequence[int] = SEEDS, shapes: Sequence[str] = SHAPES, seconds: int = HOUR_S
    ) -> None:  # fmt: skip
        self.shapes, self.seeds = tuple(shapes), tuple(seeds)
        self.loads: list[Load] = [draw_load(make_shape(name, split, seed, seconds), FIBONACCI) for name in shapes for seed in seeds]
        self.least = self.by_shape(np.array([clairvoyant(load, DEFAULT_SCENARIO).cost()[0] for load in self.loads]))

    def by_shape(self, values: FloatArray) -> FloatArray:
        """Means over seeds, one for each shape."""
        return np.asarray(values.reshape(len(self.shapes), len(self.seeds)).mean(axis=1))

    def figures(self, agent: ScalingAgent) -> tuple[FloatArray, FloatArray]:
        """(share of windows kept, cost over the clairvoyant's), by shape."""
        records = play(agent, self.loads, DEFAULT_SCENARIO)
        return self.by_shape(records.attained()), self.by_shape(records.cost()) / self.least

    def judge(self, make: Callable[[RuleSetting], ScalingAgent], setting: RuleSetting) -> JudgedSetting:
        """Figures of one setting: share attained and cost, by shape."""
        attained, cost = self.figures(make(setting))
        return JudgedSetting(
            setting, dict(zip(self.shapes, attained.tolist(), strict=True)), dict(zip(self.shapes, cost.tolist(), strict=True))
        )


def search(
    make: Callable[[RuleSetting], ScalingAgent], bench: Bench, rng: np.random.Generator, tell: Callable[[str], None], tries: int = TRIES
) -> JudgedSetting:
    """Random settings of the grid, then one step along one of its axes at a time, while that helps."""
    names = [f.name for f in fields(RuleSetting)]
    best = min((bench.judge(make, _drawn(names, rng)) for _ in range(tries)), key=lambda j: j.order)
    tell(f"best of {tries}: {best}")
    better = True
    while better:
        found = min((bench.judge(make, s) for s in _neighbours(best.setting)), key=lambda j: j.order)
        better = found.order < best.order
        best = found if better else best
    return best


def _drawn(names: Sequence[str], rng: np.random.Generator) -> RuleSetting:
    return _setting({name: GRID[name][int(rng.integers(len(GRID[name])))] for name in names})


def _setting(values: dict[str, float]) -> RuleSetting:
    whole = {"last", "keep"}
    return RuleSetting(**{k: int(v) if k in whole else v for k, v in values.items()})  # type: ignore[arg-type]


def _neighbours(setting: RuleSetting) -> list[RuleSetting]:
    found = []
    for name, grid in GRID.items():
        at = grid.index(getattr(setting, name))
        for step in (at - 1, at + 1):
            if 0 <= step < len(grid):
                value = int(grid[step]) if name in {"last", "keep"} else grid[step]
                found.append(replace(setting, **{name: value}))  # type: ignore[arg-type]
    return found
