"""The seat: the place where something is decided, by a rule or by a learned decider beside it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from tiphys_models.seats.modes import Mode

_log = logging.getLogger(__name__)

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Outcome = Literal["rule", "learned", "fallback"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("rule", "learned", "fallback")
Group = Literal["", "treated", "control"]
GROUPS: Final[tuple[Group, ...]] = ("", "treated", "control")
SHADOW, CONTROL, POLICY_ERROR, NO_ANSWER, DEADLINE = "shadow", "control", "policy-error", "no-answer", "deadline"

# The dataclasses here have no slots: Python 3.11 cannot call a frozen generic class with slots by its full name, as in Seat[str, int](...).


@dataclass(frozen=True)
class Said(Generic[Answer]):
    """One decider's answer, or its reason for having none."""

    answer: Answer | None
    by: str
    """Name of the decider."""
    digest: str = ""
    """sha256 of its weights; empty for a rule."""
    reason: str = ""
    """Why there is no answer."""


@dataclass(frozen=True)
class Answered(Generic[Answer]):
    """The answer that counts, who gave it, and what the other decider would have answered."""

    answer: Answer
    by: str
    digest: str
    outcome: Outcome
    """rule: it was its turn, by mode or group. fallback: the learned decider was due, and could not or may not answer."""
    reason: str
    """Why it was a fallback; else `shadow` or `control` where the rule answered beside a learned decider."""
    would: Answer | None
    """The other decider's answer; None if it was not asked or has nothing to say."""
    would_by: str
    """Name of that other decider; empty if it was not asked."""
    missing: str
    """Why the learned decider had no answer; also where it was not due."""
    group: Group
    """The question's group in Canary."""


def no_guard(question: object, answer: object) -> str:
    """A guard that objects to nothing."""
    del question, answer
    return ""


@dataclass(frozen=True)
class Seat(Generic[Question, Answer]):
    """A rule, perhaps a learned decider, and who of them answers."""

    rule: Callable[[Question], Said[Answer]]
    """The rule's decision; it always has an answer."""
    learned: Callable[[Question], Said[Answer]] | None
    mode: Mode
    guard: Callable[[Question, Answer], str] = no_guard
    """Why an answer of the learned decider may not be obeyed; empty: it may."""

    def answer(self, question: Question, *, obeys: bool = True) -> Answered[Answer]:
        """The answer to one question. `obeys` counts in Canary only: whether the question belongs to the treated group."""
        group: Group = ("treated" if obeys else "control") if self.mode == "Canary" else ""
        due = self.mode == "Active" or group == "treated"
        learned = self._ask_learned(question)
        if due and learned is not None and learned.answer is not None:
            rule = _asked(self.rule, question)
            would = rule.answer if rule is not None else None
            return Answered(learned.answer, learned.by, learned.digest, "learned", "", would, rule.by if rule else "", "", group)
        rule = self.rule(question)
        if rule.answer is None:
            raise ValueError(f"the rule {rule.by} has no answer: {rule.reason}")
        if learned is None:
            return Answered(rule.answer, rule.by, rule.digest, "rule", "", None, "", "", group)
        if due:
            return Answered(rule.answer, rule.by, rule.digest, "fallback", learned.reason, None, learned.by, learned.reason, group)
        reason = CONTROL if group else SHADOW
        return Answered(rule.answer, rule.by, rule.digest, "rule", reason, learned.answer, learned.by, learned.reason, group)

    def _ask_learned(self, question: Question) -> Said[Answer] | None:
        """Answer of the learned decider as far as the guard lets it pass; None if it is not asked at all."""
        if self.learned is None or self.mode == "Off":
            return None
        return _asked(self._guarded, question) or Said(None, "", reason=POLICY_ERROR)

    def _guarded(self, question: Question) -> Said[Answer]:
        if self.learned is None:
            return Said(None, "", reason=NO_ANSWER)
        said = self.learned(question)
        if said.answer is None:
            return said if said.reason else Said(None, said.by, said.digest, NO_ANSWER)
        objection = self.guard(question, said.answer)
        return Said(None, said.by, said.digest, objection) if objection else said


def _asked(decider: Callable[[Question], Said[Answer]], question: Question) -> Said[Answer] | None:
    try:
        return decider(question)
    except Exception as error:  # noqa: BLE001 - weights are data from elsewhere: whatever they trip over, the rule answers
        # the kind only: the message of an error may quote its input
        _log.error("a decider failed", extra={"fields": {"error": type(error).__name__}})
        return None
