from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tiphys_models.base.errors import InvalidInput, TiphysError
from tiphys_models.lab.trainer import Line, Tell, Training, preset_of, train_seeds


@dataclass(frozen=True)
class Preset:
    name: str
    rounds: int = 8


@dataclass
class Guessing(Training[tuple[int, float]]):
    """A seed's loss is given; what is written is kept."""

    losses: dict[int, float]
    written: dict[str, dict[str, Any]] = field(default_factory=dict)
    tested: list[int] = field(default_factory=list)
    name: str = "guess"

    def train(self, seed: int, tell: Tell) -> tuple[int, float]:
        tell(f"  training {seed}")
        return seed, self.losses[seed]

    def seed_of(self, trained: tuple[int, float]) -> int:
        return trained[0]

    def order(self, trained: tuple[int, float]) -> float:
        return trained[1]

    def evidence(self, trained: tuple[int, float]) -> Line:
        return {"loss": trained[1]}

    def check(self, best: tuple[int, float], out: Path) -> None:
        if best[1] == float("inf"):
            raise TiphysError("not even the best can be exported")

    def judged(self, trained: Sequence[tuple[int, float]]) -> list[Line]:
        assert len(self.written) == len(trained)  # every seed is written before the test split is looked at
        self.tested += [seed for seed, _ in trained]
        return [{**self.evidence(result), "test": 2 * result[1]} for result in trained]

    def write(self, trained: tuple[int, float], artifact: str, out: Path, **evidence: Any) -> Path:
        self.written[artifact] = {"seed": trained[0], **evidence}
        return out / f"{artifact}.json"


def test_every_seed_is_written_and_the_best_by_validation_once_more_under_the_presets_name() -> None:
    training, said = Guessing({4: 0.5, 7: 0.2, 9: 0.3}), list[str]()
    found = train_seeds(training, (4, 7, 9), Path("out"), said.append)
    assert (found.best, found.card) == (7, Path("out/guess.json"))
    assert list(training.written) == ["guess-4", "guess-7", "guess-9", "guess"]
    assert training.written["guess"]["training"] == {"loss": 0.2, "test": 0.4}
    assert [line["test"] for line in training.written["guess"]["training_seeds"]] == [1.0, 0.4, 0.6]
    assert [line["seed"] for line in found.lines] == [4, 7, 9]
    assert said[:2] == ["guess, seed 4", "  training 4"]


def test_of_seeds_that_are_alike_the_first_is_taken() -> None:
    assert train_seeds(Guessing({1: 0.5, 0: 0.5}), (1, 0), Path(), lambda _: None).best == 1


def test_what_cannot_be_exported_is_kept_by_seed_only() -> None:
    training = Guessing({0: float("inf")})
    with pytest.raises(TiphysError, match="not even the best"):
        train_seeds(training, (0,), Path(), lambda _: None)
    assert list(training.written) == ["guess-0"]
    assert not training.tested


def test_where_all_seeds_are_judged_none_is_chosen() -> None:
    training = Guessing({0: 0.5, 1: 0.2})
    training.keeps_best = False
    found = train_seeds(training, (0, 1), Path(), lambda _: None)
    assert (found.best, found.card) == (None, None)
    assert list(training.written) == ["guess-0", "guess-1"]
    assert not training.tested


def test_options_change_a_preset_and_name_what_is_wrong_with_them() -> None:
    presets = {"big": Preset("big"), "small": Preset("small", 2)}
    assert preset_of(presets, "big", rounds=None) == Preset("big")
    assert preset_of(presets, "big", rounds=3) == Preset("big", 3)
    with pytest.raises(InvalidInput, match="no preset is called 'tiny': there are big, small, constant"):
        preset_of(presets, "tiny", others=("constant",))
    with pytest.raises(InvalidInput, match="--rounds wants a whole number from 1 on, it got 0"):
        preset_of(presets, "big", rounds=0)
