"""Whether a policy that has just ranked candidates would rather have the call wait."""

from __future__ import annotations

import numpy as np

from tiphys_extender.placement.decide import Ranking, World
from tiphys_models.placement.candidates import PlacementRequest
from tiphys_models.placement.learned_profiles import saved_by_warmth
from tiphys_models.placement.protocol import patient
from tiphys_models.placement.table import UNKNOWN
from tiphys_models.placement.waiting import LOOK_AGAIN_S, NotYet


def wanted_wait(world: World, request: PlacementRequest, ranking: Ranking, before: int = 0) -> NotYet | None:
    """What waiting is expected to bring, if anything; `before` calls of the function wait in front. What the policy raises is raised."""
    rows, first = ranking.rows, ranking.best_first[0]
    able = patient(ranking.policy)
    if able is None or rows[first] == UNKNOWN:
        return None
    known = rows != UNKNOWN
    view = world.state.view(request, rows[known])
    best = int(np.count_nonzero(known[:first]))
    believed = view.believed()
    if before and believed.warm[best] and int(believed.warm.sum()) <= before:
        return NotYet(LOOK_AGAIN_S, saved_by_warmth(believed.profile))  # what is idle belongs to those in front
    return able.not_yet(view, ranking.scores[known], best, before)
