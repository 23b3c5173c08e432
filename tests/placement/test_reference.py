"""The compiled simulator against the naive one, which is fed to the objects that serve."""

from __future__ import annotations

import numpy as np
import pytest

from tests.placement.small import small_workload
from tiphys_models.artifacts.files import card_of
from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.placement.faasrank import FaaSRank
from tiphys_models.placement.protocol import PlacementPolicy
from tiphys_models.placement.registry import PolicyName, is_learned, make_policy
from tiphys_models.placement.score_network import load_network
from tiphys_models.placement.sim.episode import simulate
from tiphys_models.placement.sim.reference import Reference
from tiphys_models.placement.sim.scenario import FaasScenario, NodeEvent

pytestmark = pytest.mark.timeout(60, func_only=True)

ELSEWHERE = ("warm-first-", "rule-6", "estimator", "most-allocated", "lifetimes", "consolidation-aware")
SCENARIOS = {
    "default": FaasScenario(nodes=3),
    "late readings, mixed nodes": FaasScenario(nodes=4, mixed=True, period_s=2.0, delay_s=1.5),
    "half of the functions described": FaasScenario(nodes=3, profiled=0.5),
    "node lost and back": FaasScenario(nodes=4, events=(NodeEvent(6.0, 2, joins=False), NodeEvent(11.3, 2, joins=True))),
    "no reuse, capped, interference": FaasScenario(nodes=3, reuse=False, capped=True, interference=0.1),
    "short keep-alive, cheap starts": FaasScenario(nodes=3, keep_alive_s=2.0, start_cost=0.3),
}


def policies() -> list[PlacementPolicy]:
    # those that know the books are held to their simulator in `test_patient_twins`, those for pods that stay are played by `sim.lives`
    rules = [make_policy(name) for name in PolicyName if not is_learned(name) and not name.startswith(ELSEWHERE)]
    return [
        *rules,
        FaaSRank(load_network(WEIGHTS / "faasrank.json")),
        FaaSRank(load_network(card_of("faasrank-paper")), "faasrank-paper"),
    ]


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
@pytest.mark.parametrize("policy", policies(), ids=lambda p: p.name)
def test_both_simulators_choose_and_finish_alike(policy: PlacementPolicy, scenario: FaasScenario) -> None:
    workload = small_workload(80, seed=3)
    compiled, naive = simulate(workload, policy, scenario), Reference(workload, policy, scenario).run()
    np.testing.assert_array_equal(compiled.node, naive.node)
    np.testing.assert_array_equal(compiled.cold, naive.cold)
    np.testing.assert_allclose(compiled.finish_s, naive.finish_s, rtol=0, atol=1e-9)
