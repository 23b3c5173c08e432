"""A policy that no compiler knows plays the very episode that compiled code plays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tiphys_models.base.arrays import FloatArray
from tiphys_models.streams.kernels import Candidates
from tiphys_models.streams.protocol import BindingPolicy
from tiphys_models.streams.rules import STATIC, StaticPolicy
from tiphys_models.streams.sim.episode import STATIC_ACTIONS, Action, FixedAction, play
from tiphys_models.streams.sim.interpreted import stream_of
from tiphys_models.streams.sim.scenario import DEFAULT_SCENARIO
from tiphys_models.streams.sim.topology import TASK, TOPOLOGIES, make_topology
from tiphys_models.streams.sim.workloads import NAMES, make_streams
from tiphys_models.streams.stream import Stream

HORIZON_S = 60.0


class Renamed:
    """A policy of ours as if another package brought it."""

    def __init__(self, policy: BindingPolicy) -> None:
        self._policy, self.name, self.asked = policy, "theirs", list[Stream]()

    def score(self, stream: Stream, candidates: Candidates) -> FloatArray:
        self.asked.append(stream)
        return self._policy.score(stream, candidates)


@pytest.mark.parametrize("name", ["closest", "random-load", "relative-load"])
@pytest.mark.parametrize("view_s", [0.0, 5.0])
def test_it_ends_as_the_compiled_policy_does(name: str, view_s: float) -> None:
    where, streams = make_topology(TOPOLOGIES[0]), make_streams("test", 0, 60.0, None, HORIZON_S)
    scenario = replace(DEFAULT_SCENARIO, view_s=view_s)
    theirs = Renamed(StaticPolicy(name))
    compiled = play(where.world, streams, FixedAction(STATIC_ACTIONS[list(STATIC).index(name)]), scenario, HORIZON_S)
    with np.errstate(all="ignore"):
        found = play(where.world, streams, FixedAction(Action.foreign(theirs)), scenario, HORIZON_S)
    np.testing.assert_allclose(found.outcome.tally, compiled.outcome.tally, rtol=1e-12)
    assert set(found.chosen) == {"theirs"}
    assert len(theirs.asked) > 20


def test_a_stream_is_shown_with_the_delay_that_is_left_and_the_application_by_name() -> None:
    streams = make_streams("test", 0, 60.0, None, HORIZON_S)
    for i in range(len(streams.start_s)):
        seen = stream_of(streams, i, NAMES)
        assert seen.slack_ms == pytest.approx(streams.slack_ms[i])
        assert (seen.task, seen.application, seen.draw) == (TASK, NAMES[streams.application[i]], int(streams.draw[i]))
