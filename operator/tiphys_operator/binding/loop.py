"""Keeps the statuses of sites, variants and stream policies true. It runs while the Lease is held, and is the only one that writes them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from pathlib import Path

from tiphys_models.api.inference_site import SITES_PATH, InferenceSiteStatus
from tiphys_models.api.model_variant import VARIANTS_PATH, ModelVariantStatus
from tiphys_models.api.reasons import SiteReason, StreamReason, VariantReason
from tiphys_models.api.scheduling_policy import Condition
from tiphys_models.api.stream_policy import STREAM_POLICIES_PATH, StreamPolicyStatus
from tiphys_models.clients.kube import KubeClient
from tiphys_models.clients.leases import LeaseLost
from tiphys_models.clients.reflector import Reflector, Sink
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.errors import TiphysError, Unavailable
from tiphys_models.serving.certificates import TrustedAuthority
from tiphys_operator.binding.cluster import BindingCluster, Objects, Seen
from tiphys_operator.binding.endpoints import SLICES_PATH, SliceSink
from tiphys_operator.binding.metrics import BindingError
from tiphys_operator.binding.prober import Prober
from tiphys_operator.binding.probes import Probes
from tiphys_operator.binding.seen import PolicyObject, SiteObject, VariantObject
from tiphys_operator.binding.summaries import PULL_S, SummaryReader
from tiphys_operator.binding.verdicts import measured_here, policy_status, site_status, variant_status
from tiphys_operator.events import EventWrite
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.verdicts import former
from tiphys_operator.writer import Writer

log = logging.getLogger(__name__)

_SETTLE_S = 0.05
"""Changes come in bunches: one round for all of them."""
_AGAIN_S = 1.0
_WRITES_AT_ONCE = 8
_QUIET = frozenset({SiteReason.NOT_PROBED, VariantReason.SITE_UNREACHABLE, StreamReason.RECOVERING, StreamReason.DISABLED})
"""No Event tells of these: nothing happened, somebody did it on purpose, or another object's Event has told already."""
_Status = InferenceSiteStatus | ModelVariantStatus | StreamPolicyStatus


@dataclass(frozen=True, slots=True)
class BindingOptions:
    """What the environment sets."""

    access_site: str = ""
    """Where this operator stands: measured delays are from there. Empty: probes only tell who answers."""
    binder_urls: tuple[str, ...] = ()
    token_file: Path | None = None
    authority: TrustedAuthority = field(default_factory=lambda: TrustedAuthority(None))


