"""`tiphys explain stream/ID`: why a stream has its offer, what the others cost and why they were not taken. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

COLUMNS = ("offer", "score", "ms", "load / capacity", "accuracy", "hardware", "cost of stream", "refused by")


@dataclass(frozen=True, slots=True)
class StreamExplanation:
    """Everything there is to say about one stream."""

    stream: str
    headline: str
    because: tuple[str, ...]
    """Full sentences, most important first."""
    record: Mapping[str, Any]
    """The binder's own answer; empty if none knows the stream."""
    binder: str

    def as_json(self) -> dict[str, Any]:
        """The object that --json prints."""
        return {
            "stream": self.stream,
            "headline": self.headline,
            "because": list(self.because),
            "binder": self.binder,
            "decision": dict(self.record),
        }

    @property
    def offers(self) -> Sequence[Mapping[str, Any]]:
        """Offers as they were, feasible ones first, best first."""
        return list((self.record.get("decision") or {}).get("offers") or ())


def stream_explanation(stream: str, record: Mapping[str, Any], binder: str) -> StreamExplanation:
    """The explanation that a binder's record gives; without one, what that means."""
    if not record:
        because = (
            "No binder that was asked keeps anything about it: another access site's binder has it, nobody asked for it, or it ended and "
            "more decisions have come since than are kept (2,000).",
        )
        return StreamExplanation(stream, f"stream {stream} is not known", because, {}, binder)
    decision = record.get("decision") or {}
    return StreamExplanation(stream, _headline(stream, record, decision), tuple(_because(decision, record)), record, binder)


def _headline(stream: str, record: Mapping[str, Any], decision: Mapping[str, Any]) -> str:
    if record.get("open"):
        down = "" if record.get("up") else ", which is down"
        return f"stream {stream} is bound to {record.get('offer')}{down}"
    if decision.get("chosen"):
        return f"stream {stream} has ended; it was bound to {decision['chosen']}"
    return f"stream {stream} was not bound: {decision.get('outcome')}" if decision else f"stream {stream} has ended"


def _because(decision: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
    if not decision:
        return ["Another process of this access site decided: its record ended with it."]
    policy, would, reason = decision.get("policy"), decision.get("would"), decision.get("reason")
    match decision.get("seat"):
        case "learned":
            turn = f"{policy} bound it"
        case "fallback":
            turn = f"the policy that the StreamPolicy names could not answer ({reason}), so {policy} bound it"
        case _:
            turn = f"{policy} bound it" if not reason else f"{policy} bound it, as the rule does in {_WHERE.get(str(reason), reason)}"
    because = [turn[0].upper() + turn[1:] + f" (mode {decision.get('mode')})."] if decision.get("chosen") else []
    if would:
        same = would == (decision.get("chosen") or decision.get("outcome"))
        because.append("The other policy would have done the same." if same else f"The other policy would have taken {would}.")
    if decision.get("message"):
        because.append(f"{decision['message']}.")
    offer = next((o for o in decision.get("offers") or () if o.get("offer") == decision.get("chosen")), None)
    if offer is not None:
        because.append(price_sentence(offer))
    if queries := record.get("queries"):
        because.append(
            f"Its client has reported {queries['served']} queries in time, {queries['late']} late, {queries['refused']} refused."
        )
    return because


_WHERE = {"shadow": "Shadow", "control": "the control group of a canary"}


def price_sentence(offer: Mapping[str, Any]) -> str:
    """A sentence on what the offer runs on and costs, as its ModelVariant says."""
    per_hour, own = offer.get("costPerReplicaHour"), offer.get("streamCostPerHour")
    hardware = str(offer.get("hardware") or "unknown hardware")
    if not per_hour:
        return f"It runs on {hardware}; its ModelVariant names no cost."
    share = f", {own:.4g} of it for this stream" if own is not None else ""
    return f"It runs on {hardware} and costs {per_hour:g} a replica and hour{share} (spec.cost of its ModelVariant)."


def row_of(offer: Mapping[str, Any]) -> tuple[str, ...]:
    """One line of the table of offers."""

    def shown(value: Any, digits: str = ".4g") -> str:
        return "–" if value is None else format(float(value), digits)

    return (
        str(offer.get("offer")),
        shown(offer.get("score")),
        shown(offer.get("latencyMs")),
        f"{shown(offer.get('loadQps'))} / {shown(offer.get('capacityQps'))}",
        shown(offer.get("accuracy")),
        str(offer.get("hardware") or "–"),
        shown(offer.get("streamCostPerHour")),
        ", ".join(map(str, offer.get("refusedBy") or ())),
    )
