"""Who chooses in an episode: learned selectors (through their protocol), random switching, and the two bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tiphys_models.cloud.score import Divisors, Outcome, Weights
from tiphys_models.selectors.protocol import Choice, Scored, Selector
from tiphys_models.sim.cloud.episode import Moment
from tiphys_models.sim.cloud.labels import Works, marginals

TWIN_ERROR = 0.3
"""Log-normal spread of the twin's idea of a running task's remaining work."""


@dataclass(slots=True)
class Selected:
    """A selector in an episode: it is handed states and tasks, never the cloud."""

    selector: Selector
    weights: Weights
    divisors: Divisors
    choices: list[Choice] = field(default_factory=list)

    def choose(self, moment: Moment) -> str:
        """See `Chooser`."""
        choice = self.selector.choose(moment.interval, moment.state, moment.tasks, moment.planners.names)
        self.choices.append(choice)
        moment.thinking_s.append(choice.thinking_s)
        return choice.candidate

    def settled(self, interval: int, outcome: Outcome) -> None:
        """See `Chooser`."""
        self.selector.learn(Scored(interval, outcome, self.divisors.share(self.weights, outcome)))


@dataclass(slots=True)
class RandomSwitching:
    """Any candidate, anew at every interval."""

    rng: np.random.Generator

    def choose(self, moment: Moment) -> str:
        """See `Chooser`."""
        return moment.planners.names[int(self.rng.integers(len(moment.planners.names)))]

    def settled(self, interval: int, outcome: Outcome) -> None:
        """Nothing to learn."""


@dataclass(slots=True)
class Oracle:
    """Clairvoyant: runs every plan to completion with the true works and takes the best. A bound, never a policy."""

    weights: Weights
    divisors: Divisors

    def choose(self, moment: Moment) -> str:
        """See `Chooser`."""
        return best(moment, self.weights, self.divisors, None)

    def settled(self, interval: int, outcome: Outcome) -> None:
        """Nothing to learn."""


@dataclass(slots=True)
class Twin:
    """Without foresight: the same with expected demands of what waits, and remaining work of what runs known to within 30 %."""

    weights: Weights
    divisors: Divisors
    rng: np.random.Generator

    def choose(self, moment: Moment) -> str:
        """See `Chooser`."""
        cloud = moment.cloud
        true = cloud.remaining[cloud.running]
        error = np.exp(self.rng.normal(-(TWIN_ERROR**2) / 2, TWIN_ERROR, len(true)))
        return best(moment, self.weights, self.divisors, (true * error, moment.tasks.work_core_s))

    def settled(self, interval: int, outcome: Outcome) -> None:
        """Nothing to learn."""


def best(moment: Moment, weights: Weights, divisors: Divisors, works: Works | None) -> str:
    """The candidate whose plan adds least to J; the chosen plan's scheduling time is charged, equals: the first."""
    costs = {name: divisors.share(weights, outcome) for name, outcome in marginals(moment, works).items()}
    return min(costs, key=costs.__getitem__)
