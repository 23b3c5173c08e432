"""What `tiphys doctor` finds out about an installation, and what it says about it: data without judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Grade = Literal["OK", "WARN", "FAIL"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor."""

    check: str
    grade: Grade
    message: str
    advice: str = ""
    """Advice; empty when all is well."""

    def as_json(self) -> dict[str, str]:
        """The object in `findings`."""
        return {"check": self.check, "grade": self.grade, "message": self.message, "advice": self.advice}


@dataclass(frozen=True, slots=True)
class LeaseFact:
    """A leader's Lease as seen now."""

    name: str
    holder: str
    age_s: float
    """Since its last renewal, by this machine's clock."""
    duration_s: float


@dataclass(frozen=True, slots=True)
class AccessFact:
    """Whether a service account may do something it needs."""

    account: str
    verb: str
    resource: str
    allowed: bool


@dataclass(frozen=True, slots=True)
class DeploymentFact:
    """A Deployment of the release."""

    name: str
    wanted: int
    ready: int
    images: Mapping[str, str]
    """The image of each container."""


@dataclass(frozen=True, slots=True)
class PolicyFact:
    """A SchedulingPolicy with what the operator says of it."""

    key: str
    mode: str
    ready: str
    """Status of the condition Ready, `Unknown` without any."""
    reason: str
    message: str
    routed: str
    """Status of the condition Routed."""


@dataclass(frozen=True, slots=True)
class ExtenderFact:
    """One extender's own state; `problem` if it could not be asked."""

    where: str
    problem: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReleasesFact:
    """Other releases of Tiphys in the same cluster."""

    ours: str = ""
    """What the holder of the claim begins with if it is this release."""
    claim: str | None = None
    """The holder of the claim on the cluster, empty if nobody holds it; None: this release needs no claim."""
    schedulers: tuple[str, ...] = ()
    """Others that run a scheduler for the same pods, as namespace/name."""


@dataclass(frozen=True, slots=True)
class ConditionFact:
    """One condition of an object."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class KindFact:
    """An object of one of our kinds, as far as the doctor looks at it."""

    kind: str
    short_name: str
    namespace: str
    name: str
    mode: str
    """Empty for kinds that decide nothing."""
    behind: bool
    """Whether its status speaks of an older generation of the spec."""
    conditions: tuple[ConditionFact, ...]
    expired_s: float | None = None
    """PlacementPlan: for how long it has not been valid any more."""

    @property
    def key(self) -> str:
        """The object's key, `namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that was found, without judgement."""

    server_version: str
    namespace: str
    scheduler_name: str
    """What the release's pods are asked to name."""
    crd: Literal["current", "differs", "missing"]
    deployments: tuple[DeploymentFact, ...]
    scheduler_config: Mapping[str, Any] | None
    """KubeSchedulerConfiguration; None if it was not found."""
    leases: tuple[LeaseFact, ...]
    missing_leases: tuple[str, ...]
    access: tuple[AccessFact, ...]
    policies: tuple[PolicyFact, ...]
    pods_waiting: int
    """Unbound pods that name our scheduler."""
    switch: str
    """`true`, `false`, or empty when there is no such ConfigMap."""
    extenders: tuple[ExtenderFact, ...]
    releases: ReleasesFact = ReleasesFact()
    objects: tuple[KindFact, ...] = ()
    unlisted: tuple[str, ...] = ()
    """Kinds that whoever asks may not list."""
