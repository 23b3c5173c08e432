"""Everything of streams that runs in a binder's process, wired once."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

from tiphys_extender.binder_settings import PREFIX, BinderSettings
from tiphys_extender.serve.caller_metrics import CallerMetrics
from tiphys_extender.serve.loops import Loops
from tiphys_extender.settings import PREFIX as SHARED_PREFIX
from tiphys_extender.settings import Settings
from tiphys_extender.status_app import Page
from tiphys_extender.streams.binder import StreamBinder
from tiphys_extender.streams.chooser import Chooser, Weights
from tiphys_extender.streams.metrics import StreamMetrics
from tiphys_extender.streams.objects import StreamObjects, put_file
from tiphys_extender.streams.others import LOADS, OtherBinders
from tiphys_extender.streams.site_lease import hold_site
from tiphys_extender.streams.tokens import KeyFile
from tiphys_models.artifacts.store import Store
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import InvalidInput
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.reflector import CountingSink
from tiphys_models.seats.pages import PAGE_MAX
from tiphys_models.serving.bearer import BearerTokens
from tiphys_models.serving.certificates import TrustedAuthority

_PERIOD_S = 0.5
_LONGEST_WINDOW_S = 60.0
_TICK, _WINDOWS = "streams", "streams-windows"
_TICKS_PER_COMPILE = 60
"""Measured delays grow old without an event."""


class StreamService:
    """The stream binder of one access site, and what feeds it."""

    def __init__(
        self,
        settings: Settings,
        own: BinderSettings,
        metrics: CallerMetrics,
        of_streams: StreamMetrics,
        clock: Clock,
        loops: Loops,
        models: Store,
    ) -> None:
        namespace = own.streams_namespace or settings.own_namespace
        if own.lease_keys_file is None or not (namespace or own.stream_objects):
            raise InvalidInput(
                f"an access site needs {PREFIX}LEASE_KEYS_FILE, and {PREFIX}STREAMS_NAMESPACE or {SHARED_PREFIX}OWN_NAMESPACE"
            )
        self._keys = KeyFile(own.lease_keys_file)
        self._file, self._clock, self._pod_uid = own.stream_objects, clock, own.pod_uid
        weights = Weights(models)
        chooser = Chooser(weights.load, weights.stamp)
        self.binder = StreamBinder(own.access_site, namespace or "default", lambda: self._keys.keys, chooser, of_streams, clock)
        self.objects = StreamObjects(self.binder, clock, lambda kind: metrics.watch_errors[kind, "bad-object"].inc())
        self._loops = loops
        self.jobs: dict[str, Callable[[], Awaitable[None]]] = {_TICK: self._tick, _WINDOWS: self._windows}
        self.limits_s = {_TICK: 30.0, _WINDOWS: 3 * _LONGEST_WINDOW_S}
        self.pages: dict[str, Page] = {
            "/v1/bindings/summary": lambda _: self.binder.summary().model_dump(mode="json", by_alias=True),
            "/v1/bindings/decisions": lambda after: self.binder.seat.records.after(after, PAGE_MAX),
            LOADS: lambda _: self.binder.loads(),
        }
        others = [url.rstrip("/") for url in own.other_binders.split(",") if url]
        if others and settings.token_file is None and settings.loads_token_file is None:
            raise InvalidInput(f"{PREFIX}OTHER_BINDERS needs {SHARED_PREFIX}LOADS_TOKEN_FILE or {SHARED_PREFIX}TOKEN_FILE")
        if others:
            tokens = BearerTokens("", settings.loads_token_file, settings.token_file)
            asked = OtherBinders(self.binder, others, tokens, TrustedAuthority(settings.status_ca_file))
            self.binder.others_known = lambda: asked.known
            self.jobs["streams-others"] = asked.run

    def from_file(self) -> bool:
        """Read the objects where they are in a file: there is no API server then, and nobody else who could bind.

        Nor is there a Lease in which a former life could have left word: that it kept to its ceiling is taken for granted, which is
        wrong if it was killed while, or not long after, it recovered itself.
        """
        if self._file is None:
            return False
        put_file(self.objects, self._file)
        self.objects.compile()
        self.binder.activate(lambda: True, recover=True, promised=0.0)
        return True

    def watched(self) -> dict[str, tuple[str, CountingSink]]:
        """What is to be watched where there is an API server."""
        return dict(self.objects.watched())

    async def hold(self, client: KubeClient) -> None:
        """Try to be the one that binds for the access site, until cancelled."""
        await hold_site(client, self.binder, f"{socket.gethostname()}_{os.getpid()}", self._clock, self._pod_uid)

    async def _tick(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(_PERIOD_S)
            ticks += 1
            self._keys.reload_if_changed()
            if ticks % _TICKS_PER_COMPILE == 0:
                self.objects.compile()
            self.binder.tick()
            self._loops.beat(_TICK)

    async def _windows(self) -> None:
        while True:
            length_s = self.binder.turn()
            self._loops.beat(_WINDOWS)
            await asyncio.sleep(length_s)
