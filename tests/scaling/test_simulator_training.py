from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.base.network import Network
from tiphys_models.scaling.learned import LearnedAgent, moves_of
from tiphys_models.scaling.reward import GRADED, POD_PRICE
from tiphys_models.scaling.settings import RULE
from tiphys_models.scaling.train.dqn import Learner, _draw, _remember, memory_of
from tiphys_models.scaling.train.presets import PRESETS
from tiphys_models.scaling.train.rollouts import Rollout, Step
from tiphys_models.scaling.train.trainer import PROMISED, Judged, Trained

COMBINED = moves_of("combined", {"headroom": RULE.headroom, "keep": float(RULE.keep), "pod_m": RULE.pod_m})
SHORT = replace(PRESETS["combined"], groups=6, windows=20, scenarios=PRESETS["combined"].scenarios[:1])


def stay(inputs: FloatArray, possible: BoolArray) -> IntArray:
    return np.full(len(inputs), COMBINED.stay)


def test_a_decision_is_rewarded_by_the_window_it_was_for() -> None:
    rollout = Rollout(SHORT, COMBINED, np.random.default_rng(0))
    steps = rollout.play(stay)
    records = rollout.episode.records()
    assert len(steps) == SHORT.windows - 2  # the last decision has no window, the one before no window after it
    typical = np.array([load.shape.rps.mean() * load.service.cpu_ms / 1000 for load in rollout.loads])
    for k in (0, 7, len(steps) - 1):
        window = k + 1
        late = records.late[:, window] / np.maximum(records.arrived[:, window], 1)
        cost = records.replicas[:, window] * (records.cpu_m[:, window] / 1000 + POD_PRICE) / typical
        pain = (1 - GRADED) * (late > 0.1) + GRADED * late
        np.testing.assert_allclose(steps[k].reward, -(cost + rollout.price * pain) / ((1 + rollout.price) / 2))


def test_returns_are_discounted_over_as_many_steps_as_the_preset_says() -> None:
    x, ok = np.zeros((2, 1)), np.ones((2, 3), np.bool_)
    steps = [Step(x + k, ok, np.full(2, k % 3), np.full(2, float(k))) for k in range(6)]
    replay = memory_of(1, 3, size=10)
    _remember(replay, steps, replace(SHORT, n_step=3, gamma=0.5))
    assert replay.count == 6
    inputs, action, gained, after, _ = _draw(replay, 50, np.random.default_rng(0))
    for k, a, g, n in zip(inputs[:, 0].tolist(), action.tolist(), gained.tolist(), after[:, 0].tolist(), strict=True):
        assert a == k % 3
        assert g == k + 0.5 * (k + 1) + 0.25 * (k + 2)
        assert n == k + 3


def test_one_seed_one_network() -> None:
    preset = replace(SHORT, rounds=1, batch=16)
    first, again, other = (Learner(preset, COMBINED, seed).train(lambda line: None).network.arrays() for seed in (1, 1, 2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
    assert any(not np.array_equal(array, other[name]) for name, array in first.items())


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_short_course_learns_to_take_idle_pods_away_and_to_hold_busy_ones() -> None:
    agent = Learner(PRESETS["q-table"], moves_of("q-table"), 0).train(lambda line: None)
    values = agent.values(np.eye(5))
    assert values[0].argmax() == 0
    assert values[3].argmax() == 1


def test_a_seed_that_keeps_what_is_promised_goes_before_a_cheaper_one() -> None:
    keeping, cheaper = (
        Judged({"bursty": over}, {12.0: dict.fromkeys(PROMISED, kept), 6.0: dict.fromkeys(PROMISED, 0.5)})
        for over, kept in ((1.02, 0.98), (0.99, 0.94))
    )
    assert (keeping.price, keeping.missing(12.0)) == (12.0, 0)
    assert cheaper.missing(12.0) == pytest.approx(3 * 0.03 + 0.01)
    agent = LearnedAgent("combined", COMBINED, Network([]), True, 1.0)
    trained = [
        Trained(agent, seed, {}, {"mean_cost_over_rule": j.mean, "promised_windows_missing": j.missing(j.price)})
        for seed, j in enumerate((cheaper, keeping))
    ]
    assert min(trained, key=lambda t: t.order).seed == 1
