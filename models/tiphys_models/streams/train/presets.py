"""How long and on what each artifact is trained."""

from __future__ import annotations

from dataclasses import dataclass, field

from tiphys_models.streams.sim.scenario import LAMBDA
from tiphys_models.streams.sim.search import Course
from tiphys_models.streams.train.score import Effort


@dataclass(frozen=True, slots=True)
class Preset:
    """Full-edge, default scenario; the score learns in co-dc-cloud and from bursts of the same mean rate, too."""

    name: str
    lambdas: tuple[float, ...] = (LAMBDA,)
    effort: Effort = field(default_factory=Effort)
    table_seeds: tuple[int, ...] = (0,)
    episodes: int = 8
    """Episodes of every rate in which states are labelled."""
    labelled: int = 20
    """Windows of each that are labelled for every action."""
    horizon: int = 24
    """Windows that a label looks ahead: about two mean lives of a stream."""
    wander: float = 0.3
    """Share of windows in which the labelled episodes take any action, so that states differ."""
    epochs: int = 60
    validation_seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)
    """Each with Poisson arrivals and with bursts."""
    margins: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2, 0.4)
    """Points of success, as averages over the horizon; one is taken only if validation says that switching certainly gains."""

    @property
    def score_courses(self) -> tuple[Course, ...]:
        """What the score is trained on, each counting alike."""
        each = [(rate,) for rate in self.lambdas]
        return (
            *(Course(lambdas=rate) for rate in each),
            *(Course(lambdas=rate, bursty=True) for rate in each),
            *(Course(("co-dc-cloud",), rate) for rate in each),
        )


PRESETS = {
    p.name: p
    for p in (
        Preset("aset"),
        Preset("aset-wide", lambdas=(20.0, 60.0, 110.0), effort=Effort(episodes=1), episodes=4, validation_seeds=(0, 1, 2)),
    )
}
