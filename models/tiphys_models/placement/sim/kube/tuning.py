"""The strongest cheap rule with the estimator's own inputs: six weights, tuned for each world on the training split.

`tiphys bench placement --calibrate` repeats the search that found `placement.rule-6` of `base/constants.json`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.random import stream
from tiphys_models.placement.rules import WarmFirst
from tiphys_models.placement.sim.kube.play import RULE_6, AnyPlayer, play_kube
from tiphys_models.placement.sim.kube.scenario import JUDGED, KubeScenario
from tiphys_models.placement.sim.workloads import MULTI, make_workload

SEEDS = (910_001, 910_002)
ROUNDS, TRIES, BEST = 10, 20, 5


def mean_times(player: AnyPlayer, scenario: KubeScenario) -> FloatArray:
    """Mean completion of every training workload."""
    workloads = [make_workload(name, "train", seed) for name in MULTI for seed in SEEDS]
    return np.array([play_kube(workload, player, scenario).calls.completion_s.mean() for workload in workloads])


def tuned(scenario: KubeScenario, rounds: int = ROUNDS, tries: int = TRIES) -> tuple[float, tuple[float, ...]]:
    """The best of a cross-entropy search that begins at the study's weights: (mean ratio over warm-first, weights)."""
    rng = stream("placement-rule-6", scenario.name)
    base = mean_times(WarmFirst(), scenario)
    centre = np.array(RULE_6.weights)
    width = 0.4 * np.abs(centre) + 0.2
    best = (np.inf, RULE_6.weights)
    for round_ in range(rounds):
        drawn = centre + width * rng.normal(size=(tries, len(centre)))
        if round_ == 0:
            drawn[0] = centre
        weights = [tuple(float(f"{w:.3g}") for w in one) for one in drawn]
        found = sorted((float((mean_times(replace(RULE_6, weights=one), scenario) / base).mean()), one) for one in weights)
        best = min(best, found[0])
        elite = np.array([one for _, one in found[:BEST]])
        centre = elite.mean(axis=0)
        width = 0.3 * width + 0.7 * (elite.std(axis=0) + 0.02)
    return best


def tuned_everywhere(tell: Callable[[str], None]) -> dict[str, tuple[float, ...]]:
    """The weights of every world that is judged."""
    found = {}
    for scenario in JUDGED:
        ratio, found[scenario.name] = tuned(scenario)
        tell(f"{scenario.name}: {ratio:.4f} of warm-first with {found[scenario.name]}")
    return found
