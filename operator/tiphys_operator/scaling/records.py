"""What the decision log keeps of a window. Pure."""

from __future__ import annotations

from tiphys_models.api import scaling_policy
from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_status import LastDecision, Size
from tiphys_models.seats.modes import mode_of
from tiphys_models.seats.record import Record
from tiphys_operator.scaling.decide import Outcome, Proposal
from tiphys_operator.scaling.seen import ScalingSeen

_RULES_MAX = 16


def record_of(policy: ScalingSeen, spec: ScalingPolicySpec, outcome: Outcome, at_s: float) -> Record | None:
    """The record of a decision and its fate; None where nothing was decided."""
    answered, decision = outcome.answered, outcome.decision
    if answered is None:
        return None
    return Record(
        at_s=at_s,
        system="scaling",
        kind=scaling_policy.KIND,
        namespace=policy.namespace,
        name=policy.name,
        subject=f"{spec.target_ref.kind}/{spec.target_ref.name}",
        mode=mode_of(spec.mode),
        group=answered.group,
        outcome=answered.outcome,
        reason=answered.reason,
        by=answered.by,
        digest=answered.digest,
        answer=_size(answered.answer),
        would=_size(answered.would) if answered.would is not None else "",
        detail=_detail(outcome, decision),
    )


def ending_of(outcome: Outcome, spec: ScalingPolicySpec) -> str:
    """How the window before this decision ended, in words."""
    window, seen = outcome.window, outcome.decision.window
    if window is None or outcome.held is not None or seen is None:
        return "not measured"
    late = window.late
    if late is None:
        return "nobody was answered" if window.arrived else "nobody asked"
    kept = "kept" if late <= 1 - spec.objective.percentile / 100 + 1e-9 else "missed"
    return f"objective {kept}: {late:.1%} of {window.completed:.0f} requests late"


def _detail(outcome: Outcome, decision: LastDecision) -> dict[str, object]:
    window, state = decision.window, outcome.state
    found: dict[str, object] = {
        "number": decision.number,
        "phase": decision.phase,
        "from": _shown(decision.former),
        "wanted": _shown(decision.wanted),
        "clamped": _shown(decision.clamped),
        "masked": list(decision.masked)[:_RULES_MAX],
        "reasons": list(decision.reasons)[:_RULES_MAX],
        "values": list(decision.values)[:_RULES_MAX],
        "message": decision.message,
    }
    if outcome.block is not None:
        found |= {"block": outcome.block.number, "washing": outcome.block.washing}
    if window is not None:
        found |= {"requests": window.requests, "good": window.good, "usedMilli": window.used_milli}
    if state is not None:
        found |= {"cpuMsPerRequest": round(state.cpu_ms, 4), "ready": state.ready}
    return found


def _size(made: Proposal) -> str:
    return _shown(made.applied)


def _shown(size: Size | None) -> str:
    return "" if size is None else f"{size.replicas} x {size.cpu_milli}m"
