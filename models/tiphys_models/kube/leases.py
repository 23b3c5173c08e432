"""One writer at a time: a Lease of coordination.k8s.io, with the semantics of client-go's leaderelection package.

A candidate never compares its own clock with times that another machine wrote. It remembers when it last *saw* the Lease change, by its own
monotonic clock, and takes over once that is longer ago than the duration the holder published. A leader counts from before it sent its last
successful renewal and stops `renew_s` after that, so it has stopped before anybody else may start, whatever the clocks say.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import TiphysError, Unavailable
from tiphys_models.kube.backoff import retry_after_s
from tiphys_models.kube.client import ApiError, KubeClient

_log = logging.getLogger(__name__)

_NOT_FOUND, _CONFLICT, _INVALID = 404, 409, 422
_NOTE = "tiphys.io/note"
_CANDIDATE_POLL_S = 0.5  # shorter than retry_s: what a candidate sees late it also takes over late
_JUST_AFTER_S = 0.01
# A change happened between the last look and this one, so it may count from the last look, if that is no longer ago than this share
# of the duration (1 s of 15). The holder stops at renew_s, a third earlier, so nobody overlaps.
_LOOK_SHARE = 1 / 15


class LeaseLost(TiphysError):
    """Somebody else may lead now: stop writing at once and end the process."""


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """Which Lease, who we are, and the three times."""

    namespace: str
    name: str
    identity: str
    duration_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0
    pod_uid: str = ""
    """A kubelet starts a container after the one before it has ended: a holder from the same pod is dead and is not waited for."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a Lease says."""

    holder: str = ""
    duration_s: float = 0.0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    note: str = ""
    """What its holder wants a successor to know."""

    @classmethod
    def of(cls, obj: dict[str, Any]) -> LeaseRecord:
        """Record of a Lease object; absent fields count as empty."""
        spec = obj.get("spec") or {}
        return cls(
            holder=spec.get("holderIdentity") or "",
            duration_s=float(spec.get("leaseDurationSeconds") or 0),
            acquired=spec.get("acquireTime") or "",
            renewed=spec.get("renewTime") or "",
            transitions=int(spec.get("leaseTransitions") or 0),
            note=(obj["metadata"].get("annotations") or {}).get(_NOTE) or "",
        )


