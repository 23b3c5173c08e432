"""A rule and a learned decider at one seat."""

from __future__ import annotations

import logging

import pytest

from tiphys_models.seats.modes import MODES, Mode
from tiphys_models.seats.seat import Answered, Said, Seat

RULE: Said[str] = Said("warm-node", "warm-first")


def _rule(_: int) -> Said[str]:
    return RULE


def _learned(_: int) -> Said[str]:
    return Said("fast-node", "faasrank", "sha")


def _broken(_: int) -> Said[str]:
    raise ValueError("secret of a tenant")


def _silent(_: int) -> Said[str]:
    return Said(None, "faasrank", reason="weights-missing")


def _seat(mode: Mode, learned: object = _learned, **more: object) -> Seat[int, str]:
    return Seat(_rule, learned, mode, **more)  # type: ignore[arg-type]


def test_a_learned_decider_that_is_off_is_not_asked() -> None:
    answered = _seat("Off", _broken).answer(1)
    assert answered == Answered("warm-node", "warm-first", "", "rule", "", None, "", "", "")


def test_in_shadow_the_rule_answers_and_what_the_learned_decider_would_have_said_is_kept() -> None:
    answered = _seat("Shadow").answer(1)
    assert (answered.answer, answered.outcome, answered.reason) == ("warm-node", "rule", "shadow")
    assert (answered.would, answered.would_by) == ("fast-node", "faasrank")


def test_when_active_the_learned_decider_answers_and_what_the_rule_would_have_said_is_kept() -> None:
    answered = _seat("Active").answer(1)
    assert (answered.answer, answered.by, answered.digest, answered.outcome, answered.reason) == (
        "fast-node",
        "faasrank",
        "sha",
        "learned",
        "",
    )
    assert (answered.would, answered.would_by) == ("warm-node", "warm-first")


def test_in_a_canary_the_group_of_a_question_decides_who_is_obeyed() -> None:
    treated, control = _seat("Canary").answer(1, obeys=True), _seat("Canary").answer(1, obeys=False)
    assert (treated.group, treated.answer, treated.would, treated.outcome) == ("treated", "fast-node", "warm-node", "learned")
    assert (control.group, control.answer, control.would, control.reason) == ("control", "warm-node", "fast-node", "control")


@pytest.mark.parametrize("mode", ["Active", "Canary"])
def test_a_learned_decider_without_an_answer_is_replaced_by_the_rule_for_its_reason(mode: Mode) -> None:
    answered = _seat(mode, _silent).answer(1)
    assert (answered.answer, answered.by, answered.outcome, answered.reason) == ("warm-node", "warm-first", "fallback", "weights-missing")
    assert answered.would is None


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "Off"])
def test_a_learned_decider_that_raises_spoils_no_answer_and_its_message_is_not_told(mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answered = _seat(mode, _broken).answer(1)
    assert (answered.answer, answered.missing) == ("warm-node", "policy-error")
    assert "secret" not in caplog.text
    assert [record.fields for record in caplog.records] == [{"error": "ValueError"}]  # type: ignore[attr-defined]


def test_an_answer_that_the_guard_refuses_is_not_obeyed() -> None:
    answered = _seat("Active", guard=lambda _, answer: "too-many" if answer == "fast-node" else "").answer(1)
    assert (answered.answer, answered.outcome, answered.reason) == ("warm-node", "fallback", "too-many")


def test_a_guard_that_raises_lets_nothing_pass() -> None:
    def guard(question: int, answer: str) -> str:
        raise KeyError(answer)

    answered = _seat("Active", guard=guard).answer(1)
    assert (answered.answer, answered.outcome, answered.reason) == ("warm-node", "fallback", "policy-error")


def test_a_rule_that_raises_takes_nothing_from_an_answer_of_the_learned_decider() -> None:
    answered = Seat(_broken, _learned, "Active").answer(1)
    assert (answered.answer, answered.would, answered.would_by) == ("fast-node", None, "")


def test_without_a_learned_decider_the_rule_answers_in_every_mode_and_that_is_no_fallback() -> None:
    assert {(answered := _seat(mode, None).answer(1)).outcome for mode in MODES} == {"rule"}
    assert answered.reason == ""


def test_a_rule_without_an_answer_is_a_fault_that_is_not_hidden() -> None:
    with pytest.raises(ValueError, match="the rule warm-first has no answer: asleep"):
        Seat(lambda _: Said(None, "warm-first", reason="asleep"), _silent, "Active").answer(1)
