"""A decision as it was taken, kept so that it can be explained later."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pydantic.alias_generators import to_camel

from tiphys_models.binding.diagnosis import diagnose, why_none
from tiphys_models.binding.offers import Offers
from tiphys_models.binding.protocol import Binding, BindingPolicy, Reason, View
from tiphys_models.binding.streams import Stream


@dataclass(frozen=True, slots=True)
class Decided:
    """Everything that the decision looked at."""

    tenant: str
    policy: BindingPolicy
    offers: Offers
    stream: Stream
    view: View
    binding: Binding
    at_s: float


def explained(decided: Decided) -> dict[str, Any]:
    """Every offer with its score, or the constraints that it breaks; feasible ones first, best first."""
    found = diagnose(decided.policy, decided.offers, decided.stream, decided.view)
    c, feasible = found.candidates, found.feasible
    order = np.lexsort((-found.scores, ~feasible))
    bound = decided.binding.reason is Reason.BOUND
    return {
        "at": decided.at_s,
        "policy": decided.policy.name,
        "outcome": str(decided.binding.reason),
        "message": "" if bound else why_none(found, decided.stream),
        "chosen": decided.offers.all[decided.binding.offer].name if bound else None,
        "ceiling": decided.view.ceiling,
        "stream": {to_camel(key): value for key, value in asdict(decided.stream).items() if key != "draw"},
        "offers": [
            {
                "offer": decided.offers.all[place].name,
                "refusedBy": found.of(place),
                "score": _finite(found.scores[place]),
                "networkMs": _finite(c.network_ms[place]),
                "latencyMs": _finite(c.latency_ms[place]),
                "loadQps": round(float(c.load_qps[place]), 3),
                "addedQps": round(float(c.added_qps[place]), 3),
                "capacityQps": float(c.capacity_qps[place]),
                "accuracy": float(c.accuracy[place]),
            }
            for place in map(int, order)
        ],
    }


def _finite(value: float) -> float | None:
    """Where no delay is known it is infinite, which JSON cannot say."""
    return round(float(value), 4) if np.isfinite(value) else None
