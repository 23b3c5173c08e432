"""One operator process: candidate, then leader, until it is told to stop or may not lead any more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Mapping
from typing import Any

from tiphys_models.api.learned_model import MODELS_PATH
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import Unavailable
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.backoff import Backoff
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.leases import Lease, LeaseLost, LeaseOptions
from tiphys_models.kube.prometheus import PrometheusClient
from tiphys_models.serving.bounds import ListenerBounds
from tiphys_models.serving.certificates import ServerCertificates, TrustedAuthority
from tiphys_operator.all_metrics import all_metrics
from tiphys_operator.cluster.watching import ClusterWatch
from tiphys_operator.gates.opener import SecondOpener
from tiphys_operator.hints.controller import HintsController
from tiphys_operator.metrics import ErrorReason
from tiphys_operator.object_guard import ObjectGuard
from tiphys_operator.placement.controller import PlacementController
from tiphys_operator.placement.decision_reader import DecisionReader
from tiphys_operator.placement.learned_check import LearnedCheck
from tiphys_operator.placement.models_found import ModelShelf
from tiphys_operator.placement.observer import POLICIES_PATH, Observer
from tiphys_operator.platforms.asking import InstanceReader
from tiphys_operator.platforms.controller import PlatformsController
from tiphys_operator.platforms.metrics import PlatformMetrics
from tiphys_operator.prometheus import prometheus_of
from tiphys_operator.records import make_records
from tiphys_operator.runtime.health import Health, beat
from tiphys_operator.runtime.kopf_watch import KopfWatch, SeenVersions
from tiphys_operator.runtime.leadership import Leadership
from tiphys_operator.runtime.permissions import WATCH_MODELS, WATCH_POLICIES, PermissionCheck, wanted_by
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.scaling.agents import AgentShelf
from tiphys_operator.scaling.controller import LOOP as SCALING
from tiphys_operator.scaling.controller import ScalingController
from tiphys_operator.scaling.intents import IntentKeys
from tiphys_operator.scaling.reach import reach_of
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.selection.checkpoint import Checkpoint
from tiphys_operator.selection.controller import SelectionController
from tiphys_operator.selection.prices import read_prices
from tiphys_operator.served_models import ServedModels
from tiphys_operator.settings import Settings
from tiphys_operator.status_server import StatusServer
from tiphys_operator.streams.controller import StreamsController
from tiphys_operator.streams.options import binding_options

log = logging.getLogger(__name__)

EXIT_LEASE_LOST = 75
EXIT_WATCH_ENDED = 76
EXIT_FAILED = 1
_PERMISSIONS_FIRST_S = 10.0
_PERMISSIONS_AGAIN_S = 60.0
_MODELS_AGAIN_S = 3.0
_MODELS_LATE_S = 120.0
_CRD_AGAIN_S = 2.0
_WATCH_AGAIN_S, _WATCH_AGAIN_MAX_S, _WATCH_STEADY_S = 1.0, 30.0, 60.0
_PULL_S = 10.0
_FIRST_PULL_S = 3.0


class Operator:
    """Everything of one process, put together."""

    def __init__(self, settings: Settings, access: ApiAccess, clock: Clock) -> None:
        self._settings, self._access, self._clock = settings, access, clock
        self._metrics = all_metrics()
        self._client = KubeClient(access, user_agent="tiphys-operator")
        options = LeaseOptions(
            settings.namespace, settings.lease_name, settings.identity, settings.lease_duration_s, settings.renew_s, settings.retry_s
        )
        self._lease = Lease(self._client, options, clock, on_error=lambda _: self._metrics.error(ErrorReason.LEASE))
        claim = (settings.claim_namespace, settings.claim_name) if settings.claim_namespace else None
        self._leadership = Leadership(self._lease, self._claim(claim), self._metrics)
        self._health = Health(clock, self._lease, settings.dead_after_s)
        self._metrics.show_loops(self._health.loops)
        self._permissions = PermissionCheck(self._client, wanted_by(settings, claim), self._metrics)
        self._prices = read_prices(settings.prices_file)
        self._prometheus: PrometheusClient | None = None
        if settings.prometheus_url:
            self._prometheus = prometheus_of(settings)
        self._transitions, self._records = TransitionLog(), make_records()
        self._authority = TrustedAuthority(settings.status_ca_file)
        self._certificates: ServerCertificates | None = None
        if settings.status_tls_cert_file is not None and settings.status_tls_key_file is not None:
            self._certificates = ServerCertificates(
                settings.status_tls_cert_file, settings.status_tls_key_file, None, on_expiry=self._metrics.certificate_expiry.set
            )
        self._intent_keys = IntentKeys(settings.intent_keys_file) if settings.scaling else None
        self._reader: DecisionReader | None = None
        if settings.extender_url:
            self._reader = DecisionReader(
                settings.extender_url,
                settings.sent_token_file,
                clock,
                authority=self._authority,
                on_error=self._metrics.pull_errors.inc,
                on_lost=self._metrics.lost.inc,
                guard=self._metrics.objects,
                beats=self._health.loops,
            )

    def _claim(self, where: tuple[str, str] | None) -> Lease | None:
        """The Lease of all releases; who holds it names its release first."""
        if where is None:
            return None
        own = self._settings
        identity = f"{own.namespace}/{own.lease_name}/{own.identity}"
        options = LeaseOptions(*where, identity, own.lease_duration_s, own.renew_s, own.retry_s)
        return Lease(self._client, options, self._clock, on_error=lambda _: self._metrics.error(ErrorReason.LEASE))

    async def run(self) -> int:
        """The process runs until SIGTERM or SIGINT (exit code 0), or until it must not go on (another code says why)."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._client)
            if self._prometheus is not None:
                await stack.enter_async_context(self._prometheus)
            if self._reader is not None:
                await stack.enter_async_context(self._reader)
            await stack.enter_async_context(
                StatusServer(
                    self._settings.status_host,
                    self._settings.status_port,
                    self._health,
                    self._metrics,
                    self._transitions,
                    self._settings.token_file,
                    transitions_token_file=self._settings.transitions_token_file,
                    bounds=ListenerBounds(
                        self._settings.max_connections,
                        self._settings.max_connections_per_peer,
                        self._settings.status_requests_per_second,
                    ),
                    certificates=self._certificates,
                    records=self._records,
                )
            )
            with contextlib.suppress(TimeoutError):
                # before anything is tried: kopf would retry a refused watch for a minute and then end the process
                await asyncio.wait_for(self._permissions.check_softly(), _PERMISSIONS_FIRST_S)
            tasks = [asyncio.create_task(beat(self._health, self._metrics)), asyncio.create_task(self._check_permissions())]
            if self._settings.gates_enabled:
                opener = SecondOpener(
                    self._client, self._metrics, self._clock, self._health.loops, self._settings.gates_longest_wait_s, self._permissions
                )
                tasks.append(asyncio.create_task(opener.keep_running()))  # whoever leads: a standby lets go pods, too
            try:
                return await self._campaign(stop)
            finally:
                await _cancelled(tasks)

    async def _campaign(self, stop: asyncio.Event) -> int:
        stopping = asyncio.create_task(stop.wait())
        acquiring = asyncio.create_task(self._leadership.acquire())
        try:
            await asyncio.wait((stopping, acquiring), return_when=asyncio.FIRST_COMPLETED)
            if not acquiring.done():
                return 0
            if (error := acquiring.exception()) is not None:
                return self._ended("lease", error)
            return await self._lead(stopping)
        finally:
            await _cancelled([stopping, acquiring])
            self._metrics.leader.set(0)
            self._health.leading_since_s = None
            await self._leadership.release()

    async def _lead(self, stopping: asyncio.Task[bool]) -> int:
        self._metrics.leader.set(1)
        self._health.leading_since_s = self._clock.monotonic_s()
        shelf = ModelShelf(self._settings.models_dir)
        guard = self._metrics.objects
        learned = LearnedCheck(self._client, self._settings.namespace, self._settings.models_dir, guard)
        writer = Writer(self._client, self._leadership, self._metrics, self._clock)
        watch = ClusterWatch(self._client, self._clock, self._metrics, self._health.loops, {SCALING} if self._settings.scaling else ())
        platforms = self._platforms(watch) if self._settings.knative else None
        hints = self._hints(watch, writer, platforms) if self._settings.hints else None
        checkpoint = Checkpoint(self._client, writer, self._settings.namespace, self._settings.selection_configmap)
        selection = SelectionController(
            self._client,
            writer,
            checkpoint,
            self._prices,
            self._metrics,
            self._clock,
            own_namespace=self._settings.namespace,
            scheduler_name=self._settings.scheduler_name,
            prometheus=self._prometheus,
            beats=self._health.loops,
            models=ServedModels(self._client, self._settings.namespace, self._settings.models_dir, self._clock, "selection"),
            records=self._records,
            watch=watch,
        )
        reconciler = PlacementController(
            Observer(
                self._client,
                shelf,
                learned,
                self._reader,
                self._settings.scheduler_name,
                self._clock,
                guard,
                watch,
            ),
            writer,
            self._reader,
            self._permissions,
            self._health,
            self._metrics,
            self._clock,
            own_namespace=self._settings.namespace,
            scheduler_name=self._settings.scheduler_name,
            resync_s=self._settings.resync_s,
            selection=selection,
            hints=hints,
        )
        selection.on_news = reconciler.wake
        holding = asyncio.create_task(self._leadership.hold(), name="lease")
        working = {
            asyncio.create_task(self._reconcile(reconciler), name="reconciler"),
            asyncio.create_task(self._watch(reconciler), name="watch"),
            asyncio.create_task(_watch_models(shelf, reconciler, guard, self._health.loops), name="models"),
            asyncio.create_task(selection.run(), name="selection"),
        }
        if platforms is not None:
            working.add(asyncio.create_task(platforms.run(), name="platforms"))
        if hints is not None:
            working.add(asyncio.create_task(hints.run(), name="hints"))
        if self._settings.scaling:
            agents = AgentShelf(self._client, self._settings.namespace, self._settings.models_dir, self._clock)
            scaling = ScalingController(
                self._client,
                writer,
                self._metrics,
                self._clock,
                agents,
                self._transitions,
                self._prometheus,
                reach_of(self._settings),
                self._intent_keys,
                beats=self._health.loops,
                records=self._records,
                watch=watch,
            )
            working.add(asyncio.create_task(scaling.run(), name="scaling"))
        if self._settings.binding:
            options = binding_options(self._settings, self._access.server, self._authority)
            binding = StreamsController(self._client, writer, self._metrics, self._clock, options, self._health.loops)
            working.add(asyncio.create_task(binding.run(), name="binding"))
        if self._reader is not None:
            pulling = self._reader.run(min(_PULL_S, self._settings.resync_s))
            working.add(asyncio.create_task(pulling, name="decisions"))
        try:
            await asyncio.wait({stopping, holding, *working}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancelled(working)  # writing ends before the Lease is given back
            await watch.close()
            await _cancelled([holding])
        if stopping.done():
            return 0
        for task in (holding, *working):
            if not task.cancelled() and (error := task.exception()) is not None:
                return self._ended(task.get_name(), error)
        return EXIT_FAILED

    def _platforms(self, watch: ClusterWatch) -> PlatformsController:
        metrics = self._metrics.part(PlatformMetrics)
        interval_s, label = self._settings.knative_interval_s, self._settings.node_label
        return PlatformsController(
            watch, InstanceReader(metrics), metrics, self._clock, interval_s=interval_s, node_label=label, beats=self._health.loops
        )

    def _hints(self, watch: ClusterWatch, writer: Writer, platforms: PlatformsController | None) -> HintsController:
        known = {"calls_of": platforms.calls.of} if platforms is not None else {}
        return HintsController(
            self._client, writer, watch, self._permissions, self._metrics, self._clock, self._health.loops,
            own_namespace=self._settings.namespace, scheduler_name=self._settings.scheduler_name,
            namespaces=self._settings.hints_namespaces, **known,
        )  # fmt: skip

    def _ended(self, part: str, error: BaseException) -> int:
        fields = {"part": part, "error": f"{type(error).__name__}: {error}"}
        if isinstance(error, LeaseLost):
            self._metrics.error(ErrorReason.LEASE)
            log.error("the Lease is lost: this process ends and starts again as a candidate", extra={"fields": fields})
            return EXIT_LEASE_LOST
        if part == "watch":
            self._metrics.error(ErrorReason.WATCH_ENDED)
            log.error("the watch ended: this process ends and starts again", extra={"fields": fields})
            return EXIT_WATCH_ENDED
        self._metrics.error(ErrorReason.INTERNAL)
        log.error("a part failed that never should", extra={"fields": fields}, exc_info=error)
        return EXIT_FAILED

    async def _reconcile(self, reconciler: PlacementController) -> None:
        if self._reader is not None:
            # a first round that does not know yet which models serve might report a degradation that is none
            await self._reader.first_pull(_FIRST_PULL_S)
        await reconciler.run()

    async def _watch(self, reconciler: PlacementController) -> None:
        """kopf, made anew after a pause whenever it ends: it does so for any refusal but "later", and reconciling goes on without it."""
        backoff = Backoff(_WATCH_AGAIN_S, _WATCH_AGAIN_MAX_S)
        seen = SeenVersions(self._clock)
        while True:
            began_s = self._clock.monotonic_s()
            error = await self._watch_once(reconciler, seen)
            self._metrics.error(ErrorReason.WATCH_ENDED)
            if self._clock.monotonic_s() - began_s >= _WATCH_STEADY_S:
                backoff.reset()
            pause_s = backoff.next_s()
            fields = {"error": f"{type(error).__name__}: {error}", "pause": round(pause_s, 1)}
            log.warning("the watch ended and is made again", extra={"fields": fields})
            await asyncio.sleep(pause_s)

    async def _watch_once(self, reconciler: PlacementController, seen: SeenVersions) -> BaseException | None:
        """Why kopf ended. It starts as soon as it can work: it would end for a missing CRD or verb, and we would not know why."""
        while not await self._watchable():  # noqa: ASYNC110 - others grant and install
            await asyncio.sleep(_CRD_AGAIN_S)
        self._health.watch = seen

        def deliver(kind: str | None, obj: Mapping[str, Any]) -> None:
            self._metrics.last_event.set(self._clock.now_s())
            if seen.event(kind, obj):
                reconciler.wake()

        watch = KopfWatch(self._access, asyncio.get_running_loop(), deliver)
        watch.start()
        try:
            await asyncio.wait({watch.ended})
        finally:
            self._health.watch = None
            stopped = await watch.stop()
        if not stopped:
            raise Unavailable("kopf ended and its thread did not: two would be one too many")
        return watch.ended.exception()

    async def _watchable(self) -> bool:
        if not (self._permissions.allows(WATCH_POLICIES) and self._permissions.allows(WATCH_MODELS)):
            return False
        try:
            for path in (POLICIES_PATH, MODELS_PATH):
                await self._client.get(path, {"limit": "1"})
        except ApiError as error:
            log.debug("policies or models are not served", extra={"fields": {"error": str(error)}})
            return False
        except Unavailable:
            return False
        return True

    async def _check_permissions(self) -> None:
        while True:
            await asyncio.sleep(_PERMISSIONS_AGAIN_S)
            with self._metrics.objects.over("Permission", "own", ""):
                await self._permissions.check_softly()


async def _watch_models(shelf: ModelShelf, reconciler: PlacementController, guard: ObjectGuard, beats: Heartbeats) -> None:
    """Wake the loop when an artifact comes, changes or goes."""
    beats.expect("mounted-models", _MODELS_LATE_S)
    former: object = None
    while True:
        with guard.over("ModelArtifact", "mounted", ""):  # a volume may go away or be unreadable for a while
            stamps = await asyncio.to_thread(shelf.stamps)
            if former is not None and stamps != former:
                reconciler.wake()
            former = stamps
        beats.beat("mounted-models")
        await asyncio.sleep(_MODELS_AGAIN_S)


async def _cancelled(tasks: Any) -> None:
    """Cancel and wait; what they raise was asked for or is reported elsewhere."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
