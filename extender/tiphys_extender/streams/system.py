"""What is known at one access site: offers, what is bound to them from here, and what others say they have bound. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tiphys_extender.streams.ledger import Booking, Ledger, others_load, while_recovering
from tiphys_models.api.catalogue import Catalogue
from tiphys_models.api.stream_policy import StreamPolicySpec
from tiphys_models.base.arrays import FloatArray
from tiphys_models.streams.offers import Offer, Offers
from tiphys_models.streams.protocol import View

_ROUNDING_QPS = 1e-6


@dataclass(slots=True)
class Use:
    """Use of a site by streams that are bound from here."""

    streams: int = 0
    """Bound there, whether their offers are up or not."""
    load_qps: float = 0.0
    """Load of offers that are up, which is what the capacity counts, too."""
    capacity_qps: float = 0.0

    @property
    def share(self) -> float:
        """Bound load over capacity of what is up."""
        return self.load_qps / self.capacity_qps if self.capacity_qps else 0.0


class System:
    """Before the first catalogue there are no offers."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.catalogue = Catalogue(Offers(()), np.zeros(0), np.zeros(0, np.bool_), {})
        self.known = False
        """Whether there was a first one."""
        self._place: dict[str, int] = {}
        self._site_qps: dict[str, float] = {}
        self._others: dict[str, tuple[float, Mapping[str, float]]] = {}
        self._others_qps: FloatArray = np.zeros(0)

    @property
    def load_qps(self) -> FloatArray:
        """Load of every offer, bound here or elsewhere."""
        return np.asarray(self.ledger.load_qps + self._others_qps)

    @property
    def usable(self) -> int:
        """Offers that are up and whose delay is known."""
        return int((self.catalogue.up & np.isfinite(self.catalogue.network_ms)).sum())

    def publish(self, catalogue: Catalogue) -> set[str]:
        """Other offers, delays, or others up. Returns the sites that are no more."""
        if catalogue.offers.all == self.catalogue.offers.all:
            # decisions are kept with their offers: a delay that has moved must not keep another copy of all of them
            catalogue = replace(catalogue, offers=self.catalogue.offers)
        former, self.catalogue, self.known = self._sites(), catalogue, True
        place = {offer.name: index for index, offer in enumerate(catalogue.offers.all)}
        if list(place) != list(self._place):
            self._place = place
            self.ledger.align(tuple(place))
        self._add_up()
        self._site_qps = {}
        for offer in (catalogue.offers.all[index] for index in np.flatnonzero(catalogue.up)):
            self._site_qps[offer.site.name] = self._site_qps.get(offer.site.name, 0.0) + offer.capacity_qps
        return former - self._sites()

    def forget_streams(self) -> None:
        """Forget all streams that were bound from here: nothing is known of them any more."""
        self.ledger = Ledger()
        self.ledger.align(tuple(self._place))

    def hear(self, access_site: str, loads: Mapping[str, float], now_s: float, *, complete: bool) -> None:
        """What another access site's binder has bound now. If that is not complete, what was heard before may still be bound, too."""
        if not complete and access_site in self._others:
            before = self._others[access_site][1]
            loads = {offer: max(loads.get(offer, 0.0), before.get(offer, 0.0)) for offer in {*loads, *before}}
        self._others[access_site] = (now_s, loads)
        self._add_up()

    def forget(self, access_site: str) -> None:
        """Forget the loads of an access site whose binder has been silent for longer than any lease lasts."""
        self._others.pop(access_site, None)
        self._add_up()

    def others_age_s(self, now_s: float) -> float:
        """Age of the oldest report by another access site."""
        return max((now_s - at_s for at_s, _ in self._others.values()), default=0.0)

    def keeps_to(self, ceiling: float) -> bool:
        """Whether nothing that was bound from here lies above this share of a capacity."""
        return self.ledger.within(ceiling * self.catalogue.offers.columns.capacity_qps)

    def view(self, spec: StreamPolicySpec, *, recovering: bool, promised: float | None = None) -> View:
        """What a decision looks at. `promised`: by the former process, see `while_recovering`."""
        catalogue, load, ceiling = self.catalogue, self.load_qps, spec.ceiling
        if recovering:
            ceiling = spec.recovery_ceiling
            kept = None if promised is None else max(promised, spec.ceiling)  # raised since, and obeyed before that was written
            load = while_recovering(load, self.ledger.fresh_qps, catalogue.offers.columns.capacity_qps, kept, ceiling)
        return View(catalogue.network_ms, load, catalogue.up, ceiling, spec.ceiling)

    @property
    def capacity_qps(self) -> float:
        """Capacity of all offers that are up."""
        return sum(self._site_qps.values())

    def allows(self, tenant: str, share: float, offer: Offer, added_qps: float) -> bool:
        """Whether this much more leaves a tenant within its share of the capacity of the offer's site."""
        site = offer.site.name
        return self.ledger.load_at(tenant, site) + added_qps <= share * self._site_qps.get(site, 0.0) + _ROUNDING_QPS

    def within_share(self, view: View, tenant: str, share: float, added_qps: FloatArray) -> View:
        """The view with every offer full that would take a tenant above its share."""
        offers = self.catalogue.offers
        over = [not self.allows(tenant, share, offer, added) for offer, added in zip(offers.all, added_qps.tolist(), strict=True)]
        return replace(view, load_qps=np.where(over, np.maximum(view.load_qps, offers.columns.capacity_qps), view.load_qps))

    def offer(self, name: str) -> Offer | None:
        """The one of that name, if it still is."""
        place = self._place.get(name)
        return None if place is None else self.catalogue.offers.all[place]

    def is_up(self, booking: Booking) -> bool:
        """Whether its offer is."""
        return booking.place >= 0 and bool(self.catalogue.up[booking.place])

    def loads(self) -> dict[str, float]:
        """Bound from here, by offer."""
        load = self.ledger.load_qps
        return {self.catalogue.offers.all[place].name: float(load[place]) for place in np.flatnonzero(load)}

    def use_by_site(self) -> dict[str, Use]:
        """Use of every site by streams that are bound from here."""
        found: dict[str, Use] = {}
        for place, offer in enumerate(self.catalogue.offers.all):
            use = found.setdefault(offer.site.name, Use())
            use.streams += int(self.ledger.streams[place])
            if self.catalogue.up[place]:
                use.load_qps += float(self.ledger.load_qps[place])
                use.capacity_qps += offer.capacity_qps
        return found

    def _sites(self) -> set[str]:
        return {offer.site.name for offer in self.catalogue.offers.all}

    def _add_up(self) -> None:
        self._others_qps = others_load(self._place, len(self._place), [loads for _, loads in self._others.values()])
