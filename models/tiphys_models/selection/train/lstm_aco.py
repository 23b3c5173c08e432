"""Training of LSTM+ACO's forecaster: squared error of the coming CPU of busy hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.selection.planners.lstm_aco import NAME
from tiphys_models.selection.planners.seen import SCHEMA
from tiphys_models.selection.train.forecast_net import LstmForecaster
from tiphys_models.selection.train.forecasters import ForecastSettings, train_forecaster

SETTINGS = ForecastSettings(learning_rate=4e-3, decision_weight=0.0)


def train(directory: Path, seed: int, tell: Callable[[str], None], settings: ForecastSettings = SETTINGS) -> Path:
    """Write the artifact; the path of its card."""
    network = LstmForecaster(seed)
    evidence = train_forecaster(network, settings, seed, tell)
    write_tensors(directory, NAME, NAME, SCHEMA, network.arrays(), **evidence)
    return directory / f"{NAME}.json"
