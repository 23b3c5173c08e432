"""`aset-paper`: deep Q-learning over the history of windows, epsilon-greedy, episodes that end when too little succeeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from tiphys_models.binding.paper import HISTORY, WIDTH, History, PaperAgent
from tiphys_models.binding.rules import PAPER
from tiphys_models.features.arrays import FloatArray
from tiphys_models.nets.binding import ConvQ
from tiphys_models.sim.binding.choosers import PaperWatcher
from tiphys_models.sim.binding.episode import STATIC_ACTIONS, Episode, Moment, Outcome
from tiphys_models.sim.binding.scenario import LAMBDA
from tiphys_models.sim.binding.search import Tell
from tiphys_models.sim.binding.topology import make_topology
from tiphys_models.sim.binding.workloads import make_streams
from tiphys_models.sim.workloads import stream


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
    """Of all episodes: epsilon falls from 1 over these."""
    least_success: float = 0.3
    """An episode ends below."""


class Memory:
    """Windows of one ring buffer; a state is its window and those before it."""

    def __init__(self, size: int) -> None:
        self.states = np.zeros((size, HISTORY, WIDTH), np.float16)
        self.following = np.zeros((size, HISTORY, WIDTH), np.float16)
        self.taken, self.reward, self.ended = np.zeros(size, np.int64), np.zeros(size, np.float32), np.zeros(size, np.float32)
        self.count = 0

    def push(self, state: FloatArray, taken: int, reward: float, following: FloatArray, *, ended: bool) -> None:
        """The oldest is overwritten."""
        at = self.count % len(self.taken)
        self.states[at], self.following[at] = state.T, following.T
        self.taken[at], self.reward[at], self.ended[at] = taken, reward, ended
        self.count += 1


def epsilon_of(preset: PaperPreset, episode: int) -> float:
    """From 1 in a straight line."""
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
        episode, watcher, history = Episode(where.world, streams), PaperWatcher(where.offers, streams), History()
        last: Outcome | None = None
        state = history.push(watcher.features(Moment(0, None, episode)))
        success: list[float] = []
        while not episode.over:
            greedy = rng.random() >= epsilon
            taken = PaperAgent(net.arrays()).choose(state) if greedy else int(rng.integers(len(PAPER)))
            last = episode.window(STATIC_ACTIONS[taken])
            success.append(last.success)
            failed = last.success < preset.least_success
            following = history.push(watcher.features(Moment(len(success), last, episode)))
            memory.push(state, taken, last.success, following, ended=failed)
            state = following
            if memory.count >= preset.batch:
                _update(net, target, optimiser, memory, preset, rng)
            if memory.count % preset.sync == 0:
                target.load_state_dict(net.state_dict())
            if failed:
                break
        if number % 20 == 0:
            tell(f"  episode {number}: success {100 * float(np.mean(success)):.1f} %, epsilon {epsilon:.2f}")
    return net.arrays()


def _update(
    net: ConvQ, target: ConvQ, optimiser: torch.optim.Optimizer, memory: Memory, preset: PaperPreset, rng: np.random.Generator
) -> None:
    rows = rng.integers(min(memory.count, len(memory.taken)), size=preset.batch)
    state, following = (torch.as_tensor(a[rows].astype(np.float32).transpose(0, 2, 1)) for a in (memory.states, memory.following))
    taken, reward, ended = (torch.as_tensor(a[rows]) for a in (memory.taken, memory.reward, memory.ended))
    with torch.no_grad():
        best = net(following).argmax(dim=1, keepdim=True)
        wanted = reward + preset.gamma * (1 - ended) * target(following).gather(1, best)[:, 0]
    optimiser.zero_grad()
    nn.functional.huber_loss(net(state).gather(1, taken[:, None])[:, 0], wanted).backward()
    optimiser.step()
