"""A ScalingPolicy in mode Canary: blocks of windows in which the agent decides, blocks in which the rule does, and what that shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.operator.scaling.harness import World
from tests.operator.scaling.small import NOW_S, policy
from tests.operator.scaling.test_decide import Fixed, view
from tests.operator.scaling.test_judging import FROZEN, Course, preferring
from tiphys_models.api.comparison_memory import ComparisonMemory
from tiphys_models.api.scaling_policy import parse_scaling
from tiphys_models.api.scaling_reasons import DecisionPhase, ScalingReason
from tiphys_models.base.errors import InvalidInput
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.rules import Rule
from tiphys_models.scaling.seen import ServiceHistory
from tiphys_models.scaling.settings import RULE
from tiphys_models.seats.shares import block_of
from tiphys_operator.scaling.believed import believed
from tiphys_operator.scaling.conflicts import Conflict
from tiphys_operator.scaling.decide import decide_window
from tiphys_operator.scaling.judging import deciders_of, judge_of
from tiphys_operator.scaling.seen import scaling_seen

BLOCK, WASH = 4, 1
CANARY: dict[str, Any] = FROZEN | {"mode": "Canary", "canary": {"percent": 50, "blockWindows": BLOCK, "washOutWindows": WASH}}


@dataclass(frozen=True)
class Broken(Fixed):
    """Fails whatever it is asked."""

    def answer(self, seen: ServiceHistory) -> Answers:
        raise ArithmeticError("on purpose")


def groups(course: Course) -> list[str]:
    return [outcome.decision.group for outcome in course.outcomes]


def test_groups_change_by_block_of_the_wall_clock_and_each_decides_with_its_own() -> None:
    course = Course(preferring("rule x 1.4"), CANARY)
    course.play([200.0] * 40)
    expected = []
    for n in range(40):
        block = block_of("p", NOW_S + 15 * (n + 1), BLOCK * 15, WASH * 15, 50)
        expected.append("treated" if block.obeys else "control")
    assert groups(course) == expected
    assert set(expected) == {"treated", "control"}
    assert {(o.decision.group, o.decision.agent, o.decision.outcome) for o in course.outcomes} == {
        ("treated", "combined", "learned"),
        ("control", "rule", "rule"),
    }


def test_whoever_does_not_decide_is_asked_all_the_same() -> None:
    course = Course(preferring("rule x 1.4"), CANARY)
    course.play([200.0] * 40)
    for outcome in course.outcomes[8:]:
        decision = outcome.decision
        assert decision.would is not None
        grown = decision.would.cpu_milli if decision.group == "control" else decision.applied.cpu_milli
        plain = decision.applied.cpu_milli if decision.group == "control" else decision.would.cpu_milli
        assert grown > plain


def test_outcomes_count_for_the_group_whose_decision_they_followed_but_not_while_the_other_is_washed_out() -> None:
    course = Course(preferring("rule x 1.4"), CANARY)
    course.play([200.0] * 60)
    comparison = course.status.memory.comparison
    assert comparison is not None
    blocks = [block_of("p", NOW_S + 15 * (n + 1), BLOCK * 15, WASH * 15, 50) for n in range(59)]  # the last one's window is not over
    for group, obeys in (("treated", True), ("control", False)):
        counted = [b for b in blocks if b.obeys == obeys and not b.washing]
        assert getattr(comparison, group).units == len(counted)
        assert getattr(comparison, group).answers == groups(course).count(group)
    told = comparison.status("reward", more_is_better=True)
    assert told.treated is not None
    assert told.control is not None
    assert told.treated.mean_cost is not None
    assert told.control.mean_cost is not None
    assert told.treated.mean_cost > told.control.mean_cost
    assert (told.result, told.agreement_percent) == ("Worse", 0.0)


def test_an_agent_that_does_as_the_rule_does_shows_no_difference() -> None:
    course = Course(preferring("rule x 1"), CANARY)
    course.play([200.0] * 100)
    comparison = course.status.memory.comparison
    assert comparison is not None
    told = comparison.status("reward", more_is_better=True)
    assert (told.result, told.agreement_percent) == ("NoDifferenceFound", 100.0)
    assert told.difference == pytest.approx(0.0, abs=0.05)


def test_another_spec_begins_the_comparison_anew() -> None:
    course = Course(preferring("rule x 1"), CANARY)
    course.play([200.0] * 20)
    former = course.status.memory.comparison
    course.put(preferring("rule x 1", digest="e" * 64))
    course.play([200.0])
    now = course.status.memory.comparison
    assert former is not None
    assert now is not None
    assert (former.treated.answers + former.control.answers, now.treated.answers + now.control.answers) == (20, 1)
    assert now.since > former.since


@pytest.mark.parametrize(
    "hostile",
    [
        {"treated": {"total": 1e300}},
        {"treated": {"squares": -1.0}},
        {"control": {"means": float("nan")}},
        {"control": {"units": 10**400}},
        {"treated": {"open": [{"number": 10**300, "units": 1, "total": 1.0}]}},
        {"treated": {"open": [{"number": 1, "units": 1, "total": float("inf")}]}},
        {"since": 1e300},
        {"same": 10**400},
    ],
)
def test_sums_that_cannot_be_ours_count_for_nothing_and_spoil_no_window(hostile: dict[str, Any]) -> None:
    course = Course(preferring("rule x 1"), CANARY)
    course.play([200.0] * 20)
    comparison = ComparisonMemory.model_validate({"subject": "1 combined " + "d" * 64} | hostile)
    memory = course.status.memory.model_copy(update={"comparison": comparison})
    assert believed(memory, course.now_s).comparison is None
    assert comparison.of(comparison.subject, 5.0).treated.units == 0
    course.status = course.status.model_copy(update={"memory": believed(memory, course.now_s)})
    course.play([200.0])
    assert course.status.memory.comparison is not None
    assert course.status.memory.comparison.sound


def test_sums_of_our_own_are_believed() -> None:
    course = Course(preferring("rule x 1"), CANARY)
    course.play([200.0] * 20)
    assert believed(course.status.memory, course.now_s).comparison == course.status.memory.comparison


def test_a_rolled_back_agent_decides_no_more_in_its_own_blocks() -> None:
    course = Course(preferring("rule x 3"), CANARY)
    course.play([200.0] * 120)
    assert course.rolled_back
    late = [o.decision for o in course.outcomes[-20:]]
    assert {d.agent for d in late} == {"rule"}
    assert {(d.group, d.outcome, d.outcome_reason) for d in late} == {
        ("treated", "fallback", "worse-than-rule"),
        ("control", "rule", "control"),
    }


def test_only_treated_windows_speak_for_or_against_the_agent() -> None:
    course = Course(preferring("rule x 1.4"), CANARY)
    course.play([200.0] * 40)
    assert course.judge is not None
    assert len(course.judge.ahead) <= groups(course).count("treated")


@pytest.mark.parametrize("mode", ["Recommend", "Shadow"])
def test_shadow_is_recommend_and_shows_the_rules_size_beside(mode: str) -> None:
    course = Course(preferring("rule x 1.4"), FROZEN | {"mode": mode})
    course.play([200.0] * 5)
    decision = course.outcomes[-1].decision
    assert (decision.phase, decision.agent, decision.outcome, decision.group) == (DecisionPhase.RECOMMENDED, "combined", "learned", "")
    assert decision.would is not None
    assert decision.would.cpu_milli < decision.applied.cpu_milli
    assert course.cpu_m == 300, "nothing is carried out"


def test_where_the_rule_is_named_nobody_else_is_asked() -> None:
    course = Course(Rule(RULE), {"agent": {"kind": "rule", "requestCpuMicroseconds": 2000}})
    course.play([200.0] * 3)
    decision = course.outcomes[-1].decision
    assert (decision.agent, decision.outcome, decision.would) == ("rule", "rule", None)


def test_the_rule_decides_for_an_agent_that_fails_and_the_status_says_so() -> None:
    seen = policy(agent={"kind": "mine", "requestCpuMicroseconds": 2000})
    assert seen.spec is not None
    outcome = decide_window(seen, seen.spec, deciders_of(Broken(), None), view(), NOW_S)
    ours = decide_window(seen, seen.spec, deciders_of(Rule(RULE), None), view(), NOW_S)
    assert outcome.decision.applied == ours.decision.applied
    assert (outcome.decision.agent, outcome.decision.outcome, outcome.decision.outcome_reason) == ("rule", "fallback", "policy-error")


def test_a_canary_of_a_rule_is_compared_by_the_shipped_agents_prices() -> None:
    agent = Fixed(2, 300.0, "mine", digest="")
    spec = CANARY | {"agent": {"kind": "mine", "requestCpuMicroseconds": 2000}}
    course = Course(agent, spec)
    course.play([200.0] * 40)
    assert judge_of(agent, course.parsed) is not None
    comparison = course.status.memory.comparison
    assert comparison is not None
    assert comparison.treated.units > 0
    assert comparison.control.units > 0
    assert not course.rolled_back


def test_in_a_conflict_the_groups_go_on_and_nothing_is_compared() -> None:
    course = Course(preferring("rule x 1.4"), CANARY, conflict=Conflict(ScalingReason.OWNED_BY_HPA, "theirs"))
    course.play([200.0] * 20)
    comparison = course.status.memory.comparison
    assert comparison is not None
    assert (comparison.treated.units, comparison.control.units) == (0, 0)
    assert set(groups(course)) <= {"treated", "control"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"mode": "Canary"}, "canary belongs to mode Canary"),
        ({"mode": "Active", "canary": {"percent": 10}}, "canary belongs to mode Canary"),
        ({"mode": "Canary", "canary": {"percent": 100}}, "less than or equal to 99"),
        ({"mode": "Canary", "canary": {"percent": 5, "blockWindows": 4, "washOutWindows": 4}}, "must be below blockWindows"),
    ],
)
def test_a_canary_that_means_nothing_is_refused(spec: dict[str, Any], said: str) -> None:
    plain = {"targetRef": {"kind": "Deployment", "name": "web"}, "objective": {"latencyMilliseconds": 400}, "horizontal": {}}
    with pytest.raises(InvalidInput, match=said):
        parse_scaling({"spec": plain | spec})


async def test_decisions_of_both_groups_are_carried_out_and_ready_tells_of_the_canary() -> None:
    world = World(
        mode="Canary", canary={"percent": 50, "blockWindows": 2, "washOutWindows": 0}, agent={"kind": "hpa", "requestCpuMicroseconds": 2000},
    )  # fmt: skip
    life, phases = world.life(), set()
    for _ in range(24):
        await life.window()
        phases.add((world.decision["group"], world.decision["agent"], world.decision["phase"]))
        world.clock.advance(15)
    assert {(group, agent) for group, agent, _ in phases} == {("treated", "hpa"), ("control", "rule")}
    assert {phase for _, _, phase in phases} == {DecisionPhase.DONE}
    assert world.reason("Ready") == ScalingReason.CANARY
    seen = scaling_seen(world.kube.policy)  # what stands there may be some windows old: only news is written
    newest = life.running.unwritten.latest(seen).status.memory.comparison
    assert newest is not None
    assert newest.treated.answers + newest.control.answers == 24


async def test_a_canary_of_the_rule_itself_decides_every_window() -> None:
    world = World(
        mode="Canary", canary={"percent": 50, "blockWindows": 2, "washOutWindows": 0}, agent={"kind": "rule", "requestCpuMicroseconds": 2000},
    )  # fmt: skip
    life, groups = world.life(), set()
    for _ in range(24):
        await life.window()
        groups.add((world.decision["group"], world.decision["phase"]))
        world.clock.advance(15)
    assert groups == {("treated", DecisionPhase.DONE), ("control", DecisionPhase.DONE)}
    assert world.reason("Ready") == ScalingReason.CANARY


async def test_a_restart_goes_on_with_the_comparison_and_the_group() -> None:
    world = World(
        mode="Canary", canary={"percent": 50, "blockWindows": 4, "washOutWindows": 0}, agent={"kind": "hpa", "requestCpuMicroseconds": 2000},
    )  # fmt: skip
    for _ in range(12):
        await world.life().window()
        world.clock.advance(15)
    comparison = world.status["comparison"]
    assert comparison["treated"]["answers"] + comparison["control"]["answers"] == 12


async def test_a_canary_of_rule_plus_learns_headroom_in_its_own_blocks_only() -> None:
    world = World(mode="Canary", canary={"percent": 50, "blockWindows": 4, "washOutWindows": 1}, agent={"kind": "rule+"})
    life, course = world.life(), list[tuple[str, float]]()
    for _ in range(40):
        await life.window()
        memory = life.running.unwritten.latest(scaling_seen(world.kube.policy)).status.memory
        assert memory.learned is not None
        course.append((world.decision["agent"], memory.learned.headroom or 0.0))
        world.clock.advance(15)
    assert {agent for agent, _ in course} == {"rule", "rule+"}
    # a window ends when the next one is decided
    moved = {course[n][0] for n in range(1, 39) if course[n + 1][1] != course[n][1]}
    assert moved == {"rule+"}
