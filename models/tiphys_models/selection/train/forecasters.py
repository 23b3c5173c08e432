"""How forecasters are trained: on squared error alone, or for the decisions that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn

from tiphys_models.lab.fit import Best, descend
from tiphys_models.selection.train.forecasts import GRID, Batch, ForecastLesson, batch, collect

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ForecastSettings:
    """Optimiser and step decay as published (weight decay 1e-5, x 0.9 every five epochs)."""

    learning_rate: float
    decision_weight: float
    """0: squared error alone. Else decision loss x this + 0.1 x squared error."""
    train_seeds: int = 24
    validation_seeds: int = 8
    intervals: int = 1000
    epochs: int = 60
    batch: int = 64
    patience: int = 15
    temperature: float = 0.1


def train_forecaster(network: nn.Module, settings: ForecastSettings, seed: int, tell: Tell) -> dict[str, object]:
    """Train on generated episodes of the train split; the epoch is chosen on the validation split. Returns what a card says of it."""
    started = perf_counter()
    lessons, held_out = (
        collect(split, range(count), settings.intervals, np.random.default_rng([seed, i]))
        for i, (split, count) in enumerate((("train", settings.train_seeds), ("validation", settings.validation_seeds)))
    )
    tell(f"{len(lessons)} moments to learn from, {len(held_out)} to judge by: {perf_counter() - started:.0f} s")
    order = np.random.default_rng([seed, 2])
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.9)
    judged = batch(held_out)
    start = judge(network, judged, settings)
    best, found, epochs = Best(network, start["loss"]), start, 0
    for epoch in range(settings.epochs):
        _epoch(network, lessons, optimizer, settings, order)
        schedule.step()
        now = judge(network, judged, settings)
        epochs = epoch + 1
        if best.offer(now["loss"], epochs):
            found = now
        if epoch % 5 == 4:
            tell(f"epoch {epoch + 1}: validation " + ", ".join(f"{key} {value:.5f}" for key, value in now.items()))
        if best.since >= settings.patience:
            break
    best.restore()
    return {
        "training": {"seed": seed, "moments": len(lessons), "epochs": epochs, "seconds": round(perf_counter() - started, 1)},
        "validation": {"moments": len(held_out), **_rounded(found)},
        "validation_of_the_task_list_alone": _rounded(start),
    }


def _epoch(
    network: nn.Module,
    lessons: Sequence[ForecastLesson],
    optimizer: torch.optim.Optimizer,
    settings: ForecastSettings,
    rng: np.random.Generator,
) -> None:
    order = rng.permutation(len(lessons))
    for start in range(0, len(order), settings.batch):
        loss = losses(network, batch([lessons[i] for i in order[start : start + settings.batch]]), settings)["loss"]
        descend(optimizer, loss, clipped=(network, 1.0))


def losses(network: nn.Module, data: Batch, settings: ForecastSettings) -> dict[str, Tensor]:
    """Squared error of busy hosts; regret of the soft choice made by the forecast, judged at the utilisation that came."""
    there, series = torch.from_numpy(data.there), torch.from_numpy(data.series)
    forecast = network(series, torch.from_numpy(data.facts), there)
    error = ((forecast - torch.from_numpy(data.used)) ** 2)[there].mean()
    if not settings.decision_weight:
        return {"loss": error, "error": error}
    open_, truth = torch.from_numpy(data.open), torch.from_numpy(data.truth)
    believed = _at(torch.from_numpy(data.cost), forecast, torch.from_numpy(data.row))
    share = torch.softmax((-believed / settings.temperature).masked_fill(~open_, -1e9), dim=-1)
    best = truth.masked_fill(~open_, torch.inf).min(dim=-1).values
    regret = ((share * truth).sum(dim=-1) - best)[open_.any(dim=-1)].mean()
    hard = believed.masked_fill(~open_, torch.inf).argmin(dim=-1, keepdim=True)
    hard_regret = (truth.gather(-1, hard)[..., 0] - best)[open_.any(dim=-1)].mean()
    return {"loss": settings.decision_weight * regret + 0.1 * error, "error": error, "regret": hard_regret}


def _at(cost: Tensor, forecast: Tensor, row: Tensor) -> Tensor:
    """Tabulated costs at the forecast, linear between grid points: the exact objective, differentiable in the forecast."""
    grid = torch.tensor(GRID, dtype=torch.float32)
    hosts = forecast[:, None, :].expand(-1, row.shape[1], -1)
    place = torch.gather(hosts, 2, row.clamp(min=0))
    above = torch.bucketize(place.detach(), grid).clamp(1, len(grid) - 1)
    low, high = grid[above - 1], grid[above]
    at_low, at_high = (torch.gather(cost, 3, k[..., None])[..., 0] for k in (above - 1, above))
    return at_low + (at_high - at_low) * (place - low) / (high - low)


def judge(network: nn.Module, data: Batch, settings: ForecastSettings) -> dict[str, float]:
    """Losses of the network on held-out moments."""
    with torch.no_grad():
        return {key: float(value) for key, value in losses(network, data, settings).items()}


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {key: round(value, 6) for key, value in values.items()}
