"""What can be bound to, from one access site: InferenceSites and ModelVariants compiled into arrays. Pure; binder and operator share it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from tiphys_models.api.inference_site import InferenceSiteSpec, InferenceSiteStatus, MeasuredDelay, parse_site
from tiphys_models.api.model_variant import ModelVariantSpec, ModelVariantStatus, parse_variant
from tiphys_models.api.stream_reasons import BindingConditionType, VariantReason
from tiphys_models.base.arrays import BoolArray, FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.quantity import timestamp_s
from tiphys_models.streams.offers import Delay, Offer, Offers, Site, Variant

MEASURED_FOR_S = 600.0
"""An older measurement counts as missing: the operator that made it is gone, and only what was declared is left."""


MOST_DELAY_MS = 60_000.0
"""Whoever is farther away than a minute was not measured: a status is data, and anybody may have written it."""
MOST_REPLICAS = 5_000
"""Endpoints of one variant; more are not believed."""


def _fresh(measured: MeasuredDelay, now_s: float) -> bool:
    """Whether it can have been measured, and not long ago; one from the future would count for ever."""
    try:
        at_s = timestamp_s(measured.measured_at)
    except InvalidInput:
        return False
    possible = measured.mean_ms <= MOST_DELAY_MS and measured.sigma_ms <= MOST_DELAY_MS  # NaN is not
    return possible and at_s is not None and abs(now_s - at_s) <= MEASURED_FOR_S


@dataclass(frozen=True, slots=True)
class SiteSeen:
    """An InferenceSite as its watch shows it."""

    name: str
    spec: InferenceSiteSpec
    status: InferenceSiteStatus

    @property
    def reachable(self) -> bool:
        """False only while probes are missed: who is not probed is trusted."""
        return self.spec.probe is None or not any(
            c.type == BindingConditionType.REACHABLE and c.status == "False" for c in self.status.conditions
        )

    def delay_from(self, access_site: str, now_s: float) -> Delay | None:
        """Measured if that is fresh, else declared; None: nobody knows."""
        for measured in self.status.delays:
            if measured.origin == access_site and _fresh(measured, now_s):
                return Delay(measured.mean_ms, measured.sigma_ms)
        return next((Delay(d.mean_ms, d.sigma_ms) for d in self.spec.delays if d.origin == access_site), None)


@dataclass(frozen=True, slots=True)
class VariantSeen:
    """A ModelVariant as its watch shows it."""

    name: str
    namespace: str
    spec: ModelVariantSpec
    status: ModelVariantStatus

    @property
    def replicas(self) -> int:
        """Ready ones; an address outside the cluster is one."""
        return 1 if self.spec.endpoint.service is None else min(self.status.replicas, MOST_REPLICAS)

    @property
    def endpoint(self) -> str:
        """Base address that clients send their queries to."""
        service = self.spec.endpoint.service
        if service is None:
            return str(self.spec.endpoint.url)
        return f"{service.scheme}://{service.name}.{self.namespace}.svc:{service.port}"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What one access site can bind to at a moment: `up` and `network_ms` have one entry an offer."""

    offers: Offers
    network_ms: FloatArray
    """One way, mean and two deviations; infinite where nobody knows."""
    up: BoolArray
    """Site reachable and a ready endpoint."""
    why_not: Mapping[str, VariantReason]
    """Reason, by variant name, why nothing is bound to a variant from here."""


def site_seen(obj: Mapping[str, Any]) -> SiteSeen:
    """An InferenceSite as parsed from the API server's object; InvalidInput for one that it should not have admitted."""
    return SiteSeen(obj["metadata"]["name"], parse_site(dict(obj)), _status(InferenceSiteStatus, obj))


def variant_seen(obj: Mapping[str, Any]) -> VariantSeen:
    """A ModelVariant as parsed from the API server's object; InvalidInput for one that it should not have admitted."""
    metadata = obj["metadata"]
    return VariantSeen(metadata["name"], metadata["namespace"], parse_variant(dict(obj)), _status(ModelVariantStatus, obj))


def compile_catalogue(access_site: str, sites: Iterable[SiteSeen], variants: Iterable[VariantSeen], now_s: float) -> Catalogue:
    """Everything of one namespace. A variant of a site that does not exist is left out; whatever is down stays, with `up` False."""
    by_name = {site.name: site for site in sites}
    delays = {name: delay for name, site in by_name.items() if (delay := site.delay_from(access_site, now_s)) is not None}
    why_not: dict[str, VariantReason] = {}
    made: dict[Offer, bool] = {}
    for variant in variants:
        site = by_name.get(variant.spec.site)
        reason = _why_not(site, variant, delays)
        if reason is not None:
            why_not[variant.name] = reason
        if site is not None:
            # one that has no replica now has the capacity of one: arithmetic divides by it, and `up` says no
            made[_offer(site, variant, max(variant.replicas, 1))] = site.reachable and variant.replicas > 0
    offers = Offers(made)
    up = np.array([made[offer] for offer in offers.all], np.bool_)
    return Catalogue(offers, offers.network_ms(delays), up, why_not)


def _why_not(site: SiteSeen | None, variant: VariantSeen, delays: Mapping[str, Delay]) -> VariantReason | None:
    if site is None:
        return VariantReason.SITE_NOT_FOUND
    if not site.reachable:
        return VariantReason.SITE_UNREACHABLE
    if variant.replicas == 0:
        return VariantReason.NO_READY_ENDPOINT
    return None if site.name in delays else VariantReason.DELAY_UNKNOWN


def _offer(site: SiteSeen, variant: VariantSeen, replicas: int) -> Offer:
    spec = variant.spec
    profile = Variant(
        variant.name, spec.task, spec.model, spec.accuracy, spec.delay_ms, spec.capacity_qps, spec.profiled_kb, spec.hardware, spec.cost
    )
    return Offer(profile, Site(site.name, site.spec.layer), replicas, variant.endpoint)


def _status(model: Any, obj: Mapping[str, Any]) -> Any:
    try:
        return model.model_validate(obj.get("status") or {})
    except ValidationError as error:
        raise InvalidInput(f"status: {error.errors(include_url=False)[0]['msg']}") from error
