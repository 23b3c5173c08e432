"""The static policies: the paper's seven, and relative load balancing. What each prefers is in `kernels.preference`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.streams import kernels
from tiphys_models.streams.kernels import Candidates, preference
from tiphys_models.streams.stream import Stream

STATIC: Mapping[str, int] = {
    "closest": kernels.CLOSEST,
    "load-balancing": kernels.LOAD_BALANCING,
    "farthest": kernels.FARTHEST,
    "cheaper": kernels.CHEAPER,
    "random-latency": kernels.RANDOM_LATENCY,
    "random-load": kernels.RANDOM_LOAD,
    "least-impedance": kernels.LEAST_IMPEDANCE,
    "relative-load": kernels.RELATIVE_LOAD,
}
PAPER = tuple(STATIC)[:7]
SUMMARIES: Mapping[str, str] = {
    "closest": "The nearest site, by mean delay and two deviations; there the variant with most spare capacity.",
    "load-balancing": "The least load in queries a second, whatever the capacity.",
    "farthest": "The farthest site that is near enough; there the variant with most spare capacity.",
    "cheaper": "The slowest offer, by network and processing, that is fast enough.",
    "random-latency": "By chance, in inverse proportion to latency.",
    "random-load": "By chance, in proportion to capacity over load.",
    "least-impedance": "The fastest offer, by network and processing.",
    "relative-load": "The largest share of spare capacity after binding.",
}
_NO_WEIGHTS = np.zeros(kernels.WEIGHTS)


@dataclass(frozen=True, slots=True)
class StaticPolicy:
    """One of the policies in `STATIC`."""

    name: str
    kind: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", STATIC[self.name])

    def score(self, stream: Stream, candidates: Candidates) -> FloatArray:
        """One number an offer, the highest feasible one is taken; implements `BindingPolicy.score`."""
        return preference(self.kind, candidates, _NO_WEIGHTS)
