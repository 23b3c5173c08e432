"""Processes that are killed half way through a run, and are back some seconds later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from tiphys_testbed.demo.holding import say_ready
from tiphys_testbed.demo.services import EXTENDER, OPERATOR
from tiphys_testbed.demo.stage import READY_DEADLINE_S, Stage

AWAY_S = 16.0
"""How long a process is away: longer than anybody may be held, so that the other opener has to come."""
NOTICED_S = 1.0
"""When the cluster says of a killed process that it is not ready, and of one that is back that it is."""
_CHAINS = {"extender": (EXTENDER,), "operator": (OPERATOR,), "prometheus": ("prometheus",), "opener": (EXTENDER, OPERATOR)}
"""What is killed, one after the other."""


class Fault:
    """Kills by pid. Everything that takes time happens in a thread: the nodes go on."""

    def __init__(self, name: str, stage: Stage, at_s: float) -> None:
        """`at_s`: seconds after the start of the replay."""
        self._chain, self._stage, self._at_s = _CHAINS[name], stage, at_s
        self._task: asyncio.Task[None] | None = None

    def look(self, elapsed_s: float) -> None:
        """Begin when the time has come; called a few times a second."""
        if self._task is None and elapsed_s >= self._at_s:
            self._task = asyncio.get_running_loop().create_task(self._strike())

    async def over(self) -> None:
        """Wait until everybody is back."""
        if self._task is not None:
            await self._task

    async def _strike(self) -> None:
        for name in self._chain:
            for wait_s, step in self._steps(name):
                await asyncio.to_thread(step)
                await asyncio.sleep(wait_s)

    def _steps(self, name: str) -> Iterator[tuple[float, Callable[[], None]]]:
        """What happens, and how long after it the next thing does."""
        cluster, services = self._stage.cluster, self._stage.services
        yield NOTICED_S, cluster.process(name).kill
        if name == "prometheus":
            yield AWAY_S - NOTICED_S, _nothing
            yield NOTICED_S, lambda: _ignored(cluster.restart_process(name, "/-/ready"))
            return
        yield AWAY_S - NOTICED_S, lambda: say_ready(cluster, extender=name != EXTENDER, operator=name != OPERATOR)
        yield NOTICED_S, lambda: services.begin_again(cluster, name, READY_DEADLINE_S)
        yield 0.0, lambda: say_ready(cluster)


def _nothing() -> None:
    """A moment in which nothing is done."""


def _ignored(_result: object) -> None:
    """The result is of no interest."""
