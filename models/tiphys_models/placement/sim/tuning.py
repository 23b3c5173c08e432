"""Static-rank with weights tuned on the training split: the comparator without which a win over static-rank would be a straw man's.

`python -m tiphys_models.placement.sim.tuning` repeats the search that found `TUNED_WEIGHTS`.
"""

from __future__ import annotations

import logging

import numpy as np

from tiphys_models.placement.rules import StaticRank
from tiphys_models.placement.sim.episode import simulate
from tiphys_models.placement.sim.scenario import FaasScenario
from tiphys_models.placement.sim.workloads import MULTI, make_workload

TRIES = 150
SEEDS = (900_001, 900_002)
TUNED_WEIGHTS: tuple[float, ...] = (0.0, 0.161, 0.724, 0.0, 0.203, 45.1, 6.97)


def static_rank_tuned() -> StaticRank:
    """The policy under its own name."""
    return StaticRank(name="static-rank-tuned", weights=TUNED_WEIGHTS)


def search(seed: int = 0) -> tuple[float, tuple[float, ...]]:
    """Random search over weights, log-uniform, some of them zero: (mean completion in seconds, weights)."""
    rng = np.random.default_rng(seed)
    workloads = [make_workload(name, "train", s) for name in MULTI for s in SEEDS]
    paper = StaticRank().weights
    best = (np.inf, paper)
    for attempt in range(TRIES):
        if attempt == 0:
            weights = np.array(paper)
        elif attempt < TRIES // 2:
            weights = np.where(rng.uniform(size=7) < 0.2, 0.0, np.exp(rng.uniform(np.log(0.1), np.log(20.0), 7)))
        else:  # then near the best
            weights = np.array(best[1]) * np.exp(rng.normal(0, 0.5, 7))
        rounded = tuple(float(f"{w:.3g}") for w in weights)
        mean_s = float(np.mean([simulate(w, StaticRank(weights=rounded), FaasScenario()).completion_s.mean() for w in workloads]))
        if mean_s < best[0]:
            best = (mean_s, rounded)
    return best


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger(__name__).info("mean completion %.4f s with weights %s", *search())
