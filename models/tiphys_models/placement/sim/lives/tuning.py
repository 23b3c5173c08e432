"""The strongest rule without lifetimes: six weights, tuned on the train split by the cross-entropy method, for all worlds and for each.

`python -m tiphys_models.placement.sim.lives.tuning` repeats the search that found `TUNED_WEIGHTS`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tiphys_models.base.random import stream
from tiphys_models.placement.sim.lives.decide import STATIC_WEIGHTS
from tiphys_models.placement.sim.lives.episode import MOST, play, static_rule
from tiphys_models.placement.sim.lives.world import WORLDS, LivesWorld, make_pods

ROUNDS, WORLD_ROUNDS, TRIES, ELITE = 6, 2, 14, 4
SEEDS: tuple[int, ...] = (900_001, 900_002, 900_003)
_SLOWER = 2.0
"""What a policy pays in node-hours for running pods slower than MostAllocated does."""
Weights = tuple[float, ...]
TUNED_WEIGHTS: Weights = (1.24, -0.486, 0.335, 0.471, 1.8, 0.664)
WORLD_WEIGHTS: Mapping[str, Weights] = MappingProxyType(
    {
        "k8s-long-predictable": (1.06, -0.0784, -0.0183, 0.186, 1.67, 0.543),
        "k8s-long-vague": (1.13, -0.497, 0.298, 0.312, 1.51, 0.625),
        "k8s-long-services": (1.17, -0.383, -0.131, 0.542, 1.79, 0.448),
        "k8s-long-hot": (1.14, -0.261, 0.742, 0.633, 1.69, 0.258),
    }
)


def search(worlds: Sequence[LivesWorld], start: Weights, width: float, rounds: int, seed: int = 0) -> tuple[float, Weights]:
    """(node-hours over those of most-allocated, weights) of the best try, from `start` on."""
    rng = stream("placement-lives", "tuning", seed, *(world.name for world in worlds))
    units = [(world, make_pods(world, "train", s)) for world in worlds for s in SEEDS]
    bars = [play(world, pods, MOST) for world, pods in units]

    def cost(weights: Weights) -> float:
        found = [play(world, pods, static_rule(weights)) for world, pods in units]
        hours = np.mean([mine.node_hours / most.node_hours for mine, most in zip(found, bars, strict=True)])
        slower = np.mean([max(mine.slowdown / most.slowdown - 1.0, 0.0) for mine, most in zip(found, bars, strict=True)])
        return float(hours + _SLOWER * slower)

    middle, widths = np.array(start), np.full(STATIC_WEIGHTS, width)
    best = (np.inf, start)
    for _ in range(rounds):
        tries = [tuple(float(f"{w:.3g}") for w in rng.normal(middle, widths)) for _ in range(TRIES)]
        judged = sorted((cost(weights), weights) for weights in tries)
        best = min(best, judged[0])
        elite = np.array([weights for _, weights in judged[:ELITE]])
        middle, widths = elite.mean(axis=0), elite.std(axis=0) + 0.02
    return best


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    tell = logging.getLogger(__name__).info
    hours, everywhere = search(WORLDS, (1.0, 0.0, 0.0, 0.0, 0.0, 0.0), 0.6, ROUNDS)
    tell("all worlds: node-hours %.4f of most-allocated with weights %s", hours, everywhere)
    for world in WORLDS:
        tell("%s: node-hours %.4f with weights %s", world.name, *search((world,), everywhere, 0.3, WORLD_ROUNDS))
