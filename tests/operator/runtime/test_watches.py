"""Watches under supervision: who waits for a list hears of an end, and a quiet watch is no dead one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pytest

from tiphys_models.base.clock import ManualClock, SystemClock
from tiphys_models.base.errors import Unavailable
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.runtime import watches as module
from tiphys_operator.runtime.watches import Watches


class Kube:
    """Lists that tests break; a watch that says nothing."""

    def __init__(self, trouble: Callable[[], Exception | None] = lambda: None) -> None:
        self.trouble, self.lists = trouble, 0

    async def pages(self, *_: Any, **__: Any) -> AsyncGenerator[dict[str, Any], None]:
        self.lists += 1
        if (error := self.trouble()) is not None:
            raise error
        yield {"metadata": {"resourceVersion": "1"}, "items": []}

    async def watch(self, *_: Any, **__: Any) -> AsyncGenerator[dict[str, Any], None]:
        await asyncio.sleep(60)
        yield {}


class Nothing:
    def put(self, obj: dict[str, Any]) -> None: ...
    def drop(self, obj: dict[str, Any]) -> None: ...
    def listed(self, uids: set[str]) -> None: ...


class World:
    def __init__(self, kube: Kube) -> None:
        self.beat_clock, self.metrics, self.failures = ManualClock(), OperatorMetrics(), list[str]()
        self.beats = Heartbeats(self.beat_clock)
        self.watches = Watches(
            "test",
            cast("KubeClient", kube),
            SystemClock(),
            self.metrics,
            self.beats,
            lambda path, error: self.failures.append(path),
            lambda: None,
        )

    def age_s(self) -> float:
        return self.beats.ages_s()["watch-test-pods"]


async def test_waiting_for_a_list_ends_with_the_list_or_with_the_time_for_it() -> None:
    world = World(Kube())
    assert await world.watches.synced(world.watches.start("Pod", "/api/v1/pods", Nothing()), at_most_s=2.0)
    await world.watches.close()
    silent = World(Kube(lambda: Unavailable("down")))
    assert not await silent.watches.synced(silent.watches.start("Pod", "/api/v1/pods", Nothing()), at_most_s=0.1)
    assert silent.failures
    await silent.watches.close()
    assert silent.beats.ages_s() == {}


@pytest.mark.parametrize(
    ("error", "beats"), [(ApiError(403, "Forbidden", ""), True), (ApiError(500, "Internal", ""), False), (Unavailable(""), False)]
)
async def test_a_refusal_is_an_answer_and_silence_is_none(error: Exception, *, beats: bool) -> None:
    world = World(Kube(lambda: error))
    watch = world.watches.start("Pod", "/api/v1/pods", Nothing())
    world.beat_clock.advance(100.0)
    await world.watches.synced(watch, at_most_s=0.1)
    assert world.age_s() == (0.0 if beats else 100.0)
    await world.watches.close()


async def test_a_watch_that_hears_something_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_S", 0.02)
    world = World(Kube())
    watch = world.watches.start("Pod", "/api/v1/pods", Nothing())
    world.beat_clock.advance(100.0)
    await world.watches.synced(watch)
    async with asyncio.timeout(2):
        while world.age_s():  # noqa: ASYNC110 - the watch tells nobody but the heartbeats
            await asyncio.sleep(0.01)
    await world.watches.close()


async def test_one_good_list_makes_up_for_former_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BACKOFF_START_S", 0.001)
    monkeypatch.setattr(module, "_BACKOFF_MAX_S", 0.001)
    troubles = iter([KeyError("x")] * 7 + [None])
    world = World(Kube(lambda: next(troubles, None)))
    assert await world.watches.synced(world.watches.start("Pod", "/api/v1/pods", Nothing()), at_most_s=2.0)
    assert world.metrics.registry.get_sample_value("tiphys_operator_watch_restarts_total", {"watch": "watch-test-pods"}) == 7
    await world.watches.close()