class Lease:
    """Candidate for, then holder of, one Lease."""

    def __init__(
        self,
        client: KubeClient,
        options: LeaseOptions,
        clock: Clock,
        on_error: Callable[[Unavailable], None] | None = None,
        note: Callable[[], str] = str,
    ) -> None:
        # a container restarted in the same pod is another process: it must not find itself the holder
        self._pod = f"_{options.pod_uid}_" if options.pod_uid else "_"
        self.identity = f"{options.identity}{self._pod}{uuid.uuid4().hex[:8]}"
        self._dead = ""
        """Holder seen when this process first looked, if that was the container before this one in the same pod: dead for sure."""
        self.options = options
        self.transitions = 0
        """Grows with every change of leader: names this term in the logs."""
        self.observed_s: float | None = None
        """When the Lease was last read or written, by the monotonic clock; None: never."""
        self.former = LeaseRecord()
        """What the Lease said when it became ours."""
        self.former_age_s: float | None = None
        """Seconds since then that its former holder had said so; None if this process did not see it being said."""
        self._client, self._clock, self._on_error, self._note = client, clock, on_error, note
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{options.namespace}/leases"
        self._record: LeaseRecord | None = None
        self._changed_s = 0.0
        self._watched = False
        """Whether the last change was seen as it came, not found."""
        self._version = ""
        self._valid_until_s: float | None = None
        self._asked_s = 0.0
        """How long the API server wants to be left alone since it last refused."""

    @property
    def other(self) -> str:
        """Identity of another holder, as last seen; empty if nobody holds the Lease, or this process does."""
        holder = self._record.holder if self._record is not None else ""
        return "" if holder == self.identity else holder

    @property
    def held(self) -> bool:
        """Whether this process may write now."""
        return self.remaining_s() > 0

    def remaining_s(self) -> float:
        """Seconds for which this process may still write without another renewal; 0 if it is not the leader."""
        return 0.0 if self._valid_until_s is None else max(0.0, self._valid_until_s - self._clock.monotonic_s())

    def check(self) -> float:
        """`remaining_s`, or LeaseLost: called before every write."""
        remaining_s = self.remaining_s()
        if remaining_s <= 0:
            raise LeaseLost(f"Lease {self.options.namespace}/{self.options.name} is not ours any more: nothing is written")
        return remaining_s

    async def acquire(self) -> None:
        """Wait until it is ours."""
        while not await self._attempt(self.options.renew_s):
            poll_s = min(_CANDIDATE_POLL_S, self.options.retry_s) * random.uniform(1.0, 1.2)  # noqa: S311 - not in step with others
            expires_s = self._changed_s + (self._record.duration_s if self._record else 0.0) - self._clock.monotonic_s()
            # a candidate that waits as long as it is told to takes over later, and harms nobody
            await asyncio.sleep(max(min(poll_s, expires_s + _JUST_AFTER_S) if expires_s > 0 else poll_s, self._asked_s))
        _log.info("leading", extra={"fields": {"identity": self.identity, "transitions": self.transitions}})

    async def hold(self) -> None:
        """Renew until it is lost; never returns otherwise."""
        while True:
            # of what a throttling server asks for a holder gives half of the time it has left, and half again: never its Lease
            wait_s = max(self.options.retry_s, min(self._asked_s, self.remaining_s() / 2))
            await asyncio.sleep(min(wait_s, self.remaining_s()))
            await self._attempt(self.check())
            self.check()

    async def release(self) -> None:
        """Let the next candidate start at once; nothing to do if it is not ours."""
        remaining_s, self._valid_until_s = self.remaining_s(), None
        if remaining_s <= 0 or self._record is None:
            return
        # client-go publishes one second here, so that even a candidate that misses the empty holder waits no longer
        record = LeaseRecord("", 1.0, self._record.acquired, _micro_time(self._clock), self._record.transitions, self._record.note)
        try:
            async with asyncio.timeout(min(remaining_s, 5.0)):
                await self._put_again_if_still_ours(record)
        except (Unavailable, TimeoutError) as error:
            _log.warning("the Lease could not be released: others wait until it expires", extra={"fields": {"error": str(error)}})

    async def _put_again_if_still_ours(self, record: LeaseRecord) -> None:
        """Put; once more after a conflict with ourselves: a renewal that was under way when we stopped may have been written unheard."""
        try:
            await self._put(record)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
            obj = await self._client.get(f"{self._path}/{self.options.name}")
            if LeaseRecord.of(obj).holder != self.identity:
                return  # it is somebody else's already
            self._version = obj["metadata"]["resourceVersion"]
            await self._put(record)

    async def _attempt(self, deadline_s: float) -> bool:
        try:
            async with asyncio.timeout(deadline_s):
                self._asked_s = 0.0
                return await self.try_acquire_or_renew()
        except TimeoutError:
            self._report(Unavailable(f"the Lease was not answered within {deadline_s:.1f} s"))
        except Unavailable as error:
            self._asked_s = retry_after_s(error) or 0.0
            self._report(error)
        return False

    def _report(self, error: Unavailable) -> None:
        _log.warning("the Lease could not be read or written", extra={"fields": {"error": str(error)}})
        if self._on_error is not None:
            self._on_error(error)

    async def look(self) -> None:
        """Read the Lease without wanting it: its age is known by the time it is wanted. Unavailable as a candidate."""
        try:
            self._observe(await self._client.get(f"{self._path}/{self.options.name}"))
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise

    async def try_acquire_or_renew(self) -> bool:
        """One round: whether it is ours afterwards. Unavailable if the API server does not answer."""
        started_s = self._clock.monotonic_s()
        try:
            obj = await self._client.get(f"{self._path}/{self.options.name}")
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            obj = None
        if obj is not None:
            self._observe(obj)
            record = self._record or LeaseRecord()
            ours = record.holder == self.identity
            if record.holder and not ours:
                self._valid_until_s = None
                if record.holder != self._dead and self._clock.monotonic_s() < self._changed_s + record.duration_s:
                    return False
        else:
            record, ours, self._version = LeaseRecord(), False, ""
        watched_s = started_s - self._changed_s if self._watched else None
        wanted = self._wanted(record, ours=ours)
        try:
            await self._put(wanted)
        except ApiError as error:
            # without a version, a Lease that somebody has made meanwhile is refused as invalid
            if error.status != _CONFLICT and (self._version or error.status != _INVALID):
                raise
            return False  # somebody was faster; the next round sees who
        if self._valid_until_s is None:
            self.former, self.former_age_s = record, watched_s
        self.transitions = wanted.transitions
        self._valid_until_s = started_s + self.options.renew_s
        return True

    def _wanted(self, record: LeaseRecord, *, ours: bool) -> LeaseRecord:
        now = _micro_time(self._clock)
        transitions = record.transitions if ours or not record.acquired else record.transitions + 1
        return LeaseRecord(self.identity, self.options.duration_s, record.acquired if ours else now, now, transitions, self._note())

    def _observe(self, obj: dict[str, Any]) -> None:
        self._version = obj["metadata"]["resourceVersion"]
        now_s, looked_s = self._clock.monotonic_s(), self.observed_s
        self.observed_s = now_s
        if (record := LeaseRecord.of(obj)) != self._record:
            self._watched = looked_s is not None
            earliest_s = now_s - record.duration_s * _LOOK_SHARE
            self._record, self._changed_s = record, now_s if looked_s is None else max(looked_s, earliest_s)
        if looked_s is None and self.options.pod_uid and self._pod in record.holder:
            self._dead = record.holder

    async def _put(self, record: LeaseRecord) -> None:
        metadata: dict[str, Any] = {"name": self.options.name, "namespace": self.options.namespace}
        if record.note:
            metadata["annotations"] = {_NOTE: record.note}
        spec = {
            "holderIdentity": record.holder,
            # an int32 in the API: rounded up, so that nobody takes over early
            "leaseDurationSeconds": max(1, -int(-record.duration_s // 1)),
            "acquireTime": record.acquired or None,
            "renewTime": record.renewed,
            "leaseTransitions": record.transitions,
        }
        body: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        if self._version:
            # the version we decided on: if anybody wrote meanwhile, this fails
            body["metadata"] = {**metadata, "resourceVersion": self._version}
        # a PUT creates a Lease, too, and a right to create by PUT can be limited to the name
        self._observe(await self._client.request("PUT", f"{self._path}/{self.options.name}", body=body))


def _micro_time(clock: Clock) -> str:
    return datetime.fromtimestamp(clock.now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
