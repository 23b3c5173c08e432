"""What is believed of the cluster, as one decision is shown it: see `beliefs`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Believed:
    """What one decision may look at. Arrays belong to the state of placements and change with it: look, do not keep."""

    now_s: float
    node_cores: FloatArray
    """Cores of every row of the table of all known nodes."""
    speed: FloatArray
    """How fast each of these is beside the others."""
    warm: BoolArray
    """Per candidate: whether an idle instance of the function is listed."""
    idle_bytes: FloatArray
    """Per candidate: memory of all listed instances."""
    idle_value_s: Callable[[BoolArray], FloatArray]
    """Per candidate that is asked for: what all listed instances would save their functions; zero for the others."""
    profile: FloatArray
    """What is believed of the request's function, in the order of `learned_profiles`."""
    known: bool
    """Whether enough is known of it to judge it by."""
    own_function: int
    """-1 before its first call."""
    profiles: FloatArray
    """float64[functions, 4]: what is believed of each."""
    least_share: float
    """Share of its expected time that an overdue call has still to go."""
    open_row: IntArray
    """Per unfinished call of the cluster: row of its node; -1 for a node nobody knows (yet)."""
    open_at_s: FloatArray
    open_function: IntArray
    open_cold: BoolArray
