"""Whether a pod that carries the gate had better wait: the decision that the scheduler would be answered with, asked for beforehand."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tiphys_extender.gates.room import HeldPod
from tiphys_extender.gates.shapes import NodeShapes
from tiphys_extender.placement.decide import Ranking, World, decide
from tiphys_extender.placement.patience import wanted_wait
from tiphys_models.api.reasons import NeutralReason, OpenReason
from tiphys_models.base.arrays import IntArray
from tiphys_models.placement.candidates import PlacementRequest
from tiphys_models.placement.estimator import RUN, START
from tiphys_models.placement.patient import Estimator
from tiphys_models.placement.protocol import patient
from tiphys_models.placement.table import UNKNOWN
from tiphys_models.placement.waiting import NotYet

_log = logging.getLogger(__name__)

MOST_CANDIDATES = 500
"""Nodes that are ranked: as many as a scheduler asks about in large clusters."""
_ESTIMATOR = Estimator()
_REASONS = {
    NeutralReason.NO_POLICY: OpenReason.NO_POLICY,
    NeutralReason.MODE_OFF: OpenReason.NOT_OBEYED,
    NeutralReason.SHADOW: OpenReason.NOT_OBEYED,
    NeutralReason.CANARY: OpenReason.NOT_OBEYED,
    NeutralReason.DISABLED: OpenReason.DISABLED,
    NeutralReason.OTHER_SCHEDULER: OpenReason.OTHER_SCHEDULER,
    NeutralReason.NOT_SYNCED: OpenReason.NOT_SYNCED,
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look at a pod came to."""

    reason: OpenReason | None
    """Why it goes; None: not yet."""
    wait: NotYet | None = None
    """What waiting is expected to bring, for those who wait."""
    request: PlacementRequest | None = None
    node: str = ""
    """Where it is expected to go; empty where nobody has an opinion."""
    go_s: float = math.nan
    """Seconds after which it is expected to be done if it goes now; NaN where nobody knows."""


def look(world: World, shapes: NodeShapes, held: HeldPod, before: int, *, due: bool, now_s: float, in_time: Callable[[], bool]) -> Verdict:
    """Whether the pod goes, and where, or waits; `before` pods of its function wait in front of it, and `due` ones wait no longer.

    Nothing is changed. Whatever fails, the pod goes.
    """
    try:
        rows = _few(world, held.function, shapes.that_take(held.needs, held.cpu_milli, held.memory_bytes))
        if not len(rows):
            return Verdict(OpenReason.FITS_NOWHERE)
        names = [world.state.nodes.names[row] for row in rows.tolist()]
        decision = decide(world, held.pod, names, now_s, in_time)
        ranking, request = decision.ranking, decision.request
        if ranking is None or request is None or not decision.reserves:
            return Verdict(_REASONS.get(NeutralReason(decision.reason), OpenReason.IN_DOUBT))
        node = names[ranking.best_first[0]]
        if patient(ranking.policy) is None:
            return Verdict(OpenReason.NOT_PATIENT)
        if due:
            return Verdict(OpenReason.BOUND, None, request, node)
        if (wait := wanted_wait(world, request, ranking, before)) is not None:
            return Verdict(None, wait, request, node, math.nan if held.held else _alone_s(world, request, ranking))
        warm = world.state.beliefs.books.warm(request.function, ranking.rows[ranking.best_first[:1]])[0]
        return Verdict(OpenReason.WARM if warm else OpenReason.COLD, None, request, node)
    except Exception as error:  # noqa: BLE001 - a pod goes now where nobody can say whether it had better wait
        _log.error("a look at a held pod failed", extra={"fields": {"error": type(error).__name__}})
        return Verdict(OpenReason.IN_DOUBT)


def _few(world: World, function: str, rows: IntArray) -> IntArray:
    """No more rows than are ranked: those with an idle instance first, then the emptiest."""
    if len(rows) <= MOST_CANDIDATES:
        return rows
    nodes = world.state.nodes
    warm = world.state.beliefs.books.warm(function, rows)
    full = nodes.inflight[rows] / np.maximum(nodes.cores[rows], 1e-3)
    return rows[np.lexsort((rows, full, ~warm))[:MOST_CANDIDATES]]


def _alone_s(world: World, request: PlacementRequest, ranking: Ranking) -> float:
    """When the pod is expected to be done on the best node, from now: its own start and run there."""
    row = ranking.rows[ranking.best_first[:1]]
    if row[0] == UNKNOWN or (costs := _ESTIMATOR.costs(world.state.view(request, row))) is None:
        return math.nan
    return float(costs[0, START] + costs[0, RUN])
