"""The conformance suite finds what it looks for: each of these deciders breaks one rule, and is told so."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement.registry import REGISTRY as PLACEMENT
from tiphys_models.scaling.protocol import Answers
from tiphys_models.seats.checks import KINDS, DeciderFailed, assert_decider, check_decider
from tiphys_models.selection.cloud.state import Plan
from tiphys_models.selection.selectors.protocol import Choice


def failed(factory: Callable[..., object], kind: str) -> set[str]:
    return {checked.name for checked in check_decider(factory, kind) if not checked.holds}


@dataclass
class Policy:
    """A placement or stream policy made of one function of (what is asked, how often this one was asked before)."""

    scores: Callable[[Any, int], Any]
    asked: int = 0
    row_wise: bool = False
    epsilon: float = 1e-3

    def score(self, first: Any, second: Any) -> Any:
        self.asked += 1
        return self.scores(first if hasattr(first, "rows") else second, self.asked - 1)


def placing(scores: Callable[[Any, int], Any], **given: Any) -> set[str]:
    return failed(partial(Policy, scores, **given), "placement-policy")


def spread(view: Any, asked: int = 0) -> Any:
    """More free memory is better: keeps every rule."""
    return view.available_memory_bytes / 2**30


def test_a_policy_that_keeps_every_rule_passes() -> None:
    assert placing(spread) == set()
    assert placing(spread, row_wise=True) == set()


def test_a_policy_that_draws_is_found() -> None:
    rng = np.random.default_rng(0)
    assert {"is deterministic", "keeps nothing between questions"} <= placing(lambda view, _: rng.random(len(view.rows)))


def test_a_policy_that_counts_its_questions_is_found() -> None:
    assert placing(lambda view, asked: spread(view) + asked) == {"keeps nothing between questions", "ignores the order of candidates"}


def test_a_policy_that_writes_into_what_it_is_shown_is_found() -> None:
    def greedy_hands(view: Any, _: int) -> Any:
        view.numbers[:, 0] = 0.0
        return spread(view)

    assert "leaves questions as they were" in placing(greedy_hands)


def test_a_policy_that_prefers_whoever_is_named_first_is_found() -> None:
    assert placing(lambda view, _: -np.arange(len(view.rows), dtype=float)) == {"ignores the order of candidates"}


def test_a_policy_that_looks_at_others_and_denies_it_is_found() -> None:
    def relative(view: Any, _: int) -> Any:
        free = spread(view)
        return free - free.mean() if len(free) else free

    assert placing(relative) == set()
    assert placing(relative, row_wise=True) == {"scores rows alone if it says so"}


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_policy_that_answers_no_number_is_found(wrong: float) -> None:
    found = placing(lambda view, _: np.full(len(view.rows), wrong))
    assert "answers several candidates" in found
    assert "answers no candidate" not in found


def test_a_policy_that_cannot_do_without_candidates_or_readings_is_found() -> None:
    assert {"answers no candidate"} <= placing(lambda view, _: spread(view) - spread(view).max())
    assert placing(needs_readings) >= {"answers candidates without any reading", "answers candidates whose readings are stale"}
    assert "answers several candidates" not in placing(needs_readings)


def needs_readings(view: Any, asked: int) -> Any:
    if len(view.rows) and np.isnan(view.node_readings).all():
        raise ZeroDivisionError
    return spread(view)


def test_a_policy_that_answers_for_another_number_of_candidates_is_found() -> None:
    assert "answers a single candidate" in placing(lambda view, _: np.zeros(3))


def test_a_slow_policy_is_found() -> None:
    def slow(view: Any, _: int) -> Any:
        until_s = time.thread_time() + (0.1 if len(view.rows) > 100 else 0.0)
        while time.thread_time() < until_s:
            pass
        return spread(view)

    assert placing(slow) == {"is in time"}


def test_an_epsilon_that_is_no_number_is_found() -> None:
    assert placing(spread, epsilon=float("nan")) == {"describes itself"}


@dataclass
class Agent:
    """A scaling agent of one function."""

    sizes: Callable[[Any], Answers]

    def answer(self, seen: Any) -> Answers:
        return self.sizes(seen)


def scaling(sizes: Callable[[Any], Answers]) -> set[str]:
    return failed(lambda attainment: Agent(sizes), "scaling-agent")


def test_scaling_agents_that_break_a_rule_are_found() -> None:
    assert scaling(lambda seen: Answers(seen.replicas, seen.cpu_m)) == set()
    assert "answers services of which no rate is known" in scaling(lambda seen: Answers(seen.replicas, seen.rates[:, -1]))
    assert "answers one service" in scaling(lambda seen: Answers(seen.replicas * 1.5, seen.cpu_m))
    assert "answers one service" in scaling(lambda seen: Answers(-seen.replicas, seen.cpu_m))
    assert scaling(lambda seen: Answers(seen.replicas, np.broadcast_to(seen.cpu_m[:1], len(seen)) + 0.0)) == {
        "ignores the order of candidates"
    }


class Packer:
    """A planner that puts everything on one host."""

    def __init__(self, host: int = 0) -> None:
        self._host = host

    def assign(self, state: Any, tasks: Any, seed: int) -> Any:
        return Plan(np.full(len(tasks), self._host, np.int64))


def test_planners_that_break_a_rule_are_found() -> None:
    assert failed(Packer, "planner") == set(), "what does not fit is repaired by whoever asked"
    assert "answers a single task on a single host" in failed(partial(Packer, 1), "planner")


class First:
    """A selector that takes the first candidate, or another one."""

    def __init__(self, candidate: str = "", reason: str = "BestPredicted") -> None:
        self._candidate, self._reason = candidate, reason

    def choose(self, decision: int, state: Any, tasks: Any, candidates: tuple[str, ...]) -> Choice:
        return Choice(self._candidate or candidates[0], self._reason)


def test_selectors_that_break_a_rule_are_found() -> None:
    assert failed(lambda *given: First(), "selector") == set()
    assert failed(lambda *given: First("cost-lean"), "selector") == set(), "it is among them always"
    assert "answers a single candidate" in failed(lambda *given: First("energy-lean"), "selector")
    assert "answers several tasks" in failed(lambda *given: First(reason="Because"), "selector")


class Forgetful(First):
    """A selector whose checkpoint holds nothing of what it has learned."""

    def __init__(self) -> None:
        super().__init__()
        self._learned = 0

    def learn(self, scored: Any) -> None:
        self._learned += 1

    def choose(self, decision: int, state: Any, tasks: Any, candidates: tuple[str, ...]) -> Choice:
        return Choice(candidates[-1 if self._learned > 5 else 0], "BestPredicted")


def test_a_selector_that_a_restart_changes_is_found() -> None:
    assert failed(lambda *given: Forgetful(), "selector") == {"survives a restart"}


def test_stream_policies_that_break_a_rule_are_found() -> None:
    def of(scores: Callable[[Any], Any]) -> set[str]:
        return failed(lambda: Policy(lambda candidates, _: scores(candidates)), "stream-policy")

    assert of(lambda c: -c.load_qps) == set()
    assert of(lambda c: np.full(len(c.load_qps), -np.inf)) == {"binds where everything would do"}
    assert "answers several offers" in of(lambda c: c.load_qps * np.nan)
    assert "answers several offers" in of(lambda c: c.load_qps + np.inf)
    assert "ignores the order of candidates" in of(lambda c: np.arange(len(c.load_qps), dtype=float))


def test_what_has_no_method_to_ask_fails_every_check_and_raises_nothing() -> None:
    for kind in KINDS:
        found = list(check_decider(lambda *given: object(), kind))
        assert found
        assert not any(checked.holds for checked in found), kind
        assert "it has no method" in found[0].fault


def test_a_decider_that_ends_the_process_is_a_finding() -> None:
    def leaves() -> object:
        raise SystemExit(1)

    assert not any(checked.holds for checked in check_decider(leaves, "stream-policy"))


def test_failures_are_raised_all_together_and_an_exemption_must_be_needed() -> None:
    ordered = partial(Policy, lambda view, _: -np.arange(len(view.rows), dtype=float))
    with pytest.raises(DeciderFailed, match="ignores the order of candidates: another order"):
        assert_decider(ordered, "placement-policy")
    assert_decider(ordered, "placement-policy", ["ignores the order of candidates"])
    with pytest.raises(DeciderFailed, match="is in time: holds, so its exemption is to be removed"):
        assert_decider(ordered, "placement-policy", ["ignores the order of candidates", "is in time"])
    with pytest.raises(DeciderFailed, match="no such check"):
        assert_decider(partial(Policy, spread), "placement-policy", ["is beautiful"])


def test_a_kind_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidInput, match="no kind of decider is called 'oracle': there are placement-policy"):
        list(check_decider(object, "oracle"))


def test_what_is_checked_leaves_no_fault_in_a_registry() -> None:
    failed(object, "placement-policy")
    assert PLACEMENT.faults() == ()
