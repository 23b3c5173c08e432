"""One way from seeds to a card: every seed is trained and written, the best by validation is written once more under the preset's name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tiphys_models.base.errors import InvalidInput

Tell = Callable[[str], None]
Line = dict[str, Any]
Trained = TypeVar("Trained")


class Preset(Protocol):
    """A frozen dataclass that says how something is trained."""

    @property
    def name(self) -> str:
        """The name under which the best seed is written."""


P = TypeVar("P", bound=Preset)


def preset_of(presets: Mapping[str, P], name: str, *, others: Sequence[str] = (), **options: int | None) -> P:
    """A preset with what an option says instead; InvalidInput names what there is. `others`: names that are no presets here."""
    if name not in presets:
        raise InvalidInput(f"no preset is called {name!r}: there are {', '.join((*presets, *others))}")
    changed = {option: value for option, value in options.items() if value is not None}
    for option, value in changed.items():
        if value < 1:
            raise InvalidInput(f"--{option} wants a whole number from 1 on, it got {value}")
    return replace(presets[name], **changed)  # type: ignore[type-var]


class Training(ABC, Generic[Trained]):
    """How one kind of agent is trained, judged and written."""

    name: str
    judged_by: str = "validation"
    """What the table of seeds shows."""
    keeps_best: bool = True
    """False: no seed is chosen, since all of them are judged."""

    def session(self) -> AbstractContextManager[object]:
        """What is open while seeds are trained."""
        return nullcontext()

    def announced(self, seed: int) -> str:
        """What is told before a seed."""
        return f"{self.name}, seed {seed}"

    @abstractmethod
    def train(self, seed: int, tell: Tell) -> Trained:
        """Train with one seed; returns what came of it."""

    def keep(self, trained: Trained, out: Path) -> None:
        """Write what a seed has come to, whether it is the best or not."""
        self.write(trained, f"{self.name}-{self.seed_of(trained)}", out, training=self.evidence(trained))

    @abstractmethod
    def seed_of(self, trained: Trained) -> int:
        """The seed of a result."""

    @abstractmethod
    def order(self, trained: Trained) -> Any:
        """What validation says; the lowest is the best."""

    @abstractmethod
    def evidence(self, trained: Trained) -> Line:
        """What the card says of one seed."""

    def check(self, best: Trained, out: Path) -> None:
        """TiphysError: not even the best may be exported."""

    def judged(self, trained: Sequence[Trained]) -> list[Line]:
        """What the best one's card says of every seed; the test split is looked at here, when the choice has been made."""
        return [self.evidence(result) for result in trained]

    @abstractmethod
    def write(self, trained: Trained, artifact: str, out: Path, **evidence: Any) -> Path:
        """Arrays and card; the path of the card."""

    def line(self, trained: Trained, evidence: Line) -> Line:
        """A row of the table of seeds."""
        return {"seed": self.seed_of(trained), **evidence}


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """What came of all seeds."""

    title: str
    lines: Sequence[Line]
    best: int | None
    card: Path | None
    """None: no seed is chosen."""


def train_seeds(training: Training[Trained], seeds: Sequence[int], out: Path, tell: Tell) -> SeedOutcome:
    """Train, validate, choose, write."""
    results: list[Trained] = []
    with training.session():
        for seed in seeds:
            tell(training.announced(seed))
            results.append(training.train(seed, tell))
            training.keep(results[-1], out)
    title = f"{training.name}: {training.judged_by}"
    if not training.keeps_best:
        return SeedOutcome(title, [training.line(r, training.evidence(r)) for r in results], None, None)
    best = min(results, key=training.order)
    training.check(best, out)
    evidence = training.judged(results)
    card = training.write(best, training.name, out, training=evidence[results.index(best)], training_seeds=evidence)
    lines = [training.line(result, said) for result, said in zip(results, evidence, strict=True)]
    return SeedOutcome(title, lines, training.seed_of(best), card)
