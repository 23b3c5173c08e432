"""Metrics of streams. Nothing is labelled by tenant, stream or variant; sites are as many as the cluster has."""

from __future__ import annotations

import contextlib

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tiphys_extender.streams.chooser import ANSWER_FALLBACKS, FALLBACKS
from tiphys_extender.streams.tokens import Counts
from tiphys_models.seats.metrics import SeatMetrics
from tiphys_models.streams.rules import STATIC

STREAM_KINDS = SITES, VARIANTS, POLICIES = ("sites", "variants", "stream-policies")
"""Kinds of objects that are watched."""
RESULTS = ("bound", "no-capacity", "infeasible", "offers-down")
OUTCOMES = ("served", "late", "refused")
ENDS = ("released", "expired")
_POLICIES = (*STATIC, "score", "table", "other")
"""`other`: named by a token of a release that had more."""
_SECONDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


class StreamMetrics:
    """Metrics of streams in the binder's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"tiphys_binder_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"tiphys_binder_{name}", text, labels, registry=registry)

        asked = counter("streams_total", "Streams that asked, by result and by the policy that bound.", "result", "policy")
        self.streams = {(r, p): asked.labels(r, p) for r in RESULTS for p in _POLICIES}
        queries = counter(
            "stream_queries_total", "Queries that clients reported, by the policy that bound their stream.", "outcome", "policy"
        )
        self.queries = {(o, p): queries.labels(o, p) for o in OUTCOMES for p in _POLICIES}
        self._site_queries = counter("site_queries_total", "Queries that clients reported, by site.", "outcome", "site")
        self.unknown = counter("stream_queries_unknown_total", "Queries of which no client said what became, by rate and time.")
        self._site_streams = counter("site_streams_total", "Streams bound to offers of a site.", "site")
        self.site_use = gauge("site_use_ratio", "Bound load over capacity of what is up, by site.", "site")
        self.duration = Histogram(
            "tiphys_binder_bind_seconds", "From request read to answer made, bound or not.", buckets=_SECONDS, registry=registry
        )
        ended = counter("streams_ended_total", "Streams that ended, by how.", "how")
        self.ended = {how: ended.labels(how) for how in ENDS}
        self.relearned = counter("streams_relearned_total", "Streams booked from a token, because this process did not know them.")
        self.replayed = counter("streams_replayed_total", "Answers given again for an idempotency key.")
        self.open = gauge("open_streams", "Streams with a lease.")
        self.offers = gauge("offers", "Offers known, by whether they are up.", "up")
        self.active = gauge("streams_active", "1 while this process binds for its access site, 0 while it stands by.")
        self.recovering = gauge("streams_recovering", "1 while leases of a former process may still be out.")
        fallback = gauge("stream_fallback", "1 while the fallback policy binds, by reason.", "reason")
        self.fallback = {reason: fallback.labels(reason) for reason in FALLBACKS}
        self.seat = SeatMetrics("binder", "streams", ANSWER_FALLBACKS, "shares of a stream's queries served in time", registry)
        self.others_age = gauge("others_load_age_seconds", "Age of the oldest report of another access site's binder.")

    def report(self, policy: str, site: str, counts: Counts) -> None:
        """Count the queries that a client reports, by how they ended."""
        known = policy if policy in _POLICIES else "other"
        for outcome, count in zip(OUTCOMES, counts, strict=True):
            if count:
                self.queries[outcome, known].inc(count)
                self._site_queries.labels(outcome, site).inc(count)

    def bound(self, policy: str, site: str) -> None:
        """A stream was bound."""
        self.streams["bound", policy].inc()
        self._site_streams.labels(site).inc()

    def forget_sites(self, gone: set[str]) -> None:
        """Series of sites that are no more."""
        for site in gone:
            for outcome in OUTCOMES:
                _remove(self._site_queries, outcome, site)
            _remove(self._site_streams, site)
            _remove(self.site_use, site)


def _remove(metric: Counter | Gauge, *labels: str) -> None:
    with contextlib.suppress(KeyError):  # a site that nobody was bound to has no series
        metric.remove(*labels)
