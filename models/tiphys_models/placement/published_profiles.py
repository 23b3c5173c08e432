"""What one cluster has learned of its functions, as an artifact that another one takes for a declaration.

Weights are one array, a row a function in the order in which the card names them: seconds of a start, core-seconds of a warm and of a
cold call, cores used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from tiphys_models.artifacts.card import Card, Provenance, read_card
from tiphys_models.artifacts.files import Parts
from tiphys_models.artifacts.tensors import check_tensors, write_tensors
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused, InvalidInput
from tiphys_models.placement.checkpoint import NAME_MAX, Learned
from tiphys_models.placement.learned_profiles import (
    CORES_USED,
    ENDED,
    ENOUGH,
    NOTHING_KNOWN,
    TYPICAL_CALLS,
    WARM_WORK,
    WIDTH,
    believe,
)

POLICY = "estimator"
SCHEMA = "learned-profiles/1"
_MOST = 1e7
_LEAST_CORES, _MOST_CORES = 0.01, 1e4
_NAMES_BYTES = 48 * 1024
"""Room for names in a card, which may have 64 KiB as an object of a cluster."""


class ProfilesCard(Card):
    """The card of such an artifact."""

    functions: tuple[str, ...] = Field(description="The function of each row of the array, as namespace/name.")


@dataclass(frozen=True, slots=True)
class PublishedProfiles:
    """Profiles by function, in the order of `learned_profiles`."""

    profiles: Mapping[str, FloatArray]


def load(parts: Parts) -> PublishedProfiles:
    """The profiles of a checked artifact."""
    functions = read_card(parts, ProfilesCard).functions
    if len(set(functions)) != len(functions) or not all(0 < len(name) <= NAME_MAX for name in functions):
        raise ArtifactRefused("CardInvalid", f"{parts.origin}: functions: a name is empty, too long, or there twice")
    rows = np.asarray(check_tensors(parts, SCHEMA, {"profiles": (len(functions), 4)})["profiles"], np.float64)
    cores = rows[:, CORES_USED]
    if (rows < 0).any() or (rows > _MOST).any() or (cores < _LEAST_CORES).any() or (cores > _MOST_CORES).any():
        raise ArtifactRefused("NotFinite", f"{parts.origin}: profiles: a number that no call of a function can have")
    rows[:, WARM_WORK] = np.minimum(rows[:, WARM_WORK], rows[:, WARM_WORK + 1])  # else nobody would ever try a warm call
    return PublishedProfiles(dict(zip(functions, rows, strict=True)))


def export(learned: Learned, directory: Path, name: str, **evidence: Any) -> tuple[int, int]:
    """Write an artifact of all functions that enough is known of, those with the most ended calls first; how many, and how many are left
    out: too little is known of them, or nobody has seen their processor time, or the card has no room."""
    known = [(float(row[ENDED]), function) for function, row in learned.functions.items() if row[ENDED] >= ENOUGH and row[WIDTH] >= ENOUGH]
    taken: list[str] = []
    room = _NAMES_BYTES
    for _, function in sorted(known, key=lambda found: (-found[0], found[1])):
        room -= len(function.encode()) + 8
        if room < 0:
            break
        taken.append(function)
    if not taken:
        raise InvalidInput("nothing to export: of no function enough calls were seen to end, with their processor time")
    prior = np.array(NOTHING_KNOWN)
    rows = np.stack([believe(learned.functions[function][:WIDTH], prior, TYPICAL_CALLS) for function in taken])
    provenance = Provenance(command="tiphys model export", evidence=f"{len(taken)} functions, learned online")
    write_tensors(
        directory, name, POLICY, SCHEMA, {"profiles": rows}, functions=taken, system="placement", provenance=provenance, **evidence
    )
    return len(taken), len(learned.functions) - len(taken)
