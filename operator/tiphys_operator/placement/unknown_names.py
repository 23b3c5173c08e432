"""Deciders that a SchedulingPolicy names and nobody has: what its conditions say of them. Pure, but for the list of installed packages."""

from __future__ import annotations

from collections.abc import Collection

from tiphys_models.api.reasons import ConditionType, Reason
from tiphys_models.api.scheduling_policy import SchedulingPolicySpec
from tiphys_models.placement.registry import is_ours
from tiphys_models.selection.planners.per_pod import known_candidates
from tiphys_models.selection.selectors.registry import servable_names
from tiphys_operator.runtime.conditions import Verdict


def unknown_policy(spec: SchedulingPolicySpec, served: Collection[str] | None) -> Verdict | None:
    """Ready of a policy that no extender has; None where it is known, or no extender could be asked."""
    if spec.select is not None or is_ours(spec.policy) or served is None or spec.policy in served:
        return None
    message = (
        f"{spec.fallback} answers: the extenders have no placement policy called {spec.policy!r}, or cannot use the package that brings "
        f"it; there are {', '.join(sorted(served))}. Install its package in the extender's image, or name another policy"
    )
    return Verdict(ConditionType.READY, "False", Reason.UNKNOWN_POLICY, message)


def with_unknown(verdicts: tuple[Verdict, ...], spec: SchedulingPolicySpec) -> tuple[Verdict, ...]:
    """The same verdicts of a policy with `select`; Selecting says which names nobody has."""
    found = _selecting(spec)
    if found is None:
        return verdicts
    return tuple(found if v.type == ConditionType.SELECTING and v.reason != Reason.DISABLED else v for v in verdicts)


def _selecting(spec: SchedulingPolicySpec) -> Verdict | None:
    kind, select = ConditionType.SELECTING, spec.select
    if select is None:
        return None
    if select.by not in (servable := servable_names()):
        message = f"{spec.fallback} answers: nobody here has a selector called {select.by!r}; there are {', '.join(servable)}"
        return Verdict(kind, "False", Reason.UNKNOWN_POLICY, message)
    known = known_candidates()
    unknown = [repr(name) for name in select.among if name not in known]
    if not unknown:
        return None
    left = len(select.among) - len(unknown)
    what = f"chosen among the other {left}" if left else f"{spec.fallback} answers"
    message = f"{what}: nobody here has a candidate called {', '.join(unknown)}; there are {', '.join(known)}"
    return Verdict(kind, "True" if left else "False", Reason.UNKNOWN_POLICY, message)
