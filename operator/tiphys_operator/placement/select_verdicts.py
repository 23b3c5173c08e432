"""What a policy with `select` says of itself: its candidate, the condition Selecting, and the news of a switch."""

from __future__ import annotations

from tiphys_models.api.reasons import ChoiceReason, ConditionType, Reason
from tiphys_models.api.selection import SelectionStatus
from tiphys_operator.placement.observation import PolicySeen, SelectionSeen
from tiphys_operator.runtime.conditions import MESSAGE_MAX, Verdict
from tiphys_operator.runtime.events import EventWrite


def candidate(policy: PolicySeen, seen: SelectionSeen) -> str:
    """The policy that extenders should obey, chosen for exactly this spec; until a new leader has chosen, the former one. Empty: none."""
    if seen.status is None and policy.status.observed_generation == policy.generation:
        return policy.status.active_policy
    return seen.active if seen.generation == policy.generation else ""


def select_verdicts(verdicts: tuple[Verdict, ...], active: str, seen: SelectionSeen) -> tuple[tuple[Verdict, ...], str]:
    """All conditions, and what status calls the active policy."""
    ready, *others = verdicts
    disabled = ready.reason == Reason.DISABLED
    if not disabled and not active:
        message = "no candidate has been chosen for this spec yet; the fallback answers"
        ready = Verdict(ConditionType.READY, "False", Reason.NOT_CHOSEN_YET, f"{message}: {seen.problem}" if seen.problem else message)
    return (ready, *others, _selecting(active, seen, disabled=disabled)), "" if disabled else active


def switch_events(policy: PolicySeen, seen: SelectionSeen) -> list[EventWrite]:
    """One for a switch that the status does not tell of yet."""
    last = seen.status.last_switch if seen.status is not None else None
    before = policy.status.selection.last_switch if policy.status.selection is not None else None
    if last is None or last == before:
        return []
    what = f"{last.former} gives way to {last.to}" if last.former else f"{last.to} decides from now on"
    return [EventWrite(policy, False, str(Reason.SWITCHED), f"{what} ({last.reason}): {last.message}"[:MESSAGE_MAX])]


def _selecting(active: str, seen: SelectionSeen, *, disabled: bool) -> Verdict:
    kind = ConditionType.SELECTING
    if disabled:
        return Verdict(kind, "False", Reason.DISABLED, "mode is Off: nothing is chosen")
    if seen.problem:
        unknown = seen.status is None
        reason = Reason.CLUSTER_UNKNOWN if unknown and "watch" in seen.problem else Reason.SELECTOR_UNAVAILABLE
        return Verdict(kind, "False", reason, f"{active or 'the fallback'} stays: {seen.problem}")
    if not active:
        return Verdict(kind, "Unknown", Reason.NOT_CHOSEN_YET, "the first interval is not over")
    if seen.frozen:
        return Verdict(kind, "False", Reason.SELECTION_FROZEN, f"select.freeze: {active} stays and nothing is learned")
    if seen.unjudged:
        named = ", ".join(seen.unjudged)
        message = f"{active} is chosen, but the selector was trained without {named} and cannot judge them: take them out of select.among"
        return Verdict(kind, "True", Reason.CANDIDATES_UNKNOWN, f"{message}, or choose by preview or ucb")
    if seen.unpriced:
        named = ", ".join(seen.unpriced[:3])
        message = (
            f"{active} is chosen, but instance types without a price count as the dearest known, core by core: {named}; add them to prices"
        )
        return Verdict(kind, "True", Reason.PRICES_MISSING, message)
    if seen.status is not None and seen.status.reason == ChoiceReason.NOT_ASKED:
        return Verdict(kind, "False", Reason.DISABLED, f"select.mode is Off: {active} decides and the selector is not asked")
    return Verdict(kind, "True", Reason.SELECTING, _turn(active, seen.status))


def _turn(active: str, status: SelectionStatus | None) -> str:
    """Whose turn it is, for people; without what changes every interval."""
    if status is not None and status.reason == ChoiceReason.SHADOW:
        return f"select.mode is Shadow: {active} decides, what the selector would choose stands in status.selection.would"
    if status is not None and status.group:
        return "select.mode is Canary: selector and rule take turns by blocks of intervals; see status.selection.comparison"
    return "a candidate is chosen every interval; see status.selection"
