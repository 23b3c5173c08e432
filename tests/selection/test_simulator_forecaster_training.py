"""Forecasters learn what they are trained for, and serve as they were trained. Needs torch; skipped where it is not installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

from tiphys_models.selection.planners import decision_nn, lstm_aco  # noqa: E402
from tiphys_models.selection.planners.seen import CHANNELS, FACTS, WINDOW, HostRows, logit  # noqa: E402
from tiphys_models.selection.train import decision_nn as train_decision_nn  # noqa: E402
from tiphys_models.selection.train import lstm_aco as train_lstm_aco  # noqa: E402
from tiphys_models.selection.train.forecast_net import AttentionForecaster, LstmForecaster  # noqa: E402
from tiphys_models.selection.train.forecasters import ForecastSettings, losses  # noqa: E402
from tiphys_models.selection.train.forecasts import GRID, ForecastLesson, batch, collect  # noqa: E402

pytestmark = pytest.mark.timeout(120, func_only=True)

TINY = {"train_seeds": 1, "validation_seeds": 1, "intervals": 60, "epochs": 2}


def lessons(seed: int = 0) -> list[ForecastLesson]:
    return collect("train", [seed], 60, np.random.default_rng(seed))


def seen(hosts: int) -> HostRows:
    rng = np.random.default_rng(0)
    expected = rng.uniform(0, 1, hosts)
    facts = np.concatenate([logit(expected)[:, None], rng.uniform(0, 1, (hosts, FACTS - 1))], axis=1)
    return HostRows(np.arange(hosts), rng.uniform(0, 1, (hosts, WINDOW, CHANNELS)), facts, expected, np.ones(hosts))


def shaken(network: Any) -> Any:
    """Away from its start, where most of the network is switched off."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return network


@pytest.mark.parametrize(
    ("network", "module"), [(LstmForecaster(0), lstm_aco), (AttentionForecaster(0), decision_nn)], ids=["lstm-aco", "decision-nn"]
)
@pytest.mark.parametrize("hosts", [1, 7])
def test_numpy_serves_what_torch_trained(network: Any, module: Any, hosts: int, tmp_path: Path) -> None:
    from tiphys_models.artifacts.tensors import write_tensors

    shaken(network)
    served = write_tensors(tmp_path, "m", "m", "x/1", network.arrays())
    assert {name: array.shape for name, array in served.arrays.items()} == module.SHAPES
    rows = seen(hosts)
    padding = 2  # hosts that are not there change nothing
    series = torch.tensor(np.concatenate([rows.series, np.ones((padding, WINDOW, CHANNELS))])[None], dtype=torch.float32)
    facts = torch.tensor(np.concatenate([rows.facts, np.ones((padding, FACTS))])[None], dtype=torch.float32)
    there = torch.tensor([[True] * hosts + [False] * padding])
    with torch.no_grad():
        expected = network(series, facts, there)[0, :hosts].numpy()
    np.testing.assert_allclose(module.forecast(served, rows), expected, atol=1e-5)
    assert np.ptp(expected) > 0.01 or hosts == 1


@pytest.mark.parametrize("make", [LstmForecaster, AttentionForecaster])
def test_before_training_the_task_list_is_believed(make: Any) -> None:
    rows = seen(5)
    data = batch([ForecastLesson(rows, rows.expected, ())])
    with torch.no_grad():
        forecast = make(0)(torch.from_numpy(data.series), torch.from_numpy(data.facts), torch.from_numpy(data.there))
    np.testing.assert_allclose(forecast.numpy()[0], np.clip(rows.expected, 0.02, 0.98), atol=1e-5)


def test_a_choice_s_cost_follows_the_forecast_of_its_host_and_no_other() -> None:
    data = batch([lesson for lesson in lessons() if lesson.choices])
    network = AttentionForecaster(0)
    settings = ForecastSettings(learning_rate=1e-3, decision_weight=1.0)
    loss = losses(shaken(network), data, settings)
    loss["loss"].backward()
    assert torch.isfinite(loss["loss"])
    assert loss["regret"] >= 0
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    assert sum(float(g.abs().sum()) for g in gradients) > 0
    fresh = (data.row == -1) & data.open
    assert np.ptp(data.cost[fresh], axis=1).max() < 1e-6  # no forecast changes what a fresh host costs
    assert np.ptp(data.cost[(data.row >= 0) & data.open], axis=1).max() > 0.01
    assert data.cost.shape[-1] == len(GRID)


def test_decision_loss_prefers_the_forecast_that_chooses_well() -> None:
    """One task, one busy host, one fresh one: all that matters is on which side of the crossing a forecast lies, not how near it is."""
    lesson = next(x for x in lessons() if x.choices)
    row, grid = np.array([0, -1]), len(GRID)
    cost = np.stack([np.linspace(0.0, 2.0, grid), np.full(grid, 1.0)])  # the busy host is cheaper below the middle
    one = HostRows(*(getattr(lesson.seen, f)[:1] for f in ("host", "series", "facts", "expected", "most")))
    choices = replace(lesson.choices[0], row=row, cost=cost, truth=np.array([1.2, 1.0]))
    data = batch([ForecastLesson(one, np.array([0.4]), (choices,))])  # it came out just on the wrong side
    settings = ForecastSettings(learning_rate=1e-3, decision_weight=1.0)

    def loss(forecast: float) -> dict[str, float]:
        def constant(*_: Any) -> Any:
            return torch.full((1, 1), forecast)

        return {key: float(value) for key, value in losses(constant, data, settings).items()}

    near, far = loss(0.3), loss(0.9)
    assert near["error"] < far["error"]
    assert near["regret"] == pytest.approx(0.2)
    assert far["regret"] == 0
    assert far["loss"] < near["loss"]


@pytest.mark.parametrize("module", [train_lstm_aco, train_decision_nn], ids=["lstm-aco", "decision-nn"])
@pytest.mark.slow
def test_one_seed_one_result_that_is_not_worse_than_where_it_began(module: Any, tmp_path: Path) -> None:
    settings = replace(module.SETTINGS, **TINY)
    cards = [module.train(tmp_path / str(i), 3, lambda _: None, settings) for i in range(2)]
    first, second = (card.with_suffix(".safetensors").read_bytes() for card in cards)
    assert first == second
    import json

    card = json.loads(cards[0].read_text())
    assert card["validation"]["loss"] <= card["validation_of_the_task_list_alone"]["loss"]
