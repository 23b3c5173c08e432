"""Writing to the API server: statuses by server-side apply and Events, each only while the Lease is held."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from tiphys_models.api.base import API_VERSION, Api
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.leases import LeaseLost
from tiphys_operator.metrics import ErrorReason, OperatorMetrics
from tiphys_operator.runtime.events import EventWrite, Seen

log = logging.getLogger(__name__)

FIELD_MANAGER = "tiphys-operator"
_NOT_FOUND, _CONFLICT, _FORBIDDEN = 404, 409, 403
# As client-go's EventCorrelator: the same Event within ten minutes raises its count; an object has 25 at once, then one every 5 minutes.
_SAME_FOR_S = 600.0
_BURST, _REFILL_S = 25.0, 300.0
_REMEMBERED = 4096


class Fence(Protocol):
    """What says whether this process may write: a Lease, or several."""

    @property
    def identity(self) -> str:
        """The name of the process that writes."""
        ...

    def check(self) -> float:
        """Seconds for which this process may still write; LeaseLost if it may not."""
        ...


class Writer:
    """Writes for one holder of a Lease."""

    def __init__(self, client: KubeClient, lease: Fence, metrics: OperatorMetrics, clock: Clock) -> None:
        self._client, self._lease, self._metrics, self._clock = client, lease, metrics, clock
        self._events = EventBook(clock)
        self._events_denied = False

    async def write_object(self, seen: Seen, status: Api) -> Any:
        """The object as it stands there now; None if it changed or went meanwhile."""
        # uid and version are preconditions: what a former leader sends late fails instead of overwriting
        metadata = {"name": seen.name, "namespace": seen.namespace, "uid": seen.uid, "resourceVersion": seen.version}
        body = {
            "apiVersion": API_VERSION,
            "kind": seen.kind,
            "metadata": metadata,
            "status": status.model_dump(by_alias=True, mode="json", exclude_none=True),
        }
        path = f"/apis/{API_VERSION}/namespaces/{seen.namespace}/{seen.plural}/{seen.name}/status"
        try:
            written = await self.fenced(self._client.apply(path, body, FIELD_MANAGER))
        except ApiError as error:
            if error.status in (_CONFLICT, _NOT_FOUND):
                if error.status == _CONFLICT:
                    self._metrics.error(ErrorReason.CONFLICT)
                return None
            raise
        self._metrics.writes.labels("status").inc()
        return written

    async def write_event(self, event: EventWrite) -> None:
        """Best effort: an Event that fails is counted, never retried."""
        entry = self._events.enter(event)
        if entry is None:
            self._metrics.error(ErrorReason.EVENTS_LIMITED)
            return
        path = f"/api/v1/namespaces/{event.about.namespace}/events"
        try:
            if entry.count > 1:
                change = {"count": entry.count, "lastTimestamp": entry.last}
                patch = self._client.request("PATCH", f"{path}/{entry.name}", body=change, content_type="application/merge-patch+json")
                await self.fenced(patch)
            else:
                await self.fenced(self._client.request("POST", path, body=self._event_body(event, entry)))
        except Unavailable as error:
            denied = isinstance(error, ApiError) and error.status == _FORBIDDEN
            self._metrics.error(ErrorReason.FORBIDDEN if denied else ErrorReason.API)
            if not (denied and self._events_denied):  # once: RBAC does not change every half minute
                log.warning("an Event could not be written", extra={"fields": {"about": event.about.key, "error": str(error)}})
            self._events_denied = denied
            self._events.forget(event)
        else:
            self._events_denied = False
            self._metrics.writes.labels("event").inc()

    async def fenced(self, request: Any) -> Any:
        """A request's answer; only while the Lease is held, and given up before it ends.

        A slow answer alone costs nobody the Lease: while that is renewed, the request may take the time that requests may take.
        """
        try:
            remaining_s = self._lease.check()
        except LeaseLost:
            request.close()
            raise
        asked = asyncio.ensure_future(request)
        try:
            while not (await asyncio.wait({asked}, timeout=remaining_s))[0]:
                remaining_s = self._lease.check()
            return asked.result()
        finally:
            if not asked.done():
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)

    def _event_body(self, event: EventWrite, entry: EventEntry) -> dict[str, Any]:
        about = event.about
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": entry.name, "namespace": about.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": about.kind,
                "name": about.name,
                "namespace": about.namespace,
                "uid": about.uid,
                "resourceVersion": about.version,
            },
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "message": event.message,
            "count": 1,
            "firstTimestamp": entry.last,
            "lastTimestamp": entry.last,
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": self._lease.identity[:128],
        }


@dataclass(frozen=True, slots=True)
class EventEntry:
    """An Event to make (count 1) or to raise."""

    name: str
    count: int
    last: str
    """The time of the last occurrence, as RFC 3339."""
    at_s: float


class EventBook:
    """Remembers recent Events, so that the same one is counted up and no object floods its namespace."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: OrderedDict[tuple[str, str, str], EventEntry] = OrderedDict()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def enter(self, event: EventWrite) -> EventEntry | None:
        """How to write it; None if this object had too many."""
        now_s = self._clock.monotonic_s()
        if not self._take_token(event.about.uid, now_s):
            return None
        key = _key(event)
        former = self._entries.pop(key, None)
        last = datetime.fromtimestamp(self._clock.now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if former is not None and now_s - former.at_s < _SAME_FOR_S:
            entry = EventEntry(former.name, former.count + 1, last, now_s)
        else:
            entry = EventEntry(_event_name(event.about, key, self._clock.now_s()), 1, last, now_s)
        self._entries[key] = entry
        if len(self._entries) > _REMEMBERED:
            self._entries.popitem(last=False)
        return entry

    def forget(self, event: EventWrite) -> None:
        """The Event was not written, so that the next one like it is a new one."""
        self._entries.pop(_key(event), None)

    def _take_token(self, uid: str, now_s: float) -> bool:
        tokens, at_s = self._buckets.pop(uid, (_BURST, now_s))
        tokens = min(_BURST, tokens + (now_s - at_s) / _REFILL_S)
        taken = tokens >= 1
        self._buckets[uid] = (tokens - 1 if taken else tokens, now_s)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        return taken


def _key(event: EventWrite) -> tuple[str, str, str]:
    return event.about.uid, event.reason, event.message


def _event_name(about: Seen, key: tuple[str, str, str], now_s: float) -> str:
    """Like client-go's `NAME.hex`: unique in the namespace, readable in a list."""
    digest = hashlib.blake2b("\0".join((*key, repr(now_s))).encode(), digest_size=8).hexdigest()
    return f"{about.name[:230]}.{digest}"
