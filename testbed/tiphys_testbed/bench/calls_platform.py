"""A function platform in real time for `tiphys bench calls`: it asks a binder where each call goes, runs it there, and says how it ended.

Its nodes are the simulator's (`Invoker`), moved by the wall clock; its runtimes report idle instances and profiles to whoever asks like a
Prometheus, as of the last sample.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import numpy as np
from aiohttp import web

from tiphys_models.base.errors import Unavailable
from tiphys_models.placement.sim.functions import FUNCTIONS, MIB, FunctionModel
from tiphys_models.placement.sim.invoker import CallStep, Event, Invoker
from tiphys_models.placement.sim.workloads import CallWorkload

_DEADLINE_S = 120.0
_WAKE_EARLY_S = 0.0005


@dataclass(slots=True)
class CallTimes:
    """What has become of one call; seconds of `time.monotonic`."""

    due_s: float
    asked_ms: float = 0.0
    """How long the first answer took."""
    placed_s: float = 0.0
    waited_s: float = 0.0
    done_s: float = 0.0
    cold: bool = False


@dataclass(frozen=True, slots=True)
class PlatformOptions:
    """One lane's platform."""

    namespace: str
    nodes: tuple[str, ...]
    cores: float
    memory_bytes: float
    start_cost: float = 1.0
    period_s: float = 1.0
    """How often runtimes are sampled."""
    wait_s: float = 0.0
    """How long its calls would wait for a warm instance."""


def models(start_cost: float) -> list[FunctionModel]:
    """The functions, starts and what a cold run takes longer being so many times as dear."""

    def dearer(f: FunctionModel) -> FunctionModel:
        init_s = f.init_s * start_cost
        return replace(f, init_s=init_s, cold_s=init_s + f.warm_s + (f.cold_s - f.init_s - f.warm_s) * start_cost)

    return [f if start_cost == 1.0 else dearer(f) for f in FUNCTIONS]


