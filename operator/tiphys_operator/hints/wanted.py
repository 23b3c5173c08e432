"""Which hints should stand on a pod: pure functions of what is seen and learned, and of the time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from heapq import nlargest

from tiphys_models.api.scheduling_policy import Hints
from tiphys_models.base.facts import DO_NOT_DISRUPT
from tiphys_models.placement.hints import Hint, marked
from tiphys_operator.hints.pods import HintedPod
from tiphys_operator.platforms.counting import Calls

LONGEST_S = 24 * 3600
"""No pod is protected for longer by us, whatever its application took before; the fence of admission says the same."""
LONG_STAY_S = 600.0
"""A node that protected pods keep for so long is there for whoever else needs room."""
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(h|ms|m|s)")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Stay(IntEnum):
    """How long a node stays without a pod of it, coarsely: the longer, the less the pod's end brings."""

    ALONE = 0
    """Nobody else is on it: it may go with the pod."""
    MOVABLE = 1
    """Others are, and an autoscaler may evict them all."""
    SHORT = 2
    """Protected pods keep it, for a while."""
    LONG = 3


def wanted_hints(pod: HintedPod, asks: Hints | None, run_time_s: float | None, cost: Callable[[], str], now_s: float) -> dict[Hint, str]:
    """Hints that should stand on the pod now. `asks` is None where no policy that is obeyed decides it; `cost` is asked if it matters."""
    found: dict[Hint, str] = {}
    if asks is None:
        return found
    if asks.do_not_disrupt and (value := _protection(pod, run_time_s, now_s)):
        found[Hint.DO_NOT_DISRUPT] = value
    if asks.deletion_cost and pod.of_replica_set:
        found[Hint.DELETION_COST] = cost()
    return found


def _protection(pod: HintedPod, run_time_s: float | None, now_s: float) -> str:
    """For how long, counted from its start; written once. A pod that has run for longer already is like none before: it gets nothing."""
    if not pod.ends_by_itself:
        return ""
    if (before := marked(pod.annotations).get(Hint.DO_NOT_DISRUPT)) is not None:
        return before
    if run_time_s is None or pod.started_s is None:
        return ""
    seconds = min(math.ceil(run_time_s), LONGEST_S)
    return f"{seconds}s" if now_s - pod.started_s < seconds else ""


def deletion_cost(calls: Calls, stay: Stay) -> str:
    """Calls first: a pod in use is never taken for a node's sake. Small numbers: Karpenter reads the same annotation in steps of 2^27."""
    return str(10 * calls + stay)


@dataclass(frozen=True, slots=True)
class NodeStays:
    """How long the pods of a node keep it; as much of it as is needed to say so without any one of them."""

    pods: int
    longest: tuple[tuple[float, str], ...]
    """Seconds and uids of the two that keep it longest."""

    def without(self, uid: str) -> Stay:
        """How long it stays if this pod of it goes."""
        if self.pods <= 1:
            return Stay.ALONE
        longest_s = next((seconds for seconds, of in self.longest if of != uid), 0.0)
        if longest_s <= 0:
            return Stay.MOVABLE
        return Stay.LONG if longest_s >= LONG_STAY_S else Stay.SHORT


def stays_of(there: Iterable[HintedPod], run_time_of: Callable[[str], float | None], now_s: float) -> NodeStays:
    """The same of all pods of a node; those of DaemonSets keep none."""
    lengths = [(protected_for_s(pod, run_time_of, now_s), pod.uid) for pod in there if not pod.of_machine]
    return NodeStays(len(lengths), tuple(nlargest(2, lengths)))


def protected_for_s(pod: HintedPod, run_time_of: Callable[[str], float | None], now_s: float) -> float:
    """How much longer a node autoscaler must leave the pod alone: by what its author, or we, wrote, or until it should have ended."""
    said = pod.annotations.get(DO_NOT_DISRUPT, "false") if pod.annotations else "false"
    if said == "false" and pod.safe_to_evict:
        return 0.0
    age_s = now_s - pod.started_s if pod.started_s is not None else 0.0
    if said == "true" or not pod.safe_to_evict:
        run_time_s = run_time_of(pod.application) if pod.ends_by_itself else None
        # one that has outlived its like may end at any time, and still nobody may evict it
        return math.inf if run_time_s is None else max(run_time_s - age_s, 1.0)
    return max((duration_s(said) or 0.0) - age_s, 0.0)


def duration_s(text: str) -> float | None:
    """A duration as Go writes it, such as 1h30m; None for anything else."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)
