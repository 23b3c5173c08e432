"""Scaling as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from tiphys_models.features.arrays import FloatArray
from tiphys_models.scaling.moves import Moves, Multiples
from tiphys_models.scaling.reward import bill
from tiphys_models.scaling.settings import RULE
from tiphys_models.sim.scaling.episode import Episode
from tiphys_models.sim.scaling.fluid import FluidServices
from tiphys_models.sim.scaling.load import draw_load
from tiphys_models.sim.scaling.scenario import FIBONACCI, Scenario
from tiphys_models.sim.scaling.shapes import HOUR_S, SHAPES, Shape, make_shape

_SEEDS = 2**31


class ScalingEnv(gym.Env[FloatArray, np.int64]):
    """One step is one window of a service in the fluid simulator.

    | | |
    |---|---|
    | observation | float32[width]: the inputs of `moves`, for `combined` those of `scaling.encoding` |
    | action | index into `moves.actions`; an action that is not possible now counts as the first that is |
    | reward | minus what the window just played cost, in CPU-hours an hour, minus `price` times the share of late answers in it |
    | terminated | never |
    | truncated | with the last whole window of the shape |
    | info | `possible` (bool[actions]), `window`, `replicas`, `cpu_m`; at the end `records` |

    `reset(seed=...)` draws shape and seed from the split's own random streams; `options={"shape": Shape}` plays a given one.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self, scenario: Scenario | None = None, moves: Moves | None = None, price: float = 3.0, names: tuple[str, ...] = SHAPES,
        split: str = "train", seconds: int = HOUR_S,
    ) -> None:  # fmt: skip
        self.scenario, self.moves, self.price = scenario or Scenario(), moves or Multiples(RULE), price
        if self.moves.services != 1:
            raise ValueError("the environment has one service: choose moves of one")
        self.names, self.split, self.seconds = names, split, seconds
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (self.moves.width,), np.float32)
        self.action_space = gym.spaces.Discrete(len(self.moves.actions))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[FloatArray, dict[str, Any]]:
        """The first windows, with enough, until there is a reading."""
        super().reset(seed=seed)
        given: Shape | None = (options or {}).get("shape")
        load = draw_load(given if given is not None else self._draw(), FIBONACCI)
        self._episode = Episode([load], self.scenario, FluidServices([load], self.scenario))
        self._episode.advance()
        while self._episode.seen() is None:
            self._episode.advance()
        return self._observe()

    def step(self, action: np.int64) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Sizes change at once; a window passes."""
        e, seen = self._episode, self._episode.seen()
        if seen is None or e.over:
            raise RuntimeError("reset() comes first, and after the end again")
        look = self.moves.look(seen)
        possible = self.moves.possible(look)[0]
        taken = int(action) if possible[int(action)] else int(possible.argmax())
        e.apply(seen, self.moves.take(look, np.array([taken], np.int64)))
        r = e.advance()
        cost = float(bill(e.replicas, e.cpu_m)[0])
        late = float(r.late[0] / r.completed[0]) if r.completed[0] > 0 else float(r.in_flight[0] > 0)
        observation, info = self._observe()
        over = self._episode.over
        if over:
            info["records"] = e.records()
        return observation, -cost - self.price * late, False, over, info

    def _draw(self) -> Shape:
        name = self.names[int(self.np_random.integers(len(self.names)))]
        return make_shape(name, self.split, int(self.np_random.integers(_SEEDS)), self.seconds)

    def _observe(self) -> tuple[FloatArray, dict[str, Any]]:
        e, seen = self._episode, self._episode.seen()
        if seen is None:
            raise RuntimeError("nothing has been measured yet")
        look = self.moves.look(seen)
        inputs = self.moves.inputs(look, np.array([self.price]))[0].astype(np.float32)
        info = {"possible": self.moves.possible(look)[0], "window": e.window, "replicas": int(e.replicas[0]), "cpu_m": float(e.cpu_m[0])}
        return inputs, info
