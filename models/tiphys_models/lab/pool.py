"""One way to play the cells of a study: here, or in several processes that are started anew."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

Cell = TypeVar("Cell")
Played = TypeVar("Played")


def play_all(
    cells: Sequence[Cell],
    play: Callable[[Cell], Played],
    label: Callable[[Cell], str],
    tell: Callable[[str], None],
    *,
    jobs: int = 0,
    warm: Callable[[], object] = lambda: None,
) -> list[Played]:
    """What came of every cell, in the order of the cells. `jobs`: processes, 0 one a core; one plays here, without starting any.

    `warm` compiles what the cells need, once, before several processes would each do it.
    """
    started = time.monotonic()
    found: dict[int, Played] = {}

    def keep(index: int, played: Played) -> None:
        found[index] = played
        tell(f"{len(found)}/{len(cells)} {label(cells[index])}: {time.monotonic() - started:.0f} s so far")

    processes = min(jobs or os.cpu_count() or 1, len(cells))
    if processes <= 1:
        for index, cell in enumerate(cells):
            keep(index, play(cell))
    else:
        warm()
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            futures = {pool.submit(play, cell): index for index, cell in enumerate(cells)}
            for future in as_completed(futures):
                keep(futures[future], future.result())
    return [found[index] for index in range(len(cells))]
