"""What the operator's part of binding tells Prometheus. Sites have names there: they are few, and an alert must say which."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable
from enum import StrEnum
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from tiphys_models.api.stream_policy import StreamMode
from tiphys_models.api.stream_reasons import ProbeRefusal, SiteReason
from tiphys_operator.runtime.conditions import former
from tiphys_operator.streams.seen import PolicyObject, SiteObject, VariantObject

MODES = (*get_args(StreamMode), "Invalid")
READY = ("True", "False", "Unknown")


class BindingError(StrEnum):
    """Values of `reason` in tiphys_operator_binding_errors_total."""

    API = "api-error"
    SUMMARY = "summary-failed"
    WATCH = "watch-failed"


class BindingMetrics:
    """Into the operator's registry; every label with a fixed set of values has all of them from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        p, r = "tiphys_operator_binding", registry
        self.policies = Gauge(f"{p}_policies", "StreamPolicies by mode and condition Ready.", ["mode", "ready"], registry=r)
        self.variants = Gauge(f"{p}_variants", "ModelVariants by condition Ready.", ["ready"], registry=r)
        probes = Counter(f"{p}_probes", "Probes of sites.", ["result"], registry=r)
        self.probes = {result: probes.labels(result) for result in ("answered", "missed")}
        refused = Counter(f"{p}_probes_refused", "Probes of sites that were not sent, by rule.", ["rule"], registry=r)
        self.probes_refused: dict[ProbeRefusal, Counter] = {
            rule: refused.labels(rule) for rule in ProbeRefusal if rule is not ProbeRefusal.TOO_MANY_SITES
        }
        self._beyond = Gauge(f"{p}_sites_beyond_quota", "Sites that are not probed: their namespaces have too many.", registry=r)
        errors = Counter(f"{p}_errors", "What went wrong.", ["reason"], registry=r)
        self.errors = {reason: errors.labels(reason) for reason in BindingError}
        self._up = Gauge(f"{p}_site_up", "0: two probes in a row were missed. Sites without a verdict are not shown.", ["site"], registry=r)
        self._mean = Gauge(f"{p}_site_delay_seconds", "Measured one-way delay: its mean.", ["site", "origin"], registry=r)
        self._sigma = Gauge(f"{p}_site_delay_deviation_seconds", "Its standard deviation.", ["site", "origin"], registry=r)
        self.show((), (), ())

    def show(self, sites: Iterable[SiteObject], variants: Iterable[VariantObject], policies: Iterable[PolicyObject]) -> None:
        """The gauges are set from the objects' statuses; series of objects that are gone end."""
        for gauge in (self._up, self._mean, self._sigma):
            gauge.clear()
        beyond = 0
        for site in sites:
            reachable = former(site.status.conditions, "Reachable")
            beyond += reachable is not None and (reachable.status, reachable.reason) == ("Unknown", SiteReason.PROBE_REFUSED)
            if reachable is not None and reachable.status != "Unknown":
                self._up.labels(site.key).set(reachable.status == "True")
            for delay in site.status.delays:
                self._mean.labels(site.key, delay.origin).set(delay.mean_ms / 1000)
                self._sigma.labels(site.key, delay.origin).set(delay.sigma_ms / 1000)
        self._beyond.set(beyond)
        ready = Tally(_ready(variant) for variant in variants)
        both = Tally((p.spec.mode if p.spec is not None else "Invalid", _ready(p)) for p in policies)
        for state in READY:
            self.variants.labels(state).set(ready[state])
            for mode in MODES:
                self.policies.labels(mode, state).set(both[mode, state])


def _ready(seen: VariantObject | PolicyObject) -> str:
    condition = former(seen.status.conditions, "Ready")
    return condition.status if condition is not None else "Unknown"
