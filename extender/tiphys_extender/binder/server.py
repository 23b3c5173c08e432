"""The binder's process: the extender's, with another listener, a pool of nodes, leases, and streams where it is given an access site."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack

from tiphys_extender.answer import AnswerLimits
from tiphys_extender.binder.app import make_binder_app
from tiphys_extender.binder.call_lease import hold_calls
from tiphys_extender.binder.leases import Leases
from tiphys_extender.binder.metrics import BinderMetrics
from tiphys_extender.binder.placer import Placer
from tiphys_extender.binder.pool import CallPodSink, Pool, PoolNodeSink
from tiphys_extender.binder.replies import Replies
from tiphys_extender.binder.settings import PREFIX as OWN_PREFIX
from tiphys_extender.binder.settings import read_binder_settings
from tiphys_extender.binder.tenants import Tenants
from tiphys_extender.learned_models import LearnedModels
from tiphys_extender.server import Parts, run
from tiphys_extender.settings import PREFIX, Settings
from tiphys_extender.status_app import Page
from tiphys_extender.streams.service import StreamService
from tiphys_extender.watches import CountingSink, Watches
from tiphys_models.clients.kube import KubeClient
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.errors import InvalidInput

_PERIOD_S = 0.5
_MIB = 2**20


def run_binder() -> int:
    """The whole life of the process; its exit code."""
    return run(BinderParts)


class BinderParts(Parts):
    """Everything that runs in a binder."""

    service = "binder"
    asked = "calls"

    def __init__(self, settings: Settings, clock: Clock) -> None:
        own = read_binder_settings()
        if settings.snapshot is not None:
            raise InvalidInput(f"the binder watches an API server: unset {PREFIX}SNAPSHOT")
        if own.tenants_file is None:
            raise InvalidInput("the binder needs a tenants file")
        metrics = BinderMetrics()
        super().__init__(settings, clock, metrics)
        self._binder_metrics = metrics
        self.pool = Pool(own.pool_selector)
        self._own = own
        if own.calls_lease and not settings.own_namespace:
            raise InvalidInput(f"{OWN_PREFIX}CALLS_LEASE needs {PREFIX}OWN_NAMESPACE")
        self.leases = Leases(own.lease_s, own.max_open)
        self.tenants = Tenants(own.tenants_file, metrics)
        self.replies = Replies(own.max_replies_mib * _MIB)
        limits = AnswerLimits(settings.deadline_ms / 1000, settings.max_names)
        self.placer = Placer(self.world, self.answerer, self.decisions, self.pool, self.leases, metrics, self._clock, limits)
        self.streams = StreamService(settings, own, metrics, self._clock) if own.access_site else None
        self._jobs.append(self._tick)
        if self.streams is not None:
            self.streams.binder.enabled = lambda: self.world.enabled
            self._jobs += self.streams.jobs

    async def _tick(self) -> None:
        while True:
            self.placer.tick()
            self.tenants.reload_if_changed()
            await asyncio.sleep(_PERIOD_S)

    async def _open_sources(self, stack: AsyncExitStack) -> None:
        if self.streams is None or not self.streams.from_file():
            await super()._open_sources(stack)

    def _pages(self) -> Mapping[str, Page]:
        return self.streams.pages if self.streams is not None else {}

    def _make_watches(self, client: KubeClient, learned: LearnedModels | None) -> Watches:
        nodes = PoolNodeSink(self.world, self.pool)
        pods = CallPodSink(self.world, self.decisions, self._clock, self.pool, self.leases)
        switch = self._settings.switch_configmap
        if name := self._own.calls_lease:
            namespace, identity = self._settings.own_namespace, f"{socket.gethostname()}_{os.getpid()}"
            self.placer.owned = lambda: False  # until it is ours
            self._jobs.append(lambda: hold_calls(client, self.placer, namespace, name, identity, self._clock, self._own.pod_uid))
        more: dict[str, tuple[str, CountingSink]] = {}
        if (streams := self.streams) is not None:
            more = streams.watched()
            self._jobs.append(lambda: streams.hold(client))
        return Watches(client, self.world, self.decisions, self.metrics, self._wall, switch, learned, nodes=nodes, pods=pods, more=more)

    async def _listen_hot(self) -> str:
        settings = self._settings
        streams = self.streams.binder if self.streams is not None else None
        app = make_binder_app(
            self.placer, self.replies, self.tenants, self._binder_metrics, max_body_bytes=settings.max_body_bytes, streams=streams
        )
        return self._listen(app, settings.host, settings.port, self.tls)
