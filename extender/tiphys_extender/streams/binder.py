"""Binds streams: the library's decision, booked under a lease until the client releases it or falls silent. Runs on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.tenants import Tenant
from tiphys_extender.streams.chooser import Chooser, Obeyed
from tiphys_extender.streams.deciding import StreamSeat
from tiphys_extender.streams.decisions import StreamRecord
from tiphys_extender.streams.explain import explained, of_booking
from tiphys_extender.streams.ledger import Booking, Ledger
from tiphys_extender.streams.metrics import StreamMetrics
from tiphys_extender.streams.requests import Renewal, ReportedQueries, Wanted, is_id
from tiphys_extender.streams.system import System
from tiphys_extender.streams.tokens import Counts, Grant, Keys, TokenRefused
from tiphys_extender.streams.window import Windows
from tiphys_models.api.catalogue import Catalogue
from tiphys_models.api.stream_policy import LONGEST_LEASE_S, LastChoice, StreamPolicySpec
from tiphys_models.api.stream_summary import SiteUse, StreamSummary
from tiphys_models.base.clock import Clock
from tiphys_models.base.quantity import rfc3339
from tiphys_models.streams.agent import WINDOW_S, bin_of
from tiphys_models.streams.diagnosis import diagnose, why_none
from tiphys_models.streams.protocol import BindReason

_log = logging.getLogger(__name__)
_CLOCKS_AGREE_S = 2.0
"""Clocks that are kept by NTP, and the second between two renewals of a Lease."""
_DOWN_RETRY_S = 5
"""About as long as a site needs to be probed again, or a pod to become ready."""
OVER_SHARE = "this tenant has bound its share of every site that would do: release streams, or wait until their leases end"
_WORDS = {BindReason.INFEASIBLE: "infeasible", BindReason.DOWN: "offers-down", BindReason.NO_CAPACITY: "no-capacity"}


class StreamBinder:
    """All that callers may ask about the streams of one access site."""

    def __init__(
        self, access_site: str, namespace: str, keys: Callable[[], Keys], chooser: Chooser, metrics: StreamMetrics, clock: Clock
    ) -> None:
        self.access_site, self.namespace = access_site, namespace
        self.metrics, self.chooser, self.system = metrics, chooser, System()
        self.enabled: Callable[[], bool] = lambda: True
        """False while the kill switch is on: nothing new is bound, what is bound goes on."""
        self.others_known: Callable[[], bool] = lambda: True
        """Whether binders of other access sites have said what they have bound, or are not waited for any longer."""
        self._keys, self._clock = keys, clock
        # what lasts is measured by the clock that is never set; tokens outlive the process and need times that the next one understands
        self._ahead_s = clock.now_s() - clock.monotonic_s()
        self._windows = Windows(self._now_s())
        self.ready = asyncio.Event()
        """Offers and a StreamPolicy are known, or were once."""
        self._obeyed: Obeyed | None = None
        self.seat = StreamSeat(chooser, self.system, metrics.seat, self._now_s())
        self._held = _nobody
        self._recovered_s = 0.0
        self._promised: float | None = None

    @property
    def ledger(self) -> Ledger:
        """Ledger of the open leases."""
        return self.system.ledger

    def held_by(self, tenant: str) -> int:
        """How many streams a tenant has bound."""
        return self.ledger.held_by(tenant)

    # ---- what callers ask ----------------------------------------------------------------------------------------

    def bind(self, tenant: Tenant, wanted: Wanted) -> dict[str, Any]:
        """An offer and a lease on it, or why there is none."""
        began_s = self._clock.monotonic_s()
        try:
            return self._bind(tenant, wanted)
        finally:
            self.metrics.duration.observe(self._clock.monotonic_s() - began_s)

    def _bind(self, tenant: Tenant, wanted: Wanted) -> dict[str, Any]:
        obeyed = self._ready(tenant)
        now_s = self._pass_time()
        uid, asked = wanted.identity(tenant.name)
        if (booking := self.ledger.get(uid)) is not None:
            if booking.grant.asked != asked:
                raise Refused("key-reused", "this idempotencyKey belongs to another stream: use a new one for every stream")
            self.metrics.replayed.inc()
            return self._answer(booking.grant)
        if self.ledger.was_released(tenant.name, uid):
            raise Refused("released", "the stream of this idempotencyKey was released: a new stream needs a new key")
        if self.ledger.held_by(tenant.name) >= tenant.caps.max_streams:
            raise Refused("too-many-streams", "this tenant has as many streams as it may", retry_after_s=1)
        view = self.system.view(obeyed.spec, recovering=self._recovering(now_s), promised=self._promised)
        record, over_share = self.seat.answer(tenant, uid, wanted.stream(uid), view, (self.namespace, obeyed), now_s)
        decided = record.decided
        if decided.binding.reason is not BindReason.BOUND:
            raise self._none(record, obeyed.spec, now_s, over_share=over_share)
        found, stream, offer = decided.binding, decided.stream, decided.offers.all[decided.binding.offer]
        grant = Grant(
            uid, self.access_site, tenant.name, offer.name, round(found.added_qps, 6), stream.rate_qps, stream.max_delay_ms,
            round(found.expected_latency_ms, 3), record.by, asked, now_s, now_s + obeyed.spec.lease_seconds,
        )  # fmt: skip
        booking = self.ledger.add(grant, now_s, fresh=True)
        self._windows.of(tenant.name).ask(booking.bin, stream.rate_qps, bound=True)
        self.metrics.bound(record.by, offer.site.name)
        return self._answer(grant)

    def renew(self, tenant: Tenant, uid: str, renewal: Renewal) -> dict[str, Any]:
        """The stream goes on: its lease starts anew. One that this process does not know is booked as its token says, once."""
        self._admit(tenant)
        now_s = self._pass_time()
        grant = self._read(tenant, uid, renewal.lease)
        booking = self.ledger.get(uid)
        if booking is None:
            if self.ledger.was_released(tenant.name, uid):
                raise Refused("released", "this stream was released; a new stream needs a new binding")
            if grant.expires_s <= now_s:
                raise Refused("lease-expired", "the lease has ended: the stream counts nowhere any more, bind it anew")
            booking = self.ledger.add(grant, now_s, fresh=False)
            self.metrics.relearned.inc()
        self._report(booking, self.ledger.renew(booking, now_s + self._lease_s, renewal.counts, now_s))
        return self._answer(booking.grant) | {"up": self.system.is_up(booking)}

    def release(self, tenant: Tenant, uid: str, outcome: ReportedQueries) -> dict[str, Any]:
        """The stream is over. Saying so twice does no harm."""
        self._admit(tenant)
        if not is_id(uid):  # nothing to remember: what is made up may be as long as a path
            return {"id": uid, "released": False}
        now_s = self._pass_time()
        booking = self._own(tenant, uid)
        if booking is not None:
            self._report(booking, self.ledger.renew(booking, now_s, outcome.counts, now_s))
            self._unknown(booking, now_s)
        self.ledger.release(tenant.name, uid)
        if booking is not None:
            self.seat.compared.ended(booking.grant)
            self.metrics.ended["released"].inc()
        return {"id": uid, "released": booking is not None}

    def explain(self, tenant: Tenant, uid: str) -> dict[str, Any]:
        """Why this offer and not another, as things were when it was decided."""
        self._admit(tenant)
        found = self._explained(uid, tenant.name)
        if found is None:
            raise Refused("unknown-binding", "nothing is kept about this stream")
        return found

    def explain_to_operators(self, uid: str) -> dict[str, Any] | None:
        """The same of any tenant's stream, for whoever may reach the pod's loopback; None: nothing is kept about it."""
        return self._explained(uid, None)

    def _explained(self, uid: str, tenant: str | None) -> dict[str, Any] | None:
        now_s = self._pass_time()
        booking = self.ledger.get(uid)
        if booking is not None and tenant not in (None, booking.grant.tenant):
            booking = None  # to strangers it does not exist
        record = next((r for r in reversed(self.seat.records.of_subject(uid)) if tenant in (None, r.decided.tenant)), None)
        if booking is None and record is None:
            return None
        up = booking is not None and self.system.is_up(booking)
        return {"id": uid} | of_booking(booking, now_s, up=up) | {"decision": explained(record) if record is not None else None}

    # ---- what the process and the operator ask -------------------------------------------------------------------

    def summary(self) -> StreamSummary:
        """Summary of policy, leases and load for the operator."""
        now_s = self._pass_time()
        obeyed, chooser = self._obeyed, self.chooser
        return StreamSummary(
            namespace=self.namespace,
            policy=obeyed.name if obeyed is not None else "",
            access_site=self.access_site,
            generation=obeyed.generation if obeyed is not None else 0,
            active=self.active and obeyed is not None and obeyed.spec.mode != "Off",
            recovering=self._recovering(now_s),
            active_policy=chooser.policy.name if obeyed is not None else "",
            model_problem=chooser.fallback,
            offers=self.system.usable,
            streams=len(self.ledger.open),
            minute=self._windows.minute(),
            sites=[
                SiteUse(site=site, streams=use.streams, use_percent=round(100 * use.share, 2))
                for site, use in self.system.use_by_site().items()
            ],
            last_decision=LastChoice(at=rfc3339(chooser.changed_s), policy=chooser.policy.name, reason=chooser.reason)
            if chooser.reason
            else None,
            comparison=self.seat.compared.status() if chooser.compares else None,
        )

    def loads(self) -> dict[str, Any]:
        """Loads bound from here, for binders of other access sites."""
        now_s = self._pass_time()
        told = {"accessSite": self.access_site, "active": self.active, "recovering": self._recovering(now_s)}
        return told | {"loads": self.system.loads()}

    @property
    def active(self) -> bool:
        """Whether this process binds."""
        return self._held()

    def activate(self, held: Callable[[], bool], *, recover: bool, promised: float | None = None) -> None:
        """This process binds as long as `held`. Unless it is known that nobody did before, leases of a former one may be out.

        They may be as long as leases can be: a former process may have obeyed another `leaseSeconds`. `promised` is its `promise`.
        """
        self._held, self._promised = held, promised
        self._recovered_s = self._now_s() + (LONGEST_LEASE_S if recover else 0.0)
        fields = {"access_site": self.access_site, "recovering": recover, "promised": promised}
        _log.info("binding streams", extra={"fields": fields})

    def now_s(self) -> float:
        """How late it is by the clock of tokens."""
        return self._now_s()

    def keep_time(self, told_s: float | None, ago_s: float | None) -> None:
        """Go on by the clock by which the former holder signed, whatever the wall says here: leases end when they were meant to.

        `told_s`: as it last said, `ago_s` seconds ago; None: nobody has seen when. Then it is later than that, but not how much later.
        """
        if told_s is None:
            return
        here_s, there_s = self._now_s(), told_s + (ago_s or 0.0)
        if ago_s is None and there_s < here_s:
            return
        if abs(there_s - here_s) > _CLOCKS_AGREE_S:
            _log.warning(
                "the former binder's clock differs: its leases go on by it", extra={"fields": {"by_s": round(there_s - here_s, 1)}}
            )
            self._ahead_s += there_s - here_s
            self._windows = Windows(self._now_s())
            self.seat.compare_anew(self._now_s())

    def promise(self) -> float | None:
        """Share of every capacity above which nothing is bound from here, told to a successor. None: it must reckon with the whole."""
        now_s = self._pass_time()
        if not self.active or self._recovering(now_s) or self._obeyed is None:
            return None
        ceiling = self._obeyed.spec.ceiling
        return ceiling if self.system.keeps_to(ceiling) else None

    def stand_by(self) -> None:
        """Another process binds: what this one knows is old from now on."""
        _log.warning("standing by", extra={"fields": {"access_site": self.access_site, "streams": len(self.ledger.open)}})
        self._held = _nobody
        self.system.forget_streams()

    def obey(self, obeyed: Obeyed | None) -> None:
        """The StreamPolicy of this access site; None: there is none."""
        if obeyed is not None and (self._obeyed is None or obeyed.spec != self._obeyed.spec):
            self.seat.obey(obeyed, self._now_s())
        self._obeyed = obeyed
        if obeyed is not None and self.system.known:
            self.ready.set()

    def publish(self, catalogue: Catalogue) -> None:
        """Other offers, delays, or others up: counts for the next stream."""
        self.metrics.forget_sites(self.system.publish(catalogue))
        up = int(catalogue.up.sum())
        self.metrics.offers.labels("true").set(up)
        self.metrics.offers.labels("false").set(len(catalogue.offers) - up)

    def hear(self, access_site: str, loads: Mapping[str, float], *, complete: bool = True) -> None:
        """What another access site's binder has bound now; not complete: it is still learning that."""
        self.system.hear(access_site, loads, self._now_s(), complete=complete)

    def forget(self, access_site: str) -> None:
        """Forget the loads of an access site whose binder has been silent for longer than any lease lasts."""
        self.system.forget(access_site)

    def turn(self) -> float:
        """A window is over; how long the next one is."""
        now_s = self._pass_time()
        system = self.system
        ended = self._windows.turn(now_s, system.capacity_qps)
        if len(system.catalogue.offers):
            self.chooser.turn(system.catalogue.offers, system.load_qps, self.ledger.active, ended, now_s)
        return float(self._obeyed.spec.window_seconds) if self._obeyed is not None else WINDOW_S

    def tick(self) -> None:
        """Leases run out, other weights are looked for, gauges are set."""
        now_s, metrics = self._pass_time(), self.metrics
        former = self.chooser.model
        self.chooser.reload_if_changed(now_s)
        if self.chooser.model != former:
            self.seat.compare_anew(self._now_s())
        metrics.open.set(len(self.ledger.open))
        metrics.active.set(self.active)
        metrics.recovering.set(self._recovering(now_s))
        for reason, gauge in metrics.fallback.items():
            gauge.set(reason == self.chooser.fallback)
        metrics.others_age.set(self.system.others_age_s(now_s))
        for site, use in self.system.use_by_site().items():
            metrics.site_use.labels(site).set(use.share)

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _now_s(self) -> float:
        return self._clock.monotonic_s() + self._ahead_s

    def _pass_time(self) -> float:
        now_s = self._now_s()
        for booking in self.ledger.expire(now_s):
            self.seat.compared.ended(booking.grant)
            self.metrics.ended["expired"].inc()
            self._unknown(booking, booking.grant.expires_s)
        return now_s

    def _admit(self, tenant: Tenant) -> None:
        if not tenant.may(self.namespace):
            raise Refused("namespace-forbidden", "this token may not bind streams of this access site")
        if not self.active:
            raise Refused("standby", "another process binds for this access site: try again there, or here later", retry_after_s=1)

    def _ready(self, tenant: Tenant) -> Obeyed:
        self._admit(tenant)
        if self._obeyed is None or not self.system.known:
            raise Refused("not-ready", f"no StreamPolicy and offers for access site {self.access_site} are known yet", retry_after_s=1)
        if not self.others_known():  # renewals do not wait: what is bound counts, whatever others have
            raise Refused("not-ready", "binders of other access sites have not said yet what they have bound", retry_after_s=1)
        if self._obeyed.spec.mode == "Off" or not self.enabled():
            raise Refused("switched-off", "mode Off, or Tiphys is switched off as a whole: nothing new is bound", retry_after_s=10)
        return self._obeyed

    def _recovering(self, now_s: float) -> bool:
        return self.active and now_s < self._recovered_s

    @property
    def _lease_s(self) -> float:
        return float(self._obeyed.spec.lease_seconds) if self._obeyed is not None else float(LONGEST_LEASE_S)

    def _none(self, record: StreamRecord, spec: StreamPolicySpec, now_s: float, *, over_share: bool) -> Refused:
        """Why nothing was bound, counted."""
        decided, uid, by = record.decided, record.subject, record.by
        stream = decided.stream
        self._windows.of(decided.tenant).ask(int(bin_of(stream.max_delay_ms, stream.rate_qps)), stream.rate_qps, bound=False)
        if over_share:
            self.metrics.streams["no-capacity", by].inc()
            return Refused("too-much-load", OVER_SHARE, about=uid, retry_after_s=max(spec.lease_seconds // 2, 1))
        text = why_none(diagnose(decided.policy, decided.offers, stream, decided.view), stream)
        reason = _WORDS[decided.binding.reason]
        self.metrics.streams[reason, by].inc()
        if decided.binding.reason is BindReason.INFEASIBLE:
            return Refused(reason, text, about=uid)
        if decided.binding.reason is BindReason.DOWN:
            return Refused(reason, text, about=uid, retry_after_s=_DOWN_RETRY_S)
        self.seat.compared.refused(record.group)
        wait_s = self._recovered_s - now_s if self._recovering(now_s) else spec.lease_seconds / 2
        return Refused(reason, text, about=uid, retry_after_s=max(int(wait_s), 1))

    def _read(self, tenant: Tenant, uid: str, lease: str) -> Grant:
        try:
            grant = self._keys().read(lease)
        except TokenRefused as error:
            raise Refused("lease-invalid", str(error)) from None
        if grant.id != uid or grant.tenant != tenant.name:
            raise Refused("lease-invalid", "this is the lease of another stream")
        if grant.access_site != self.access_site:
            raise Refused("other-access-site", f"this lease is from access site {grant.access_site}, this binder serves {self.access_site}")
        return grant

    def _answer(self, grant: Grant) -> dict[str, Any]:
        site, _, variant = grant.offer.partition("/")
        offer = self.system.offer(grant.offer)
        return {
            "id": grant.id,
            "variant": variant,
            "site": site,
            "endpoint": offer.endpoint if offer is not None else "",
            "expectedLatencyMs": grant.expected_ms,
            "policy": grant.policy,
            "lease": self._keys().sign(grant),
            "expiresAt": grant.expires_s,
        }

    def _report(self, booking: Booking, new: Counts) -> None:
        grant = booking.grant
        self._windows.of(grant.tenant).report(new)
        self.metrics.report(grant.policy, grant.offer.partition("/")[0], new)

    def _unknown(self, booking: Booking, until_s: float) -> None:
        """What a stream that is over must have sent since its client last said anything."""
        silent = booking.grant.rate_qps * max(until_s - booking.heard_s, 0.0)
        self.metrics.unknown.inc(silent)
        self._windows.of(booking.grant.tenant).unknown += silent

    def _own(self, tenant: Tenant, uid: str) -> Booking | None:
        """The open lease, unless it is somebody else's: to strangers it does not exist."""
        booking = self.ledger.get(uid)
        return booking if booking is not None and booking.grant.tenant == tenant.name else None


def _nobody() -> bool:
    """Always False: nobody holds the Lease."""
    return False
