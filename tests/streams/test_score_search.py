from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

pytest.importorskip("numba")

from tiphys_models.streams.kernels import WEIGHTS
from tiphys_models.streams.learned import TERMS
from tiphys_models.streams.sim.episode import ActionChooser, WindowMoment
from tiphys_models.streams.sim.halving import best_by_halving
from tiphys_models.streams.sim.search import Course, fit_schedule
from tiphys_models.streams.sim.workloads import bursty_arrivals, make_streams
from tiphys_models.streams.train import score
from tiphys_models.streams.train.evolution import Evolution
from tiphys_models.streams.train.score import REJECTS_ALLOWED, REJECTS_PRICE, Effort, fit_score, gain


def test_what_clearly_loses_on_one_episode_is_not_played_on_six() -> None:
    played: list[tuple[int, int]] = []

    def value(candidate: int, seed: int) -> float:
        played.append((candidate, seed))
        return float(candidate) if seed else 20.0 - abs(candidate - 18)  # the first seed prefers 18, the others the largest

    assert best_by_halving(range(20), value, range(6)) == (19, 19.0)
    assert {c for c, seed in played if seed} == {14, 15, 16, 17, 18, 19}
    assert {c for c, seed in played if seed == 5} == {17, 18, 19}
    assert len(played) == len(set(played))
    assert best_by_halving([7, 3], lambda _, __: 1.0, (0,)) == (7, 1.0)  # of equals the first


def test_a_schedule_is_found_among_all_pairs_and_turns() -> None:
    class Judge(Course):
        """Wants `cheaper`, and a little `farthest`."""

        def success(self, make: Callable[[], ActionChooser], seeds: Sequence[int]) -> float:
            chooser = make()
            chosen = [chooser.choose(WindowMoment(i, None, None)).name for i in range(12)]  # type: ignore[arg-type]
            return chosen.count("cheaper") + 0.5 * chosen.count("farthest")

    found = fit_schedule(Judge(), (0, 1))
    chosen = [found.choose(WindowMoment(i, None, None)).name for i in range(5)]  # type: ignore[arg-type]
    assert chosen == ["cheaper", "cheaper", "cheaper", "farthest", "cheaper"]


def test_evolution_climbs_a_narrow_ridge_that_lies_askew() -> None:
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    top, steep = np.arange(6.0), 10.0 ** np.linspace(0, 4, 6)

    def height(points: np.ndarray) -> np.ndarray:
        return np.asarray(-((((points - top) @ axes) ** 2) @ steep))

    search = Evolution(np.zeros(6), np.ones(6), 12, rng)
    for _ in range(300):
        search.tell(height(search.ask()))
    assert search.mean == pytest.approx(top, abs=0.01)


def test_rejects_beyond_the_rival_s_cost_more_than_they_can_earn() -> None:
    rival = np.array([0.80, 0.12, 0.08])
    assert gain(np.array([0.82, 0.12, 0.06]), rival) == pytest.approx(0.02)
    assert gain(np.array([0.82, 0.12 + REJECTS_ALLOWED, 0.06]), rival) == pytest.approx(0.02)
    bought = gain(np.array([0.83, 0.13 + REJECTS_ALLOWED, 0.04]), rival)
    assert bought == pytest.approx(0.03 - 0.01 * REJECTS_PRICE)


def test_the_search_repeats_itself_and_starts_where_it_says() -> None:
    assert len(TERMS) == len(score.START) == len(score.SPREAD) == WEIGHTS
    course, effort = Course(lambdas=(5.0,)), Effort(rounds=1, samples=2, episodes=1, pool=1)
    first, again = (fit_score([course], np.random.default_rng(0), effort, lambda _: None) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, score.START)


def test_bursts_keep_the_mean_rate_and_vary_far_more_than_chance_does() -> None:
    counts = []
    for seed in range(20):
        streams = make_streams("train", seed, 60.0, bursty_arrivals("train", seed))
        counts.append(np.histogram(streams.start_s, 60, (0, 600))[0])
    found = np.array(counts)
    assert found.sum(axis=1).mean() == pytest.approx(4800, rel=0.15)
    assert (found.var(axis=1) / found.mean(axis=1)).min() > 5  # Poisson: 1
    again = make_streams("train", 0, 60.0, bursty_arrivals("train", 0)).start_s
    assert np.array_equal(np.histogram(again, 60, (0, 600))[0], counts[0])
    assert not np.array_equal(bursty_arrivals("validation", 0).times_s, bursty_arrivals("train", 0).times_s)
