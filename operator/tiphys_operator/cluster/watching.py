"""The watches on nodes and pods: begun when somebody first needs them, shared by all controllers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection

from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import Unavailable
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_operator.cluster.observed import NodeSink, ObservedCluster, PodSink
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.runtime.watches import Watch, Watches

LOOP = "cluster"
_NODES_PAGE, _PODS_PAGE = {"limit": "100"}, {"limit": "250"}
"""A node names fifty images and a pod all that admission added: read, a page takes ten times what it weighs."""
_UNFINISHED = _PODS_PAGE | {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_NEEDS_S = 5.0
"""So long the first list of pods waits for those who say which of them are kept whole."""


class ClusterWatch:
    """Without policies nobody needs the right to watch pods and nodes."""

    def __init__(
        self, client: KubeClient, clock: Clock, metrics: OperatorMetrics, beats: Heartbeats, needs_of: Collection[str] = ()
    ) -> None:
        """`needs_of`: controllers that will say which pods they need whole."""
        self.observed = ObservedCluster(clock)
        self.on_error: list[Callable[[str, Unavailable], None]] = []
        self.on_end: list[Callable[[], None]] = []
        self._watches = Watches(LOOP, client, clock, metrics, beats, self._failed, self._ended)
        self._nodes: Watch | None = None
        self._pods: Watch | None = None
        self._beginning = asyncio.Lock()
        self._unsaid, self._said = set(needs_of), asyncio.Event()
        metrics.pods_kept.labels(LOOP).set_function(lambda: len(self.observed.pods))

    @property
    def is_complete(self) -> bool:
        """Whether all pods and nodes were listed, and may still be looked at."""
        return all(watch is not None and watch.synced.is_set() and watch.refused is None for watch in (self._nodes, self._pods))

    @property
    def forbidden(self) -> ApiError | None:
        """Why pods may not be listed or watched."""
        return self._pods.refused if self._pods is not None else None

    def has_said(self, controller: str) -> None:
        """A controller has said which pods it needs whole, as far as it knows yet."""
        self._unsaid.discard(controller)
        if not self._unsaid:
            self._said.set()

    async def ready(self, *, finished: bool = False) -> None:
        """Wait until all nodes and pods were listed; `finished`: those that have ended of late, too. What ended a watch is raised."""
        if self._pods is None and self._unsaid:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NEEDS_S):
                    await self._said.wait()
        while True:
            nodes, pods = await self._begun(finished=finished)
            # a watch that was ended for one of other pods never lists: then its successor is waited for
            if await self._watches.synced(pods, nodes) or pods is self._pods:
                return

    def check(self) -> None:
        """Raise what ended a watch for good."""
        self._watches.check()

    async def close(self) -> None:
        """The watches on nodes and pods stop."""
        await self._watches.close()

    async def _begun(self, *, finished: bool) -> tuple[Watch, Watch]:
        """The watches on nodes and pods, begun if need be; one controller after the other."""
        async with self._beginning:
            if finished and not self.observed.keeps_finished:
                self.observed.keeps_finished = True
                former, self._pods = self._pods, None
                if former is not None:
                    await self._watches.end(former)
            if self._nodes is None:
                self._nodes = self._watches.start("Node", "/api/v1/nodes", NodeSink(self.observed), _NODES_PAGE)
            if self._pods is None:
                params = _PODS_PAGE if self.observed.keeps_finished else _UNFINISHED
                self._pods = self._watches.start("Pod", "/api/v1/pods", PodSink(self.observed), params)
            return self._nodes, self._pods

    def _failed(self, path: str, error: Unavailable) -> None:
        for tell in self.on_error:
            tell(path, error)

    def _ended(self) -> None:
        for tell in self.on_end:
            tell()
