"""Double n-step DQN over lock-step episodes; the price of a violation is an input, so that one training gives the whole frontier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.base.network import Network
from tiphys_models.base.replay import Replay
from tiphys_models.lab.dqn import Batch, follow, loss, wanted
from tiphys_models.lab.fit import descend
from tiphys_models.lab.nets import Trunk
from tiphys_models.scaling.learned import LearnedAgent
from tiphys_models.scaling.moves import Moves
from tiphys_models.scaling.train.presets import Preset
from tiphys_models.scaling.train.rollouts import Rollout, Step
from tiphys_models.scaling.train.served import Served

REPLAY = 200_000
SERVED_SHARE = 0.5
"""Share of served transitions in a batch, if there are any: the rest is simulated, so that what is rare in a cluster is not forgotten."""
TAU = 0.005


def memory_of(width: int, actions: int, size: int = REPLAY) -> Replay:
    """An empty memory of n-step transitions."""
    return Replay(size, {
        "inputs": ((width,), np.float32), "action": ((), np.int64), "gained": ((), np.float32), "after": ((width,), np.float32),
        "possible": ((actions,), np.bool_),
    })  # fmt: skip


def _add(memory: Replay, step: Step, gained: FloatArray, later: Step) -> None:
    """`gained`: discounted rewards from `step` up to `later`."""
    memory.add(inputs=step.inputs, action=step.action, gained=gained, after=later.inputs, possible=later.possible)


def _draw(memory: Replay, count: int, rng: np.random.Generator) -> list[Tensor]:
    at = memory.draw(count, rng)
    return [torch.from_numpy(memory[name][at]) for name in ("inputs", "action", "gained", "after", "possible")]


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
        """Train for all rounds; the learned agent."""
        p, rng = self.preset, np.random.default_rng((self.seed, 7))
        widths = (self.moves.width, *p.hidden, len(self.moves.actions) + p.dueling)
        online, target = Trunk(widths, self.seed), Trunk(widths, self.seed)
        if self.base is not None:
            for trunk in (online, target):
                trunk.load_layers(self.base.network.layers)
        served = self._served()
        optimiser = torch.optim.Adam(online.parameters(), lr=p.rate[0])
        replay = memory_of(self.moves.width, len(self.moves.actions))
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
        replay = memory_of(self.moves.width, len(self.moves.actions), size=len(s))
        replay.add(inputs=s.inputs, action=s.action, gained=s.gained, after=s.after, possible=s.possible_after)
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

    def _update(self, online: Trunk, target: Trunk, optimiser: torch.optim.Optimizer, batch: Batch) -> float:
        discount = self.preset.gamma**self.preset.n_step
        targets = wanted(batch, partial(self._q, target), discount, partial(self._q, online))
        found = loss(self._q(online, batch.inputs), batch, targets)
        descend(optimiser, found, clipped=(online, 5.0))
        follow(target, online, TAU)
        return float(found.detach())


def _batch(replay: Replay, served: Replay | None, count: int, rng: np.random.Generator) -> Batch:
    if served is None:
        return Batch(*_draw(replay, count, rng))
    share = round(SERVED_SHARE * count)
    parts = zip(_draw(replay, count - share, rng), _draw(served, share, rng), strict=True)
    return Batch(*(torch.cat(pair) for pair in parts))


def _remember(replay: Replay, steps: list[Step], p: Preset) -> None:
    """Episodes are cut off, never ended: the last steps have nothing after them and are left out."""
    for i in range(len(steps) - p.n_step):
        gained = sum(p.gamma**k * steps[i + k].reward for k in range(p.n_step))
        _add(replay, steps[i], np.asarray(gained), steps[i + p.n_step])
