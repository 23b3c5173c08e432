"""Why this node: everything kept about the decisions on one pod."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tiphys_extender.placement.decisions import DecisionLog, Detail, Record
from tiphys_extender.serve.wire import segments
from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.estimator import PART_NAMES
from tiphys_models.placement.outlook import INPUT_NAMES

NEVER_ASKED = (
    "The scheduler has not asked about this pod, as far as decisions are kept. It does not ask when exactly one node can take the pod, "
    "when none can, when the pod names another scheduler or a node, or while the extender was not reachable."
)


def explain(decisions: DecisionLog, records: Sequence[Record], since_s: float) -> dict[str, Any]:
    """The newest decision in full, with all attempts; without any, what that means."""
    if not records:
        return {"asked": False, "message": NEVER_ASKED, "since": since_s, "kept": len(decisions)}
    newest = records[-1]
    answer = {"asked": True, **newest.as_json(), "attempts": [record.as_json() for record in records]}
    detail = decisions.detail(newest.seq)
    if detail is not None:
        answer["scores"] = _scores(detail)
        answer["features"] = _features(detail)
        if detail.seen.estimate is not None:
            answer["estimate"] = _estimate(detail, detail.seen.estimate)
    elif newest.top:
        answer["message"] = "Scores and features are kept for the newest decisions only; this one is older."
    return answer


def _scores(detail: Detail) -> list[dict[str, Any]]:
    raw = detail.scores.tolist()
    levels = [score for first, end, score in segments(len(detail.best_first)) for _ in range(end - first)]
    names = detail.names
    return [
        {"node": names[i], "score": level, "raw": None if math.isnan(raw[i]) else raw[i]}
        for i, level in zip(detail.best_first.tolist(), levels, strict=True)
    ]


def _estimate(detail: Detail, seconds: FloatArray) -> dict[str, dict[str, float]]:
    """Seconds by node and part: start and run of the call itself, harm to others, eviction."""
    return {
        node: {name: round(value, 6) + 0.0 for name, value in zip(PART_NAMES, row, strict=True)}
        for node, row in zip(detail.best, seconds.tolist(), strict=True)
        if node is not None
    }


def _features(detail: Detail) -> dict[str, dict[str, float | None]]:
    """Inputs by node and by name, as many as the model that decided reads; what nobody measured is null."""
    return {
        node: {name: None if math.isnan(value) else value for name, value in zip(INPUT_NAMES, row, strict=False)}
        for node, row in zip(detail.best, detail.seen.features().tolist(), strict=True)
        if node is not None
    }
