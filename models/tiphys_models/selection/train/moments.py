"""What selectors learn from: states in which somebody had to choose, what each candidate would have cost, what the executed one did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.selection.cloud.bill import scheduling_s
from tiphys_models.selection.cloud.preview import preview
from tiphys_models.selection.cloud.score import Outcome
from tiphys_models.selection.selectors.encoding import encode_general
from tiphys_models.selection.selectors.surrogate import components
from tiphys_models.selection.sim.episode import CandidateChooser, IntervalMoment, Planners, run
from tiphys_models.selection.sim.labels import marginals
from tiphys_models.selection.sim.scenario import DEFAULT_SCENARIO, CloudScenario
from tiphys_models.selection.sim.workloads import TaskWorkload


@dataclass(frozen=True, slots=True)
class Moments:
    """One row a decision, in the order made; every column of one episode or of several."""

    features: FloatArray
    previews: FloatArray
    """Rows x previewed x components."""
    tasks: FloatArray
    marginals: FloatArray
    """Rows x candidates x components; NaN where the row was not labelled."""
    taken: FloatArray
    attributed: FloatArray
    """Rows x components: what the decision was found to have cost."""

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def labelled(self) -> Moments:
        """Rows with counterfactual labels."""
        keep = ~np.isnan(self.marginals[:, 0, 0])
        return Moments(*(getattr(self, f.name)[keep] for f in fields(self)))

    def save(self, path: Path) -> None:
        """Save the arrays as an npz file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part.npz")
        np.savez_compressed(partial, **{f.name: getattr(self, f.name) for f in fields(self)})
        partial.replace(path)

    @staticmethod
    def load(path: Path) -> Moments:
        """The counterpart of `save`."""
        try:
            with np.load(path, allow_pickle=False) as data:
                return Moments(*(data[f.name] for f in fields(Moments)))
        except (OSError, ValueError, KeyError) as error:
            raise InvalidInput(f"{path.name} is no episode of this release: {error}") from error


def join(parts: Sequence[Moments]) -> Moments:
    """All rows, in order."""
    return Moments(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Moments)))


@dataclass(slots=True)
class _Labelling:
    behaviour: CandidateChooser
    previewed: tuple[str, ...]
    every: int
    rows: list[tuple[int, FloatArray, FloatArray, int, FloatArray, int]] = field(default_factory=list)

    def choose(self, moment: IntervalMoment) -> str:
        name = self.behaviour.choose(moment)
        names, count = moment.planners.names, len(moment.tasks)
        looked = [components(preview(moment.state, moment.tasks, moment.plan(p), scheduling_s(p, count))) for p in self.previewed]
        labels = np.full((len(names), 4), np.nan)
        if len(self.rows) % self.every == 0:
            labels = np.array([components(outcome) for outcome in marginals(moment).values()])
        self.rows.append((moment.interval, encode_general(moment.state, moment.tasks), np.array(looked), count, labels, names.index(name)))
        return name

    def settled(self, interval: int, outcome: Outcome) -> None:
        self.behaviour.settled(interval, outcome)


def gather(
    workload: TaskWorkload, planners: Planners, behaviour: CandidateChooser, previewed: tuple[str, ...], every: int = 1,
    scenario: CloudScenario = DEFAULT_SCENARIO,
) -> Moments:  # fmt: skip
    """Play an episode under `behaviour` and write down its decisions; every `every`-th is labelled for all candidates."""
    labelling = _Labelling(behaviour, previewed, every)
    ledger = run(workload, planners, labelling, scenario).ledger
    interval, features, previews, tasks, labels, taken = zip(*labelling.rows, strict=True)
    return Moments(
        np.array(features), np.array(previews).reshape(len(tasks), len(previewed), 4), np.array(tasks, np.float64), np.array(labels),
        np.array(taken, np.float64), np.array([components(ledger[i]) for i in interval]),
    )  # fmt: skip
