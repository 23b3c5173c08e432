"""What forecasting planners share: their published objective, and seeds for their searches."""

from __future__ import annotations

from tiphys_models.cloud.score import Weights
from tiphys_models.planners.fillings import Fillings, Layout
from tiphys_models.planners.greedy import previous_plan

OBJECTIVE = Weights(cost=0.4, energy=0.3, response=0.0, violation=0.3)
"""The objective that ARIMA+ACO, LSTM+ACO and Decision-NN share in MetaNet's comparison."""


def seeds(fillings: Fillings) -> list[Layout]:
    """Greedy, and the previous plan with what it does not say filled in greedily."""
    nothing = [-1] * len(fillings.tasks)
    before = previous_plan(fillings.state, fillings.tasks).host.tolist()
    return [Layout.of(fillings, hosts) for hosts in ([nothing] if before == nothing else [nothing, before])]
