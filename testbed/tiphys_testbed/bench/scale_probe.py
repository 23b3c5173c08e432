"""Runs a service's module as it is, and measures every callback of its event loop by the processor time of the loop's own thread.

    python -m tiphys_testbed.bench.scale_probe FILE tiphys_extender [arguments]

The loop is asyncio's own, whose callbacks can be wrapped; uvloop's cannot. FILE is replaced whenever a longer callback was seen: one JSON
object with the longest callback by thread processor time and by wall time (which the machine's other work lengthens), and what it was.
SIGUSR1 starts the measurement anew: what a process does before it serves is nobody's wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

import orjson

_WRITE_EVERY_S = 0.2


class Probe:
    """The longest callbacks so far."""

    def __init__(self, file: Path) -> None:
        self._file, self._written_s, self._changed = file, 0.0, False
        self.reset()

    def reset(self, *_: object) -> None:
        """All measurements start from zero."""
        self.cpu_ms = self.wall_ms = 0.0
        self.callbacks, self.over_20_ms = 0, 0
        self.what = self.what_wall = ""
        self._changed = True

    def seen(self, handle: Any, cpu_ns: int, wall_ns: int) -> None:
        """One callback has run."""
        self.callbacks += 1
        if cpu_ns > 20_000_000:
            self.over_20_ms += 1
            self._changed = True
        if cpu_ns > self.cpu_ms * 1e6:
            self.cpu_ms, self.what, self._changed = cpu_ns / 1e6, _name(handle), True
        if wall_ns > self.wall_ms * 1e6:
            self.wall_ms, self.what_wall, self._changed = wall_ns / 1e6, _name(handle), True
        if self._changed and (now_s := time.monotonic()) - self._written_s > _WRITE_EVERY_S:
            self._changed, self._written_s = False, now_s
            self._write()

    def _write(self) -> None:
        staged = self._file.with_suffix(".new")
        staged.write_bytes(orjson.dumps({key: value for key, value in vars(self).items() if not key.startswith("_")}))
        staged.rename(self._file)


def _name(handle: Any) -> str:
    """The task or function, without addresses."""
    callback = getattr(handle, "_callback", None)
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine = owner.get_coro()
        frame = getattr(coroutine, "cr_frame", None)
        return f"{getattr(coroutine, '__qualname__', '?')}:{frame.f_lineno if frame is not None else '?'}"
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def main() -> None:
    """Runs the module named on the command line with the probe in its event loop."""
    file, module, *arguments = sys.argv[1:]
    probe = Probe(Path(file))
    original = asyncio.events.Handle._run

    def run(self: asyncio.Handle) -> None:
        cpu_ns, wall_ns = time.thread_time_ns(), time.perf_counter_ns()
        try:
            original(self)
        finally:
            probe.seen(self, time.thread_time_ns() - cpu_ns, time.perf_counter_ns() - wall_ns)

    asyncio.events.Handle._run = run  # type: ignore[method-assign]
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415

        uvloop.run = asyncio.run  # type: ignore[assignment]
        uvloop.install = lambda: None
    signal.signal(signal.SIGUSR1, probe.reset)
    sys.argv = [module, *arguments]
    os.environ["TIPHYS_SCALE_PROBE"] = file
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
