"""Compiled and interpreted, the same functions give the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tiphys_models.artifacts.forward import score_rows
from tiphys_models.placement import kernels
from tiphys_models.placement.outlook import WIDTH, add_outlook, base_rows
from tiphys_models.placement.rank import mixed_ties, sort_key
from tiphys_models.placement.schema import NODE_READINGS
from tiphys_models.placement.sim import decide

pytestmark = pytest.mark.timeout(60, func_only=True)
SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_rules_are_the_same_compiled(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    position, inflight = np.arange(n), rng.integers(0, 9, n).astype(float)
    available, idle = rng.uniform(-1e8, 2e9, n), rng.integers(0, 3, n).astype(float)
    cores, readings = rng.choice([4.0, 8.0, 16.0], n), rng.uniform(0, 9, (n, len(NODE_READINGS))).astype(np.float32)
    readings[rng.uniform(size=n) < 0.2] = np.nan
    idle[rng.uniform(size=n) < 0.2] = np.nan
    wanted, image = 2.0**28, np.zeros(n, np.bool_)
    weights = rng.uniform(0, 3, 7)
    pairs = [
        (kernels.least_connections(inflight), decide._least_connections(inflight)),
        (kernels.round_robin(position, 3, n), decide._round_robin(position, 3, n)),
        (kernels.greedy(position, n, inflight, available, wanted), decide._greedy(position, n, inflight, available, wanted)),
        (kernels.hashing(position, n, 1 % n, 1, available, wanted), decide._hashing(position, n, 1 % n, 1, available, wanted)),
        (kernels.warm_first(idle, image, inflight, cores), decide._warm_first(idle, image, inflight, cores)),
        (
            kernels.static_rank(weights, readings, cores, idle, available, wanted),
            decide._static_rank(weights, readings, cores, idle, available, wanted),
        ),
    ]
    for served, compiled in pairs:
        np.testing.assert_allclose(compiled, served, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_inputs_scores_and_ranks_are_the_same_compiled(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, calls = int(rng.integers(1, 20)), int(rng.integers(0, 60))
    base = (
        rng.uniform(0, 9, (n, len(NODE_READINGS))).astype(np.float32), rng.uniform(0, 2e9, n), rng.integers(0, 9, n).astype(float),
        rng.integers(0, 3, n).astype(float), 2.0**28, 1.5, WIDTH,
    )  # fmt: skip
    outlook = (
        rng.choice([4.0, 8.0], n), np.full(n, 2.0**31), np.full(n, 0.3), rng.uniform(0, 2e9, n), base[3], rng.uniform(0, 1e9, n), 2.0**28,
        rng.uniform(1, 9, 5), rng.integers(0, n, calls), rng.uniform(0, 9, calls), rng.uniform(1, 5, calls), rng.uniform(1, 9, calls),
        rng.uniform(1, 8, calls), np.full(calls, 2.0**28), rng.uniform(size=calls) < 0.3,
    )  # fmt: skip
    served, compiled = base_rows(*base), decide._base_rows(*base)
    add_outlook(served, *outlook)
    decide._add_outlook(compiled, *outlook)
    np.testing.assert_allclose(compiled, served, rtol=1e-5)
    sizes = ((WIDTH, 32), (32, 16), (16, 1))
    layers = [a for size in sizes for a in (rng.normal(size=size).astype(np.float32), rng.normal(size=size[1]).astype(np.float32))]
    served[0, 3] = np.nan
    arguments = (served, served[-1] * 0 + 1, np.full(WIDTH, 1e3, np.float32), 5.0, *layers)
    scores = score_rows(*arguments)
    np.testing.assert_allclose(decide._score_rows(*arguments), scores, atol=1e-4)
    hashes = rng.integers(0, 2**63, n).astype(np.uint64)
    ties = mixed_ties(np.uint64(seed), hashes)
    np.testing.assert_array_equal(decide._mixed_ties(np.uint64(seed), hashes), ties)
    np.testing.assert_array_equal(decide._sort_key(scores, ties, 1e-3), sort_key(scores, ties, 1e-3))
