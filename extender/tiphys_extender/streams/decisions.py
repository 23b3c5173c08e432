"""The last decisions: for explanations by id, and as a log by number."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Any

from tiphys_extender.streams.explain import Decided
from tiphys_models.binding.protocol import Reason

_PAGE = 1_000


class StreamDecisions:
    """In memory, bounded. Of a stream that asked again with its key the last decision is kept."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._by_id: OrderedDict[str, tuple[int, Decided]] = OrderedDict()
        self._last = 0

    def add(self, uid: str, decided: Decided) -> None:
        """The newest one."""
        self._last += 1
        self._by_id.pop(uid, None)
        self._by_id[uid] = (self._last, decided)
        if len(self._by_id) > self._kept:
            self._by_id.popitem(last=False)

    def get(self, uid: str) -> Decided | None:
        """The last one about a stream, if it is still kept."""
        found = self._by_id.get(uid)
        return found[1] if found is not None else None

    def after(self, number: int) -> dict[str, Any]:
        """A page of those with a higher number, oldest first. `first` tells whether any are lost in between."""
        first = next(iter(self._by_id.values()), (self._last + 1, None))[0]
        newer = ((uid, seq, decided) for uid, (seq, decided) in self._by_id.items() if seq > number)
        return {"first": first, "last": self._last, "items": [_record(*entry) for entry in islice(newer, _PAGE)]}


def _record(uid: str, number: int, decided: Decided) -> dict[str, Any]:
    stream, binding = decided.stream, decided.binding
    bound = binding.reason is Reason.BOUND
    return {
        "seq": number,
        "at": decided.at_s,
        "id": uid,
        "policy": decided.policy.name,
        "outcome": str(binding.reason),
        "offer": decided.offers.all[binding.offer].name if bound else None,
        "expectedLatencyMs": round(binding.expected_latency_ms, 3) if bound else None,
        "task": stream.task,
        "application": stream.application,
        "maxDelayMs": stream.max_delay_ms,
        "minAccuracy": stream.min_accuracy,
        "rateQps": stream.rate_qps,
    }
