"""How fast a tenant may ask: a bucket of tokens each, filled by the clock that is never set."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tiphys_extender.serve.refused import TENANT_CAPS, Refused
from tiphys_extender.serve.tenants import Tenant
from tiphys_models.base.clock import Clock

_log = logging.getLogger(__name__)

_SAID_EVERY_S = 60.0
_BYTES_PER_TOKEN = 32_768
"""A body of two megabytes takes a hundred times as long to read as one of a kilobyte, and nobody else is served meanwhile."""
_RENEWED_EVERY_S = 3.0
"""So often a client renews a stream; what it has bound must not use up what it may ask."""
_MOST_BUCKETS = 2_000
"""Twice as many as a file may name: names change with the file."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_s: float
    refused: int = 0
    """Requests refused since that was last logged."""
    said_s: float = -math.inf


class Throttle:
    """Buckets by tenant. `streams_of`: how many streams a tenant has bound; their renewals come on top of what it may ask."""

    def __init__(self, clock: Clock, streams_of: Callable[[str], int] = lambda _: 0) -> None:
        self._clock, self._streams_of = clock, streams_of
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def admit(self, tenant: Tenant) -> None:
        """Take one token; Refused says when there is another one."""
        caps, now_s = tenant.caps, self._clock.monotonic_s()
        bucket = self._buckets.get(tenant.name)
        if bucket is None:
            bucket = self._buckets[tenant.name] = _Bucket(float(caps.burst), now_s)
            if len(self._buckets) > _MOST_BUCKETS:
                self._buckets.popitem(last=False)
        rate = caps.requests_per_s + self._streams_of(tenant.name) / _RENEWED_EVERY_S
        bucket.tokens = min(bucket.tokens + rate * max(now_s - bucket.at_s, 0.0), float(caps.burst))
        bucket.at_s = now_s
        if bucket.tokens < 1.0:
            wait_s = math.ceil((1.0 - bucket.tokens) / rate)
            raise Refused("too-many-requests", f"this tenant may ask {caps.requests_per_s:g} times a second", retry_after_s=max(wait_s, 1))
        bucket.tokens -= 1.0

    def charge(self, tenant: Tenant, body_bytes: int) -> None:
        """A large body costs as much as many requests: those that follow wait."""
        if (bucket := self._buckets.get(tenant.name)) is not None:
            bucket.tokens -= body_bytes // _BYTES_PER_TOKEN

    def refused(self, tenant: Tenant, reason: str) -> None:
        """Metrics tell which limit is reached, this tells by whom: once a minute for each tenant."""
        bucket, now_s = self._buckets.get(tenant.name), self._clock.monotonic_s()
        if bucket is None or reason not in TENANT_CAPS:
            return
        bucket.refused += 1
        if now_s >= bucket.said_s + _SAID_EVERY_S:
            fields = {"tenant": tenant.name, "reason": reason, "refused": bucket.refused}
            _log.warning("a tenant has reached a limit", extra={"fields": fields})
            bucket.refused, bucket.said_s = 0, now_s
