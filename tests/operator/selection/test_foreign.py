"""Selectors, planners and placement policies of other packages in an interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.foreign import brought
from tests.operator.selection.small import Live
from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement.registry import REGISTRY as PLACEMENT
from tiphys_models.selection.cloud.state import Plan
from tiphys_models.selection.planners.registry import REGISTRY as PLANNERS
from tiphys_models.selection.selectors.protocol import Choice
from tiphys_models.selection.selectors.registry import REGISTRY as SELECTORS


class Last:
    """Always the last candidate."""

    def __init__(self, *given: Any) -> None:
        self.learned: list[int] = []

    def choose(self, decision: int, state: Any, tasks: Any, candidates: tuple[str, ...]) -> str:
        return candidates[-1]


class Everywhere:
    """All tasks on the second host."""

    def assign(self, state: Any, tasks: Any, seed: int) -> Any:
        return Plan(np.full(len(tasks), 1, np.int64))


class Short:
    """A host too few."""

    def assign(self, state: Any, tasks: Any, seed: int) -> Any:
        return Plan(np.zeros(max(len(tasks) - 1, 0), np.int64))


class Smallest:
    """Prefers the node with the least memory."""

    def score(self, view: Any, memory: Any) -> Any:
        return -view.available_memory_bytes / 2**30


def test_a_selector_and_a_planner_of_another_package_decide_an_interval() -> None:
    with brought(SELECTORS, acme_last=f"{__name__}:Last"), brought(PLANNERS, acme_all=f"{__name__}:Everywhere"):
        live = Live(by="acme-last", among=["cost-lean", "acme-all"])
        live.create(2)
        result = live.interval()
    assert live.memory.active == "acme-all"
    assert result.plan is not None
    assert result.plan.planner == "acme-all"
    (slots,) = result.plan.functions
    assert [node.node for node in slots.nodes] == ["b2s-1"]


def test_a_placement_policy_of_another_package_is_a_candidate_and_needs_no_plan() -> None:
    with brought(PLACEMENT, acme_smallest=f"{__name__}:Smallest"):
        live = Live(by="preview", among=["acme-smallest", "one-per-host"])
        live.create(1)
        result = live.interval()
        predicted = {cost.candidate for cost in live.memory.status.predicted_cost}
    assert predicted == {"acme-smallest", "one-per-host"}
    assert (result.plan is None) == (live.memory.active == "acme-smallest")


def test_candidates_that_nobody_has_are_left_out_of_the_choice() -> None:
    live = Live(by="ucb", among=["acme-spread", "cost-lean", "first-fit", "energy-lean"])
    assert live.chooser.among == ("cost-lean", "energy-lean")
    live.create(1)
    live.interval()
    assert live.memory.active == "cost-lean"


@pytest.mark.parametrize(
    ("select", "words"),
    [
        ({"by": "acme-last"}, "no selector is called 'acme-last': there are metanet, dqn, ucb, preview"),
        ({"by": "metanet-paper"}, "no selector is called 'metanet-paper'"),
        ({"by": "ucb", "among": ["acme-a", "acme-b"]}, "nobody here has any candidate"),
    ],
)
def test_without_a_selector_or_any_candidate_nothing_is_chosen(select: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Live(**select)


def test_a_planner_that_answers_nonsense_fails_its_own_interval_with_a_reason() -> None:
    with brought(PLANNERS, acme_short=f"{__name__}:Short"):
        live = Live(by="ucb", among=["acme-short", "cost-lean"])
        live.create(2)
        with pytest.raises(ValueError, match="tasks need as many hosts"):
            live.interval()


class Meddling:
    """Says no numbers, brings a plan of its own for somebody else's candidate, and fails wherever it is told something."""

    def __init__(self, *given: Any) -> None:
        pass

    def choose(self, decision: int, state: Any, tasks: Any, candidates: tuple[str, ...]) -> Choice:
        mine = Plan(np.full(len(tasks), 4, np.int64))
        return Choice(candidates[-1], "BestPredicted", dict.fromkeys(candidates, float("nan")), plans=dict.fromkeys(candidates, mine))

    def commit(self, *_: Any) -> None:
        raise RuntimeError("commit")

    def learn(self, *_: Any) -> None:
        raise RuntimeError("learn")

    def forget(self, *_: Any) -> None:
        raise RuntimeError("forget")

    def online_state(self) -> Any:
        raise RuntimeError("online_state")


class Bragging(Meddling):
    """The same in sound health: only what it predicts and plans for others is not its business."""

    def choose(self, decision: int, state: Any, tasks: Any, candidates: tuple[str, ...]) -> Choice:
        said = super().choose(decision, state, tasks, candidates)
        return Choice(said.candidate, said.reason, dict.fromkeys(candidates, 0.5), plans=said.plans)

    def commit(self, *_: Any) -> None:
        pass

    learn = forget = commit

    def online_state(self) -> Any:
        return {}


class Scribbling(Bragging):
    """The same, and it computes in place."""

    def choose(self, decision: int, state: Any, tasks: Any, candidates: tuple[str, ...]) -> Choice:
        said = super().choose(decision, state, tasks, candidates)
        tasks.ram_mib[:] = 1e9
        state.awake[:] = False
        return said


def planned(**select: Any) -> list[Any]:
    live, plans = Live(among=["cost-lean", "greedy"], rule="cost-lean", **select), list[Any]()
    for number in range(3):
        live.create(3, prefix=f"p{number}")
        result = live.interval()
        assert result.plan is not None
        plans.append(result.plan.functions)
        live.bind("b2s-1")
        live.end()
    return plans


@pytest.mark.parametrize("kind", ["Meddling", "Bragging", "Scribbling"])
@pytest.mark.parametrize("mode", ["Off", "Shadow"])
def test_a_selector_that_is_not_obeyed_changes_nothing_whatever_it_says_or_raises(kind: str, mode: str) -> None:
    with brought(SELECTORS, acme_odd=f"{__name__}:{kind}"):
        assert planned(by="acme-odd", mode=mode) == planned(by="ucb", mode="Off")


def test_a_selector_that_is_obeyed_and_fails_leaves_the_choice_to_the_rule() -> None:
    with brought(SELECTORS, acme_odd=f"{__name__}:Meddling"):
        assert planned(by="acme-odd", mode="Active") == planned(by="ucb", mode="Off")


def test_a_rule_that_is_not_here_is_not_named_either_while_nothing_is_to_be_placed() -> None:
    live = Live(by="ucb", mode="Shadow", among=["acme-all", "cost-lean", "greedy"], rule="acme-all")
    live.interval()
    assert live.memory.active == "cost-lean"
