"""The plane's pulse: every few seconds a pod is placed and a stream is bound, and streams that were bound are renewed."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.plane.objects import CALLS, pulse_pod

BEAT_S = 5.0
DEADLINE_S = 20.0
RENEWAL_S = 3.0
STEADY_STREAMS = 4
_KEPT_PODS = 4
_KEPT_BEATS = 1000
_POLL_S = 0.1
_PODS = f"/api/v1/namespaces/{CALLS}/pods"
_STREAM = {"task": "detect", "maxDelayMs": 200, "minAccuracy": 25, "rateQps": 2, "sizeKb": 40, "bitRateMbps": 1000}


@dataclass(frozen=True, slots=True)
class Beat:
    """What one try took; `trouble` says why it failed."""

    at_s: float
    took_s: float
    trouble: str = ""


@dataclass
class Pulse:
    """The latest beats of both kinds, and what became of the steady streams."""

    api: ApiClient
    binder_url: str
    token: str
    pods: deque[Beat] = field(default_factory=lambda: deque(maxlen=_KEPT_BEATS))
    streams: deque[Beat] = field(default_factory=lambda: deque(maxlen=_KEPT_BEATS))
    renewed: int = 0
    lost: int = 0
    last_trouble: str = ""
    _number: int = 0
    _leases: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Place pods, bind streams and renew them until cancelled."""
        timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
        headers = {"Authorization": f"Bearer {self.token}"}
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session, asyncio.TaskGroup() as group:
            group.create_task(self._every(BEAT_S, lambda: self._timed(self.pods, self._pod())))
            group.create_task(self._every(BEAT_S, lambda: self._timed(self.streams, self._stream(session))))
            group.create_task(self._every(RENEWAL_S, lambda: self._renew(session)))

    def page(self) -> dict[str, Any]:
        """All records as JSON, for a reader in another process."""
        return {
            "pods": [asdict(beat) for beat in self.pods],
            "streams": [asdict(beat) for beat in self.streams],
            "steady": len(self._leases),
            "renewed": self.renewed,
            "lost": self.lost,
            "lastTrouble": self.last_trouble,
        }

    async def _every(self, period_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            began_s = time.monotonic()
            await work()
            await asyncio.sleep(max(0.0, began_s + period_s - time.monotonic()))

    async def _timed(self, beats: deque[Beat], work: Awaitable[None]) -> None:
        at_s, began_s = time.time(), time.monotonic()
        trouble = ""
        try:
            await work
        except (ClusterError, aiohttp.ClientError, TimeoutError) as error:
            trouble = f"{type(error).__name__}: {error}"
            self.last_trouble = trouble
        beats.append(Beat(at_s, time.monotonic() - began_s, trouble))

    async def _pod(self) -> None:
        name = f"pulse-{self._number + 1:06d}"
        await asyncio.to_thread(self.api.create, _PODS, pulse_pod(name))
        self._number += 1
        end_s = time.monotonic() + DEADLINE_S
        while not (await asyncio.to_thread(self.api.get, f"{_PODS}/{name}"))["spec"].get("nodeName"):
            if time.monotonic() > end_s:
                raise TimeoutError(f"{CALLS}/{name} was not bound within {DEADLINE_S:.0f} s")
            await asyncio.sleep(_POLL_S)
        if self._number > _KEPT_PODS:
            await asyncio.to_thread(self.api.delete, f"{_PODS}/pulse-{self._number - _KEPT_PODS:06d}")

    async def _stream(self, session: aiohttp.ClientSession) -> None:
        """Bind; keep it among the steady ones while those are few, else release it."""
        answer = await self._ask(session, "POST", "", {**_STREAM, "application": "pulse"})
        if len(self._leases) < STEADY_STREAMS:
            self._leases[answer["id"]] = answer["lease"]
        else:
            await self._ask(session, "DELETE", f"/{answer['id']}", {})

    async def _renew(self, session: aiohttp.ClientSession) -> None:
        for uid, lease in list(self._leases.items()):
            try:
                answer = await self._ask(session, "POST", f"/{uid}/renew", {"lease": lease})
            except (ClusterError, aiohttp.ClientError, TimeoutError) as error:
                self.last_trouble = f"renewal: {error}"
                if isinstance(error, StreamForgotten):
                    del self._leases[uid]
                    self.lost += 1
            else:
                self._leases[uid] = answer["lease"]
                self.renewed += 1

    async def _ask(self, session: aiohttp.ClientSession, method: str, path: str, body: Any) -> dict[str, Any]:
        async with session.request(method, f"{self.binder_url}/v1/bindings{path}", json=body) as response:
            text = await response.text()
            if response.status in (403, 404, 410):
                raise StreamForgotten(f"{method} {path}: {response.status} {text[:200]}")
            if response.status >= 300:
                raise ClusterError(f"{method} {path}: {response.status} {text[:200]}")
            answer: dict[str, Any] = await response.json()
            return answer


class StreamForgotten(ClusterError):
    """The binder does not know a stream that was bound."""
