"""Leadership: who may act among the replicas of this release, and which of all releases in the cluster holds the claim on it.

Watches and writes are cluster-wide, the release's own Lease is not: two releases would both lead. So a leader acts only while it also holds
the claim, one Lease for all releases. One that does not get it stands by, says whose it is, and goes on when it is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import NoReturn

from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.leases import Lease
from tiphys_operator.metrics import OperatorMetrics

log = logging.getLogger(__name__)


class Leadership:
    """Both Leases as one; without a claim the release's own alone."""

    def __init__(self, lease: Lease, claim: Lease | None, metrics: OperatorMetrics) -> None:
        self._lease, self._claim, self._metrics = lease, claim, metrics
        self._holding: asyncio.Task[None] | None = None
        self.other = ""
        """Whose the claim is while another release acts; empty otherwise."""

    @property
    def identity(self) -> str:
        """The name of this process as Lease holder, shown in its Events."""
        return self._lease.identity

    def check(self) -> float:
        """Seconds for which this process may still write; LeaseLost if it may not."""
        remaining_s = self._lease.check()
        return remaining_s if self._claim is None else min(remaining_s, self._claim.check())

    async def acquire(self) -> None:
        """Wait until both are ours; LeaseLost if the first is lost while the second is waited for."""
        looking = asyncio.create_task(self._look())
        try:
            await self._lease.acquire()
        finally:
            await _ended(looking)
        if self._claim is None:
            return
        self._holding = asyncio.create_task(self._lease.hold(), name="lease")
        claiming = asyncio.create_task(self._claim.acquire())
        try:
            while not claiming.done():
                await asyncio.wait({claiming, self._holding}, timeout=self._claim.options.retry_s, return_when=asyncio.FIRST_COMPLETED)
                if self._holding.done():
                    self._holding.result()
                self._tell("" if claiming.done() else self._claim.other)
            claiming.result()
        finally:
            await _ended(claiming)

    async def hold(self) -> NoReturn:
        """Renew until one of them is lost."""
        holding = self._holding if self._holding is not None else asyncio.create_task(self._lease.hold())
        both = {holding} if self._claim is None else {holding, asyncio.create_task(self._claim.hold())}
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in both:
                await _ended(task)
        raise AssertionError("a Lease is held until it is lost")

    async def release(self) -> None:
        """Let the next one start at once: another replica, or another release."""
        if self._holding is not None:
            await _ended(self._holding)
        if self._claim is not None:
            await self._claim.release()
        await self._lease.release()
        self._tell("")

    async def _look(self) -> None:
        """How old the claim is, before it is our turn: a holder that dies with our own leader is not waited for twice."""
        while self._claim is not None:
            with contextlib.suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(self._claim.options.renew_s):
                    await self._claim.look()
            await asyncio.sleep(self._claim.options.retry_s)

    def _tell(self, other: str) -> None:
        if other == self.other:
            return
        self.other = other
        self._metrics.other_release.set(bool(other))
        if other:
            log.warning("another release acts in this cluster: standing by", extra={"fields": {"holder": other}})


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancelled and waited for; what it raised was seen where it mattered."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
