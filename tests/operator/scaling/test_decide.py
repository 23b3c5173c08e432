"""One window: from what was measured to what is written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operator.scaling.small import NOW_S, host, measured, pod, policy, resizing, target, window
from tiphys_models.api.scaling_reasons import DecisionPhase, MaskReason, ScalingReason
from tiphys_models.api.scaling_status import Blocked, ScalingMemory, Size
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.registry import agent_names, make_agent
from tiphys_models.scaling.seen import ServiceHistory
from tiphys_operator.cluster.scaled import ScaledPod
from tiphys_operator.scaling.believed import BLOCKED_MAX_S
from tiphys_operator.scaling.conflicts import Conflict
from tiphys_operator.scaling.decide import BLOCKED_FIRST_S, Outcome, View, block, decide_window, refused
from tiphys_operator.scaling.judging import deciders_of
from tiphys_operator.scaling.measured import Measured
from tiphys_operator.scaling.room import Place
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.shape import Shape
from tiphys_operator.scaling.workload import Target


@dataclass(frozen=True)
class Fixed:
    """Wants one size."""

    replicas: int = 2
    cpu_m: float = 100.0
    name: str = "fixed"
    actions: tuple[str, ...] = ()
    digest: str = "ab" * 32

    def answer(self, seen: ServiceHistory) -> Answers:
        return Answers(np.array([self.replicas]), np.array([self.cpu_m]))


@dataclass(frozen=True)
class Learned(Fixed):
    """Has a value for each of two actions."""

    actions: tuple[str, ...] = ("stay", "grow")

    def answer(self, seen: ServiceHistory) -> Answers:
        return Answers(np.array([3]), np.array([100.0]), np.array([1]), np.array([[0.25, 0.5]]))


def view(
    read: Measured | None = None, of: Target | None = None, pods: Sequence[ScaledPod] | None = None, conflict: Conflict | None = None
) -> View:
    there = (pod("a"), pod("b")) if pods is None else pods
    read = measured() if read is None else read
    rates = tuple(w.arrived / w.length_s for w in read.windows)
    return View(of or target(), Shape("main", 100, 50), there, read, rates, Place({"n1": host("n1", 64_000)}, {"n1": 100}), conflict)


def decided(agent: Any = None, seen: ScalingSeen | None = None, now_s: float = NOW_S, **parts: Any) -> Outcome:
    seen = seen or policy()
    assert seen.spec is not None
    return decide_window(seen, seen.spec, deciders_of(agent or Fixed(), None), view(**parts), now_s)


def after(outcome: Outcome, **spec: Any) -> ScalingSeen:
    """The policy with what was written down."""
    status = {
        "observedGeneration": 1,
        "lastDecision": outcome.decision.model_dump(by_alias=True),
        "memory": outcome.memory.model_dump(by_alias=True),
    }
    return policy(status, **spec)


def test_a_step_is_an_intent_before_it_is_made_and_tells_everything() -> None:
    found = decided(Fixed(4, 200.0))
    decision = found.decision
    assert decision.phase == DecisionPhase.INTENDED
    assert (decision.number, decision.agent) == (1, "fixed")
    assert decision.former == Size(replicas=2, cpu_milli=100)
    assert decision.wanted == decision.clamped == decision.applied == Size(replicas=4, cpu_milli=200)
    assert decision.reasons == ["Rule", "DesiredWithinRange", "DesiredWithinRange"]
    assert decision.window is not None
    assert (decision.window.requests, decision.window.good) == (1500, 1500)
    assert found.memory.replicas.changes[0].value == 2
    assert found.memory.cpu.changes[0].value == 10, "in steps of 10 millicores"


def test_a_learned_agent_shows_its_values_and_its_weights() -> None:
    decision = decided(Learned()).decision
    assert decision.values == ["grow=0.5", "stay=0.25"]
    assert decision.model_digest == "ab" * 32
    assert decision.reasons[0] == "BestValue"


def test_without_a_change_there_is_nothing_to_intend() -> None:
    assert decided().decision.phase == DecisionPhase.DONE


@pytest.mark.parametrize(
    ("seen", "conflict"),
    [
        (policy(mode="Recommend"), None),
        (policy(metadata={"annotations": {"tiphys.io/paused": "true"}}), None),
        (policy(), Conflict(ScalingReason.OWNED_BY_HPA, "theirs")),
    ],
)
def test_who_may_not_act_recommends_and_counts_no_step(seen: ScalingSeen, conflict: Conflict | None) -> None:
    found = decided(Fixed(4, 200.0), seen, conflict=conflict)
    assert found.decision.phase == DecisionPhase.RECOMMENDED
    assert found.decision.applied == Size(replicas=4, cpu_milli=200)
    assert found.memory.replicas.changes == found.memory.cpu.changes == []


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (Measured(problem=ScalingReason.SERIES_MISSING, message="none"), ScalingReason.SERIES_MISSING),
        (measured(problem=ScalingReason.PROMETHEUS_UNREACHABLE, message="refused"), ScalingReason.PROMETHEUS_UNREACHABLE),
        (measured(window(at_s=NOW_S - 60)), ScalingReason.SAMPLES_STALE),
        (Measured(), ScalingReason.SAMPLES_STALE),
    ],
)
def test_whatever_is_missing_holds_and_never_shrinks(read: Measured, reason: ScalingReason) -> None:
    found = decided(Fixed(1, 50.0), read=read)
    assert (found.decision.phase, found.held) == (DecisionPhase.HELD, reason)
    assert found.decision.applied == found.decision.former
    assert found.memory.replicas.lowest == [], "a held window wants nothing"


def test_cpu_of_a_request_is_measured_remembered_and_needed() -> None:
    measures = policy(agent={})
    found = decided(seen=measures)
    assert found.memory.request_cpu_microseconds == 2000
    blind = measured(window(used_cpu_m=None))
    assert decided(seen=after(found, agent={}), read=blind).memory.request_cpu_microseconds == 2000
    assert decided(seen=measures, read=blind).held is ScalingReason.CAPACITY_UNKNOWN


def test_the_rule_buys_what_the_load_takes() -> None:
    found = decided(make_agent("rule"), read=measured(window(rate=300.0, late=0.7)))
    applied = found.decision.applied
    assert applied.replicas * applied.cpu_milli >= 600


def test_nothing_shrinks_while_the_objective_is_missed_but_wishes_are_remembered() -> None:
    found = decided(Fixed(1, 50.0), read=measured(window(late=0.5)))
    assert found.decision.applied == found.decision.former
    assert "replicas-down: ObjectiveMissed" in found.decision.masked
    assert found.memory.replicas.lowest[-1].value == 1


def test_limits_of_the_last_life_still_hold_after_a_restart() -> None:
    slow = {
        "minReplicas": 1,
        "maxReplicas": 10,
        "behavior": {"scaleUp": {"policies": [{"type": "Units", "value": 2, "periodSeconds": 60}]}},
    }
    first = decided(Fixed(10), policy(horizontal=slow))
    assert first.decision.applied.replicas == 4
    again = decided(Fixed(10), after(first, horizontal=slow), NOW_S + 15, of=target(4), read=measured(window(at_s=NOW_S + 10)))
    assert again.decision.applied.replicas == 4
    assert "ScaleUpLimit" in again.decision.reasons
    later = decided(Fixed(10), after(first, horizontal=slow), NOW_S + 61, of=target(4), read=measured(window(at_s=NOW_S + 58)))
    assert later.decision.applied.replicas == 6
    assert later.decision.number == 2


def test_replicas_shrink_late_and_cpu_soon() -> None:
    seen, phases = policy(), []
    for step in range(25):
        now_s = NOW_S + 15 * step
        found = decided(Fixed(1, 50.0), seen, now_s, read=measured(window(at_s=now_s - 5)))
        phases.append((found.decision.applied.replicas, found.decision.applied.cpu_milli))
        seen = after(found)
    assert phases[1] == (2, 100)
    assert phases[3] == (2, 50)
    assert phases[19][0] == 2
    assert phases[21][0] == 1


def test_a_refused_step_is_masked_and_each_time_for_longer() -> None:
    found = decided(Fixed(2, 200.0))
    no = refused(found, "cpu-up", MaskReason.QUOTA, "exceeded quota", NOW_S)
    assert (no.decision.phase, no.decision.applied) == (DecisionPhase.REFUSED, found.decision.former)
    again = decided(Fixed(2, 200.0), after(no), NOW_S + 15, read=measured(window(at_s=NOW_S + 10)))
    assert (again.decision.phase, again.decision.applied) == (DecisionPhase.DONE, found.decision.former)
    assert "cpu-up: Quota" in again.decision.masked
    memory, waits = no.memory, []
    for _ in range(8):
        memory = block(memory, "cpu-up", 100, MaskReason.QUOTA, NOW_S)
        waits.append(memory.blocked[0].until - NOW_S)
    assert waits[0] == 2 * BLOCKED_FIRST_S
    assert waits == sorted(waits)
    assert waits[-1] == BLOCKED_MAX_S


def test_pods_that_cannot_be_created_are_given_up() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": 'pods "web" is forbidden: exceeded quota: q'}
    starved = target(replicas=5, status={"conditions": [failure]})
    found = decided(Fixed(5, 100.0), of=starved, read=measured(window(late=0.9)))
    assert found.decision.applied.replicas == 2
    assert found.memory.blocked[0].reason == "Quota"
    assert found.memory.blocked[0].bound == 2


def test_a_size_that_a_node_never_gave_is_not_asked_for_again() -> None:
    stuck = pod("a", cpu="200m", actual="100m", conditions=resizing("PodResizePending", "Infeasible"))
    found = decided(Fixed(1, 200.0), of=target(1), pods=[stuck])
    assert [(b.move, b.bound, b.reason) for b in found.memory.blocked] == [("cpu-up", 100, "NodeCapacity")]


def test_a_size_that_a_node_never_gave_is_taken_back_even_below_the_specs_least() -> None:
    """Else it would be asked for again as soon as the pod has its former size, and a pod without a pending resize would get it."""
    stuck = pod("a", cpu="200m", actual="100m", conditions=resizing("PodResizePending", "Infeasible"))
    seen = policy(vertical={"minCpuMilli": 200, "maxCpuMilli": 200})
    assert decided(Fixed(1, 200.0), seen=seen, of=target(1), pods=[stuck]).decision.applied.cpu_milli == 100


def test_an_agent_that_stays_within_a_mask_is_limited_by_it_all_the_same() -> None:
    full = Place({"n1": host("n1", 200)}, {"n1": 100})
    seen = policy()
    assert seen.spec is not None
    tight = replace(view(), place=full)
    found = decide_window(seen, seen.spec, deciders_of(Fixed(2, 200.0), None), tight, NOW_S)
    assert found.decision.applied.cpu_milli == 200
    assert found.masked
    assert "ByMask" in found.decision.reasons
    assert not decided(Fixed(2, 200.0)).masked


def test_old_refusals_are_forgotten() -> None:
    memory = ScalingMemory(
        blocked=[Blocked(move="cpu-up", bound=1, reason="Quota", until=NOW_S - 4000)], overridden=[NOW_S - 4000, NOW_S - 10]
    )
    seen = policy({"memory": memory.model_dump(by_alias=True)})
    assert (decided(seen=seen).memory.blocked, decided(seen=seen).memory.overridden) == ([], [NOW_S - 10])


sizes = st.tuples(st.integers(-3, 60), st.floats(-50, 5000))


@settings(deadline=None, max_examples=40)
@given(wishes=st.lists(st.tuples(sizes, st.sampled_from([0.0, 0.3, None])), min_size=1, max_size=12))
def test_no_agent_leaves_the_bounds_whatever_it_wants(wishes: list[tuple[tuple[int, float], float | None]]) -> None:
    seen, here = policy(), Size(replicas=2, cpu_milli=100)
    for step, ((replicas, cpu_m), late) in enumerate(wishes):
        now_s = NOW_S + 15 * step
        pods = [pod(f"p{n}", cpu=f"{here.cpu_milli}m") for n in range(here.replicas)]
        read = measured(window(at_s=now_s - 5, late=late))
        found = decided(Fixed(replicas, cpu_m), seen, now_s, of=target(here.replicas), pods=pods, read=read)
        here = found.decision.applied
        assert 1 <= here.replicas <= 10
        assert 50 <= here.cpu_milli <= 400
        if late == 0.3:
            assert here.replicas >= found.decision.former.replicas
            assert here.cpu_milli >= found.decision.former.cpu_milli
        seen = after(replace(found))


@pytest.mark.parametrize("name", agent_names())
def test_every_agent_that_ships_can_serve_a_policy(name: str) -> None:
    drowning = [window(rate=300.0, late=0.7, at_s=NOW_S - 5 - 15 * back, p90_s=1.0) for back in range(19, -1, -1)]
    found = decided(make_agent(name), read=measured(*drowning))
    assert found.decision.phase == DecisionPhase.INTENDED
    before, after = found.decision.former, found.decision.applied
    assert after.replicas * after.cpu_milli > before.replicas * before.cpu_milli
