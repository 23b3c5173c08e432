"""Placement as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from tiphys_models.features.arrays import FloatArray
from tiphys_models.features.schema import FEATURES
from tiphys_models.sim.cluster import new_cluster
from tiphys_models.sim.decide import encode_seen
from tiphys_models.sim.episode import records_of
from tiphys_models.sim.events import drain, put
from tiphys_models.sim.observe import new_seen, publish, reserve, take_sample
from tiphys_models.sim.run import move_to
from tiphys_models.sim.scenario import Scenario, make_fleet
from tiphys_models.sim.workloads import MULTI, Split, Workload, make_workload

_SEEDS = 2**31


class PlacementEnv(gym.Env[FloatArray, np.int64]):
    """One step is one call of a workload that wants a node.

    | | |
    |---|---|
    | observation | float32[nodes, inputs]: what the score network reads, unscaled: `FEATURES`, then `OUTLOOK` if `inputs` is 42 |
    | action | the node, 0 .. nodes - 1; a full node queues the call |
    | reward | minus the integral of calls in flight until the next call arrives, in call-seconds; the last one takes the tail |
    | terminated | with the last call of the workload; the sum of rewards is then minus the sum of all completion times |
    | truncated | never |
    | info | `call`, `time_s`; at the end `records` |

    `reset(seed=...)` draws workload and seed from the split's own random streams; `options={"workload": Workload}` plays a given one.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self, scenario: Scenario | None = None, names: tuple[str, ...] = MULTI, split: Split = "train", inputs: int = len(FEATURES)
    ) -> None:
        self.scenario = scenario or Scenario()
        if self.scenario.events:
            raise ValueError("the environment has a fixed number of nodes: choose a scenario without node events")
        self.names, self.split, self.inputs = names, split, inputs
        nodes = self.scenario.nodes
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (nodes, inputs), np.float32)
        self.action_space = gym.spaces.Discrete(nodes)
        self._rows = np.arange(nodes)
        self._call = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[FloatArray, dict[str, Any]]:
        """An empty cluster and the first call."""
        super().reset(seed=seed)
        given = (options or {}).get("workload")
        self.workload: Workload = given if given is not None else self._draw()
        calls, scenario = len(self.workload), self.scenario
        self._fleet = make_fleet(scenario, self.workload)
        self._cluster = new_cluster(scenario.cores(), scenario.capacity_bytes(), float(self._fleet.functions["memory"].min()), calls)
        self._seen = new_seen(scenario.nodes, len(self._fleet.functions), calls, scenario.period_s, scenario.delay_s)
        take_sample(self._cluster, self._fleet, self._seen, 0.0, scenario.period_s)
        publish(self._cluster, self._fleet, self._seen, 0.0)
        self._call = 0
        return self._observe(), self._info()

    def step(self, action: np.int64) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Place the call; time runs to the next one, or until nothing is left."""
        k, t = self._call, self._now_s
        reserve(self._cluster, self._fleet, self._seen, k, int(action), t)
        put(self._cluster, self._fleet, k, int(action), t)
        self._call += 1
        if self._call < len(self.workload):
            observation = self._observe()
            return observation, -self._integral(t, self._now_s), False, False, self._info()
        for n in range(self.scenario.nodes):
            drain(self._cluster, self._fleet, n)
        records = records_of(self.workload, self._cluster)
        last = np.zeros(self.observation_space.shape or (), np.float32)
        return last, -self._integral(t, np.inf), True, False, {"records": records}

    @property
    def _now_s(self) -> float:
        return float(self.workload.arrival_s[self._call])

    def _draw(self) -> Workload:
        name = self.names[int(self.np_random.integers(len(self.names)))]
        return make_workload(name, self.split, int(self.np_random.integers(_SEEDS)), self.scenario.nodes)

    def _observe(self) -> FloatArray:
        scenario, t = self.scenario, self._now_s
        move_to(self._cluster, self._fleet, self._seen, t, scenario.period_s, scenario.delay_s)
        return encode_seen(self._cluster, self._fleet, self._seen, self._rows, self._rows, self._call, t, self.inputs)

    def _integral(self, since_s: float, until_s: float) -> float:
        placed = self._call
        finish = self._cluster.calls["finish_s"][:placed]
        end = np.where(np.isnan(finish), until_s, np.minimum(finish, until_s))
        return float(np.maximum(end - np.maximum(self.workload.arrival_s[:placed], since_s), 0.0).sum())

    def _info(self) -> dict[str, Any]:
        return {"call": self._call, "time_s": self._now_s}
