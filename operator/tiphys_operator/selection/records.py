"""What the decision log keeps of an interval. Pure."""

from __future__ import annotations

from tiphys_models.api.routing import Route
from tiphys_models.api.scheduling_policy import KIND
from tiphys_models.api.selection import SelectSpec
from tiphys_models.seats.record import Record
from tiphys_operator.selection.interval import Result

_CANDIDATES_MAX = 32


def record_of(route: Route, spec: SelectSpec, result: Result, at_s: float) -> Record | None:
    """The record of an interval's decision; None where nobody was asked."""
    chosen, decision = result.decision.chosen, result.decision
    if chosen is None:
        return None
    answered = chosen.answered
    detail: dict[str, object] = {
        "why": str(decision.held.reason),
        "predicted": [f"{name}={cost:.4g}" for name, cost in decision.predicted.items()][:_CANDIDATES_MAX],
        "selected": chosen.selected.candidate if chosen.selected is not None else "",
        "waiting": result.seen.waiting,
        "expected": len(result.seen.tasks) - result.seen.waiting,
        "nodes": len(result.seen.hosts),
        "generation": route.generation,
        "switched": result.switched,
    }
    if decision.block is not None:
        detail |= {"block": decision.block.number, "washing": decision.block.washing}
    return Record(
        at_s=at_s,
        system="selection",
        kind=KIND,
        namespace=route.namespace,
        name=route.name,
        subject=str(result.memory.interval),
        mode=spec.mode,
        group=decision.group,
        outcome=answered.outcome,
        reason=answered.reason,
        by=answered.by,
        digest=answered.digest,
        answer=decision.held.candidate,
        would=answered.would.candidate if answered.would is not None else "",
        detail=detail,
    )
