"""Work on many objects side by side: one job an object at a time, so many in all, and no namespace takes all places."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Share:
    """The places of one namespace."""

    limit: asyncio.Semaphore
    users: int = 0


class Turns:
    """Jobs by the object they are for. Nobody waits for a job but the next one of the same object.

    Slow jobs leave half of the places to the others, however many of them there are.
    """

    def __init__(self, at_once: int, of_one_namespace: int, on_end: Callable[[], None]) -> None:
        self._limit, self._of_one, self._on_end = asyncio.Semaphore(at_once), of_one_namespace, on_end
        self._slow = asyncio.Semaphore(max(at_once // 2, 1))
        self._shares: dict[str, _Share] = {}
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._error: BaseException | None = None

    def busy(self, uid: str) -> bool:
        """Whether a job for this object has not ended yet."""
        return uid in self._jobs

    def engaged(self) -> tuple[str, ...]:
        """All objects whose job has not ended yet."""
        return tuple(self._jobs)

    def start(self, uid: str, namespace: str, job: Callable[[], Awaitable[None]], *, slow: bool = False) -> None:
        """Begin a job as soon as there is a place, unless the object has one."""
        if uid in self._jobs:
            return
        task = self._jobs[uid] = asyncio.create_task(self._run(namespace, job, slow=slow))
        task.add_done_callback(lambda done: self._ended(uid, done))

    def check(self) -> None:
        """Raise what a job raised: a job catches what its object may do, so that is a lost Lease, or a mistake of ours."""
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """End all of them."""
        jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    async def _run(self, namespace: str, job: Callable[[], Awaitable[None]], *, slow: bool) -> None:
        share = self._shares.setdefault(namespace, _Share(asyncio.Semaphore(self._of_one)))
        share.users += 1
        try:
            async with share.limit, self._slow if slow else contextlib.nullcontext(), self._limit:
                await job()
        finally:
            share.users -= 1
            if not share.users:
                self._shares.pop(namespace, None)

    def _ended(self, uid: str, job: asyncio.Task[None]) -> None:
        self._jobs.pop(uid, None)
        if not job.cancelled() and self._error is None:
            self._error = job.exception()
        self._on_end()
