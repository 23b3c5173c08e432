"""The compiled simulator of pods against the naive one, which is fed to the objects that serve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models.test_estimator_network import heads
from tests.placement.small import small_workload
from tiphys_models.placement.estimator_network import EstimatorNetwork
from tiphys_models.placement.patient import Estimator, Rule6, WarmFirstBooks, WarmFirstWaits
from tiphys_models.placement.protocol import PlacementPolicy
from tiphys_models.placement.residual import flat
from tiphys_models.placement.rules import WarmFirst
from tiphys_models.placement.sim.kube import play
from tiphys_models.placement.sim.kube.play import AnyPlayer, play_kube
from tiphys_models.placement.sim.kube.scenario import LITTLE_MEMORY, READINGS_15, STANDARD, KubeScenario
from tiphys_models.placement.sim.reference import Reference
from tiphys_models.placement.sim.scenario import FaasScenario, NodeEvent

pytestmark = pytest.mark.timeout(300, func_only=True)  # compilation comes on top

WORLDS = {
    "standard": STANDARD,
    "readings 15 s old": READINGS_15,
    "memory short": LITTLE_MEMORY,
    "readings late": replace(STANDARD, cluster=replace(STANDARD.cluster, period_s=2.0, delay_s=3.0)),
    "nothing declared": replace(STANDARD, declared=0.0),
    "half declared, processor time unseen": replace(STANDARD, declared=0.5, core_seconds=False),
}
PAIRS: tuple[tuple[PlacementPolicy, AnyPlayer], ...] = (
    (WarmFirst(), WarmFirst()),
    (WarmFirstBooks(), play.BOOKS),
    (WarmFirstWaits(), play.WAITS),
    (Rule6(), play.RULE_6),
    (Estimator(), play.ESTIMATOR),
    (EstimatorNetwork(heads(0.1)), replace(play.ESTIMATOR_NETWORK, weights=tuple(flat(heads(0.1)).tolist()))),
)


def _small(world: KubeScenario) -> KubeScenario:
    return replace(world, cluster=replace(world.cluster, nodes=3))


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
@pytest.mark.parametrize(("policy", "player"), PAIRS, ids=[policy.name for policy, _ in PAIRS])
def test_both_simulators_of_pods_choose_wait_and_finish_alike(policy: PlacementPolicy, player: AnyPlayer, world: KubeScenario) -> None:
    workload, scenario = small_workload(80, seed=3), _small(world)
    told = replace(scenario.cluster, profiled=scenario.declared)
    compiled = play_kube(workload, player, scenario)
    reference = Reference(workload, policy, told, kubernetes=True, core_seconds=scenario.core_seconds)
    naive = reference.run()
    np.testing.assert_array_equal(compiled.calls.node, naive.node)
    np.testing.assert_array_equal(compiled.calls.cold, naive.cold)
    held_s = np.where(np.isnan(reference.held_s), 0.0, reference.placed_s - reference.held_s)
    for ours, theirs in ((compiled.calls.start_s, naive.start_s), (compiled.calls.finish_s, naive.finish_s), (compiled.held_s, held_s)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
    assert naive.cold.any()
    assert not naive.cold.all()


@pytest.mark.parametrize(("policy", "player"), PAIRS[2:], ids=[policy.name for policy, _ in PAIRS[2:]])
def test_somebody_waits_in_the_worlds_that_are_compared(policy: PlacementPolicy, player: AnyPlayer) -> None:
    """Otherwise they would be alike for nothing."""
    assert (play_kube(small_workload(80, seed=3), player, _small(STANDARD)).held_s > 0).any()


def test_calls_of_a_node_that_goes_are_placed_again() -> None:
    lost = FaasScenario(nodes=3, events=(NodeEvent(6.0, 2, joins=False), NodeEvent(11.3, 2, joins=True)))
    reference = Reference(small_workload(80, seed=3), Estimator(), lost, kubernetes=True)
    played = reference.run()
    assert np.isfinite(played.finish_s).all()
    assert not ((played.node == 2) & (played.start_s < 11.3) & (played.finish_s > 6.0)).any()
    assert ((played.node == 2) & (played.start_s > 11.3)).any()
