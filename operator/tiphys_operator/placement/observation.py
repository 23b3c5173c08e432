"""What the operator knows when it plans: plain data, made at the edge, judged by `plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from tiphys_models.api import learned_model, scheduling_policy
from tiphys_models.api.learned_model import LearnedModelSpec, LearnedModelStatus, parse_model
from tiphys_models.api.routing import Route, route_of
from tiphys_models.api.scheduling_policy import SchedulingPolicyStatus
from tiphys_models.api.selection import SelectionStatus
from tiphys_models.kube.objects import generation_of, spec_or_problem, status_or_empty
from tiphys_operator.placement.models_found import Check, Models


@dataclass(frozen=True, slots=True)
class PolicySeen:
    """A SchedulingPolicy as it was listed."""

    kind: ClassVar[str] = scheduling_policy.KIND
    plural: ClassVar[str] = scheduling_policy.PLURAL
    namespace: str
    name: str
    uid: str
    generation: int
    version: str
    """resourceVersion: the precondition of a write."""
    mode: str
    """The mode in the spec; `Invalid` if the spec is invalid."""
    route: Route | None
    """None if the spec is invalid."""
    invalid: str
    """What is wrong with the spec."""
    status: SchedulingPolicyStatus
    """What stands there; empty if it is unreadable, so that it is written anew."""
    deleting: bool = False

    @property
    def key(self) -> str:
        """namespace/name, as decision records name it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ModelSeen:
    """A LearnedModel as it was listed."""

    kind: ClassVar[str] = learned_model.KIND
    plural: ClassVar[str] = learned_model.PLURAL
    namespace: str
    name: str
    uid: str
    generation: int
    version: str
    spec: LearnedModelSpec | None
    """None if the spec is invalid."""
    invalid: str
    status: LearnedModelStatus
    deleting: bool = False

    @property
    def key(self) -> str:
        """The object's key, `namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Unfinished pods with equal labels."""

    labels: Mapping[str, str]
    ours: bool
    """Whether they name our scheduler."""
    count: int


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """Answers the extenders reported for one policy since they were last written to its status."""

    scored: int = 0
    fallback: int = 0
    neutral: int = 0
    shadow_agreed: int = 0
    shadow_compared: int = 0
    fallback_reason: str = ""
    """The reason of the latest fallback."""

    def plus(self, other: AnswerCounts) -> AnswerCounts:
        """Both together; `other` is later."""
        return AnswerCounts(
            self.scored + other.scored,
            self.fallback + other.fallback,
            self.neutral + other.neutral,
            self.shadow_agreed + other.shadow_agreed,
            self.shadow_compared + other.shadow_compared,
            other.fallback_reason or self.fallback_reason,
        )

    def minus(self, settled: AnswerCounts) -> AnswerCounts:
        """What came after `settled`, which was counted before."""
        return AnswerCounts(
            self.scored - settled.scored,
            self.fallback - settled.fallback,
            self.neutral - settled.neutral,
            self.shadow_agreed - settled.shadow_agreed,
            self.shadow_compared - settled.shadow_compared,
            self.fallback_reason,
        )

    @property
    def empty(self) -> bool:
        """Whether nothing was counted."""
        return not (self.scored or self.fallback or self.neutral or self.shadow_compared)


@dataclass(frozen=True, slots=True)
class SelectionSeen:
    """What the interval loop has come to for one policy."""

    active: str
    generation: int
    """The generation of the spec that the choice was made for."""
    status: SelectionStatus | None
    problem: str = ""
    """Why the last interval came to nothing; empty if it did not."""
    frozen: bool = False
    unpriced: tuple[str, ...] = ()
    """Instance types of nodes without a price."""
    unjudged: tuple[str, ...] = ()
    """Candidates that a learned selector was trained without."""


@dataclass(frozen=True, slots=True)
class HintRights:
    """Where the operator may write hints on pods."""

    namespaces: frozenset[str] = frozenset()
    """Empty: everywhere."""
    denied: frozenset[str] = frozenset()
    """Those of them, or "" for everywhere, in which RBAC denies it."""


class Hinting(Protocol):
    """The controller of hints, as that of placement, which writes its statuses, knows it."""

    def see(self, policies: Sequence[PolicySeen]) -> None:
        """Take the policies there are now."""
        ...

    def rights(self) -> HintRights:
        """Where hints may be written."""
        ...


class Selecting(Protocol):
    """The controller of `select`, as that of placement, which writes its statuses, knows it."""

    def see(self, policies: Sequence[PolicySeen]) -> None:
        """Take the policies there are now."""
        ...

    def found(self) -> Mapping[str, SelectionSeen]:
        """What statuses should say, by policy key."""
        ...


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything one reconciliation looks at."""

    now_s: float
    policies: tuple[PolicySeen, ...] = ()
    pods: Mapping[str, tuple[PodGroup, ...]] = field(default_factory=dict)
    """Selected unfinished pods by policy key; a policy that is not here could not be counted."""
    pod_problems: Mapping[str, str] = field(default_factory=dict)
    """Why, by policy key."""
    served_policies: frozenset[str] | None = None
    """Placement policies that every extender has; None if none could be asked."""
    models: Models = field(default_factory=dict)
    """Mounted ones by name."""
    shipped: Models = field(default_factory=dict)
    learned: tuple[ModelSeen, ...] = ()
    checks: Mapping[str, Check] = field(default_factory=dict)
    """Results of checking LearnedModels' artifacts, by key; those of other namespaces are not checked."""
    answers: Mapping[str, AnswerCounts] = field(default_factory=dict)
    serving: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    """sha256 of what the extenders serve by model, policy and mode, as far as they were asked."""
    selections: Mapping[str, SelectionSeen] = field(default_factory=dict)
    """Results of selection, by key of the policy with `select`."""
    hints: HintRights | None = None
    """Where hints may be written; None in a release that writes none."""
    held: Mapping[str, frozenset[str]] | None = None
    """sha256 of LearnedModels in the extenders by name, "" for an extender without it; None if none could be asked."""


def policy_seen(obj: Mapping[str, Any]) -> PolicySeen:
    """The SchedulingPolicy as the API server sends it, as plain data; nothing that users wrote into it makes this fail."""
    metadata = obj["metadata"]
    route, invalid = spec_or_problem(obj, route_of)
    mode = route.spec.mode if route is not None else "Invalid"
    status = status_or_empty(obj, SchedulingPolicyStatus)
    return PolicySeen(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=generation_of(metadata),
        version=metadata.get("resourceVersion") or "",
        mode=mode,
        route=route,
        invalid=invalid,
        status=status,
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def model_seen(obj: Mapping[str, Any]) -> ModelSeen:
    """The LearnedModel as the API server sends it, as plain data; nothing that users wrote into it makes this fail."""
    metadata = obj["metadata"]
    spec, invalid = spec_or_problem(obj, parse_model)
    status = status_or_empty(obj, LearnedModelStatus)
    return ModelSeen(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=generation_of(metadata),
        version=metadata.get("resourceVersion") or "",
        spec=spec,
        invalid=invalid,
        status=status,
        deleting=bool(metadata.get("deletionTimestamp")),
    )
