"""What placement has learned, on disk: written every minute and at the end, read at the start. Trouble with the disk never reaches an
answer, and what cannot be read is learned anew."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from tiphys_extender.serve.metrics import Metrics
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement import checkpoint
from tiphys_models.placement.state import PlacementState

_log = logging.getLogger(__name__)
_NAME = "learned.json"
PERIOD_S = 60.0
CHECKPOINT, CHECKPOINT_LIMIT_S = "checkpoint", 3 * PERIOD_S


class CheckpointFile:
    """One file, replaced as a whole: a reader finds the former one or the new one, never half of either."""

    def __init__(self, directory: Path, state: PlacementState, metrics: Metrics, clock: Clock) -> None:
        self._path = directory / _NAME
        self._unfinished = directory / f"{_NAME}.new"
        self._state, self._metrics, self._clock = state, metrics, clock
        self._failing = False
        self._one_by_one = Lock()
        """A write that was given up goes on in its thread, while the last one of the process begins."""

    def recall(self) -> None:
        """Take over what a former process has left, as far as it can be."""
        metrics = self._metrics
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            metrics.checkpoints["missing"].inc()
            return
        except OSError as error:
            self._unreadable(error.strerror or type(error).__name__)
            return
        try:
            learned = checkpoint.read(content)
        except InvalidInput as error:
            self._unreadable(str(error))
            return
        now_s = self._clock.now_s()
        checkpoint.recall(self._state, learned, now_s)
        metrics.checkpoints["read"].inc()
        metrics.checkpoint_spoiled.inc(learned.spoiled)
        fields = {"entries": len(learned), "spoiled": learned.spoiled, "age_s": round(now_s - learned.at_s, 1)}
        _log.info("goes on from what was learned before", extra={"fields": fields})

    async def run(self, beat: Callable[[], None]) -> None:
        """Write every minute until cancelled."""
        while True:
            await self.save()
            beat()
            await asyncio.sleep(PERIOD_S)

    async def save(self) -> None:
        """Copies are made here, the document in a thread: thousands of functions must not delay an answer."""
        learned = checkpoint.learned_of(self._state, self._clock.now_s())
        if not len(learned):
            return  # a process that has seen nothing yet must not replace what another one knew
        metrics = self._metrics
        try:
            written = await asyncio.to_thread(self._write, learned)
        except OSError as error:
            metrics.checkpoints["failed"].inc()
            if not self._failing:
                _log.warning("cannot keep what was learned", extra={"fields": {"error": error.strerror}})
            self._failing = True
            return
        self._failing = False
        metrics.checkpoints["written"].inc()
        metrics.checkpoint_bytes.set(len(written.content))
        metrics.checkpoint_dropped.set(written.dropped)
        metrics.checkpoint_time.set(learned.at_s)

    def _write(self, learned: checkpoint.Learned) -> checkpoint.Written:
        written = checkpoint.document(learned)
        with self._one_by_one:
            with self._unfinished.open("wb") as file:
                file.write(written.content)
                file.flush()
                os.fsync(file.fileno())
            self._unfinished.replace(self._path)
        with contextlib.suppress(OSError):  # not every file system has directories that can be synced; the file is there all the same
            directory = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        return written

    def _unreadable(self, why: str) -> None:
        self._metrics.checkpoints["unreadable"].inc()
        _log.warning("cannot read what was learned, starting anew", extra={"fields": {"why": why}})
