"""What forecasting planners share: their published objective, and seeds for their searches."""

from __future__ import annotations

from tiphys_models.selection.cloud.hosts import THREADS
from tiphys_models.selection.cloud.score import Weights
from tiphys_models.selection.planners.fillings import Fillings, Layout
from tiphys_models.selection.planners.greedy import previous_plan

OBJECTIVE = Weights(cost=0.4, energy=0.3, response=0.0, violation=0.3)
"""The objective that ARIMA+ACO, LSTM+ACO and Decision-NN share in MetaNet's comparison."""


STARTS = 3
"""Seeds that are improved; the best ones."""


def seeds(fillings: Fillings) -> list[Layout]:
    """Greedy, the previous plan, and everything on one host of each large class; what does not fit or is not said is filled in greedily.

    Packed ones matter where a large host pays only once it is full: no single task would be the first to go there.
    """
    count = len(fillings.tasks)
    before = previous_plan(fillings.state, fillings.tasks).host.tolist()
    cores = fillings.state.fleet.column("cores")
    large = [hosts[-1] for hosts in fillings.groups().values() if cores[hosts[-1]] > THREADS]
    packed = [[host] * count for host in large] if count > 1 else []
    return [Layout.of(fillings, hosts) for hosts in ([-1] * count, before, *packed)]
