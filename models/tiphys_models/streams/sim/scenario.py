"""The modelling choices that decide results. The default is that of the published tables; the others change one choice each."""

from __future__ import annotations

from dataclasses import dataclass

from tiphys_models.streams.kernels import VARIABILITY
from tiphys_models.streams.protocol import CEILING

HORIZON_S = 600.0
WINDOW_S = 5.0
LONGEST_WAIT_S = 0.5
"""A query that would wait longer is dropped."""
LAMBDA = 60.0
"""Clients a minute and antenna: what everything is calibrated, and `aset` trained, at."""
UNSEEN_LAMBDAS = (20.0, 40.0, 80.0, 100.0)


@dataclass(frozen=True, slots=True)
class StreamScenario:
    """How much is known, how much is given away, and how queries queue."""

    name: str = "default"
    view_s: float = 1.0
    """Other access sites' bindings are heard of so often; 0: at once."""
    own_at_once: bool = True
    """Whether an access site counts its own bindings before the next refresh."""
    ceiling: float = CEILING
    tie: str = "spare"
    """What decides between equals: most spare capacity, the name, chance."""
    variability: float = VARIABILITY
    """Variability of arrivals and service together, in the tick version's mean wait: fitted to events with periodic frames; 0: fluid."""
    tick_s: float = 1.0
    events: bool = False
    """Query by query instead of per tick: 30 times slower."""
    poisson_frames: bool = False
    """Events only: frames come at random instead of periodically."""
    warm_up_s: float = 0.0
    """Queries before it are not counted: episodes begin empty."""


DEFAULT_SCENARIO = StreamScenario()
SENSITIVITY: tuple[StreamScenario, ...] = (
    StreamScenario("exact-view", view_s=0.0),
    StreamScenario("others-and-own-late", own_at_once=False),
    StreamScenario("ceiling-1", ceiling=1.0),
    StreamScenario("ceiling-0.8", ceiling=0.8),
    StreamScenario("tie-name", tie="name"),
    StreamScenario("tie-random", tie="random"),
    StreamScenario("fluid", variability=0.0),
    StreamScenario("events", events=True),
    StreamScenario("events-poisson", events=True, poisson_frames=True),
    StreamScenario("warm", warm_up_s=120.0),
)
