"""`aset-paper`: deep Q-learning over the history of windows, epsilon-greedy, episodes that end when too little succeeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.base.random import stream
from tiphys_models.base.replay import Replay
from tiphys_models.lab.dqn import Batch, loss, wanted
from tiphys_models.lab.fit import descend
from tiphys_models.streams.paper import HISTORY, WIDTH, PaperAgent, WindowHistory
from tiphys_models.streams.rules import PAPER
from tiphys_models.streams.sim.choosers import PaperWatcher
from tiphys_models.streams.sim.episode import STATIC_ACTIONS, QueryFractions, StreamEpisode, WindowMoment
from tiphys_models.streams.sim.scenario import LAMBDA
from tiphys_models.streams.sim.search import Tell
from tiphys_models.streams.sim.topology import make_topology
from tiphys_models.streams.sim.workloads import make_streams
from tiphys_models.streams.train.net import ConvQ


@dataclass(frozen=True, slots=True)
class PaperPreset:
    """The paper says deep Q-learning, convolutions, decaying epsilon; numbers are ours. One update a window."""

    episodes: int = 300
    gamma: float = 0.95
    rate: float = 5e-4
    batch: int = 64
    memory: int = 50_000
    sync: int = 500
    epsilon_end: float = 0.05
    decay_share: float = 0.6
    """Share of all episodes over which epsilon falls from 1."""
    least_success: float = 0.3
    """An episode ends below."""


class Memory:
    """Transitions of one ring buffer, windows of another, each kept once; a state is its window and those before it in the episode."""

    def __init__(self, size: int) -> None:
        # an episode has one window more than transitions: with the shortest of one transition each, twice as many as those
        self.windows = np.zeros((2 * size + HISTORY + 1, WIDTH), np.float16)
        numbers = dict.fromkeys(("newest", "before", "taken"), ((), np.int64))
        self.steps = Replay(size, numbers | dict.fromkeys(("reward", "going_on"), ((), np.float32)))
        """`newest`: number of each state's window; `before`: how many windows its episode had before."""
        self._windows, self._began = 0, 0
        """How many windows came in all, and before this episode."""

    def begin(self, window: FloatArray) -> None:
        """The first window of an episode."""
        self._began = self._windows
        self._keep(window)

    def push(self, taken: int, reward: float, following: FloatArray, *, ended: bool) -> None:
        """What was done after the newest window, and the window that came of it. The oldest is overwritten."""
        newest = self._windows - 1
        row = {"newest": newest, "before": newest - self._began, "taken": taken, "reward": reward, "going_on": 1.0 - ended}
        self.steps.add(**{name: np.array([value]) for name, value in row.items()})
        self._keep(following)

    def states(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """[rows, WIDTH, HISTORY] each: states and those that followed, zeros before an episode's first window, as in `WindowHistory`."""
        back = np.arange(HISTORY - 1, -2, -1)
        stacked = self.windows[(self.steps["newest"][rows, None] - back) % len(self.windows)]
        stacked[back > self.steps["before"][rows, None]] = 0.0
        state, following = (part.astype(np.float32).transpose(0, 2, 1) for part in (stacked[:, :-1], stacked[:, 1:]))
        return state, following

    def _keep(self, window: FloatArray) -> None:
        self.windows[self._windows % len(self.windows)] = window
        self._windows += 1


def epsilon_of(preset: PaperPreset, episode: int) -> float:
    """Epsilon of an episode: it falls from 1 in a straight line to `epsilon_end`."""
    return max(1 - (1 - preset.epsilon_end) * episode / (preset.decay_share * preset.episodes), preset.epsilon_end)


def train_paper(preset: PaperPreset, seed: int, tell: Tell) -> dict[str, FloatArray]:
    """Double-DQN target; full-edge at lambda 60 only."""
    rng = stream("binding", "trainer", "aset-paper", seed)
    net, target = ConvQ(seed), ConvQ(seed)
    optimiser = torch.optim.Adam(net.parameters(), lr=preset.rate)
    memory = Memory(min(preset.memory, preset.episodes * 120))
    where = make_topology("full-edge")
    for number in range(preset.episodes):
        epsilon = epsilon_of(preset, number)
        streams = make_streams("train", int(rng.integers(2**31)), LAMBDA)
        episode, watcher, history = StreamEpisode(where.world, streams), PaperWatcher(where.offers, streams), WindowHistory()
        last: QueryFractions | None = None
        window = watcher.features(WindowMoment(0, None, episode))
        memory.begin(window)
        success: list[float] = []
        while not episode.over:
            state = history.push(window)
            greedy = rng.random() >= epsilon
            taken = PaperAgent(net.arrays()).choose(state) if greedy else int(rng.integers(len(PAPER)))
            last = episode.window(STATIC_ACTIONS[taken])
            success.append(last.success)
            failed = last.success < preset.least_success
            window = watcher.features(WindowMoment(len(success), last, episode))
            memory.push(taken, last.success, window, ended=failed)
            if memory.steps.count >= preset.batch:
                _update(net, target, optimiser, memory, preset, rng)
            if memory.steps.count % preset.sync == 0:
                target.load_state_dict(net.state_dict())
            if failed:
                break
        if number % 20 == 0:
            tell(f"  episode {number}: success {100 * float(np.mean(success)):.1f} %, epsilon {epsilon:.2f}")
    return net.arrays()


def _update(
    net: ConvQ, target: ConvQ, optimiser: torch.optim.Optimizer, memory: Memory, preset: PaperPreset, rng: np.random.Generator
) -> None:
    rows = memory.steps.draw(preset.batch, rng)
    state, following = (torch.as_tensor(a) for a in memory.states(rows))
    taken, reward, going_on = (torch.as_tensor(memory.steps[name][rows]) for name in ("taken", "reward", "going_on"))
    batch = Batch(state, taken, reward, following, going_on=going_on)
    targets = wanted(batch, target, preset.gamma, net)
    descend(optimiser, loss(net(state), batch, targets))
