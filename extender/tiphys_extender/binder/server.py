"""The binder's process: the extender's, with another listener, a pool of nodes, leases, and streams where it is given an access site."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

from tiphys_extender.binder.app import make_binder_app
from tiphys_extender.binder.metrics import BinderMetrics
from tiphys_extender.binder_settings import PREFIX as OWN_PREFIX
from tiphys_extender.binder_settings import read_binder_settings
from tiphys_extender.calls.call_lease import hold_calls
from tiphys_extender.calls.leases import Leases
from tiphys_extender.calls.placer import Placer
from tiphys_extender.calls.pool import CallPodSink, Pool, pool_nodes
from tiphys_extender.calls.replies import Replies
from tiphys_extender.learned_models import LearnedModels
from tiphys_extender.model_store import PLACEMENT_AND_STREAMS
from tiphys_extender.placement.answer import AnswerLimits
from tiphys_extender.serve.http_protocol import Front
from tiphys_extender.serve.tenants import Tenants
from tiphys_extender.serve.throttle import Throttle
from tiphys_extender.serve.tls import handshake_failures
from tiphys_extender.server import Parts, run
from tiphys_extender.settings import PREFIX, Settings
from tiphys_extender.status_app import ExplainStream, Page
from tiphys_extender.streams.service import StreamService
from tiphys_extender.watches import Watches
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import InvalidInput
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.reflector import CountingSink

_PERIOD_S = 0.5
_MIB = 2**20
_CALLS, _CALLS_LIMIT_S = "calls", 30.0
_MARGIN_BYTES = 256 * 1024
"""The application refuses a body that is too large in its own words; the protocol cuts what goes on after that."""


def run_binder() -> int:
    """The whole life of the process; its exit code."""
    return run(BinderParts)


class BinderParts(Parts):
    """Everything that runs in a binder."""

    service = "binder"
    systems = PLACEMENT_AND_STREAMS
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
        self.tenants = Tenants(own.tenants_file, metrics, own.cap_defaults)
        self.replies = Replies(own.max_replies_mib * _MIB)
        limits = AnswerLimits(settings.deadline_ms / 1000, settings.max_names)
        self.placer = Placer(self.world, self.answerer, self.decisions, self.pool, self.leases, metrics, self._clock, limits)
        self.streams = (
            StreamService(settings, own, metrics, metrics.of_streams, self._clock, self.loops, self.models.store)
            if own.access_site
            else None
        )
        self.loops.expect(_CALLS, _CALLS_LIMIT_S, essential=True)
        self._jobs[_CALLS] = self._tick
        if self.streams is not None:
            self.streams.binder.enabled = lambda: self.world.enabled
            for name, limit_s in self.streams.limits_s.items():
                self.loops.expect(name, limit_s, essential=True)
            self._jobs |= self.streams.jobs

    async def _tick(self) -> None:
        while True:
            self.placer.tick()
            self.tenants.reload_if_changed()
            self.loops.beat(_CALLS)
            await asyncio.sleep(_PERIOD_S)

    async def _open_sources(self, stack: AsyncExitStack) -> None:
        if self.streams is None or not self.streams.from_file():
            await super()._open_sources(stack)

    def _pages(self) -> Mapping[str, Page]:
        return {**super()._pages(), **(self.streams.pages if self.streams is not None else {})}

    def _explain_stream(self) -> ExplainStream | None:
        return self.streams.binder.explain_to_operators if self.streams is not None else None

    def _make_watches(self, client: KubeClient, learned: LearnedModels | None) -> Watches:
        nodes = pool_nodes(self.world, self.pool)
        pods = CallPodSink(self.world, self.decisions, self._clock, self.pool, self.leases)
        switch = self._settings.switch_configmap
        if name := self._own.calls_lease:
            namespace, identity = self._settings.own_namespace, f"{socket.gethostname()}_{os.getpid()}"
            self.placer.owned = lambda: False  # until it is ours
            self._jobs["calls-lease"] = lambda: hold_calls(client, self.placer, namespace, name, identity, self._clock, self._own.pod_uid)
        more: dict[str, tuple[str, CountingSink]] = {}
        if (streams := self.streams) is not None:
            more = streams.watched()
            self._jobs["streams-lease"] = lambda: streams.hold(client)
        world, decisions, metrics, clock = self.world, self.decisions, self.metrics, self._wall
        return Watches(client, world, decisions, metrics, clock, switch, learned, loops=self.loops, nodes=nodes, pods=pods, more=more)

    async def _listen_hot(self) -> str:
        settings = self._settings
        streams = self.streams.binder if self.streams is not None else None
        throttle = Throttle(self._clock, streams.held_by if streams is not None else lambda _: 0)
        app = make_binder_app(
            self.placer,
            self.replies,
            self.tenants,
            self._binder_metrics,
            throttle=throttle,
            max_body_bytes=settings.max_body_bytes,
            streams=streams,
        )
        # who may forward a port to the pod is let in over loopback: no stranger's address is
        bounds = replace(self._bounds, loopback_is_free=True)
        front = Front(
            bounds, settings.max_body_bytes + _MARGIN_BYTES, self._context, self._count_refused, handshake_failures(self.metrics).tell
        )
        return self._listen(app, settings.host, settings.port, front)
