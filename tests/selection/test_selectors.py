from __future__ import annotations

import numpy as np
import pytest

from tests.selection.small import state, tasks
from tiphys_models.base.errors import ArtifactRefused, InvalidInput
from tiphys_models.selection.cloud.score import DEFAULT, DIVISORS, Outcome
from tiphys_models.selection.selectors.choice import choose_with_margin
from tiphys_models.selection.selectors.hold import SwitchRules, hold
from tiphys_models.selection.selectors.protocol import Choice, Scored, take
from tiphys_models.selection.selectors.registry import make_selector
from tiphys_models.selection.selectors.ucb import UCB

ARMS = ("a", "b", "c")
NOW, WAITING = state(), tasks(0, 1)


def test_only_a_clear_advantage_leaves_the_fallback() -> None:
    predicted = {"a": 1.0, "b": 0.95, "c": 0.7}
    assert choose_with_margin(predicted, "a", {"b": 0.2, "c": 0.2}) == Choice("c", "BestPredicted", predicted)
    assert choose_with_margin(predicted, "a", {"b": 0.4, "c": 0.4}) == Choice("a", "WithinMargin", predicted)
    assert choose_with_margin(predicted, "a", {"b": 0.01, "c": 0.4}) == Choice("b", "BestPredicted", predicted)  # less, but surely
    assert choose_with_margin(predicted, "c", {"a": 0.4}) == Choice("c", "BestPredicted", predicted)
    assert choose_with_margin(predicted, "gone", {"c": 9.0}).candidate == "c"


def test_switches_are_limited_by_the_hour() -> None:
    rules, switches, active = SwitchRules(0, 2), list[float](), ""

    def held(name: str, time_s: float) -> tuple[str, str]:
        nonlocal active
        found = hold(Choice(name, "BestPredicted"), active, ARMS, rules, switches, time_s)
        if active and found.candidate != active:
            switches.append(time_s)
        active = found.candidate
        return found.candidate, found.reason

    assert held("a", 0) == ("a", "BestPredicted")
    assert held("b", 10)[0] == "b"
    assert held("a", 20)[0] == "a"
    assert held("b", 30) == ("a", "SwitchLimit")
    assert held("a", 40) == ("a", "BestPredicted")
    assert held("b", 3609) == ("a", "SwitchLimit")
    assert held("b", 3611)[0] == "b"  # the switch at 10 s is an hour old


def play(selector: UCB, costs: dict[str, float], rounds: int, delay: int = 3) -> list[str]:
    """Decisions become known `delay` rounds later."""
    rng = np.random.default_rng(1)
    names = []
    for decision in range(rounds):
        names.append(take(selector, decision, NOW, WAITING, ARMS).candidate)
        if decision >= delay:
            j = costs[names[decision - delay]] * 2 * rng.uniform(0.8, 1.2)
            selector.learn(Scored(decision - delay, Outcome(), j))
    return names


def test_ucb_tries_every_arm_and_settles_on_the_cheapest() -> None:
    names = play(UCB(ARMS), {"a": 1.0, "b": 0.6, "c": 0.9}, 400)
    assert names[:3] == list(ARMS)
    assert names[200:].count("b") > 180


def test_ucb_never_names_what_is_not_offered() -> None:
    selector = UCB(ARMS)
    assert {take(selector, d, NOW, WAITING, ("a", "c")).candidate for d in range(4)} == {"a", "c"}


def test_ucb_continues_from_a_checkpoint() -> None:
    first = UCB(ARMS)
    play(first, {"a": 1.0, "b": 0.6, "c": 0.9}, 100)
    second = UCB(ARMS)
    second.restore(first.online_state())
    assert take(second, 1000, NOW, WAITING, ARMS).candidate == "b"
    second.learn(Scored(99, Outcome(), 0.0))  # decided before the restart: nothing to learn it with
    assert second.online_state()["sums"].tolist() == first.online_state()["sums"].tolist()
    with pytest.raises(ArtifactRefused, match="CheckpointInvalid"):
        second.restore({"sums": np.full((3, 2), np.nan)})


def test_selectors_are_made_by_name() -> None:
    assert make_selector("ucb", ARMS, DEFAULT, DIVISORS["regime"], 0).name == "ucb"
    with pytest.raises(InvalidInput, match="'fifo'"):
        make_selector("fifo", ARMS, DEFAULT, DIVISORS["regime"], 0)
