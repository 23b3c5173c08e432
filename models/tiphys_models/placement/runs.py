"""How long the runs of a function really take: only to notice that what was declared of it cannot be true."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping

from tiphys_models.placement.calls import FunctionProfile

ENOUGH = 8
"""Runs before anything is said. The last so many count, so that a function that has changed is judged by what it is now."""
FACTOR = 3.0
SLACK_S = 1.0
"""The API server's times have whole seconds, and a kubelet takes a part of one to say that a container has ended."""
_FUNCTIONS = 10_000


def contradicted(profile: FunctionProfile, runs_s: tuple[float, ...]) -> bool:
    """Whether a function whose last runs took so long cannot be what the profile says.

    A profile is of calls that had a node to themselves. Calls that share one take longer, never shorter, so a profile is too long if
    the runs' mean is a third of the shorter of its two times, and too short only if even the fastest run took thrice the longer one.
    Which of the two times holds is not asked: whether an instance was warm is a guess where no runtime says so.
    """
    if len(runs_s) < ENOUGH:
        return False
    shortest_s, longest_s = sorted((profile.warm_s, profile.cold_s))
    return math.fsum(runs_s) / len(runs_s) * FACTOR + SLACK_S < shortest_s or min(runs_s) > longest_s * FACTOR + SLACK_S


class RunTimes:
    """The last runs of each function; of the functions that ran longest ago nothing is kept."""

    def __init__(self, max_functions: int = _FUNCTIONS) -> None:
        self._max_functions = max_functions
        self._runs_s: OrderedDict[str, tuple[float, ...]] = OrderedDict()  # most ran once, as Jobs do: a deque takes 700 bytes
        self._contradicted: set[str] = set()

    def __len__(self) -> int:
        return len(self._runs_s)

    def contradict(self, function: str) -> bool:
        """Whether the profile that was last compared cannot be true."""
        return function in self._contradicted

    def learn(self, function: str, took_s: float, profile: FunctionProfile | None) -> None:
        """A run of the function has ended, so long after it was placed."""
        if not (function and 0 <= took_s < math.inf):  # a clock that was set back says nothing about a run
            return
        self._runs_s[function] = (*self._runs_s.get(function, ()), took_s)[-ENOUGH:]
        self._runs_s.move_to_end(function)
        if len(self._runs_s) > self._max_functions:
            oldest, _ = self._runs_s.popitem(last=False)
            self._contradicted.discard(oldest)
        self._compare(function, profile)

    def compare(self, profiles: Mapping[str, FunctionProfile]) -> None:
        """These profiles are new, or come again."""
        for function in self._runs_s.keys() & profiles.keys():  # a function without runs contradicts nothing
            self._compare(function, profiles[function])

    def _compare(self, function: str, profile: FunctionProfile | None) -> None:
        if profile is not None and contradicted(profile, self._runs_s.get(function, ())):
            self._contradicted.add(function)
        else:
            self._contradicted.discard(function)
