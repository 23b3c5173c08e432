"""The watches of one loop under supervision: whoever waits for a first list hears when its watch has ended instead."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Mapping

from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import TiphysError, Unavailable
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.guard import GuardedSink, said
from tiphys_models.kube.reflector import Reflector, Sink
from tiphys_operator.metrics import OperatorMetrics

log = logging.getLogger(__name__)

WATCH_LATE_S = 240.0
"""The API server sends a bookmark about every minute, and a silent connection is given up after 75 s."""
_REFUSED = (403, 404)
_SILENT_S = 90.0
"""A bookmark comes about every minute."""
_LOOK_S = 5.0
_BACKOFF_START_S, _BACKOFF_MAX_S = 0.5, 30.0
_ENDS_MAX = 8
"""So many unexpected ends in a row, without a first list in between, and starting again does not help."""


class WatchBroken(TiphysError):
    """A watch that ends again and again for an unexpected reason: only a new process can help then."""


class Watch:
    """One resource's watch, started again when it ends by a mistake."""

    def __init__(self, name: str, make: Callable[[], Reflector]) -> None:
        self.name, self._make = name, make
        self.synced = asyncio.Event()
        """Whether everything was listed once."""
        self._reflector: Reflector | None = None
        self._refused: tuple[float, ApiError] | None = None
        self.task: asyncio.Task[None] | None = None

    def tells(self, now_s: float) -> bool:
        """Whether what it has shown is what is there, as far as anybody can know."""
        heard_s = self._reflector.last_activity_s if self._reflector is not None else -math.inf
        return self.synced.is_set() and self.refused is None and now_s - heard_s < _SILENT_S

    @property
    def refused(self) -> ApiError | None:
        """Why the API server does not let us look; None if it does, as far as we know."""
        if self._refused is None or self._reflector is None or self._reflector.last_activity_s > self._refused[0]:
            return None
        return self._refused[1]

    def was_refused(self, error: ApiError, now_s: float) -> None:
        """The API server refused the watch, or does not know the kind."""
        self._refused = now_s, error

    def made(self) -> Reflector:
        """The reflector with nothing read yet; it tells of its first list where the former did."""
        reflector = self._reflector = self._make()
        reflector.synced = self.synced
        return reflector


class Watches:
    """All watches of one loop."""

    def __init__(
        self, loop: str, client: KubeClient, clock: Clock, metrics: OperatorMetrics, beats: Heartbeats,
        on_error: Callable[[str, Unavailable], None], on_end: Callable[[], None],
    ) -> None:  # fmt: skip
        self._loop, self._client, self._clock, self._metrics, self._beats = loop, client, clock, metrics, beats
        self._on_error, self._on_end = on_error, on_end
        self._watches: list[Watch] = []

    def start(self, kind: str, path: str, sink: Sink, params: Mapping[str, str] | None = None) -> Watch:
        """Begin to watch objects of one kind."""
        name = f"watch-{self._loop}-{path.rpartition('/')[2]}"
        guarded = GuardedSink(kind, sink, self._metrics.objects)

        def failed(where: str, error: Unavailable) -> None:
            if isinstance(error, ApiError) and error.status in _REFUSED:
                self._beats.beat(name)  # a refusal is an answer: the watch lives, and missing rights have a metric of their own
                watch.was_refused(error, self._clock.monotonic_s())
            self._on_error(where, error)

        def make() -> Reflector:
            return Reflector(self._client, path, guarded, self._clock, params=params, on_error=failed)

        watch = Watch(name, make)
        self._beats.expect(name, WATCH_LATE_S)
        watch.task = asyncio.create_task(self._supervise(watch), name=name)
        watch.task.add_done_callback(lambda _: self._on_end())
        self._watches.append(watch)
        return watch

    async def synced(self, *watches: Watch, at_most_s: float | None = None) -> bool:
        """Wait until all of them have listed everything once; what ended a watch is raised.

        False is for lack of time, or for one of them that was ended meanwhile: it will never list.
        """
        waiting = [asyncio.ensure_future(watch.synced.wait()) for watch in watches]
        ends = [watch.task for watch in self._watches if watch.task is not None]
        try:
            async with asyncio.timeout(at_most_s):
                while not all(watch.synced.is_set() for watch in watches):
                    left = [one for one in waiting if not one.done()]
                    await asyncio.wait([*left, *ends], return_when=asyncio.FIRST_COMPLETED)
                    self.check()
                    ends = [watch.task for watch in self._watches if watch.task is not None]
                    if any(watch not in self._watches for watch in watches):
                        return False
        except TimeoutError:
            return False
        finally:
            for one in waiting:
                one.cancel()
        return True

    async def end(self, watch: Watch) -> None:
        """End one of them, for example to begin it anew with other parameters; what it has shown stays."""
        self._watches.remove(watch)
        if watch.task is not None:
            watch.task.cancel()
            await asyncio.gather(watch.task, return_exceptions=True)
        self._beats.forget(watch.name)

    def check(self) -> None:
        """Raise what ended a watch for good."""
        for watch in self._watches:
            if watch.task is not None and watch.task.done():
                watch.task.result()

    async def close(self) -> None:
        """End all of them."""
        tasks = [watch.task for watch in self._watches if watch.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for watch in self._watches:
            self._beats.forget(watch.name)
        self._watches.clear()

    async def _supervise(self, watch: Watch) -> None:
        ends, backoff_s = 0, _BACKOFF_START_S
        while True:
            reflector = watch.made()
            watch.synced.clear()
            error = await self._ended(watch, reflector)
            if watch.synced.is_set():
                ends, backoff_s = 0, _BACKOFF_START_S
            ends += 1
            self._metrics.watch_restarts.labels(watch.name).inc()
            fields = {"watch": watch.name, "error": said(error) if error is not None else "it ended without an error"}
            log.error("a watch ended that never should, starting it again", extra={"fields": fields})
            if ends >= _ENDS_MAX:
                raise WatchBroken(f"{watch.name} ended {ends} times in a row: {fields['error']}") from error
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)

    async def _ended(self, watch: Watch, reflector: Reflector) -> Exception | None:
        """Run it to its end, and show meanwhile whether it hears anything; why it ended."""
        running = asyncio.create_task(reflector.run())
        heard_s = reflector.last_activity_s
        try:
            while not running.done():
                await asyncio.wait([running], timeout=_LOOK_S)
                if reflector.last_activity_s != heard_s:
                    heard_s = reflector.last_activity_s
                    self._beats.beat(watch.name)
        finally:
            running.cancel()
            (result,) = await asyncio.gather(running, return_exceptions=True)
        return result if isinstance(result, Exception) else None
