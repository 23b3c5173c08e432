"""`tiphys train planners`: which weights there are, and who trains them. One line a planner; each trains in minutes on one core."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tiphys_models.base.errors import InvalidInput

Train = Callable[[Path, int, Callable[[str], None]], Path]
"""(directory, seed, where to tell progress) -> path of the card written."""

TRAINERS: dict[str, str] = {
    "lstm-aco": "lstm_aco",
    "decision-nn": "decision_nn",
    "semi-direct": "semi_direct",
    "graf": "graf",
    "gobi": "gobi",
    "gosh": "gosh",
}
"""Planner -> module of `tiphys_models.selection.train` with a function `train`."""


def train_planner(name: str, directory: Path, seed: int, tell: Callable[[str], None]) -> Path:
    """Train one and write its artifact."""
    if name not in TRAINERS:
        raise InvalidInput(f"no weights are trained for {name!r}: there are {', '.join(TRAINERS)}")
    train: Train = import_module(f"tiphys_models.selection.train.{TRAINERS[name]}").train
    return train(directory, seed, tell)
