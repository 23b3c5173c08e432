"""Learning from what was served: which steps count, and that a network changes its mind by them."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from tests.operator.scaling.test_transition_log import transition
from tiphys_models.base.network import Network
from tiphys_models.scaling.learned import LearnedAgent, moves_of
from tiphys_models.scaling.settings import RULE
from tiphys_models.scaling.train.served import OFF_MAX, served_steps
from tiphys_models.scaling.transition import Transition

COMBINED = moves_of("combined", asdict(RULE))
ACTIONS = len(COMBINED.actions)
AGENT = LearnedAgent("combined", COMBINED, Network([(np.zeros((COMBINED.width, ACTIONS + 1)), np.zeros(ACTIONS + 1))]), True, 12.0)
STATE = [0.0] * COMBINED.width


def step(number: int, **changes: Any) -> Transition:
    made: dict[str, Any] = {
        "number": number, "at": 15.0 * number, "featureSchema": COMBINED.schema, "price": 12.0, "inputs": STATE, "after": STATE,
        "possible": [True] * ACTIONS, "possibleAfter": [True] * ACTIONS, "reward": -1.0 * number,
    }  # fmt: skip
    return transition(**(made | changes))


def test_returns_run_over_windows_that_follow_each_other() -> None:
    found = served_steps([step(n) for n in (5, 3, 4, 6)], AGENT, gamma=0.5, n_step=3)
    assert found.gained.tolist() == [-(3 + 0.5 * 4 + 0.25 * 5), -(4 + 0.5 * 5 + 0.25 * 6)]
    assert (len(found), found.short, found.inputs.shape) == (2, 2, (2, COMBINED.width))


@pytest.mark.parametrize(
    "broken", [{"policy": "default/other"}, {"price": 3.0}, {"number": 9}, {"at": 15.0 * 4 + 30}, {"window_seconds": 30.0}]
)
def test_a_chain_ends_where_something_else_begins(broken: dict[str, object]) -> None:
    rows = [step(3), step(4).model_copy(update=broken)]
    found = served_steps(rows, AGENT, gamma=0.5, n_step=2)
    assert (len(found), found.short) == (0, 2)
    assert len(served_steps([step(3), step(4)], AGENT, gamma=0.5, n_step=2)) == 1


def test_what_was_read_twice_counts_once_and_what_says_nothing_is_left_out_and_told() -> None:
    rows = [step(1), step(1), step(2, off=OFF_MAX + 0.01), step(3, featureSchema="scaling/0"), step(4, agent="dqn-vertical")]
    found = served_steps(rows, AGENT, gamma=0.9, n_step=1)
    assert (len(found), found.unlike, found.foreign, found.short) == (1, 1, 2, 0)


def test_from_nothing_nothing_is_learned() -> None:
    found = served_steps([], AGENT, gamma=0.9, n_step=3)
    assert (len(found), found.inputs.shape, found.possible_after.shape) == (0, (0, COMBINED.width), (0, ACTIONS))


def test_a_continued_agent_begins_at_its_base_and_learns_what_was_served() -> None:
    pytest.importorskip("torch")
    from tiphys_models.scaling.train.dqn import Learner
    from tiphys_models.scaling.train.presets import PRESETS

    rng = np.random.default_rng(0)
    layers = [(rng.normal(0, 0.1, (COMBINED.width, 16)), np.zeros(16)), (rng.normal(0, 0.1, (16, ACTIONS + 1)), np.zeros(ACTIONS + 1))]
    base = LearnedAgent("combined", COMBINED, Network(layers), True, 12.0)
    preset = replace(PRESETS["combined"], hidden=(16,), groups=4, windows=20, rounds=3, batch=64, updates=10, rate=(5e-3, 5e-3))
    good = COMBINED.actions.index("rule x 1.15")
    rows = [step(n, action=n % ACTIONS, reward=0.0 if n % ACTIONS == good else -5.0) for n in range(1, 400)]
    served = served_steps(rows, base, gamma=preset.gamma, n_step=1)
    untouched = Learner(replace(preset, rounds=1, rate=(1e-12, 1e-12)), COMBINED, 0, base).train(lambda _: None)
    np.testing.assert_allclose(untouched.network.layers[0][0], layers[0][0], atol=1e-6)
    taught = Learner(replace(preset, n_step=1), COMBINED, 0, base, served).train(lambda _: None)
    assert int(taught.values(np.array([STATE]))[0].argmax()) == good
