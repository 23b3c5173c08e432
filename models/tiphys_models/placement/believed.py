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
    speed: Callable[[IntArray], FloatArray]
    """How fast the nodes of these rows are beside all others."""
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
    measured: bool
    """Whether anybody has seen, or said, how many cores its calls use."""
    own_function: int
    """-1 before its first call."""
    profiles: FloatArray
    """float64[functions, 4]: what is believed of each."""
    cores_used: FloatArray
    """Cores that a call of each function uses."""
    alone_start_s: FloatArray
    """What a start takes on a node of its own: of a warm call of function f at place 2f, of a cold one at 2f + 1."""
    alone_run_s: FloatArray
    """What the run takes there, in the same order."""
    least_share: float
    """Share of its expected time that an overdue call has still to go."""
    threads: Callable[[], FloatArray]
    """Cores that the unfinished calls on every row could use together."""
    open_row: IntArray
    """Per unfinished call of the cluster: row of its node; -1 for a node nobody knows (yet)."""
    open_at_s: FloatArray
    open_function: IntArray
    open_cold: BoolArray
