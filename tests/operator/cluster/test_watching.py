"""The watches on nodes and pods, shared by controllers that begin at the same time and need different pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

from tiphys_models.base.clock import SystemClock
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.client import KubeClient
from tiphys_operator.cluster.watching import ClusterWatch
from tiphys_operator.metrics import OperatorMetrics


class Kube:
    """Lists that take as long as tests want; a watch that says nothing."""

    def __init__(self) -> None:
        self.listable, self.pod_lists = asyncio.Event(), list[dict[str, str]]()

    async def pages(self, path: str, params: dict[str, str] | None = None, **__: Any) -> AsyncGenerator[dict[str, Any], None]:
        if path.endswith("/pods"):
            self.pod_lists.append(dict(params or {}))
        await self.listable.wait()
        yield {"metadata": {"resourceVersion": "1"}, "items": []}

    async def watch(self, *_: Any, **__: Any) -> AsyncGenerator[dict[str, Any], None]:
        await asyncio.sleep(60)
        yield {}


def watch_of(kube: Kube) -> ClusterWatch:
    clock = SystemClock()
    return ClusterWatch(cast("KubeClient", kube), clock, OperatorMetrics(), Heartbeats(clock))


async def test_whoever_waits_for_the_first_list_waits_for_the_one_that_takes_its_place() -> None:
    kube = Kube()
    watch = watch_of(kube)
    first = asyncio.create_task(watch.ready())
    while not kube.pod_lists:  # noqa: ASYNC110 - the list tells nobody that it has begun
        await asyncio.sleep(0)
    other = asyncio.create_task(watch.ready(finished=True))
    while len(kube.pod_lists) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    kube.listable.set()
    try:
        async with asyncio.timeout(1.0):
            await asyncio.gather(first, other)
        assert watch.is_complete
        assert ["fieldSelector" in params for params in kube.pod_lists] == [True, False]
    finally:
        first.cancel()
        other.cancel()
        await asyncio.gather(first, other, return_exceptions=True)
        await watch.close()


async def test_two_who_begin_at_the_same_time_share_one_watch_on_pods() -> None:
    kube = Kube()
    kube.listable.set()
    watch = watch_of(kube)
    async with asyncio.timeout(1.0):
        await asyncio.gather(watch.ready(finished=True), watch.ready(), watch.ready(finished=True))
    assert len(kube.pod_lists) == 1
    await watch.close()
