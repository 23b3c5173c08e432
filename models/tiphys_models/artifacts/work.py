"""How much work a network may make of one decision. What is asked on the hot path is bounded by what was measured there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tiphys_models.base.errors import ArtifactRefused

REASON = "TooMuchWork"


@dataclass(frozen=True, slots=True)
class Work:
    """Bounds of a network."""

    layers: int
    width: int
    """Most neurons of each layer, inputs included."""
    multiply_adds: int
    """Most multiplications and additions for one row: the sizes of all weight matrices together."""


SCORING = Work(layers=3, width=256, multiply_adds=32_768)
"""Once for each candidate node, on the loop that answers the scheduler. On one core of 2.5 GHz 5,000 candidates take 4 ms at this bound and
13 ms at five times as much; an answer has 20 ms, encoding and ranking included. The shipped networks have 1,904."""
AGENT = Work(layers=6, width=1_024, multiply_adds=1_048_576)
"""Once a window for one row, off the loop: below 1 ms. The shipped agents have below 25,000."""


def check_work(widths: Sequence[int], most: Work, origin: str) -> None:
    """Widths from inputs to outputs; ArtifactRefused with the first bound that is exceeded."""
    if len(widths) - 1 > most.layers:
        raise ArtifactRefused(REASON, f"{origin}: {len(widths) - 1} layers, at most {most.layers} are served")
    if max(widths) > most.width:
        raise ArtifactRefused(REASON, f"{origin}: a layer of {max(widths)}, at most {most.width} are served")
    if (work := sum(a * b for a, b in pairwise(widths))) > most.multiply_adds:
        raise ArtifactRefused(REASON, f"{origin}: {work:,} multiplications a row, at most {most.multiply_adds:,} are served")
