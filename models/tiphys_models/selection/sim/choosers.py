"""Choosers of an episode's candidates: learned selectors (through their protocol), random switching, and the two bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tiphys_models.selection.cloud.score import Divisors, Outcome, Weights
from tiphys_models.selection.selectors.hold import SwitchRules, hold
from tiphys_models.selection.selectors.protocol import Choice, Scored, Selector
from tiphys_models.selection.sim.episode import IntervalMoment
from tiphys_models.selection.sim.labels import Works, marginals

TWIN_ERROR = 0.3
"""Log-normal spread of the twin's idea of a running task's remaining work."""


@dataclass(slots=True)
class Selected:
    """A selector in an episode: it is handed states and tasks, never the cloud."""

    selector: Selector
    weights: Weights
    divisors: Divisors
    choices: list[Choice] = field(default_factory=list)
    rules: SwitchRules | None = None
    """Margin and switch limit as the operator holds them; None: the selector is obeyed as it is, which is what the tables play."""
    switches_at_s: list[float] = field(default_factory=list)
    active: str = ""

    def choose(self, moment: IntervalMoment) -> str:
        """Name of the candidate that plans this interval; implements `CandidateChooser.choose`."""
        names, state = moment.planners.names, moment.state
        self.selector.observe(state, moment.tasks)
        choice = self.selector.choose(moment.interval, state, moment.tasks, names)
        candidate = choice.candidate
        if self.rules is not None:
            candidate = hold(choice, self.active, names, self.rules, self.switches_at_s, state.time_s).candidate
            if self.active and candidate != self.active:
                self.switches_at_s.append(state.time_s)
            self.active = candidate
        self.selector.commit(moment.interval, choice, candidate)
        self.choices.append(choice)
        moment.thinking_s.append(choice.thinking_s)
        return candidate

    def settled(self, interval: int, outcome: Outcome) -> None:
        """A decision's tasks have all ended; implements `CandidateChooser.settled`."""
        self.selector.learn(Scored(interval, outcome, self.divisors.share(self.weights, outcome)))


@dataclass(slots=True)
class RandomCandidates:
    """Any candidate, anew at every interval."""

    rng: np.random.Generator

    def choose(self, moment: IntervalMoment) -> str:
        """Name of the candidate that plans this interval; implements `CandidateChooser.choose`."""
        return moment.planners.names[int(self.rng.integers(len(moment.planners.names)))]

    def settled(self, interval: int, outcome: Outcome) -> None:
        """Outcomes are ignored: this chooser learns nothing."""


@dataclass(slots=True)
class CandidateOracle:
    """Clairvoyant: runs every plan to completion with the true works and takes the best. A bound, never a policy."""

    weights: Weights
    divisors: Divisors

    def choose(self, moment: IntervalMoment) -> str:
        """Name of the candidate that plans this interval; implements `CandidateChooser.choose`."""
        return best(moment, self.weights, self.divisors, None)

    def settled(self, interval: int, outcome: Outcome) -> None:
        """Outcomes are ignored: this chooser learns nothing."""


@dataclass(slots=True)
class Twin:
    """Without foresight: the same with expected demands of what waits, and remaining work of what runs known to within 30 %."""

    weights: Weights
    divisors: Divisors
    rng: np.random.Generator

    def choose(self, moment: IntervalMoment) -> str:
        """Name of the candidate that plans this interval; implements `CandidateChooser.choose`."""
        cloud = moment.cloud
        true = cloud.remaining[cloud.running]
        error = np.exp(self.rng.normal(-(TWIN_ERROR**2) / 2, TWIN_ERROR, len(true)))
        return best(moment, self.weights, self.divisors, (true * error, moment.tasks.work_core_s))

    def settled(self, interval: int, outcome: Outcome) -> None:
        """Outcomes are ignored: this chooser learns nothing."""


def best(moment: IntervalMoment, weights: Weights, divisors: Divisors, works: Works | None) -> str:
    """The candidate whose plan adds least to J; the chosen plan's scheduling time is charged, equals: the first."""
    costs = {name: divisors.share(weights, outcome) for name, outcome in marginals(moment, works).items()}
    return min(costs, key=costs.__getitem__)
