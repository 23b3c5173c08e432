"""Every word a condition, an Event or a metric label about sites, variants and stream policies may carry. Fixed, as those in `reasons`."""

from __future__ import annotations

from enum import StrEnum


class BindingConditionType(StrEnum):
    """Conditions of InferenceSites (Reachable), ModelVariants and StreamPolicies (Ready)."""

    REACHABLE = "Reachable"
    READY = "Ready"


class SiteReason(StrEnum):
    """Why Reachable of an InferenceSite has its status."""

    PROBED = "Probed"
    PROBES_MISSED = "ProbesMissed"
    """Reachable=False: two probes in a row had no answer in time. Nothing is bound there until one has."""
    NOT_PROBED = "NotProbed"
    """Reachable=Unknown: the spec has no probe, or none has ended yet. Such a site is bound to."""
    PROBE_REFUSED = "ProbeRefused"
    """Reachable=False: the operator does not probe that address; the message names the rule. Unknown: its namespace has too many sites."""
    INVALID_SPEC = "InvalidSpec"
    INTERNAL_ERROR = "InternalError"
    """Reachable=Unknown: something in this object makes the operator fail; the message says what. Others are not affected."""


class ProbeRefusal(StrEnum):
    """Which rule keeps the operator from sending a probe: in the message of ProbeRefused, and a metric's label."""

    LOOPBACK = "loopback"
    LINK_LOCAL = "link-local"
    METADATA = "metadata"
    """Where clouds tell a machine its own secrets."""
    UNSPECIFIED = "unspecified"
    MULTICAST = "multicast"
    """Or reserved, broadcast included."""
    API_SERVER = "api-server"
    OUTSIDE_CIDRS = "outside-cidrs"
    """Not in the networks that the operator is set to probe."""
    TOO_MANY_SITES = "too-many-sites"
    """The namespace has more sites with a probe than are probed; the oldest are."""


class ProbeMiss(StrEnum):
    """How a missed probe ended: in the message of ProbesMissed. No more is told of what stands behind an address."""

    TIMEOUT = "no answer in time"
    REFUSED = "connection refused"
    NAME = "name not resolved"
    TLS = "TLS failed"
    SERVER_ERROR = "server error"
    FAILED = "no usable answer"


class VariantReason(StrEnum):
    """Why Ready of a ModelVariant has its status, and why a binder does not bind to it."""

    ENDPOINTS_READY = "EndpointsReady"
    ADDRESS_GIVEN = "AddressGiven"
    """Ready=True: a url outside the cluster; only its site is probed."""
    NO_READY_ENDPOINT = "NoReadyEndpoint"
    SITE_NOT_FOUND = "SiteNotFound"
    SITE_UNREACHABLE = "SiteUnreachable"
    DELAY_UNKNOWN = "DelayUnknown"
    """A binder's only: nobody measured or declared the way from its access site."""
    INVALID_SPEC = "InvalidSpec"
    INTERNAL_ERROR = "InternalError"
    """Ready=False: something in this object makes the operator fail; the message says what. Others are not affected."""


class StreamReason(StrEnum):
    """Why Ready of a StreamPolicy has its status."""

    BINDING = "Binding"
    SHADOWING = "Shadowing"
    """Ready=True: `spec.fallback` binds, `spec.policy` is asked beside it."""
    CANARY = "Canary"
    """Ready=True: `spec.policy` binds a share of streams, `spec.fallback` the rest."""
    DISABLED = "Disabled"
    RECOVERING = "Recovering"
    """Ready=True: the binder has just started and gives away less until the longest lease has passed."""
    DEGRADED_TO_FALLBACK = "DegradedToFallback"
    """Ready=False: weights are missing or refused; `spec.fallback` binds."""
    UNKNOWN_POLICY = "UnknownPolicy"
    """Ready=False: the binder has no policy of that name, or its package cannot be used; `spec.fallback` binds."""
    NO_OFFERS = "NoOffers"
    """Ready=False: no variant is ready at a reachable site whose delay is known."""
    ACCESS_SITE_NOT_FOUND = "AccessSiteNotFound"
    NOT_AN_ACCESS_SITE = "NotAnAccessSite"
    BINDER_UNREACHABLE = "BinderUnreachable"
    """Ready=Unknown: no active binder of this access site answers the operator."""
    CONFLICT = "Conflict"
    """Ready=False: an older StreamPolicy is for the same access site."""
    INVALID_SPEC = "InvalidSpec"
    INTERNAL_ERROR = "InternalError"
    """Ready=False: something in this object makes the operator fail; the message says what. Others are not affected."""
