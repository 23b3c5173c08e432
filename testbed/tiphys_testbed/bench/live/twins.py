"""The same calls in the simulator under Kubernetes' filter, with what a live policy is told."""

from __future__ import annotations

from dataclasses import replace

from tiphys_models.placement.registry import PolicyName
from tiphys_models.placement.rules import WarmFirst
from tiphys_models.placement.sim.kube.play import BOOKS, ESTIMATOR, KUBE_DEFAULT, MOST_ALLOCATED, RULE_6, WAITS, AnyPlayer, play_kube
from tiphys_models.placement.sim.kube.scenario import KubeScenario
from tiphys_models.placement.sim.workloads import CallWorkload
from tiphys_models.placement.study.kube import player_of
from tiphys_testbed.bench.live.lanes import AGAIN, BASE

_PLAYERS: dict[str, AnyPlayer] = {
    **{player.name: player for player in (KUBE_DEFAULT, MOST_ALLOCATED, BOOKS, WAITS, RULE_6, ESTIMATOR)},
    BASE: WarmFirst(),
    AGAIN: WarmFirst(),
}
"""Rule-6 has its one setting here, as in a cluster."""


def simulated_mean_s(lane: str, workload: CallWorkload, scenario: KubeScenario, *, core_seconds: bool) -> float | None:
    """Mean completion time of the lane's policy; None for schedulers that the simulator does not play. `core_seconds`: whether somebody
    tells the processor time of pods, as it is live."""
    player = player_of(lane, {}, "") if lane == PolicyName.ESTIMATOR_NETWORK else _PLAYERS.get(lane)
    if player is None:
        return None
    scenario = replace(scenario, core_seconds=core_seconds)
    return float(play_kube(workload, player, scenario).calls.completion_s.mean())
