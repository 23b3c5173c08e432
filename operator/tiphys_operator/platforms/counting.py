"""Idle instances by node and function, from what instances said. Pure; time is an argument."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from tiphys_operator.cluster.instances import Instance

REMEMBERED_S = 300.0
"""So long a node is said to have none of a function whose last instance there has gone: what is named no more would be believed until its
report is too old. Readers believe none that is older."""


SETTLED_S = 60.0
"""An instance counts as one with calls for so long after it had one: calls come and go by the second."""
_SILENT_S = 30.0
"""Of an instance that has said nothing for so long nothing is known."""


class Calls(IntEnum):
    """Whether calls are in progress in an instance."""

    IDLE = 0
    UNKNOWN = 1
    BUSY = 2


class LastCalls:
    """Whether each instance had calls of late."""

    def __init__(self) -> None:
        self._said_s: dict[str, tuple[float, float]] = {}
        """Since when an instance has been idle (inf: it is not), and when it last said anything; by uid."""

    def round(self, idle: Mapping[str, bool], now_s: float) -> None:
        """Whether each instance that answered is idle, by uid."""
        for uid, is_idle in idle.items():
            since_s, _ = self._said_s.get(uid, (-math.inf, now_s))
            began_s = now_s if since_s == math.inf else since_s
            self._said_s[uid] = (began_s if is_idle else math.inf, now_s)
        for uid in [uid for uid, (_, said_s) in self._said_s.items() if now_s - said_s > _SILENT_S]:
            del self._said_s[uid]

    def of(self, uid: str, now_s: float) -> Calls:
        """What is known of one."""
        known = self._said_s.get(uid)
        if known is None or now_s - known[1] > _SILENT_S:
            return Calls.UNKNOWN
        since_s, _ = known
        return Calls.IDLE if now_s - since_s >= SETTLED_S else Calls.BUSY


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Idle instances of one node."""

    counts: Mapping[str, int]
    """By function; functions that had instances there until lately have zero."""
    sampled_s: float
    """On the monotonic clock: nothing that has happened since is in it."""


class IdleCounts:
    """What the last rounds have found."""

    def __init__(self) -> None:
        self._seen_s: dict[str, dict[str, float]] = {}
        """Node -> function -> when an instance was last there, whatever it did."""
        self.nodes: dict[str, NodeReport] = {}

    def round(self, instances: Mapping[str, Instance], idle: Mapping[str, bool], sampled_s: float, now_s: float) -> None:
        """Whether each instance that answered is idle, by uid. One that did not answer is no use to a call, and not counted; of a node on
        which none answers nothing is known, and its last report grows old."""
        answering = {instances[uid].node for uid in idle}
        here: dict[str, dict[str, int]] = {}
        for uid, instance in instances.items():
            counts = here.setdefault(instance.node, {})
            counts[instance.function] = counts.get(instance.function, 0) + idle.get(uid, False)
            self._seen_s.setdefault(instance.node, {})[instance.function] = now_s
        for node, functions in list(self._seen_s.items()):
            for function in [name for name, seen_s in functions.items() if now_s - seen_s > REMEMBERED_S]:
                del functions[function]
            if not functions:
                del self._seen_s[node]
            elif node in answering or node not in here:
                self.nodes[node] = NodeReport(dict.fromkeys(functions, 0) | here.get(node, {}), sampled_s)
        for node in [name for name, report in self.nodes.items() if now_s - report.sampled_s > REMEMBERED_S or name not in self._seen_s]:
            del self.nodes[node]
