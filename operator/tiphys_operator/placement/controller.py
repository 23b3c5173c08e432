"""The one loop: look at everything, plan, write what differs. Woken by events, and by the clock at the latest."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.kube.client import ApiError
from tiphys_operator.metrics import ErrorReason, OperatorMetrics
from tiphys_operator.placement.decision_reader import DecisionReader
from tiphys_operator.placement.observation import Hinting, Observation, Selecting
from tiphys_operator.placement.observer import Observer
from tiphys_operator.placement.plan import Plan, plan
from tiphys_operator.runtime.events import Seen
from tiphys_operator.runtime.health import Health
from tiphys_operator.runtime.permissions import CREATE_EVENTS, WRITE_MODEL_STATUS, WRITE_STATUS, PermissionCheck
from tiphys_operator.runtime.writer import Writer

log = logging.getLogger(__name__)

LOOP = "reconcile"
LATE_S = 240.0
_FORBIDDEN, _NOT_FOUND = 403, 404
_SETTLE_S = 0.1  # events come in bunches (kubectl apply of a directory): one round for all of them
_AGAIN_S = 1.0
_BACKOFF_START_S, _BACKOFF_MAX_S = 1.0, 60.0
_RETRY_AFTER_MAX_S = 300.0
_REST_S, _REST_TIMES = 1.0, 4.0
_REFUSED_CONTENT = (400, 413, 422)
_DEADLINE_S = 120.0  # less than after which a leader counts as dead


class PlacementController:
    """Level-triggered: every round starts from what is there, so a lost event costs at most one resync."""

    def __init__(
        self,
        observer: Observer,
        writer: Writer,
        reader: DecisionReader | None,
        permissions: PermissionCheck,
        health: Health,
        metrics: OperatorMetrics,
        clock: Clock,
        *,
        own_namespace: str,
        scheduler_name: str,
        resync_s: float,
        selection: Selecting | None = None,
        hints: Hinting | None = None,
    ) -> None:
        self._selection, self._hints = selection, hints
        self._observer, self._writer, self._reader = observer, writer, reader
        self._permissions, self._health, self._metrics, self._clock = permissions, health, metrics, clock
        self._own_namespace, self._scheduler_name, self._resync_s = own_namespace, scheduler_name, resync_s
        self._wake = asyncio.Event()
        self._took_s = 0.0
        observer.on_news = self.wake

    def wake(self) -> None:
        """An event asks for a reconciliation: the next round begins soon instead of at its time."""
        self._wake.set()

    async def run(self) -> None:
        """Reconciliation goes on until the task is cancelled or the Lease is lost."""
        self._health.loops.expect(LOOP, LATE_S)
        try:
            await self._rounds()
        finally:
            await self._observer.close()

    async def _rounds(self) -> None:
        backoff_s = _BACKOFF_START_S
        while True:
            self._wake.clear()
            try:
                async with asyncio.timeout(_DEADLINE_S):
                    complete = await self.reconcile()
            except (Unavailable, TimeoutError) as error:
                self._failed(error)
                # jitter: not all clients of a restarted API server should come back in one instant
                jitter = random.uniform(0.5, 1.0)  # noqa: S311
                await asyncio.sleep(max(backoff_s * jitter, _asked_s(error)))
                backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S, max(self._resync_s, _BACKOFF_START_S))
                continue
            backoff_s = _BACKOFF_START_S
            self._observer.check()
            self._health.loops.beat(LOOP)
            await asyncio.sleep(self._rest_s())
            await self._wait(self._resync_s if complete else _AGAIN_S)

    def _rest_s(self) -> float:
        """After a round, however often it is woken: who edits in a loop gets a fifth of the time, and the API server the rest."""
        return min(max(_REST_S, _REST_TIMES * self._took_s), self._resync_s)

    async def reconcile(self) -> bool:
        """One round; False if an object changed under it and it should be repeated."""
        started_s = self._clock.monotonic_s()
        seen = await self._observer.observe()
        if self._selection is not None:
            self._selection.see(seen.policies)
            seen = replace(seen, selections=self._selection.found())
        if self._hints is not None:
            self._hints.see(seen.policies)
            seen = replace(seen, hints=self._hints.rights())
        self._health.listed_s = self._clock.monotonic_s()
        if self._health.watch is not None:
            objects: tuple[Seen, ...] = (*seen.policies, *seen.learned)
            self._health.watch.listed({obj.uid: obj.version for obj in objects})
        if self._reader is not None:
            self._reader.keep_only({policy.key for policy in seen.policies})
        # a thousand policies in one namespace are compared pair by pair: the Lease must be renewed meanwhile
        planned = await asyncio.to_thread(plan, seen, self._own_namespace, self._scheduler_name)
        for trip in planned.trips:
            self._metrics.objects.tripped(trip.about.kind, trip.about.key, trip.about.version, trip.message)
        complete = await self._write(planned)
        self._report(seen, planned, started_s)
        return complete

    async def _write(self, planned: Plan) -> bool:
        complete = True
        stale: set[str] = set()
        if self._permissions.allows(WRITE_STATUS):
            for write in planned.statuses:
                written = await self._written(write.policy, self._writer.write_object(write.policy, write.status))
                complete = complete and written is not False
                if not written:
                    stale.add(write.policy.uid)
                elif self._reader is not None:
                    self._reader.settle(write.policy.key, write.counted)
        else:
            stale |= {write.policy.uid for write in planned.statuses}
        if self._permissions.allows(WRITE_MODEL_STATUS):
            for change in planned.models:
                written = await self._written(change.model, self._writer.write_object(change.model, change.status))
                complete = complete and written is not False
                if not written:
                    stale.add(change.model.uid)
        else:
            stale |= {change.model.uid for change in planned.models}
        if self._permissions.allows(CREATE_EVENTS):
            for event in planned.events:
                # without its status the same news would be told again in the next round
                if event.about.uid not in stale:
                    await self._writer.write_event(event)
        return complete

    async def _written(self, about: Seen, write: Awaitable[Any]) -> bool | None:
        """Whether it stands there, False if the object changed meanwhile; None for a status that the API server cannot take, which is one
        object's fault, ends no round, and does not come right by trying again at once."""
        written: bool | None = None
        with self._metrics.objects.over(about.kind, about.key, about.version):
            try:
                written = await write is not None
            except ApiError as error:
                if error.status in _REFUSED_CONTENT:
                    raise InvalidInput(str(error)) from error
                raise
        return written

    def _report(self, seen: Observation, planned: Plan, started_s: float) -> None:
        self._health.reconciled = True
        self._metrics.count_policies(planned.counts)
        self._metrics.reconciles.labels("success").inc()
        self._metrics.last_reconcile.set(self._clock.now_s())
        self._took_s = took_s = self._clock.monotonic_s() - started_s
        self._metrics.duration.observe(took_s)
        if planned.statuses:
            fields = {"policies": len(seen.policies), "changed": len(planned.statuses), "seconds": round(took_s, 3)}
            log.info("reconciled", extra={"fields": fields})

    def _failed(self, error: Unavailable | TimeoutError) -> None:
        self._metrics.reconciles.labels("error").inc()
        hint = ""
        if isinstance(error, TimeoutError):
            self._metrics.error(ErrorReason.TIMEOUT)
            hint = f"the round took longer than {_DEADLINE_S:.0f} s"
        elif isinstance(error, ApiError) and error.status == _FORBIDDEN:
            self._metrics.error(ErrorReason.FORBIDDEN)
            hint = "add the verb to the operator's role"
        else:
            self._metrics.error(ErrorReason.API)
            if isinstance(error, ApiError) and error.status == _NOT_FOUND:
                hint = "is the CRD schedulingpolicies.tiphys.io installed?"
        log.warning("could not reconcile", extra={"fields": {"error": str(error), "hint": hint}})

    async def _wait(self, at_most_s: float) -> None:
        try:
            async with asyncio.timeout(at_most_s):
                await self._wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_SETTLE_S)


def _asked_s(error: Exception) -> float:
    """How long the API server asks to be left alone."""
    asked_s: float | None = getattr(error, "retry_after_s", None)
    return min(max(asked_s or 0.0, 0.0), _RETRY_AFTER_MAX_S)
