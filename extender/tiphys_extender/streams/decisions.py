"""The record of one decision about a stream, with everything that an explanation needs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tiphys_models.seats.modes import Mode
from tiphys_models.seats.record import Record, recorded
from tiphys_models.seats.seat import Answered
from tiphys_models.streams.offers import Offers
from tiphys_models.streams.protocol import Binding, BindingPolicy, BindReason, View
from tiphys_models.streams.stream import Stream


@dataclass(frozen=True, slots=True)
class Decided:
    """Everything that the decision was based on."""

    tenant: str
    policy: BindingPolicy
    offers: Offers
    stream: Stream
    view: View
    binding: Binding
    at_s: float

    @property
    def offer(self) -> str | None:
        """Name of the offer that was taken; None for a refusal."""
        return self.offers.all[self.binding.offer].name if self.binding.reason is BindReason.BOUND else None


@dataclass(slots=True, kw_only=True)
class StreamRecord(Record):
    """A record that can be explained later."""

    decided: Decided

    def as_json(self) -> dict[str, Any]:
        """The fields that this log has always had, and beside them those of every record; `outcome` is how the stream was answered,
        `seat` is whose turn it was."""
        decided = self.decided
        stream, binding = decided.stream, decided.binding
        bound = binding.reason is BindReason.BOUND
        common = Record.as_json(self)
        del common["detail"]
        return common | {
            "seat": self.outcome,
            "id": self.subject,
            "policy": decided.policy.name,
            "outcome": str(binding.reason),
            "offer": decided.offer,
            "expectedLatencyMs": round(binding.expected_latency_ms, 3) if bound else None,
            "task": stream.task,
            "application": stream.application,
            "maxDelayMs": stream.max_delay_ms,
            "minAccuracy": stream.min_accuracy,
            "rateQps": stream.rate_qps,
        }


def recorded_stream(answered: Answered[Binding], decided: Decided, policy: tuple[str, str, str], uid: str, mode: Mode) -> StreamRecord:
    """The record of a seat's answer about a stream; `policy` is kind, namespace and name of the StreamPolicy."""

    def text(binding: Binding) -> str:
        return decided.offers.all[binding.offer].name if binding.reason is BindReason.BOUND else str(binding.reason)

    plain = recorded(answered, text, at_s=decided.at_s, system="streams", policy=policy, subject=uid, mode=mode, detail={})
    return StreamRecord(**{field.name: getattr(plain, field.name) for field in fields(plain)}, decided=decided)
