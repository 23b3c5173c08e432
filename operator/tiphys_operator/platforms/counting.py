"""Idle instances by node and function, from what instances said. Pure; time is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiphys_operator.cluster.instances import Instance

REMEMBERED_S = 300.0
"""So long a node is said to have none of a function whose last instance there has gone: what is named no more would be believed until its
report is too old. Readers believe none that is older."""


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
