"""Margin and switch limit serve as they are simulated: the operator's chooser and the simulator's decide alike, interval by interval."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.operator.selection.small import policy
from tiphys_models.api.selection import SelectSpec
from tiphys_models.selection.cloud.score import Outcome
from tiphys_models.selection.planners.registry import HEURISTICS, make_planners
from tiphys_models.selection.selectors.hold import SwitchRules
from tiphys_models.selection.selectors.protocol import Scored
from tiphys_models.selection.selectors.registry import make_selector
from tiphys_models.selection.sim.choosers import Selected
from tiphys_models.selection.sim.episode import IntervalMoment, Planners, run
from tiphys_models.selection.sim.workloads import make_workload
from tiphys_operator.selection.chooser import UNIT, Asked, Chooser


@dataclass
class Both:
    """The simulator's chooser decides; the operator's is asked beside it and told the same."""

    simulated: Selected
    served: Chooser
    spec: SelectSpec
    chosen: str = ""
    switches_at_s: list[float] = field(default_factory=list)
    named: list[tuple[str, str]] = field(default_factory=list)

    def choose(self, moment: IntervalMoment) -> str:
        asked = Asked(moment.interval, moment.state, moment.tasks, self.chosen, self.switches_at_s)
        found = self.served.choose(asked, self.spec, obeys=True)
        assert found.choice is not None
        candidate = found.answered.answer.candidate
        self.served.commit(moment.interval, found.choice, candidate)
        if self.chosen and candidate != self.chosen:
            self.switches_at_s.append(moment.state.time_s)
        self.chosen = candidate
        simulated = self.simulated.choose(moment)
        self.named.append((simulated, candidate))
        return simulated

    def settled(self, interval: int, outcome: Outcome) -> None:
        self.simulated.settled(interval, outcome)
        self.served.learn(Scored(interval, outcome, UNIT.share(self.served.weights, outcome)))


@pytest.mark.parametrize("by", ["ucb", "metanet", "dqn"])
@pytest.mark.parametrize(("margin", "per_hour"), [(5, 12), (0, 3600), (20, 2)])
def test_what_serves_is_what_is_simulated(by: str, margin: int, per_hour: int) -> None:
    _, spec = policy(by=by, among=list(HEURISTICS), marginPercent=margin, maxSwitchesPerHour=per_hour)
    served = Chooser(spec)
    selector = make_selector(by, HEURISTICS, served.weights, UNIT, 0)
    both = Both(Selected(selector, served.weights, UNIT, rules=SwitchRules(margin, per_hour)), served, spec)
    run(make_workload("regime", "validation", 5, 60), Planners(make_planners(HEURISTICS)), both)
    assert [a for a, _ in both.named] == [b for _, b in both.named]
    assert both.simulated.switches_at_s == both.switches_at_s
    assert len(both.switches_at_s) <= per_hour
