"""An agent beside the rule, window by window: what is compared, what takes over when, and what the trainer is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from tests.operator.scaling.small import NOW_S, measured, pod, policy, target, window
from tests.operator.scaling.test_decide import view
from tiphys_models.api.scaling_reasons import ScalingReason
from tiphys_models.api.scaling_status import ScalingPolicyStatus
from tiphys_models.base.network import Network
from tiphys_models.scaling.learned import LearnedAgent, moves_of
from tiphys_models.scaling.protocol import ScalingAgent
from tiphys_models.scaling.reward import bill, pain, reward
from tiphys_models.scaling.rules import Rule
from tiphys_models.scaling.settings import RULE
from tiphys_models.scaling.state import Window
from tiphys_models.scaling.transition import Transition
from tiphys_operator.scaling.conflicts import Conflict
from tiphys_operator.scaling.decide import Outcome
from tiphys_operator.scaling.judging import judge_of, judged_window
from tiphys_operator.scaling.measured import Measured

COMBINED = moves_of("combined", asdict(RULE))
PRICE = 12.0
CPU_MS = 2.0
STEADY: dict[str, Any] = {
    "vertical": {
        "minCpuMilli": 50,
        "maxCpuMilli": 2000,
        "behavior": {"scaleUp": {"tolerancePercent": 0}, "scaleDown": {"tolerancePercent": 0, "stabilizationWindowSeconds": 0}},
    },
    "horizontal": {"minReplicas": 2, "maxReplicas": 2},
}


def preferring(action: str, digest: str = "d" * 64) -> LearnedAgent:
    best = np.eye(len(COMBINED.actions))[COMBINED.actions.index(action)]
    return LearnedAgent("combined", COMBINED, Network([(np.zeros((COMBINED.width, len(best))), best)]), False, PRICE, digest=digest)


@dataclass
class Course:
    """One policy over many windows; what is applied is there in the next one, and too little makes requests late."""

    agent: ScalingAgent
    spec: dict[str, Any] = field(default_factory=dict)
    conflict: Conflict | None = None
    now_s: float = NOW_S
    retry: str = ""
    paused: bool = False
    status: ScalingPolicyStatus = field(default_factory=ScalingPolicyStatus)
    outcomes: list[Outcome] = field(default_factory=list)
    taught: list[Transition] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    cpu_m: int = 300

    def __post_init__(self) -> None:
        self.put(self.agent)

    def put(self, agent: ScalingAgent) -> None:
        """Another agent, as after another version of its model."""
        self.agent = agent
        self.judge = judge_of(agent, self.parsed)

    @property
    def parsed(self) -> Any:
        return policy(**STEADY | self.spec).spec

    def play(self, rates: Sequence[float], read: Measured | None = None) -> None:
        for rate in rates:
            self.now_s += 15
            need_m = rate * CPU_MS
            late = max(0.0, 1 - 2 * self.cpu_m / need_m)
            self.windows.append(window(rate, late, at_s=self.now_s - 2, in_flight=0.0))
            self.step(read or measured(*self.windows[-20:]))

    def step(self, read: Measured) -> None:
        annotations = {"tiphys.io/retry-agent": self.retry, "tiphys.io/paused": str(self.paused).lower()}
        seen = policy(self.status.model_dump(by_alias=True), {"annotations": annotations}, **STEADY | self.spec)
        pods = tuple(pod(f"web-{n}", cpu=f"{self.cpu_m}m") for n in range(2))
        looked = replace(view(read, target(), pods, self.conflict), rates=tuple(w.arrived / w.length_s for w in self.windows))
        assert seen.spec is not None
        outcome, taught = judged_window(seen, seen.spec, self.agent, self.judge, looked, self.now_s)
        self.outcomes.append(outcome)
        if taught is not None:
            self.taught.append(taught)
        self.status = self.status.model_copy(update={"last_decision": outcome.decision, "memory": outcome.memory})
        if self.parsed.acts and not self.paused:
            self.cpu_m = outcome.decision.applied.cpu_milli

    @property
    def rolled_back(self) -> bool:
        return self.status.memory.rolled_back is not None


COLLECT = {"agent": {"kind": "combined", "learning": "Collect", "requestCpuMicroseconds": 2000}}
FROZEN = {"agent": {"kind": "combined", "requestCpuMicroseconds": 2000}}


def test_a_transition_tells_state_action_mask_reward_and_the_state_after() -> None:
    course = Course(preferring("rule x 1.4"), COLLECT)
    course.play([200.0, 200.0, 210.0])
    first, second = course.taught
    assert first.after == second.inputs
    assert first.possible_after == second.possible
    assert (first.number, second.number, first.policy) == (1, 2, "default/web")
    assert (COMBINED.actions[first.wanted], first.wanted) == ("rule x 1.4", first.action)
    assert first.off == pytest.approx(0, abs=0.02)
    assert (first.at, first.price, first.digest) == (NOW_S + 28, PRICE, "d" * 64)
    there = course.outcomes[1].decision.former
    cost = float(bill(there.replicas, there.cpu_milli)) / (200 * CPU_MS / 1000)
    assert first.cost == pytest.approx(cost)
    assert first.reward == pytest.approx(float(reward(cost, pain(first.late), PRICE)))


def test_windows_of_a_frozen_policy_give_no_transitions() -> None:
    course = Course(preferring("rule x 1"), FROZEN)
    course.play([200.0] * 5)
    assert course.taught == []


def test_what_was_there_counts_as_the_action_whoever_brought_it_about() -> None:
    course = Course(preferring("rule x 1"), COLLECT)
    course.play([200.0, 200.0])
    course.cpu_m = round(course.cpu_m * 2 / 10) * 10  # by hand
    course.play([200.0])
    assert COMBINED.actions[course.taught[-1].action] == "rule x 2"
    assert COMBINED.actions[course.taught[-1].wanted] == "rule x 1"


def test_a_window_that_was_not_measured_breaks_the_chain_and_is_counted() -> None:
    course = Course(preferring("rule x 1"), COLLECT)
    course.play([200.0, 200.0])
    course.play([200.0], read=Measured(problem=ScalingReason.PROMETHEUS_UNREACHABLE))
    course.play([200.0, 200.0])
    assert [t.number for t in course.taught] == [1, 4]
    assert course.judge is not None
    assert course.judge.broken == 1


def test_windows_of_a_rule_can_teach_the_agent_that_could_decide() -> None:
    course = Course(Rule(RULE), {"agent": {"kind": "rule", "learning": "Collect", "requestCpuMicroseconds": 2000}})
    course.play([200.0] * 4)
    assert [(t.agent, t.digest, t.wanted, COMBINED.actions[t.action]) for t in course.taught[1:]] == [("combined", "", -1, "rule x 1")] * 2
    assert Course(Rule(RULE), {"agent": {"kind": "rule"}}).judge is None


def test_an_agent_that_does_as_the_rule_does_is_exactly_level_with_it() -> None:
    course = Course(preferring("rule x 1"), FROZEN)
    course.play([100.0, 300.0, 900.0, 200.0, 150.0] * 10)
    assert course.judge is not None
    assert list(course.judge.ahead) == [0.0] * 40
    assert not course.rolled_back


def test_an_agent_that_starves_its_pods_is_replaced_by_the_rule_within_few_windows() -> None:
    course = Course(preferring("rule x 0.82"), FROZEN)
    course.play([300.0])
    for n in range(40):
        course.play([300.0 + 40 * n])  # grows: 0.82 of what the rule buys is too little
        if course.rolled_back:
            break
    assert course.rolled_back
    assert len(course.outcomes) < 20
    back = course.status.memory.rolled_back
    assert back is not None
    assert (back.digest, "better by" in back.message) == ("d" * 64, True)
    assert course.outcomes[-1].decision.agent == "rule"
    assert course.outcomes[-1].decision.model_digest == ""


def test_an_agent_that_wastes_is_replaced_too_and_one_that_saves_is_not() -> None:
    wasteful, lean = Course(preferring("rule x 3"), FROZEN), Course(preferring("rule x 0.95"), FROZEN)
    for course in (wasteful, lean):
        course.play([200.0] * 60)
    assert wasteful.rolled_back
    assert not lean.rolled_back
    assert lean.judge is not None
    assert lean.judge.mean_ahead > 0


def test_the_margin_and_the_windows_say_how_much_worse() -> None:
    agent = preferring("rule x 1.4")
    patient = Course(agent, {"agent": FROZEN["agent"] | {"rollback": {"windows": 40, "marginPercent": 50}}})
    strict = Course(agent, {"agent": FROZEN["agent"] | {"rollback": {"windows": 4, "marginPercent": 1}}})
    for course in (patient, strict):
        course.play([200.0] * 45)
    assert not patient.rolled_back
    assert strict.rolled_back


def test_the_rule_stays_until_another_version_or_a_person_says_otherwise() -> None:
    course = Course(preferring("rule x 3"), FROZEN)
    course.play([200.0] * 45)
    assert course.rolled_back
    course.put(preferring("rule x 3"))  # the same weights in a new process
    course.play([200.0] * 5)
    assert course.rolled_back
    course.retry = "1"
    course.play([200.0])
    assert course.outcomes[-1].decision.agent == "combined"
    course.play([200.0] * 45)
    assert course.outcomes[-1].decision.agent == "rule", "the same value is no further chance"
    course.put(preferring("rule x 1", digest="e" * 64))
    course.play([200.0] * 10)
    assert course.outcomes[-1].decision.model_digest == "e" * 64


@pytest.mark.parametrize("idle", ["recommending", "in conflict"])
def test_decisions_that_change_nothing_are_not_compared(idle: str) -> None:
    spec = FROZEN | {"mode": "Recommend" if idle == "recommending" else "Active"}
    course = Course(
        preferring("rule x 3"), spec, conflict=None if idle == "recommending" else Conflict(ScalingReason.OWNED_BY_HPA, "theirs")
    )
    course.play([200.0] * 45)
    assert course.judge is not None
    assert (len(course.judge.ahead), course.rolled_back) == (0, False)


def test_a_rollback_that_could_not_be_written_down_is_found_again_in_the_next_window() -> None:
    course = Course(preferring("rule x 3"), FROZEN)
    while not course.rolled_back:
        assert len(course.outcomes) < 60
        before = course.status
        course.play([200.0])
    course.status = before
    course.play([200.0])
    assert course.rolled_back


def test_after_a_pause_agent_and_rule_begin_from_the_same_size() -> None:
    course = Course(preferring("rule x 1"), FROZEN)
    course.play([900.0] * 5)
    course.paused = True
    course.play([100.0] * 10)
    course.paused = False
    course.play([100.0] * 10)  # CPU falls by half a window at most
    assert course.judge is not None
    assert list(course.judge.ahead) == [0.0] * len(course.judge.ahead)
    assert len(course.judge.ahead) > 10
