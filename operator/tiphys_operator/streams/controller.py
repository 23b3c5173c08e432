"""Keeps the statuses of sites, variants and stream policies true. It runs while the Lease is held, and is the only one that writes them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from tiphys_models.api.base import Condition
from tiphys_models.api.inference_site import InferenceSiteStatus
from tiphys_models.api.model_variant import ModelVariantStatus
from tiphys_models.api.stream_policy import StreamPolicyStatus
from tiphys_models.api.stream_reasons import SiteReason, StreamReason, VariantReason
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import TiphysError, Unavailable
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.guard import attempted
from tiphys_models.kube.kinds import INFERENCE_SITES, MODEL_VARIANTS, STREAM_POLICIES
from tiphys_models.kube.objects import Kind, Objects, ObjectSeen
from tiphys_models.kube.reflector import Sink
from tiphys_models.serving.certificates import TrustedAuthority
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.networks import Network
from tiphys_operator.runtime.conditions import former
from tiphys_operator.runtime.events import EventWrite
from tiphys_operator.runtime.pace import SoonAgain, again_in_s
from tiphys_operator.runtime.watches import Watch, Watches
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.streams.addresses import AddressRules, ApiServer
from tiphys_operator.streams.cluster import BindingCluster
from tiphys_operator.streams.endpoints import SLICES_PATH, SliceSink
from tiphys_operator.streams.metrics import BindingError, BindingMetrics
from tiphys_operator.streams.prober import Prober
from tiphys_operator.streams.probes import Probes
from tiphys_operator.streams.quota import ProbeQuota, grant
from tiphys_operator.streams.seen import PolicyObject, SiteObject, VariantObject
from tiphys_operator.streams.summaries import PULL_S, SummaryReader
from tiphys_operator.streams.verdicts import (
    failed_policy,
    failed_site,
    failed_variant,
    measured_here,
    policy_status,
    site_status,
    variant_status,
)

log = logging.getLogger(__name__)

LOOP, PULLING = "binding", "binding-summaries"
LATE_S = 300.0
"""A round writes what changed, eight statuses at a time, and a write takes at most half a minute."""
_SETTLE_S = 0.05
"""Changes come in bunches: one round for all of them."""
_AGAIN_S = 1.0
_PULLS_PER_REFRESH = 12
"""The API server's addresses seldom change, and a resolver that hangs holds a thread each time."""
_SAID_MAX = 1024
_WRITES_AT_ONCE = 8
_QUIET = frozenset({SiteReason.NOT_PROBED, VariantReason.SITE_UNREACHABLE, StreamReason.RECOVERING, StreamReason.DISABLED})
"""No Event tells of these: nothing happened, somebody did it on purpose, or another object's Event has told already."""
Made = TypeVar("Made")
Seen: TypeAlias = ObjectSeen[Any, Any]
_Status = InferenceSiteStatus | ModelVariantStatus | StreamPolicyStatus


@dataclass(frozen=True, slots=True)
class BindingOptions:
    """What the environment sets."""

    access_site: str = ""
    """Where this operator stands: measured delays are from there. Empty: probes only tell who answers."""
    binder_urls: tuple[str, ...] = ()
    token_file: Path | None = None
    probe_allow: tuple[Network, ...] = ()
    """Networks that are probed whatever the rules say."""
    probe_only: tuple[Network, ...] = ()
    """Networks beside which none is probed; empty: all that the rules leave."""
    probe_quota: ProbeQuota = field(default_factory=ProbeQuota)
    api_servers: tuple[str, ...] = ()
    """Hosts by which the API server is known."""
    authority: TrustedAuthority = field(default_factory=lambda: TrustedAuthority(None))


@dataclass(frozen=True, slots=True)
class _Pause:
    """An object whose status could not be written."""

    failures: int
    until_s: float
    """The monotonic time at which the pause ends."""


