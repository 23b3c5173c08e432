"""Double n-step DQN over lock-step episodes; the price of a violation is an input, so that one training gives the whole frontier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tiphys_models.features.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.nets.selection import Trunk
from tiphys_models.scaling.learned import LearnedAgent
from tiphys_models.scaling.moves import Moves
from tiphys_models.selectors.network import Network
from tiphys_models.train.scaling.presets import Preset
from tiphys_models.train.scaling.rollouts import Rollout, Step
from tiphys_models.train.scaling.served import Served

REPLAY = 200_000
SERVED_SHARE = 0.5
"""Of a batch, where there are served transitions: the rest is simulated, so that what is rare in a cluster is not forgotten."""
TAU = 0.005
_IMPOSSIBLE = -1e9


class Replay:
    """Transitions in a ring."""

    def __init__(self, width: int, actions: int, size: int = REPLAY) -> None:
        self._inputs, self._after = np.zeros((size, width), np.float32), np.zeros((size, width), np.float32)
        self._possible = np.zeros((size, actions), np.bool_)
        self._action, self._return = np.zeros(size, np.int64), np.zeros(size, np.float32)
        self._size, self.count = size, 0

    def add(self, step: Step, gained: FloatArray, later: Step) -> None:
        """`gained`: discounted rewards from `step` up to `later`."""
        at = (self.count + np.arange(len(gained))) % self._size
        self._inputs[at], self._after[at], self._possible[at] = step.inputs, later.inputs, later.possible
        self._action[at], self._return[at] = step.action, gained
        self.count += len(gained)

    def draw(self, count: int, rng: np.random.Generator) -> list[Tensor]:
        """A batch: inputs, action, return, inputs after, possible after."""
        at = rng.integers(0, min(self.count, self._size), count)
        columns = (self._inputs, self._action, self._return, self._after, self._possible)
        return [torch.from_numpy(column[at]) for column in columns]


@dataclass(slots=True)
class Learner:
    """A network, its target and its optimiser."""

    preset: Preset
    moves: Moves
    seed: int
    base: LearnedAgent | None = None
    """What training goes on from."""
    served: Served | None = None

    def train(self, tell: Callable[[str], None]) -> LearnedAgent:
        """All rounds."""
        p, rng = self.preset, np.random.default_rng((self.seed, 7))
        widths = (self.moves.width, *p.hidden, len(self.moves.actions) + p.dueling)
        online, target = Trunk(widths, self.seed), Trunk(widths, self.seed)
        if self.base is not None:
            for trunk in (online, target):
                trunk.load_layers(self.base.network.layers)
        served = self._served()
        optimiser = torch.optim.Adam(online.parameters(), lr=p.rate[0])
        replay = Replay(self.moves.width, len(self.moves.actions))
        for number in range(p.rounds):
            part = number / max(p.rounds - 1, 1)
            explore = p.explore[0] + (p.explore[1] - p.explore[0]) * min(part / 0.6, 1.0)
            for group in optimiser.param_groups:
                group["lr"] = p.rate[0] * (p.rate[1] / p.rate[0]) ** part
            agent = self._agent(online)
            rollout = Rollout(p, self.moves, rng)
            steps = rollout.play(lambda x, ok, agent=agent, explore=explore: self._act(agent, x, ok, explore, rng))  # type: ignore[misc]
            _remember(replay, steps, p)
            losses = [self._update(online, target, optimiser, _batch(replay, served, p.batch, rng)) for _ in range(p.updates * len(steps))]
            reward = float(np.mean([s.reward.mean() for s in steps]))
            tell(f"  round {number + 1}/{p.rounds}: mean reward {reward:.3f}, loss {np.mean(losses):.4f}, exploring {explore:.2f}")
        return self._agent(online)

    def _served(self) -> Replay | None:
        s = self.served
        if s is None or not len(s):
            return None
        replay = Replay(self.moves.width, len(self.moves.actions), size=len(s))
        replay.add(Step(s.inputs, s.possible, s.action, s.gained), s.gained, Step(s.after, s.possible_after, s.action, s.gained))
        return replay

    def _agent(self, network: Trunk) -> LearnedAgent:
        return LearnedAgent(self.preset.name, self.moves, Network(network.layers()), self.preset.dueling, 1.0)

    def _act(self, agent: LearnedAgent, inputs: FloatArray, possible: BoolArray, explore: float, rng: np.random.Generator) -> IntArray:
        """The best, or, exploring, the rule's action half of the time and any possible one else."""
        best = np.where(possible, agent.values(inputs), -np.inf).argmax(axis=1)
        random = np.where(possible, rng.random(possible.shape), -1.0).argmax(axis=1)
        other = np.where((rng.random(len(best)) < 0.5) & possible[:, self.moves.stay], self.moves.stay, random)
        return np.asarray(np.where(rng.random(len(best)) < explore, other, best), np.int64)

    def _q(self, network: Trunk, inputs: Tensor) -> Tensor:
        out = network(inputs)
        return out[:, :1] + out[:, 1:] - out[:, 1:].mean(dim=1, keepdim=True) if self.preset.dueling else out

    def _update(self, online: Trunk, target: Trunk, optimiser: torch.optim.Optimizer, batch: list[Tensor]) -> float:
        inputs, action, gained, after, possible = batch
        with torch.no_grad():
            choice = self._q(online, after).masked_fill(~possible, _IMPOSSIBLE).argmax(dim=1, keepdim=True)
            wanted = gained + self.preset.gamma**self.preset.n_step * self._q(target, after).gather(1, choice)[:, 0]
        loss = nn.functional.huber_loss(self._q(online, inputs).gather(1, action[:, None])[:, 0], wanted)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 5.0)
        optimiser.step()
        with torch.no_grad():
            for mine, theirs in zip(target.parameters(), online.parameters(), strict=True):
                mine.lerp_(theirs, TAU)
        return float(loss.detach())


def _batch(replay: Replay, served: Replay | None, count: int, rng: np.random.Generator) -> list[Tensor]:
    if served is None:
        return replay.draw(count, rng)
    share = round(SERVED_SHARE * count)
    parts = zip(replay.draw(count - share, rng), served.draw(share, rng), strict=True)
    return [torch.cat(pair) for pair in parts]


def _remember(replay: Replay, steps: list[Step], p: Preset) -> None:
    """Episodes are cut off, never ended: the last steps have nothing after them and are left out."""
    for i in range(len(steps) - p.n_step):
        gained = sum(p.gamma**k * steps[i + k].reward for k in range(p.n_step))
        replay.add(steps[i], np.asarray(gained), steps[i + p.n_step])
