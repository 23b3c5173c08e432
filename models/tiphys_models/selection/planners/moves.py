"""Local search: single tasks, pairs of tasks in exchange, and all new tasks of a host at once, until nothing helps."""

from __future__ import annotations

from itertools import combinations

from tiphys_models.selection.cloud.state import UNPLACED
from tiphys_models.selection.planners.fillings import Filling, Layout

_ROUNDS = 50
_PAIRED = 32
"""The largest tasks, of which pairs are tried."""
_GAIN = 1e-9
"""Smaller gains are rounding."""


def improve(layout: Layout) -> None:
    """Improve a layout in place; deterministic."""
    for _ in range(_ROUNDS):
        before = layout.value
        for task in layout.fillings.order:
            _move_task(layout, task)
        for host in [h for h, f in layout.filling_of.items() if len(f.kinds) > 1]:
            _move_all(layout, host)
        _exchange(layout)
        if layout.value > before - _GAIN:
            return


def _move_task(layout: Layout, task: int) -> None:
    if layout.host[task] == UNPLACED:
        layout.put_best(task)
        return
    before, host = layout.value, layout.host[task]
    layout.take(task)
    found = layout.fillings.best(layout.groups, layout.fillings.kind_of[task])
    if found is not None and layout.value + found[1].delta - layout.fillings.postponed < before - _GAIN:
        layout.put(task, *found)
    else:
        _put_back(layout, [task], host)


def _exchange(layout: Layout) -> None:
    """Two tasks change places: each alone would find no room or make its host late."""
    placed = [t for t in layout.fillings.order[:_PAIRED] if layout.host[t] != UNPLACED]
    tried: set[tuple[Filling, int, Filling, int]] = set()
    for first, second in combinations(placed, 2):
        hosts, kinds = (layout.host[first], layout.host[second]), (layout.fillings.kind_of[first], layout.fillings.kind_of[second])
        if hosts[0] == hosts[1] or kinds[0] == kinds[1]:
            continue
        before = layout.filling_of[hosts[0]], layout.filling_of[hosts[1]]
        pair = (before[0], kinds[0], before[1], kinds[1])
        if pair in tried:
            continue
        tried.add(pair)
        after = (
            layout.fillings.grow(layout.fillings.shrink(before[0], kinds[0]), kinds[1]),
            layout.fillings.grow(layout.fillings.shrink(before[1], kinds[1]), kinds[0]),
        )
        if after[0] is None or after[1] is None:
            continue
        if after[0].filling.worth + after[1].filling.worth < before[0].worth + before[1].worth - _GAIN:
            layout.take(first)
            layout.take(second)
            _put_back(layout, [first], hosts[1])
            _put_back(layout, [second], hosts[0])


def _move_all(layout: Layout, host: int) -> None:
    """Tasks together reach a larger host that none of them would move to alone."""
    tasks = [t for t in layout.fillings.order if layout.host[t] == host]
    before = layout.value
    for task in tasks:
        layout.take(task)
    best_value, best_to = before - _GAIN, host
    for filling in list(layout.groups):
        steps, value = filling, layout.value
        for task in tasks:
            step = layout.fillings.grow(steps, layout.fillings.kind_of[task])
            if step is None:
                break
            steps, value = step.filling, value + step.delta - layout.fillings.postponed
        else:
            if value < best_value:
                best_value, best_to = value, layout.groups[filling][-1]
    _put_back(layout, tasks, best_to)


def _put_back(layout: Layout, tasks: list[int], host: int) -> None:
    for task in tasks:
        before = layout.filling_of.get(host) or next(f for f, hosts in layout.groups.items() if host in hosts)
        step = layout.fillings.grow(before, layout.fillings.kind_of[task])
        if step is not None:  # there was room before, or the caller has checked
            layout.put(task, before, step, host)
