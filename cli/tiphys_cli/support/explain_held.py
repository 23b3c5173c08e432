"""What `tiphys explain` says of a pod behind the scheduling gate, or past it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tiphys_models.api.reasons import OpenReason

OPENED = "opened"
"""State of a pod whose gate has been taken off; the others are `held` and `opening`."""
_WHY: Mapping[str, str] = {
    OpenReason.WARM: "an idle instance of its function was there for it",
    OpenReason.COLD: "waiting was not, or no longer, expected to pay",
    OpenReason.BOUND: "it had waited for as long as anybody may",
    OpenReason.NOT_OBEYED: "its SchedulingPolicy is in mode Off or Shadow, or the pod is outside the canary's share",
    OpenReason.NO_POLICY: "no SchedulingPolicy of its namespace matches it",
    OpenReason.NOT_PATIENT: "the policy that decides, or the fallback in its place, never waits",
    OpenReason.DISABLED: "the kill switch is on",
    OpenReason.OTHER_SCHEDULER: "it names a scheduler that is not ours",
    OpenReason.PRIORITY: "it has a priority class",
    OpenReason.DAEMON_SET: "it belongs to a DaemonSet",
    OpenReason.NOT_UNDERSTOOD: "it asks something of nodes that the extender's filter does not know, or has other gates, or no function",
    OpenReason.FITS_NOWHERE: "no node could take it, and autoscalers must see that",
    OpenReason.TOO_MANY: "as many pods waited as may",
    OpenReason.NOT_SYNCED: "the extender had not yet read the cluster",
    OpenReason.IN_DOUBT: "the extender was in doubt: its log, or tiphys_extender_watch_errors_total, says of what",
    OpenReason.OPTED_OUT: "its label tiphys.io/may-wait was taken off",
}


def held_headline(name: str, held: Mapping[str, Any]) -> str:
    """The first line of what is said of a pod that the scheduler was not asked about."""
    if held.get("state") == "held":
        return f"pod {name} is held since {_time(held['since'])}, {held['seconds']:.1f} s; it goes at {_time(held['until'])} at the latest"
    return f"pod {name} was held and has been let go; the scheduler has not asked about it yet"


def held_lines(held: Mapping[str, Any]) -> list[str]:
    """Full sentences; none of a pod that was never seen behind the gate."""
    if not held:
        return []
    if held.get("state") != "held":
        why = _WHY.get(str(held.get("reason")), "see the documentation of this reason")
        return [f"It was held for {held['seconds']:.2f} s behind its scheduling gate and let go ({held.get('reason')}): {why}."]
    if "awaitedSeconds" not in held:
        return ["It carries the scheduling gate, and nobody has looked at it yet."]
    before = held.get("rank", 0)
    ahead = "nobody of its function waits before it" if not before else f"{before} of its function wait before it"
    awaited_s, saves_s = held["awaitedSeconds"], held["savesSeconds"]
    return [
        f"It would start cold: an instance of its function is expected for it in {awaited_s:.2f} s, and with that it should be done "
        f"{saves_s:.2f} s sooner; {ahead}."
    ]


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S UTC")
