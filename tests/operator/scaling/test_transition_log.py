from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tiphys_models.scaling.transition import Transition, TransitionPage
from tiphys_operator.scaling.transition_log import TransitionLog


def transition(policy: str = "default/web", **changes: Any) -> Transition:
    made: dict[str, Any] = {
        "policy": policy, "number": 1, "at": 1.0, "windowSeconds": 15, "agent": "combined", "digest": "", "featureSchema": "scaling/1",
        "price": 3.0, "inputs": [0.0, 1.0], "possible": [True, False], "wanted": -1, "action": 0, "off": 0.0, "cost": 1.0, "late": 0.0,
        "reward": -0.5, "after": [0.0, 1.0], "possibleAfter": [True, True],
    }  # fmt: skip
    return Transition.model_validate(made | changes)


def page_of(log: TransitionLog, after: int, limit: int, policy: str = "") -> TransitionPage:
    return TransitionPage.model_validate_json(log.page(after, limit, policy))


def numbers(page: TransitionPage) -> list[int]:
    return [entry.seq for entry in page.items]


def test_pages_follow_each_other_to_the_end() -> None:
    log = TransitionLog()
    for _ in range(7):
        log.append(transition())
    first = page_of(log, 0, 3)
    assert (numbers(first), first.next, first.last, first.lost) == ([1, 2, 3], 3, 7, 0)
    assert numbers(page_of(log, first.next, 3)) == [4, 5, 6]
    end = page_of(log, 6, 3)
    assert (numbers(end), end.next) == ([7], 7)
    assert (numbers(page_of(log, 7, 3)), page_of(log, 7, 3).next) == ([], 7)


def test_one_policy_is_read_without_the_others_and_without_standing_still() -> None:
    log = TransitionLog()
    for n in range(10):
        log.append(transition(f"default/{'web' if n % 5 == 0 else 'api'}"))
    page = page_of(log, 0, 100, "default/web")
    assert (numbers(page), page.next) == ([1, 6], 10)
    assert [numbers(page_of(log, after, 1, "default/web")) for after in (0, 1, 6)] == [[1], [6], []]


def test_who_comes_too_late_is_told_how_much_is_gone() -> None:
    log = TransitionLog(capacity=5)
    for _ in range(12):
        log.append(transition())
    page = page_of(log, 3, 100)
    assert (page.first, page.lost, numbers(page)) == (8, 4, [8, 9, 10, 11, 12])
    assert page_of(log, 7, 100).lost == 0


def test_an_empty_log_has_lost_nothing_and_another_process_another_epoch() -> None:
    page = page_of(TransitionLog(), 0, 10)
    assert (page.first, page.last, page.lost, page.next, page.items) == (1, 0, 0, 0, [])
    assert page.epoch != TransitionLog().epoch


@pytest.mark.parametrize(
    "broken",
    [{"after": [0.0]}, {"possibleAfter": [True]}, {"action": 2}, {"wanted": 2}, {"inputs": [0.0, float("nan")]},
     {"possibleAfter": [False, False]}, {"late": 1.5}, {"price": 0}, {"reward": float("inf")}],
)  # fmt: skip
def test_a_transition_that_cannot_be_learned_from_is_none(broken: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        transition(**broken)
