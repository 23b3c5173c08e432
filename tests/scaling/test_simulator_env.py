from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tiphys_models.envs.scaling import ScalingEnv
from tiphys_models.scaling.learned import moves_of
from tiphys_models.scaling.registry import make_agent
from tiphys_models.sim.scaling.episode import play
from tiphys_models.sim.scaling.load import draw_load
from tiphys_models.sim.scaling.scenario import DEFAULT_SCENARIO, FIBONACCI
from tiphys_models.sim.scaling.shapes import make_shape


@pytest.mark.filterwarnings("ignore:.*Box.*:UserWarning")
def test_the_environment_keeps_gymnasium_s_contract() -> None:
    check_env(ScalingEnv(seconds=120), skip_render_check=True)


def test_staying_with_the_rule_is_the_rule_and_rewards_add_up() -> None:
    shape = make_shape("flash", "train", 1, 900)
    env = ScalingEnv(price=1e-12)
    _, info = env.reset(options={"shape": shape})
    paid, over, first = 0.0, False, info["replicas"] * (info["cpu_m"] / 1000 + 0.05)
    while not over:
        _, reward, _, over, info = env.step(np.int64(env.moves.stay))
        paid -= reward
    rule = play(make_agent("rule"), [draw_load(shape, FIBONACCI)], DEFAULT_SCENARIO)
    assert info["records"].cost()[0] == rule.cost()[0]
    assert (paid + first) * DEFAULT_SCENARIO.window_s / 3600 == pytest.approx(rule.cost()[0])


def test_one_seed_one_episode() -> None:
    def rewards(seed: int) -> list[float]:
        env, found = ScalingEnv(seconds=300), []
        env.reset(seed=seed)
        over, rng = False, np.random.default_rng(0)
        while not over:
            _, reward, _, over, _ = env.step(np.int64(rng.integers(env.action_space.n)))  # type: ignore[attr-defined]
            found.append(reward)
        return found

    assert rewards(3) == rewards(3)
    assert rewards(3) != rewards(4)


def test_a_joint_decision_has_no_single_service() -> None:
    with pytest.raises(ValueError, match="one service"):
        ScalingEnv(moves=moves_of("dqn-horizontal-3"))
