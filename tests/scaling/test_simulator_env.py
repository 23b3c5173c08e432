from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tiphys_models.envs.scaling import ScalingEnv
from tiphys_models.scaling.learned import LearnedAgent, moves_of
from tiphys_models.selectors.network import Network
from tiphys_models.sim.scaling.episode import play
from tiphys_models.sim.scaling.load import draw_load
from tiphys_models.sim.scaling.scenario import DEFAULT_SCENARIO, FIBONACCI
from tiphys_models.sim.scaling.shapes import make_shape


@pytest.mark.filterwarnings("ignore:.*Box.*:UserWarning")
def test_the_environment_keeps_gymnasium_s_contract() -> None:
    check_env(ScalingEnv(seconds=120), skip_render_check=True)


def test_an_episode_is_that_of_an_agent_which_answers_alike_and_rewards_add_up() -> None:
    shape = make_shape("flash", "train", 1, 900)
    env = ScalingEnv(price=1e-12)
    _, info = env.reset(options={"shape": shape})
    paid, over, first = 0.0, False, info["replicas"] * (info["cpu_m"] / 1000 + 0.05)
    while not over:
        _, reward, _, over, info = env.step(np.int64(env.moves.stay))
        paid -= reward
    size = len(env.moves.actions)
    staying = LearnedAgent("still", env.moves, Network([(np.zeros((env.moves.width, size)), np.eye(size)[env.moves.stay])]), False, 1.0)
    alike = play(staying, [draw_load(shape, FIBONACCI)], DEFAULT_SCENARIO)
    assert info["records"].cost()[0] == alike.cost()[0]
    assert (paid + first) * DEFAULT_SCENARIO.window_s / 3600 == pytest.approx(alike.cost()[0])


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