@dataclass(slots=True)
class Platform:
    """Plays one workload through one binder."""

    options: PlatformOptions
    invokers: dict[str, Invoker] = field(init=False)
    _functions: list[FunctionModel] = field(init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _records: list[CallTimes] = field(default_factory=list)
    _of: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Open calls of the invokers: number of the call, id of its placement."""
    _sample: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    _sampled_s: float = 0.0
    _ready_s: dict[str, float] = field(default_factory=dict)
    _finishing: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._functions = models(self.options.start_cost)
        self.invokers = {}
        self.reset()

    def reset(self) -> None:
        """Empty nodes, known to be empty."""
        now_s = time.monotonic()
        self.invokers = {name: Invoker(self.options.cores, self.options.memory_bytes, now_s) for name in self.options.nodes}
        self._records, self._of, self._ready_s = [], {}, {}
        self._take_sample()

    async def play(self, workload: CallWorkload, session: aiohttp.ClientSession, url: str, begin_s: float, run: str) -> list[CallTimes]:
        """Every call at its time, until the last one has ended; Unavailable if that takes too long."""
        self._records = [CallTimes(begin_s + float(at_s)) for at_s in workload.arrival_s]
        moving = [asyncio.create_task(self._move(session, url, workload)), asyncio.create_task(self._watch())]
        try:
            async with asyncio.timeout(float(workload.arrival_s[-1]) + _DEADLINE_S):
                await asyncio.gather(*(self._call(k, workload, session, url, run) for k in range(len(workload))))
                while any(not r.done_s for r in self._records):  # noqa: ASYNC110 - calls end one by one
                    await asyncio.sleep(0.05)
                if self._finishing:
                    await asyncio.wait(self._finishing)
        except TimeoutError:
            raise Unavailable(f"calls of {self.options.namespace} did not end within {_DEADLINE_S:.0f} s of the last arrival") from None
        finally:
            for task in moving:
                task.cancel()
            await asyncio.gather(*moving, return_exceptions=True)
        return self._records

    async def _call(self, k: int, workload: CallWorkload, session: aiohttp.ClientSession, url: str, run: str) -> None:
        record, model = self._records[k], self._functions[int(workload.function[k])]
        await asyncio.sleep(max(record.due_s - time.monotonic(), 0.0))
        body: dict[str, Any] = {
            "namespace": self.options.namespace,
            "function": model.name,
            "cpu": 0,
            "memory": f"{model.memory_mib}Mi",
            "selector": {},
            "limit": 1,
            "idempotencyKey": f"{run}-{k}",
        }
        if self.options.wait_s:
            body["waitSeconds"] = self.options.wait_s
        while True:
            asked_s = time.monotonic()
            answer = await _posted(session, url, body)
            record.asked_ms = record.asked_ms or (time.monotonic() - asked_s) * 1e3
            if answer["outcome"] != "not-yet":
                break
            await asyncio.sleep(answer["askAgainSeconds"])
        if answer["node"] is None:
            raise Unavailable(f"the binder placed no call of {self.options.namespace}: {answer['reason']}")
        record.placed_s, record.waited_s = time.monotonic(), float(answer.get("waitedSeconds", 0.0))
        name = str(k)
        self._of[name] = k, answer["id"]
        self._note(self.invokers[answer["node"]].submit(name, model, time.monotonic(), float(workload.noise[k])), session, url, workload)
        self._changed.set()

    async def _move(self, session: aiohttp.ClientSession, url: str, workload: CallWorkload) -> None:
        """Let nodes work: whatever ends is told at once."""
        while True:
            next_s = min(invoker.next_event_s() for invoker in self.invokers.values())
            wait_s = min(max(next_s - time.monotonic(), 0.0), 1.0)
            self._changed.clear()
            try:
                async with asyncio.timeout(wait_s + _WAKE_EARLY_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            for invoker in self.invokers.values():
                self._note(invoker.advance(time.monotonic()), session, url, workload)

    def _note(self, events: list[Event], session: aiohttp.ClientSession, url: str, workload: CallWorkload) -> None:
        for event in events:
            k, uid = self._of[event.call]
            record, model = self._records[k], self._functions[int(workload.function[k])]
            if event.step is CallStep.READY:
                self._ready_s[event.call] = event.at_s
                continue
            record.done_s, record.cold = event.at_s, event.cold
            work = (model.cold_work_core_s if event.cold else model.warm_work_core_s) * float(workload.noise[k])
            said = {"coreSeconds": work, "startSeconds": max(self._ready_s[event.call] - record.placed_s, 0.0), "cold": event.cold}
            task = asyncio.create_task(_told(session, f"{url}/{uid}/finished", said))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)

    # ---- what its runtimes report ------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.options.period_s)
            self._take_sample()

    def _take_sample(self) -> None:
        self._sample = {name: invoker.idle_instances() for name, invoker in self.invokers.items()}
        self._sampled_s = time.time()

    async def query(self, request: web.Request) -> web.Response:
        """The answer to an instant query, as far as the binder asks any that concerns runtimes."""
        form = await request.post()
        query = str(form.get("query") or request.query.get("query", ""))
        samples: list[tuple[dict[str, str], float]] = []
        if "timestamp(" in query:
            samples = [({"node": node}, self._sampled_s) for node in self._sample]
        elif "tiphys_runtime_idle_instances" in query:
            samples = [
                ({"node": node, "function": f"{self.options.namespace}/{model.name}"}, float(idle.get(model.name, 0)))
                for node, idle in self._sample.items()
                for model in self._functions
            ]
        elif "tiphys_runtime_call_profile" in query:
            samples = [
                ({"function": f"{self.options.namespace}/{model.name}", "quantity": quantity}, value)
                for model in self._functions
                for quantity, value in _profile(model).items()
            ]
        result = [{"metric": labels, "value": [self._sampled_s, repr(value)]} for labels, value in samples]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})


def _profile(model: FunctionModel) -> dict[str, float]:
    return {
        "warm_seconds": model.warm_s,
        "cold_seconds": model.cold_s,
        "warm_core_seconds": model.warm_work_core_s,
        "cold_core_seconds": model.cold_work_core_s,
        "parallelism": float(model.parallelism),
    }


async def _posted(session: aiohttp.ClientSession, url: str, body: Mapping[str, Any]) -> dict[str, Any]:
    async with session.post(url, json=body) as response:
        answer: dict[str, Any] = await response.json()
        if response.status != 200:
            raise Unavailable(f"the binder answered {response.status}: {answer}")
        return answer


async def _told(session: aiohttp.ClientSession, url: str, body: Mapping[str, Any]) -> None:
    await _posted(session, url, body)


def completion_s(records: list[CallTimes]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Arrival to completion of every call."""
    return np.array([record.done_s - record.due_s for record in records])


def memory_of(gib: float) -> float:
    """Bytes of so many GiB."""
    return gib * 1024 * float(MIB)
