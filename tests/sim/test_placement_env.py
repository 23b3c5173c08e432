from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tests.sim.small import small_workload
from tiphys_models.envs.placement import PlacementEnv
from tiphys_models.features.outlook import WIDTH
from tiphys_models.features.schema import COLUMN
from tiphys_models.policies.rules import LeastConnections
from tiphys_models.sim.episode import simulate
from tiphys_models.sim.scenario import NODE_LOSS, Scenario

pytestmark = [pytest.mark.timeout(120, func_only=True)]


@pytest.mark.parametrize("inputs", [26, WIDTH])
@pytest.mark.filterwarnings("ignore:.*Box.*:UserWarning")
def test_the_environment_keeps_gymnasium_s_contract(inputs: int) -> None:
    check_env(PlacementEnv(Scenario(nodes=3), inputs=inputs), skip_render_check=True)


def play(env: PlacementEnv, seed: int) -> tuple[list[float], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    seen, _ = env.reset(seed=seed)
    rewards, observations = [], [seen]
    over = False
    while not over:
        seen, reward, over, truncated, info = env.step(np.int64(rng.integers(env.scenario.nodes)))
        assert not truncated
        rewards.append(reward)
        observations.append(seen)
    assert sum(rewards) == pytest.approx(-info["records"].completion_s.sum(), rel=1e-9)
    return rewards, observations


def test_one_seed_one_episode_and_rewards_are_completion_times() -> None:
    (first, seen), (second, seen_again) = (play(PlacementEnv(Scenario(nodes=10), names=("M2",)), 5) for _ in range(2))
    assert first == second
    np.testing.assert_array_equal(np.array(seen), np.array(seen_again))


def test_an_agent_that_counts_calls_does_as_the_policy_that_counts_calls() -> None:
    workload = small_workload()
    env = PlacementEnv(Scenario(nodes=3))
    seen, _ = env.reset(options={"workload": workload})
    policy = simulate(workload, LeastConnections(), Scenario(nodes=3))
    over, k = False, 0
    while not over:
        counted = seen[:, COLUMN["inflight"]]
        assert counted[policy.node[k]] == counted.min()
        seen, _, over, _, info = env.step(np.int64(policy.node[k]))
        k += 1
    np.testing.assert_allclose(info["records"].finish_s, policy.finish_s)


def test_nodes_that_come_and_go_have_no_fixed_space() -> None:
    with pytest.raises(ValueError, match="fixed number of nodes"):
        PlacementEnv(NODE_LOSS)
    assert isinstance(PlacementEnv().action_space, gym.spaces.Discrete)
