"""Takes gates off: a few patches at once, each with a short deadline, tried again for as long as the pod carries the gate."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any, Literal, Protocol

import aiohttp

from tiphys_extender.gates.metrics import GateMetrics
from tiphys_extender.gates.room import HeldPod
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.backoff import Backoff
from tiphys_models.kube.client import ApiError
from tiphys_models.placement.gate import is_held, opening_patch

_log = logging.getLogger(__name__)

AT_ONCE = 8
"""The number of patches that are under way at once, so that an API server in trouble is not flooded."""
DEADLINE_S = 2.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0
_FORBIDDEN_S = 60.0
_PATCH = "application/json-patch+json"

End = Literal["opened", "elsewhere", "gone"]
"""What became of a pod: its gate was taken off here, by somebody else, or the pod is no more."""


class Patcher(Protocol):
    """A `KubeClient`, as far as it matters here."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        deadline: aiohttp.ClientTimeout | None = None,
    ) -> Any:
        """The decoded answer, or Unavailable."""
        ...


class Opener:
    """Pods whose gate is to be taken off, first come first served."""

    def __init__(
        self, client: Patcher, metrics: GateMetrics, monotonic_s: Callable[[], float], ended: Callable[[HeldPod, End], None]
    ) -> None:
        """`ended` is told once of each pod that was put."""
        self._client, self._metrics, self._monotonic_s, self._ended = client, metrics, monotonic_s, ended
        self._todo: asyncio.Queue[HeldPod] = asyncio.Queue()
        self._backoffs: dict[str, Backoff] = {}
        self._refused_s = -math.inf
        """When a patch was refused because the right is missing, unless one was taken since."""

    def put(self, pod: HeldPod) -> None:
        """Take this pod's gate off."""
        self._todo.put_nowait(pod)

    @property
    def forbidden(self) -> bool:
        """Whether the right to take gates off seems to be missing; after a while that has to be tried again."""
        return self._monotonic_s() - self._refused_s < _FORBIDDEN_S

    async def work(self) -> None:
        """Take off one gate after the other until cancelled."""
        while True:
            pod = await self._todo.get()
            try:
                end = await self._try(pod)
            except asyncio.CancelledError:
                self.put(pod)  # whoever works next begins with it anew
                raise
            except Exception as error:  # noqa: BLE001 - an answer that nobody has foreseen must not keep the other pods behind their gates
                _log.error("a gate cannot be taken off, trying again", extra={"fields": {"error": type(error).__name__}})
                self._again(pod, None)
                continue
            if end is not None:
                self._backoffs.pop(pod.uid, None)
                self._ended(pod, end)

    async def _try(self, pod: HeldPod) -> End | None:
        """How it ended; None: it will be tried again."""
        try:
            await self._ask("PATCH", pod, pod.patch, _PATCH)
        except Unavailable as error:
            status = error.status if isinstance(error, ApiError) else 0
            if status == 404:
                return "gone"
            self._metrics.patches_failed[_reason(status)].inc()
            if status in (401, 403):
                self._refused_s = self._monotonic_s()
                hint = "grant patch on pods to the extender's service account"
                _log.warning("a gate cannot be taken off, trying again", extra={"fields": {"why": str(error), "hint": hint}})
            end = await self._look_anew(pod) if status in (409, 422) else None
            if end is None:
                self._again(pod, error)
            return end
        self._refused_s = -math.inf
        return "opened"

    def _again(self, pod: HeldPod, error: Unavailable | None) -> None:
        backoff = self._backoffs.setdefault(pod.uid, Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S))
        asyncio.get_running_loop().call_later(backoff.next_s(error), self.put, pod)

    async def _look_anew(self, pod: HeldPod) -> End | None:
        """The pod was not as it was seen: somebody else has taken the gate off, or another gate has gone."""
        try:
            obj = await self._ask("GET", pod)
        except Unavailable as error:
            return "gone" if isinstance(error, ApiError) and error.status == 404 else None
        if obj["metadata"]["uid"] != pod.uid:
            return "gone"
        if not is_held(obj):
            return "elsewhere"
        pod.patch = opening_patch(obj)
        return None

    async def _ask(self, method: str, pod: HeldPod, body: Any = None, content_type: str = "application/json") -> Any:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        return await self._client.request(
            method, path, body=body, content_type=content_type, deadline=aiohttp.ClientTimeout(total=DEADLINE_S)
        )


def _reason(status: int) -> str:
    match status:
        case 401 | 403:
            return "forbidden"
        case 409 | 422:
            return "changed"
        case 429:
            return "throttled"
        case 0:
            return "unreachable"
        case _:
            return "other"
