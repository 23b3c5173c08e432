"""The gate that comes before any learning: if the baselines are not in this order, no figure of this simulator means anything."""

from __future__ import annotations

from statistics import mean

import pytest

from tiphys_models.placement.rules import Greedy, Hashing, LeastConnections, RoundRobin, StaticRank, WarmFirst
from tiphys_models.placement.sim.episode import CLAIRVOYANT, GREEDY_STAY, Player, simulate
from tiphys_models.placement.sim.scenario import FaasScenario
from tiphys_models.placement.sim.workloads import MULTI, make_workload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120, func_only=True)]


def test_baselines_come_out_in_the_paper_s_order_and_range() -> None:
    workloads = [make_workload(name, "validation", seed) for name in MULTI for seed in range(4)]

    def seconds(player: Player) -> list[float]:
        return [float(simulate(workload, player, FaasScenario()).completion_s.mean()) for workload in workloads]

    hashing = seconds(Hashing())
    assert 5 < mean(hashing) < 8
    percent = {
        player.name: 100 * mean(own / base for own, base in zip(seconds(player), hashing, strict=True))
        for player in (Greedy(), GREEDY_STAY, RoundRobin(), LeastConnections(), StaticRank(), WarmFirst(), CLAIRVOYANT)
    }
    assert percent["greedy"] > 100 > percent["round-robin"] > percent["least-connections"] > percent["static-rank"]
    assert percent["static-rank"] > percent["warm-first"] > percent["clairvoyant"]
    assert 60 < percent["static-rank"] < 80
    assert 40 < percent["clairvoyant"] < 58
    assert 90 < percent["greedy-stay"] < 110