class BindingLoop:
    """Watches its three kinds from the start, EndpointSlices once a variant is a Service, and probes what asks to be probed."""

    def __init__(self, client: KubeClient, writer: Writer, metrics: OperatorMetrics, clock: Clock, options: BindingOptions) -> None:
        self._client, self._writer, self._metrics, self._clock = client, writer, metrics.binding, clock
        self._access_site = options.access_site
        self._changed = asyncio.Event()
        self._cluster = BindingCluster(self._changed.set)
        self._slices = SliceSink(self._changed.set)
        self._slices_synced: asyncio.Event | None = None
        self._summaries = SummaryReader(options.binder_urls, options.token_file, self._metrics, clock, options.authority)
        self._probes = Probes()
        self._prober = Prober(self._probes, self._metrics, clock, self._changed.set)
        self._tasks: list[asyncio.Task[None]] = []
        self._said: dict[str, str] = {}

    async def run(self) -> None:
        """Until cancelled, or until the Lease is lost."""
        watched: tuple[tuple[str, Sink], ...] = (
            (SITES_PATH, self._cluster.sites),
            (VARIANTS_PATH, self._cluster.variants),
            (STREAM_POLICIES_PATH, self._cluster.policies),
        )
        try:
            async with self._probes, self._summaries:
                for synced in [self._watch(path, sink) for path, sink in watched]:
                    await synced.wait()
                self._tasks.append(asyncio.create_task(self._pull()))
                try:
                    while True:
                        await self._round()
                        await self._sleep()
                finally:
                    await self._prober.close()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _round(self) -> None:
        cluster = self._cluster
        self._prober.follow(cluster.probes())
        if self._slices_synced is None and cluster.needs_slices():
            self._slices_synced = self._watch(SLICES_PATH, self._slices)
        limit = asyncio.Semaphore(_WRITES_AT_ONCE)
        # in this order: variants look at their site's status, policies at both
        await asyncio.gather(*(self._site(site, limit) for site in cluster.sites.all()))
        await asyncio.gather(*(self._variant(variant, limit) for variant in cluster.variants.all()))
        await asyncio.gather(*(self._policy(policy, limit) for policy in cluster.policies.all()))
        self._metrics.show(cluster.sites.all(), cluster.variants.all(), cluster.policies.all())

    async def _site(self, site: SiteObject, limit: asyncio.Semaphore) -> None:
        status = site_status(site, self._prober.rounds(site.uid), self._access_site, self._clock.now_s())
        if status != measured_here(site.status, self._access_site):
            await self._write(self._cluster.sites, site, status, limit)

    async def _variant(self, variant: VariantObject, limit: asyncio.Semaphore) -> None:
        spec, ready = variant.spec, None
        if spec is not None and spec.endpoint.service is not None and self._slices_synced is not None and self._slices_synced.is_set():
            ready = self._slices.ready(variant.namespace, spec.endpoint.service.name)
        site = self._cluster.site(variant.namespace, spec.site) if spec is not None else None
        status = variant_status(variant, site, ready, self._clock.now_s())
        if status != variant.status:
            await self._write(self._cluster.variants, variant, status, limit)

    async def _policy(self, policy: PolicyObject, limit: asyncio.Semaphore) -> None:
        cluster, now_s, spec = self._cluster, self._clock.now_s(), policy.spec
        place = (policy.namespace, spec.access_site if spec is not None else "")
        status = policy_status(policy, cluster.site(*place), cluster.governing(*place), self._summaries.of(*place), now_s)
        if status != policy.status:
            await self._write(cluster.policies, policy, status, limit)

    async def _write(self, objects: Objects[Seen], seen: Seen, status: _Status, limit: asyncio.Semaphore) -> None:
        async with limit:
            try:
                written = await self._writer.write_object(seen, status)
                if written is None:
                    asyncio.get_running_loop().call_later(_AGAIN_S, self._changed.set)
                    return
                objects.put(written)
                for new in status.conditions:
                    await self._tell(seen, former(seen.status.conditions, new.type), new)
            except LeaseLost:
                raise
            except TiphysError as error:
                self._metrics.errors[BindingError.API].inc()
                self._warn(seen.key, "a status could not be written, trying again", error)
                asyncio.get_running_loop().call_later(_AGAIN_S, self._changed.set)
            else:
                self._said.pop(seen.key, None)

    async def _tell(self, about: Seen, old: Condition | None, new: Condition) -> None:
        if old is None or (old.status, old.reason) == (new.status, new.reason) or new.reason in _QUIET:
            return
        if (old.status, new.status) == ("Unknown", "True"):
            return  # it began: no news
        await self._writer.write_event(EventWrite(about, new.status != "True", new.reason, new.message))

    async def _pull(self) -> None:
        while True:
            await self._summaries.pull()
            self._changed.set()
            await asyncio.sleep(PULL_S)

    def _watch(self, path: str, sink: Sink) -> asyncio.Event:
        reflector = Reflector(self._client, path, sink, self._clock, on_error=self._watch_failed)
        self._tasks.append(asyncio.create_task(reflector.run()))
        return reflector.synced

    def _watch_failed(self, path: str, error: Unavailable) -> None:
        self._metrics.errors[BindingError.WATCH].inc()
        self._warn(path, "binding cannot watch, trying again", error)

    def _warn(self, where: str, what: str, error: TiphysError) -> None:
        if self._said.get(where) != str(error):  # once: every try would say the same
            log.warning(what, extra={"fields": {"where": where, "error": str(error)}})
            self._said[where] = str(error)

    async def _sleep(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()  # never but by a mistake: it ends the process
        self._prober.check()
        try:
            async with asyncio.timeout(PULL_S):
                await self._changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_SETTLE_S)
        self._changed.clear()
