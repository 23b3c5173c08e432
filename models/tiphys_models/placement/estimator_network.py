"""The estimator, mended by a small network: what it adds to the cost of each candidate, and how far it trusts waiting (ADR 124).

The network reads what the estimator has worked out, and no reading of a node. Its answers are bounded, so that whatever the weights are,
the estimate still decides where it speaks clearly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tiphys_models.artifacts.card import Card, read_card
from tiphys_models.artifacts.files import Parts
from tiphys_models.artifacts.tensors import Tensors, check_tensors, write_tensors
from tiphys_models.artifacts.work import SCORING, check_work
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.placement.believed import Believed
from tiphys_models.placement.candidates import CandidateView, PlacementMemory
from tiphys_models.placement.estimator import total_s
from tiphys_models.placement.learned_profiles import COLD_WORK, CORES_USED, WARM_WORK, saved_by_warmth
from tiphys_models.placement.patient import EPSILON, Estimator, Outlook, left_and_same, not_yet, outlook, own_rests_s
from tiphys_models.placement.residual import (
    MOST_ADDED,
    MOST_TRUST,
    NODE_INPUTS,
    SCHEMA,
    WAIT_INPUTS,
    Head,
    bounded,
    forward,
    node_inputs,
    wait_inputs,
)
from tiphys_models.placement.waiting import SURE, NotYet, awaited_s

NAME = "estimator-network"
_ESTIMATOR = Estimator()
_HEADS = {"node": len(NODE_INPUTS), "wait": len(WAIT_INPUTS)}


class _Scene:
    """What one decision looks at, worked out once."""

    def __init__(self, view: CandidateView) -> None:
        self.view = view
        self.b: Believed = view.believed()
        self.saved_s = saved_by_warmth(self.b.profile)

    @property
    def judges(self) -> bool:
        """Whether enough is known of the function, and seen of its processor time, to judge it by an estimate."""
        return self.b.known and self.b.measured

    @cached_property
    def outlook(self) -> Outlook:
        """What a placement would mean for each candidate."""
        return outlook(self.view, self.b, everywhere=True)

    @cached_property
    def run_s(self) -> FloatArray:
        """Seconds of a run that nothing crowds."""
        b = self.b
        work = np.where(b.warm, b.profile[WARM_WORK], b.profile[COLD_WORK])
        run_s: FloatArray = work / b.profile[CORES_USED] / b.speed(self.view.rows)
        return run_s

    @cached_property
    def busy(self) -> FloatArray:
        """Memory of open calls over the node's."""
        return self.view.inflight_memory_bytes / np.maximum(self.view.memory_capacity_bytes, 1.0)

    @cached_property
    def filled(self) -> FloatArray:
        """The same with idle instances."""
        held = self.view.inflight_memory_bytes + self.b.idle_bytes
        filled: FloatArray = held / np.maximum(self.view.memory_capacity_bytes, 1.0)
        return filled

    def added_s(self, head: Head) -> FloatArray:
        """Seconds that the network adds to the cost of each candidate."""
        b, costs = self.b, self.outlook.costs
        left_s, same = left_and_same(self.view, b, self.outlook)
        rows = node_inputs(
            costs, self.run_s, b.warm * 1.0, left_s, same / b.node_cores[self.view.rows], self.filled, self.busy, self.saved_s
        )
        return self.saved_s * bounded(forward(rows, *head), MOST_ADDED)

    def trust(self, head: Head, best: int, gain_s: float, before: int) -> float:
        """What trust in waiting is multiplied by."""
        rests_s = own_rests_s(self.b)
        if len(rests_s) <= before:
            return 1.0
        warm_run_s = self.b.profile[WARM_WORK] / self.b.profile[CORES_USED]
        rows = wait_inputs(
            self.outlook.costs[best], self.run_s[best], float(self.filled.mean()), self.saved_s, warm_run_s, awaited_s(rests_s, before),
            gain_s, before, len(rests_s),
        )  # fmt: skip
        return float(np.exp(bounded(forward(rows, *head), MOST_TRUST)[0]))


@dataclass(frozen=True, slots=True)
class EstimatorNetwork:
    """The estimator with a trained correction of costs and of waiting; a function of which too little is known goes by the books."""

    heads: tuple[Head, Head]
    digest: str = ""
    name: str = NAME
    epsilon: float = EPSILON
    row_wise: bool = False

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Minus the seconds that a placement costs, mended."""
        scene = _Scene(view)
        if not scene.judges or not len(view.rows):
            return _ESTIMATOR.score(view, memory)
        scores: FloatArray = -(total_s(scene.outlook.costs) + scene.added_s(self.heads[0]))
        return scores

    def not_yet(self, view: CandidateView, scores: FloatArray, best: int, before: int) -> NotYet | None:
        """See `PatientPolicy`."""
        scene = _Scene(view)
        b = scene.b
        if not scene.judges:
            return _ESTIMATOR.not_yet(view, scores, best, before)
        gain_s = float(-scores.max() - b.profile[WARM_WORK] / b.profile[CORES_USED])
        if b.warm[best] or not gain_s > 0 or b.own_function < 0:
            return None
        return not_yet(view, b, best, before, SURE * gain_s * scene.trust(self.heads[1], best, gain_s, before), gain_s)


def load(parts: Parts) -> EstimatorNetwork:
    """The policy made of a checked artifact; whatever number of hidden units it has."""
    card = read_card(parts, Card)
    units = (card.tensors or {}).get("node.bias", (0,))[0]
    for width in _HEADS.values():
        check_work((width, units, 1), SCORING, parts.origin)
    if units < 1:
        raise ArtifactRefused("ShapeMismatch", f"{parts.origin}: the card must say how large node.bias is, at least 1")
    arrays = check_tensors(parts, SCHEMA, _shapes(units)).arrays
    node, wait = (Head(*(arrays[f"{head}.{part}"].astype(np.float64) for part in Head._fields)) for head in _HEADS)
    return EstimatorNetwork((node, wait), card.sha256)


def write(directory: Path, name: str, heads: tuple[Head, Head], **evidence: Any) -> Tensors:
    """The artifact of trained heads, read back as a service would."""
    named = dict(zip(_HEADS, heads, strict=True))
    arrays = {f"{key}.{part}": getattr(head, part) for key, head in named.items() for part in Head._fields}
    return write_tensors(directory, name, NAME, SCHEMA, arrays, system="placement", **evidence)


def _shapes(units: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for head, width in _HEADS.items():
        sizes = ((width,), (width, units), (units,), (units,))
        shapes |= {f"{head}.{part}": size for part, size in zip(Head._fields, sizes, strict=True)}
    return shapes
