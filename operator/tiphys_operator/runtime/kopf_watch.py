"""kopf's watch on policies and models. It only wakes: `on.event` handlers write nothing, unlike timers and daemons (a finalizer) or create
and update handlers (an annotation), see kopf's `processing.py`.

kopf runs in a thread with an event loop of its own, because at its end it cancels every task of its loop that started after it
(`kopf.operator`, "hung tasks"), and because it would take over the signal handlers of the main thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import math
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf

from tiphys_models.api.base import GROUP, VERSION
from tiphys_models.api.learned_model import PLURAL as MODELS
from tiphys_models.api.scheduling_policy import PLURAL
from tiphys_models.base.clock import Clock
from tiphys_models.kube.access import ApiAccess

log = logging.getLogger(__name__)

_STOP_TIMEOUT_S = 10.0
_CANCEL_AGAIN_S = 0.5
_WATCH_TASKS = "watcher for "  # as kopf's orchestrator names them
_LOGIN_AGAIN_S = 300.0  # a bound token is replaced on disk after 80 % of an hour


class SeenVersions:
    """Which version of each object the watch delivered last, and whether it falls behind what lists show.

    kopf reconnects a silent watch itself after 70 s, and ends on an ERROR event. This is the check from outside that notices whatever else
    may happen: a version that a list shows and the watch does not deliver within `grace_s`.
    """

    def __init__(self, clock: Clock, grace_s: float = 120.0) -> None:
        self._clock, self._grace_s = clock, grace_s
        self._seen: dict[str, tuple[str, int]] = {}
        self._behind: dict[str, tuple[str, float]] = {}
        self._event_s = -math.inf

    def event(self, kind: str | None, obj: Mapping[str, Any]) -> bool:
        """Take an event of the watch; whether it is worth a reconciliation. A new status, our own above all, is not."""
        self._event_s = self._clock.monotonic_s()
        metadata = obj["metadata"]
        uid, generation = metadata["uid"], int(metadata.get("generation") or 0)
        if kind == "DELETED":
            self._seen.pop(uid, None)
            return True
        former = self._seen.get(uid)
        self._seen[uid] = (metadata.get("resourceVersion") or "", generation)
        return former is None or former[1] != generation or bool(metadata.get("deletionTimestamp"))

    def listed(self, versions: Mapping[str, str]) -> None:
        """Take what a list showed: resourceVersion by uid."""
        now_s = self._clock.monotonic_s()
        behind = {}
        for uid, version in versions.items():
            if self._seen.get(uid, ("", 0))[0] == version:
                continue
            former = self._behind.get(uid)
            # another version than at the last list: the watch has its grace anew
            behind[uid] = former if former is not None and former[0] == version else (version, now_s)
        self._behind = behind

    def dead(self) -> bool:
        """Whether a version has been missing for longer than the grace, and nothing else came either: one object proves nothing."""
        now_s = self._clock.monotonic_s()
        return any(now_s - since_s > self._grace_s and self._event_s <= since_s for _, since_s in self._behind.values())


class _NoNotes(kopf.DiffBaseStorage):
    """kopf would read what it noted in an object's annotations, and skip an object in which somebody else wrote nonsense there."""

    def build(self, *, body: kopf.Body, extra_fields: Any = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        return


class _NoProgress(kopf.ProgressStorage):
    """Handlers of raw events have no progress, so there is nothing to be read."""

    def fetch(self, *, key: Any, body: kopf.Body) -> None:
        return None

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        return

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        return

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        return

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


class KopfWatch:
    """kopf in its thread; `ended` is done as soon as it stops, with its exception if it failed."""

    def __init__(
        self,
        access: ApiAccess,
        loop: asyncio.AbstractEventLoop,
        on_event: Callable[[str | None, Mapping[str, Any]], None],
        inactivity_s: float = 70.0,
        retry_delays_s: tuple[float, ...] = (1, 1, 2, 3, 5, 8, 13, 21),
        reconnect_s: float = 3.0,
    ) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop, self._on_event = loop, on_event
        self._settings = _settings(inactivity_s, retry_delays_s, reconnect_s)
        self._stop = threading.Event()
        self._registry = _registry(access, self._deliver)
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        """The thread that runs kopf starts."""
        self._thread.start()

    async def stop(self) -> bool:
        """End the thread; whether it did. After a deadline it is left to die with the process."""
        self._stop.set()
        if self._thread.is_alive():
            with contextlib.suppress(concurrent.futures.TimeoutError):
                await asyncio.wait_for(asyncio.to_thread(self._thread.join, _STOP_TIMEOUT_S), _STOP_TIMEOUT_S + 1)
        if self._thread.is_alive():
            log.warning("kopf did not stop within %.0f s", _STOP_TIMEOUT_S)
        return not self._thread.is_alive()

    def _deliver(self, kind: str | None, obj: Mapping[str, Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the main loop is closed: nobody to wake
            self._loop.call_soon_threadsafe(self._on_event, kind, obj)

    def _run(self) -> None:
        asyncio.run(self._operate())

    async def _operate(self) -> None:
        failure: BaseException | None = None
        tasks: Collection[asyncio.Task[Any]] = ()
        asyncio.get_running_loop().set_exception_handler(_not_twice)
        try:
            tasks = await kopf.spawn_tasks(
                registry=self._registry,
                settings=self._settings,
                clusterwide=True,
                standalone=True,
                stop_flag=self._stop,
            )
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            failure = next(filter(None, (task.exception() for task in done if not task.cancelled())), None)
        except Exception as error:  # noqa: BLE001 - whatever ended kopf ends the process, with its reason
            failure = error
        # kopf waits for the flag in a thread of this loop's pool; unset, it would keep the loop, and us, from ending
        self._stop.set()
        # said before kopf ends: the process does not depend on how long it takes what is left of kopf
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish, failure)
        await _end(tasks)

    def _finish(self, failure: BaseException | None) -> None:
        if self.ended.done():
            return
        if failure is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(failure)


def _not_twice(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The handler drops the second of two failures: kopf logs both, raises one; asyncio would log the other when its task is collected."""
    if "never retrieved" in context["message"]:
        log.debug("a task of kopf's failed beside another", extra={"fields": {"error": repr(context.get("exception"))}})
    else:
        loop.default_exception_handler(context)


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """End kopf, its watches first and however often they must be told.

    When a watch fails, kopf leaves the others running, closes their session, and after 5 s cancels them once, together with the tasks that
    would tell them to pause. A watch that waits for an answer just then takes it for a pause and goes on; kopf would wait for it for ever.
    """
    while watches := {task for task in asyncio.all_tasks() if task.get_name().startswith(_WATCH_TASKS)}:
        for watch in watches:
            watch.cancel()
        await asyncio.wait(watches, timeout=_CANCEL_AGAIN_S)
    with contextlib.suppress(Exception):  # it raises what ended it once more
        await kopf.run_tasks(tasks)


def _registry(access: ApiAccess, deliver: Callable[[str | None, Mapping[str, Any]], None]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        token = await asyncio.to_thread(_token, access)
        return kopf.ConnectionInfo(
            server=access.server,
            ca_data=access.ca_pem,
            token=token,
            certificate_path=access.client_cert_file,
            private_key_path=access.client_key_file,
            expiration=datetime.now(UTC) + timedelta(seconds=_LOGIN_AGAIN_S) if access.token_file else None,
        )

    async def on_object(event: Mapping[str, Any], **_: Any) -> None:
        obj = event["object"]
        deliver(event["type"], {"metadata": dict(obj["metadata"])})

    kopf.on.login(registry=registry)(log_in)
    for plural in (PLURAL, MODELS):
        kopf.on.event(group=GROUP, version=VERSION, plural=plural, registry=registry)(on_object)
    return registry


def _token(access: ApiAccess) -> str | None:
    value = access.headers().get("Authorization", "")
    return value.removeprefix("Bearer ") or None


def _settings(inactivity_s: float, retry_delays_s: tuple[float, ...], reconnect_s: float) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.watching.server_timeout = 600
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = inactivity_s  # the API server sends a bookmark every minute
    settings.watching.chunk_size = 500
    settings.watching.reconnect_backoff = reconnect_s  # never longer: at its 0.1 s a "too old" said again and again is 20 lists a second
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = retry_delays_s  # together less than the inactivity, which cuts them off otherwise
    settings.queueing.error_delays = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 60)
    settings.persistence.diffbase_storage = _NoNotes()
    settings.persistence.progress_storage = _NoProgress()
    settings.posting.enabled = False  # Events are ours, with fixed reasons
    settings.scanning.disabled = True  # two known resources: no right to list CRDs and namespaces is needed
    settings.process.ultimate_exiting_timeout = None  # ending the process is not kopf's to decide
    return settings