class StreamsController:
    """Watches its three kinds from the start, EndpointSlices once a variant is a Service, and probes what asks to be probed."""

    def __init__(
        self, client: KubeClient, writer: Writer, metrics: OperatorMetrics, clock: Clock, options: BindingOptions,
        beats: Heartbeats | None = None,
    ) -> None:  # fmt: skip
        self._writer, self._metrics, self._clock = writer, metrics.part(BindingMetrics), clock
        self._guard, self._beats = metrics.objects, beats if beats is not None else Heartbeats(clock)
        self._access_site = options.access_site
        self._changed = asyncio.Event()
        self._cluster = BindingCluster(self._changed.set)
        self._slices = SliceSink(self._changed.set)
        self._slice_watch: Watch | None = None
        self._summaries = SummaryReader(options.binder_urls, options.token_file, self._metrics, clock, options.authority)
        self._api_server, self._probe_quota = ApiServer(*options.api_servers), options.probe_quota
        self._probes = Probes(AddressRules(options.probe_allow, options.probe_only, self._api_server.addresses))
        self._prober = Prober(self._probes, self._metrics, clock, self._changed.set, self._guard, self._site_name)
        self._watches = Watches(LOOP, client, clock, metrics, self._beats, self._watch_failed, self._changed.set)
        self._pulling: asyncio.Task[None] | None = None
        self._said: OrderedDict[str, str] = OrderedDict()
        self._pauses: dict[str, _Pause] = {}
        self._soon, self._rng = SoonAgain(clock), random.Random()  # noqa: S311 - jitter

    async def run(self) -> None:
        """Statuses are kept true until the task is cancelled or the Lease is lost."""
        watched: tuple[tuple[Kind[Any, Any], Sink], ...] = (
            (INFERENCE_SITES, self._cluster.site_store),
            (MODEL_VARIANTS, self._cluster.variant_store),
            (STREAM_POLICIES, self._cluster.policy_store),
        )
        self._beats.expect(LOOP, LATE_S)
        try:
            async with self._probes, self._summaries:
                await self._watches.synced(*[self._watches.start(kind.kind, kind.path(), sink) for kind, sink in watched])
                await self._api_server.refresh()  # before the first probe
                self._beats.expect(LOOP, LATE_S, fatal=True)
                self._pulling = asyncio.create_task(self._pull())
                try:
                    while True:
                        await self._round()
                        await self._sleep()
                finally:
                    await self._prober.close()
        finally:
            if self._pulling is not None:
                self._pulling.cancel()
                await asyncio.gather(self._pulling, return_exceptions=True)
            await self._watches.close()
            self._beats.forget(LOOP)
            self._beats.forget(PULLING)

    async def _round(self) -> None:
        cluster = self._cluster
        self._prober.follow(grant(cluster.probes(), self._probe_quota))
        if self._slice_watch is None and cluster.needs_slices():
            self._slice_watch = self._watches.start("EndpointSlice", SLICES_PATH, self._slices)
        living = cluster.uids()
        self._pauses = {uid: pause for uid, pause in self._pauses.items() if uid in living}
        limit = asyncio.Semaphore(_WRITES_AT_ONCE)
        # in this order: variants look at their site's status, policies at both
        await asyncio.gather(*(self._site(site, limit) for site in cluster.sites()))
        await asyncio.gather(*(self._variant(variant, limit) for variant in cluster.variants()))
        governors = cluster.governors()
        await asyncio.gather(*(self._policy(policy, governors, limit) for policy in cluster.policies()))
        with self._guard.over("Metrics", LOOP, ""):
            self._metrics.show(cluster.sites(), cluster.variants(), cluster.policies())

    async def _site(self, site: SiteObject, limit: asyncio.Semaphore) -> None:
        def judged() -> InferenceSiteStatus:
            return site_status(site, self._prober.rounds(site.uid), self._access_site, self._clock.now_s())

        status = self._found(site, judged, partial(failed_site, site))
        if status is not None and status != measured_here(site.status, self._access_site):
            await self._write(self._cluster.site_store, site, status, limit)

    async def _variant(self, variant: VariantObject, limit: asyncio.Semaphore) -> None:
        def judged() -> ModelVariantStatus:
            spec, ready = variant.spec, None
            synced = self._slice_watch is not None and self._slice_watch.synced.is_set()
            if spec is not None and spec.endpoint.service is not None and synced:
                ready = self._slices.ready(variant.namespace, spec.endpoint.service.name)
            site = self._cluster.site(variant.namespace, spec.site) if spec is not None else None
            return variant_status(variant, site, ready, self._clock.now_s())

        status = self._found(variant, judged, partial(failed_variant, variant))
        if status is not None and status != variant.status:
            await self._write(self._cluster.variant_store, variant, status, limit)

    async def _policy(self, policy: PolicyObject, governors: Mapping[tuple[str, str], PolicyObject], limit: asyncio.Semaphore) -> None:
        def judged() -> StreamPolicyStatus:
            place = (policy.namespace, policy.spec.access_site if policy.spec is not None else "")
            site, summary = self._cluster.site(*place), self._summaries.of(*place)
            return policy_status(policy, site, governors.get(place), summary, self._clock.now_s())

        status = self._found(policy, judged, partial(failed_policy, policy))
        if status is not None and status != policy.status:
            await self._write(self._cluster.policy_store, policy, status, limit)

    def _found(self, seen: Seen, judged: Callable[[], Made], failed: Callable[[str, float], Made]) -> Made | None:
        """The status that an object should have; of one that trips us up, what says so, and None if not even that can be said."""
        made: Made | None = None
        with self._guard.over(seen.kind, seen.key, seen.version) as trip:
            made = judged()
        if trip.error is not None:
            made, _ = attempted(lambda: failed(trip.message, self._clock.now_s()))
        return made

    async def _write(self, objects: Objects[Any], seen: Seen, status: _Status, limit: asyncio.Semaphore) -> None:
        if (pause := self._pauses.get(seen.uid)) is not None and self._clock.monotonic_s() < pause.until_s:
            return
        async with limit:
            with self._guard.over(seen.kind, seen.key, seen.version) as trip:
                try:
                    await self._written(objects, seen, status)
                except Unavailable as error:
                    self._metrics.errors[BindingError.API].inc()
                    self._warn(seen.key, "a status could not be written, trying again", error)
                    self._pause(seen.uid, error)
                else:
                    self._said.pop(seen.key, None)
                    self._pauses.pop(seen.uid, None)
            if trip.error is not None:
                self._pause(seen.uid, trip.error)
            self._beats.beat(LOOP)  # a round of many slow writes is no loop that stands still

    async def _written(self, objects: Objects[Any], seen: Seen, status: _Status) -> None:
        written = await self._writer.write_object(seen, status)
        if written is None:
            asyncio.get_running_loop().call_later(_AGAIN_S, self._changed.set)
            return
        objects.written(written)
        for new in status.conditions:
            await self._tell(seen, former(seen.status.conditions, new.type), new)

    def _pause(self, uid: str, error: Exception) -> None:
        """Leave an object's status as it is for a while: longer each time, and as long as the API server asks for."""
        failures = self._pauses[uid].failures + 1 if uid in self._pauses else 1
        pause_s = again_in_s(failures, PULL_S, getattr(error, "retry_after_s", None), self._soon, self._rng)
        self._pauses[uid] = _Pause(failures, self._clock.monotonic_s() + pause_s)
        asyncio.get_running_loop().call_later(pause_s, self._changed.set)

    async def _tell(self, about: Seen, old: Condition | None, new: Condition) -> None:
        if old is None or (old.status, old.reason) == (new.status, new.reason) or new.reason in _QUIET:
            return
        if (old.status, new.status) == ("Unknown", "True"):
            return  # it began: no news
        await self._writer.write_event(EventWrite(about, new.status != "True", new.reason, new.message))

    async def _pull(self) -> None:
        self._beats.expect(PULLING, LATE_S)
        for pulls in itertools.count(1):
            with self._guard.over("StreamSummary", LOOP, ""):
                await self._summaries.pull()
                if pulls % _PULLS_PER_REFRESH == 0:
                    await self._api_server.refresh()
            self._beats.beat(PULLING)
            self._changed.set()
            await asyncio.sleep(PULL_S)

    def _site_name(self, uid: str) -> str:
        site = self._cluster.site_store.get(uid)
        return site.key if site is not None else uid

    def _watch_failed(self, path: str, error: Unavailable) -> None:
        self._metrics.errors[BindingError.WATCH].inc()
        self._warn(path, "binding cannot watch, trying again", error)

    def _warn(self, where: str, what: str, error: TiphysError) -> None:
        if self._said.get(where) != str(error):  # once: every try would say the same
            log.warning(what, extra={"fields": {"where": where, "error": str(error)}})
            self._said[where] = str(error)
            if len(self._said) > _SAID_MAX:
                self._said.popitem(last=False)

    async def _sleep(self) -> None:
        self._watches.check()
        if self._pulling is not None and self._pulling.done():
            self._pulling.result()  # never but by a mistake: it ends the process
        self._prober.check()
        self._beats.beat(LOOP)
        try:
            async with asyncio.timeout(PULL_S):
                await self._changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_SETTLE_S)
        self._changed.clear()
