"""Why a stream has its offer: the decision as it was taken."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from pydantic.alias_generators import to_camel

from tiphys_extender.streams.decisions import Decided, StreamRecord
from tiphys_extender.streams.ledger import Booking
from tiphys_models.streams.diagnosis import Diagnosis, diagnose, why_none
from tiphys_models.streams.protocol import BindReason


def explained(record: StreamRecord) -> dict[str, Any]:
    """Whose turn it was, and every offer with its score, or the constraints that it breaks; feasible ones first, best first."""
    decided = record.decided
    found = diagnose(decided.policy, decided.offers, decided.stream, decided.view)
    order = np.lexsort((-found.scores, ~found.feasible))
    bound = decided.binding.reason is BindReason.BOUND
    return {
        "at": decided.at_s,
        "mode": record.mode,
        "group": record.group,
        "seat": record.outcome,
        "reason": record.reason,
        "policy": decided.policy.name,
        "digest": record.digest,
        "would": record.would,
        "outcome": str(decided.binding.reason),
        "message": "" if bound else why_none(found, decided.stream),
        "chosen": decided.offer,
        "ceiling": decided.view.ceiling,
        "stream": {to_camel(key): value for key, value in asdict(decided.stream).items() if key != "draw"},
        "offers": [_offer(decided, found, place) for place in map(int, order)],
    }


def of_booking(booking: Booking | None, now_s: float, *, up: bool) -> dict[str, Any]:
    """The open lease of a stream as an explanation shows it; None: it is not open."""
    if booking is None:
        return {"open": False}
    grant = booking.grant
    left_s = round(grant.expires_s - now_s, 1)
    return {"open": True, "offer": grant.offer, "up": up, "leaseSecondsLeft": left_s, "queries": grant.counts._asdict()}


def _offer(decided: Decided, found: Diagnosis, place: int) -> dict[str, Any]:
    c, offer = found.candidates, decided.offers.all[place]
    return {
        "offer": offer.name,
        "refusedBy": found.of(place),
        "score": _finite(found.scores[place]),
        "networkMs": _finite(c.network_ms[place]),
        "latencyMs": _finite(c.latency_ms[place]),
        "loadQps": round(float(c.load_qps[place]), 3),
        "addedQps": round(float(c.added_qps[place]), 3),
        "capacityQps": float(c.capacity_qps[place]),
        "accuracy": float(c.accuracy[place]),
        "hardware": offer.variant.hardware,
        "costPerReplicaHour": offer.variant.cost_per_hour,
        "streamCostPerHour": _finite(float(c.added_qps[place]) / offer.variant.capacity_qps * offer.variant.cost_per_hour),
    }


def _finite(value: float) -> float | None:
    """Where no delay is known it is infinite, which JSON cannot say."""
    return round(float(value), 4) if np.isfinite(value) else None
