"""A directory for one benchmark run, whose processes end with it, also when the benchmark is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tiphys_testbed.cluster.processes import ProcessTable
from tiphys_testbed.cluster.runs import Guardian, claim, sweep
from tiphys_testbed.tools.toolbox import cache_directory


@contextmanager
def scratch(name: str) -> Iterator[ProcessTable]:
    """A claimed run directory with nothing in it; at the end its processes are ended and it is deleted."""
    root = cache_directory() / "bench"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    sweep(root)
    run = claim(root / f"{name}-{os.getpid()}", keep=False)
    guardian = Guardian.start(run)
    try:
        yield ProcessTable(run.path)
    finally:
        try:
            run.remove()
        finally:
            guardian.dismiss()
