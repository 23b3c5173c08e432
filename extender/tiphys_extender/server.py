"""The process: three listeners, watches, readings and a tick in one event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

import uvloop
from starlette.types import ASGIApp

from tiphys_extender.learned_models import LearnedModels
from tiphys_extender.model_store import PLACEMENT, ModelStore
from tiphys_extender.placement.answer import Answerer, AnswerLimits
from tiphys_extender.placement.checkpoint_file import CHECKPOINT, CHECKPOINT_LIMIT_S, CheckpointFile
from tiphys_extender.placement.decide import World
from tiphys_extender.placement.decision_file import DecisionFile
from tiphys_extender.placement.decisions import DecisionLog
from tiphys_extender.placement.hot_listener import HotListener, HotRoutes
from tiphys_extender.placement.objects import PodSink
from tiphys_extender.placement.pod_cpu import PodCpu
from tiphys_extender.placement.readings import FixedReadings, PrometheusReadings, readings_from_file
from tiphys_extender.placement.waited import Gates
from tiphys_extender.serve.http_protocol import BoundedServer, Front, open_listener
from tiphys_extender.serve.loops import TICKER, Loops
from tiphys_extender.serve.metrics import Metrics
from tiphys_extender.serve.tls import ServerTls, StatusTls, handshake_failures
from tiphys_extender.serve.watchdog import Watchdog
from tiphys_extender.settings import PREFIX, Settings, read_settings
from tiphys_extender.snapshot_source import load_snapshot
from tiphys_extender.status_app import ExplainStream, Health, Page, StatusTokens, make_explain_app, make_status_app
from tiphys_extender.ticker import Ticker
from tiphys_extender.watches import Watches
from tiphys_models.artifacts.files import directories
from tiphys_models.base.clock import Clock, SteadyClock, SystemClock
from tiphys_models.base.errors import InvalidInput, TiphysError
from tiphys_models.kube.access import find_access
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.prometheus import Asker, PrometheusClient, Provenance
from tiphys_models.placement import checkpoint
from tiphys_models.placement.state import PlacementState, StateLimits
from tiphys_models.serving.bearer import BearerTokens
from tiphys_models.serving.bounds import REFUSALS, ListenerBounds
from tiphys_models.serving.logs import set_up

_log = logging.getLogger(__name__)
_QUIET = dict.fromkeys(("uvicorn", "uvicorn.error", "asyncio"), logging.WARNING)

_DRAIN_S = 5
_NOTICE_S = 0.3  # readiness off before connections go
_LONGEST_READING_AGE_S = 3600.0  # what a policy may ask for at most; the policy's own limit is applied to every decision

_MODELS_LIMIT_S = 180.0  # fetching one has deadlines of its own, and every one that is fetched counts
_READINGS_LIMIT_S = 60.0
LEARNED_PATH = "/v1/learned"

EXIT_BAD_SETTINGS = 2
EXIT_FAILED = 1


def run(make: Callable[[Settings, Clock], Parts] | None = None) -> int:
    """The whole life of the process; its exit code."""
    try:
        settings = read_settings()
    except InvalidInput as error:
        set_up("info", _QUIET)
        _log.error("cannot start", extra={"fields": {"why": str(error)}})
        return EXIT_BAD_SETTINGS
    set_up(settings.log_level, _QUIET)
    try:
        return uvloop.run(_serve((make or Parts)(settings, SystemClock())))
    except TiphysError as error:
        _log.error("cannot start", extra={"fields": {"why": str(error)}})
        return EXIT_BAD_SETTINGS


async def _serve(parts: Parts) -> int:
    async with AsyncExitStack() as stack:
        await parts.open(stack)
        return await parts.run()


class Parts:
    """Everything that runs, wired once."""

    service = "extender"
    systems: Collection[str] = PLACEMENT
    """Whose models it holds."""
    asked = "prioritize"
    """What the listener that decides is called in the log."""

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics | None = None) -> None:
        # what counts here counts for as long as it was meant to, whoever sets the wall clock
        self._settings, self._wall = settings, clock
        self._clock = clock = SteadyClock(clock)
        self.metrics = metrics or Metrics()
        self.models = ModelStore(settings.models_dir, self.metrics, settings.scrape_window_s, directories(), self.systems)
        limits = StateLimits(
            settings.reservation_ttl_s,
            max_reading_age_s=_LONGEST_READING_AGE_S,
            most_functions=settings.max_functions,
            most_images=settings.max_images,
        )
        state = PlacementState(limits)
        self.models.profiles_published = state.functions.publish
        self.world = World(state, self.models, scheduler_name=settings.scheduler_name, own_namespace=settings.own_namespace)
        series = settings.prometheus_pod_cpu_series if settings.prometheus_url else ""
        self.pod_cpu = PodCpu(self.world, self.metrics, series) if series else None
        self.file = DecisionFile(settings.decision_log_dir, settings.decision_log_max) if settings.decision_log_dir else None
        self.checkpoint = CheckpointFile(settings.state_dir, state, self.metrics, clock) if settings.state_dir else None
        restored = self.file.read() if self.file is not None else []
        self.decisions = DecisionLog(settings.decision_log_max, self.metrics, restored)
        answers = AnswerLimits(settings.deadline_ms / 1000, settings.max_names)
        self.answerer = Answerer(self.world, self.decisions, self.metrics, clock, answers)
        self.watchdog = Watchdog(settings.stall_limit_s)
        self.watches: Watches | None = None
        self.loops = Loops(self.metrics, clock)
        self.health = Health(self._missing, self.loops)
        self.tls: ServerTls | None = None
        self.status_tls: StatusTls | None = None
        self._jobs: dict[str, Callable[[], Awaitable[None]]] = {}
        """Jobs by the name of their loop; each is started again when it fails."""
        if (kept := self.checkpoint) is not None:
            kept.recall()
            beat = self._beats(CHECKPOINT, CHECKPOINT_LIMIT_S)
            self._jobs[CHECKPOINT] = lambda: kept.run(beat)
        self._servers: list[BoundedServer] = []
        self._hot: HotListener | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        """Sources, certificates and listeners; TiphysError says what is wrong with the settings."""
        settings = self._settings
        self.models.rescan_now()
        await self._open_sources(stack)
        if settings.tls_cert_file is not None and settings.tls_key_file is not None:
            self.tls = ServerTls(settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file, self.metrics)
        if settings.status_tls_cert_file is not None and settings.status_tls_key_file is not None:
            self.status_tls = StatusTls(settings.status_tls_cert_file, settings.status_tls_key_file, self.metrics)
        await self._open_listeners()

    async def run(self) -> int:
        """Run until a signal (returns 0) or until a part fails (returns 1)."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        ticker = Ticker(self.world, self.decisions, self.metrics, self.models, self.answerer, self.watchdog, self._clock, self.loops)
        ticker.watches, ticker.file = self.watches, self.file
        ticker.certificates = [tls for tls in (self.tls, self.status_tls) if tls is not None]
        await ticker.tick()
        self.watchdog.start()
        calm_garbage_collection()
        kept = {TICKER: ticker.run, **self._jobs}
        jobs = [asyncio.ensure_future(self.watchdog.beat()), *(asyncio.ensure_future(self.loops.keep(*job)) for job in kept.items())]
        serving = [asyncio.ensure_future(server.serve()) for server in self._servers]
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([stopped, *jobs, *serving], return_when=asyncio.FIRST_COMPLETED)
            failed = _report_failures([*jobs, *serving])
            self.health.stopping = True
            if stop.is_set():
                _log.info("stopping")
                await asyncio.sleep(_NOTICE_S)
            for server in self._servers:
                server.should_exit = True
            if self._hot is not None:
                await self._hot.stop(_DRAIN_S)
            await asyncio.wait(serving, timeout=_DRAIN_S + 2)
        finally:
            self.watchdog.stop()
            for task in (stopped, *jobs, *serving):
                task.cancel()
            await asyncio.gather(stopped, *jobs, *serving, return_exceptions=True)
            self.answerer.settle()
            await ticker.flush()
            if self.checkpoint is not None:
                await self.checkpoint.save()
        return EXIT_FAILED if failed else 0

    def _missing(self) -> tuple[str, ...]:
        if self.watches is None:
            return ()
        missing = self.watches.missing
        if not missing and not self.world.synced:
            # The next tick would come up to a second later: whoever reads "ready" must not be answered "not synced".
            self.watches.publish()
        return missing

    def _nodes_listed(self) -> bool:
        return "nodes" not in self._missing()

    async def _open_sources(self, stack: AsyncExitStack) -> None:
        settings, state, metrics, clock = self._settings, self.world.state, self.metrics, self._clock
        fixed = readings_from_file(settings.readings_file) if settings.readings_file is not None else None
        if settings.snapshot is not None:
            fixed = load_snapshot(settings.snapshot, self.world, metrics, clock)
        else:
            client = await stack.enter_async_context(
                KubeClient(find_access(account_dir=settings.account_dir), user_agent=f"tiphys-{self.service}")
            )
            learned = None
            if settings.own_namespace:
                learned = LearnedModels(
                    client, self.models, metrics, settings.own_namespace, settings.models_dir, beat=self._beats("models", _MODELS_LIMIT_S)
                )
                self._jobs["models"] = learned.run
            self.watches = self._make_watches(client, learned)
            self._jobs["watches"] = self.watches.run
        if fixed is not None:
            readings = FixedReadings(*fixed, state, metrics, clock, settings.readings_interval_s, self._nodes_listed)
            readings.put()
            self._jobs["readings"] = readings.run
        elif settings.prometheus_url:
            prometheus = await stack.enter_async_context(
                PrometheusClient(
                    settings.prometheus_url,
                    window_s=settings.scrape_window_s,
                    node_label=settings.node_label,
                    asker=Asker(settings.prometheus_headers),
                    provenance=Provenance(settings.prometheus_node_matchers, settings.prometheus_runtime_matchers),
                )
            )
            interval_s = settings.readings_interval_s
            beat = self._beats("readings", _READINGS_LIMIT_S + 3 * interval_s)
            listed = self._nodes_listed
            self._jobs["readings"] = PrometheusReadings(prometheus, state, metrics, clock, interval_s, listed, beat, self.pod_cpu).run

    def _beats(self, loop: str, limit_s: float) -> Callable[[], None]:
        """Expect the loop to beat from now on; how it does."""
        self.loops.expect(loop, limit_s)
        return lambda: self.loops.beat(loop)

    def _make_watches(self, client: KubeClient, learned: LearnedModels | None) -> Watches:
        switch = self._settings.switch_configmap
        pods = PodSink(self.world, self.decisions, self._clock, self.pod_cpu)
        return Watches(client, self.world, self.decisions, self.metrics, self._wall, switch, learned, loops=self.loops, pods=pods)

    def _pages(self) -> Mapping[str, Page]:
        """What the status listener serves besides."""
        return self._learned_page()

    def _learned_page(self) -> Mapping[str, Page]:
        return {LEARNED_PATH: lambda _: checkpoint.served(self.world.state, self._clock.now_s())}

    def _explain_stream(self) -> ExplainStream | None:
        """Function that explains a stream; None: this process binds none."""
        return None

    def _probes(self) -> Mapping[str, Callable[[], str]]:
        """Paths of the status listener that say whether something else than answers is ready, and why not."""
        return {}

    @property
    def _gates(self) -> Gates | None:
        """Pods that wait behind a gate; None: this process opens none."""
        return None

    async def _open_listeners(self) -> None:
        settings, settle = self._settings, self.answerer.settle
        tokens = status_tokens(settings)
        status = make_status_app(self.metrics, self.health, self.decisions, self.models, tokens, settle, self._pages(), self._probes())
        explained = make_explain_app(
            self.world, self.decisions, self.models, self.health, self._clock.now_s(), settle, self._explain_stream(),
            self._learned_page(), self._gates,
        )  # fmt: skip
        addresses = {
            self.asked: await self._listen_hot(),
            "status": self._listen(
                status,
                settings.status_host,
                settings.status_port,
                Front(
                    replace(self._bounds, per_second=settings.status_requests_per_second),
                    tls=lambda: self.status_tls.context if self.status_tls is not None else None,
                    count=self._count_refused,
                    handshake_failed=handshake_failures(self.metrics).tell,
                ),
            ),
            "explain": self._listen(explained, "127.0.0.1", settings.explain_port, Front(self._bounds, count=self._count_refused)),
        }
        _log.info("listening", extra={"fields": {**addresses, "tls": self.tls is not None, "pid": os.getpid()}})

    async def _listen_hot(self) -> str:
        settings = self._settings
        listener = _bound(settings.host, settings.port)
        routes = HotRoutes(self.answerer, self.metrics, max_body_bytes=settings.max_body_bytes, expose_floor=settings.expose_floor)
        self._hot = HotListener(routes)
        self._hot.start(listener, replace(self._bounds, loopback_is_free=True), self._context)
        return _url(listener, "https" if self.tls else "http")

    def _listen(self, app: ASGIApp, host: str, port: int, front: Front) -> str:
        listener = _bound(host, port)
        self._servers.append(BoundedServer(app, listener, front))
        return _url(listener, "https" if front.tls() is not None else "http")

    @property
    def _bounds(self) -> ListenerBounds:
        return ListenerBounds(self._settings.max_connections, self._settings.max_connections_per_peer)

    def _context(self) -> ssl.SSLContext | None:
        """TLS context for the next connection of the listener that decides."""
        return self.tls.context if self.tls is not None else None

    def _count_refused(self, status: int) -> None:
        self.metrics.bad_requests[REFUSALS.get(status, "not-http")].inc()
        self.metrics.requests[str(status)].inc()


def status_tokens(settings: Settings) -> StatusTokens:
    """One purpose's own token, and the one that is for all."""
    return StatusTokens(
        BearerTokens(f"{PREFIX}DECISIONS_TOKEN_FILE or {PREFIX}TOKEN_FILE", settings.decisions_token_file, settings.token_file),
        BearerTokens(f"{PREFIX}LOADS_TOKEN_FILE or {PREFIX}TOKEN_FILE", settings.loads_token_file, settings.token_file),
    )


def _bound(host: str, port: int) -> socket.socket:
    try:
        return open_listener(host, port)
    except OSError as error:
        raise InvalidInput(f"cannot listen on {host}:{port}: {error.strerror}; choose another port") from error


def _url(listener: socket.socket, scheme: str) -> str:
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def calm_garbage_collection() -> None:
    """Thousands of nodes, pods and decisions live long: looking through them again and again was 6 % of the processor time of a burst."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _report_failures(tasks: list[asyncio.Future[None]]) -> bool:
    failed = False
    for task in tasks:
        if task.done() and not task.cancelled():
            failed = True
            _log.error("a part of the process ended", exc_info=task.exception())
    return failed
