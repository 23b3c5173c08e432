"""Probes every site that has a probe, each in its own rhythm."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tiphys_models.api.inference_site import Probe
from tiphys_models.api.stream_reasons import ProbeRefusal
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import Unavailable
from tiphys_operator.object_guard import ObjectGuard
from tiphys_operator.streams.addresses import ProbeRefused
from tiphys_operator.streams.metrics import BindingMetrics
from tiphys_operator.streams.probes import Probes
from tiphys_operator.streams.quota import Granted
from tiphys_operator.streams.rounds import Rounds


class Prober:
    """One task a site. What a site answers is told at once when it is news."""

    def __init__(
        self, probes: Probes, metrics: BindingMetrics, clock: Clock, on_news: Callable[[], None],
        guard: ObjectGuard, name_of: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        self._probes, self._metrics, self._clock, self._on_news = probes, metrics, clock, on_news
        self._guard, self._name_of = guard, name_of
        self._tasks: dict[str, tuple[Probe, asyncio.Task[None]]] = {}
        self._rounds: dict[str, Rounds] = {}
        self._granted = Granted()

    def rounds(self, uid: str) -> Rounds | None:
        """What is known of a site; None: it does not ask to be probed."""
        if uid in self._granted.too_many:
            crowded = Rounds()
            crowded.refuse(ProbeRefusal.TOO_MANY_SITES)
            return crowded
        return self._rounds.get(uid)

    def follow(self, granted: Granted) -> None:
        """Probes follow the grants: new sites start, changed ones restart, missing ones stop. A new interval counts from the next probe."""
        self._granted, wanted = granted, granted.probes
        for uid in [uid for uid, (probe, _) in self._tasks.items() if wanted.get(uid) != probe]:
            self._tasks.pop(uid)[1].cancel()
            del self._rounds[uid]
        for uid, probe in wanted.items():
            if uid not in self._tasks:
                rounds = self._rounds[uid] = Rounds()
                self._tasks[uid] = probe, asyncio.create_task(self._probe(uid, probe, rounds))

    def check(self) -> None:
        """Raise what ended a task: a site that nobody probes any more would look well for ever."""
        for _, task in self._tasks.values():
            if task.done():
                task.result()

    async def close(self) -> None:
        """End all of them."""
        tasks = [task for _, task in self._tasks.values()]
        self.follow(Granted())
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _probe(self, uid: str, probe: Probe, rounds: Rounds) -> None:
        # sites that were declared together should not be asked together for ever
        await asyncio.sleep(random.uniform(0.0, min(0.5, probe.interval_seconds)))  # noqa: S311
        while True:
            since_s, name = self._clock.monotonic_s(), self._name_of(uid)
            with self._guard.over("InferenceSite", name, str(probe)) as trip:
                await self._once(probe, rounds, name.partition("/")[0])
            if trip.error is not None:
                # a site that nobody probes any more would look well for ever; what was tripped over stands in the log only
                self._miss(rounds, "the probe itself failed")
            interval_s = self._granted.interval_s.get(uid, float(probe.interval_seconds))
            await asyncio.sleep(max(interval_s - (self._clock.monotonic_s() - since_s), 0.0))

    async def _once(self, probe: Probe, rounds: Rounds, namespace: str) -> None:
        try:
            round_trip_ms = await self._probes.round_trip_ms(probe, namespace)
        except ProbeRefused as refused:
            self._metrics.probes_refused[refused.rule].inc()
            if rounds.refuse(refused.rule):
                self._on_news()
            return
        except Unavailable as error:
            self._miss(rounds, str(error))
            return
        self._metrics.probes["answered"].inc()
        if rounds.answered(round_trip_ms, self._clock.now_s()):
            self._on_news()

    def _miss(self, rounds: Rounds, why: str) -> None:
        self._metrics.probes["missed"].inc()
        if rounds.missed(why):
            self._on_news()
