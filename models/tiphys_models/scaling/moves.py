"""What learned agents can do: their actions, when each is possible, and the sizes that follow. Networks only put values on actions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.scaling.encoding import SCHEMA, WIDTH, encode, peak
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.recurrence import Recurrence, nothing_recurs, recurrence
from tiphys_models.scaling.rules import RuleSetting, expected_rate, needed_m, pod_size, pods_for, replicas_for
from tiphys_models.scaling.seen import ServiceHistory


@dataclass(frozen=True, slots=True)
class MoveView:
    """What is seen, and what recurs in it."""

    seen: ServiceHistory
    again: Recurrence


class Moves(Protocol):
    """A row of inputs, values and actions is a group of `services` services that are decided together."""

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions."""
        ...

    @property
    def stay(self) -> int:
        """The action of the rule, or the one that changes nothing: what an agent does that may not choose."""
        ...

    @property
    def services(self) -> int:
        """Number of services in one group."""
        ...

    @property
    def schema(self) -> str:
        """Version of the inputs."""
        ...

    @property
    def width(self) -> int:
        """Number of inputs of one group."""
        ...

    def look(self, seen: ServiceHistory) -> MoveView:
        """What the other three need, computed once."""
        ...

    def inputs(self, look: MoveView, price: FloatArray) -> FloatArray:
        """[groups, width]; `price` of a violation, [groups]."""
        ...

    def possible(self, look: MoveView) -> BoolArray:
        """[groups, actions]; at least one is."""
        ...

    def take(self, look: MoveView, action: IntArray) -> Answers:
        """Sizes of every service."""
        ...


def _in_trouble(seen: ServiceHistory) -> BoolArray:
    """Less would be cheap now and dear soon: an agent that has given up finds the smallest size best."""
    return np.asarray((np.nan_to_num(seen.late[:, -1]) > 0.1) | (seen.waiting() > 0))


_SAVING = 0.95
"""Share of a promised rate, the least that was seen to keep most windows: the rule's headroom is still in the rate."""
_PROMISES = ("expected", f"expected x {_SAVING:g}", f"lean expected x {_SAVING:g}")


@dataclass(frozen=True, slots=True)
class Multiples:
    """`combined`: a multiple of what the rule would buy; or headroom up to a share of the recent peak; or what recurring jumps promise.

    A promise goes both ways: it is the only action that keeps no pods for the last windows' highest rate.
    """

    rule: RuleSetting
    multiples: tuple[float, ...] = (0.82, 0.9, 0.95, 1.0, 1.06, 1.15, 1.4, 2.0, 3.0)
    peaks: tuple[float, ...] = (0.6, 1.0)
    services: int = 1
    schema: str = SCHEMA
    width: int = WIDTH

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions: multiples, shares of the recent peak, and promises."""
        return (*(f"rule x {m:g}" for m in self.multiples), *(f"peak x {p:g}" for p in self.peaks), *_PROMISES)

    @property
    def stay(self) -> int:
        """The action that follows the rule: the multiple 1."""
        return self.multiples.index(1.0)

    def look(self, seen: ServiceHistory) -> MoveView:
        """The history with its recurring jumps."""
        return MoveView(seen, recurrence(seen))

    def inputs(self, look: MoveView, price: FloatArray) -> FloatArray:
        """The inputs `scaling/1` of `encode`."""
        return encode(look.seen, look.again, price)

    def possible(self, look: MoveView) -> BoolArray:
        """Less than the rule only while nothing waits and nothing is late; what is expected only where something recurs."""
        found = np.ones((len(look.seen), len(self.actions)), np.bool_)
        found[:, : self.stay] = ~_in_trouble(look.seen)[:, None]
        found[:, -len(_PROMISES) :] = look.again.confidence[:, None] > 0
        return found

    def take(self, look: MoveView, action: IntArray) -> Answers:
        """Sizes of the rule for another request rate; pods that have not started yet carry nothing, unless none has."""
        seen, s, n, none = look.seen, self.rule, len(self.actions) - len(_PROMISES), np.zeros(len(_PROMISES))
        factor = np.concatenate([self.multiples, np.ones(len(self.peaks)), none])[action]
        share = np.concatenate([np.zeros(len(self.multiples)), self.peaks, none])[action]
        rates = np.maximum(expected_rate(seen, s) * factor, share * peak(seen))
        again, rows = look.again, np.arange(len(seen))
        promised = np.array([again.rate, again.rate * _SAVING, again.lean * _SAVING])[np.maximum(action - n, 0), rows]
        trusts = (action >= n) & ~np.isnan(promised)
        needed = needed_m(seen, np.where(trusts, promised, rates), s.headroom)
        wanted = np.where(trusts, pods_for(seen, needed, s), replicas_for(seen, needed, s))
        replicas = np.clip(wanted, seen.min_replicas, seen.max_replicas)
        serving = np.where(seen.ready > 0, np.minimum(replicas, seen.ready), replicas)
        return Answers(replicas, np.minimum(needed / serving + s.spare_m, seen.max_cpu_m))


@dataclass(frozen=True, slots=True)
class VerticalSteps:
    """`dqn-vertical`: steps of the limit in proportion to it; replicas stay."""

    factors: tuple[float, ...] = (0.6, 0.8, 0.9, 0.95, 1.0, 1.05, 1.3, 2.0)
    services: int = 1
    schema: str = SCHEMA
    width: int = WIDTH

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions: the steps of the limit."""
        return tuple(f"limit x {f:g}" for f in self.factors)

    @property
    def stay(self) -> int:
        """The action that changes nothing: the factor 1."""
        return self.factors.index(1.0)

    def look(self, seen: ServiceHistory) -> MoveView:
        """The history with its recurring jumps."""
        return MoveView(seen, recurrence(seen))

    def inputs(self, look: MoveView, price: FloatArray) -> FloatArray:
        """The inputs `scaling/1` of `encode`."""
        return encode(look.seen, look.again, price)

    def possible(self, look: MoveView) -> BoolArray:
        """Never less while requests are late or wait; clearly more while most are late: nothing that a network knows speaks against it."""
        seen, found = look.seen, np.ones((len(look.seen), len(self.actions)), np.bool_)
        found[:, : self.stay] = ~_in_trouble(seen)[:, None]
        overwhelmed = (np.nan_to_num(seen.late[:, -1]) > 0.5) & (seen.cpu_m < seen.max_cpu_m)
        found[:, : self.factors.index(1.3)] &= ~overwhelmed[:, None]
        return found

    def take(self, look: MoveView, action: IntArray) -> Answers:
        """Limits after a step of at least one unit in the wanted direction."""
        seen = look.seen
        wanted, step = seen.cpu_m * np.array(self.factors)[action], seen.step_cpu_m
        down = np.minimum(np.floor(wanted / step) * step, seen.cpu_m - step)
        up = np.maximum(np.ceil(wanted / step - 1e-6) * step, seen.cpu_m + step)
        return Answers(seen.replicas, np.where(action < self.stay, down, np.where(action > self.stay, up, seen.cpu_m)))


PUBLISHED = "published-vertical/1"


@dataclass(frozen=True, slots=True)
class Millicores:
    """The published vertical agent: -30m, 0, +30m on the limit, and its five inputs, brought into [0, 1]."""

    services: int = 1
    schema: str = PUBLISHED
    width: int = 5
    actions: tuple[str, ...] = ("-30m", "0", "+30m")
    stay: int = 1

    def look(self, seen: ServiceHistory) -> MoveView:
        """The history alone: this agent looks for no recurring jumps."""
        return MoveView(seen, nothing_recurs(seen))

    def inputs(self, look: MoveView, price: FloatArray) -> FloatArray:
        """CPU used and limit of 2,000m, memory (not simulated: as at rest), replicas."""
        seen = look.seen
        used = np.nan_to_num(seen.used_cpu_m[:, -1]) / 2000
        rest = np.ones(len(seen))
        return np.array([used, rest, seen.cpu_m / 2000, 0.125 * rest, seen.replicas / 10]).T

    def possible(self, look: MoveView) -> BoolArray:
        """A mask that allows every action."""
        return np.ones((len(look.seen), 3), np.bool_)

    def take(self, look: MoveView, action: IntArray) -> Answers:
        """The floor of 20m is below any bound here."""
        seen = look.seen
        return Answers(seen.replicas, np.maximum(seen.cpu_m + 30.0 * (action - 1), 20.0))


@dataclass(frozen=True, slots=True)
class Steps:
    """The published horizontal agent: one replica less, the same or more of each of F services at once: 3^F joint actions."""

    services: int = 1
    pod_m: float = 500.0

    @property
    def schema(self) -> str:
        """Version of the inputs, which depends on the number of services."""
        return f"published-horizontal-{self.services}/1"

    @property
    def width(self) -> int:
        """CPU, waiting, late, replicas and rate of each service."""
        return 5 * self.services

    @property
    def _moves(self) -> list[tuple[int, ...]]:
        return list(product((-1, 0, 1), repeat=self.services))

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the joint actions."""
        return tuple("/".join(f"{m:+d}" for m in moves) for moves in self._moves)

    @property
    def stay(self) -> int:
        """The joint action that changes no service."""
        return self._moves.index((0,) * self.services)

    def look(self, seen: ServiceHistory) -> MoveView:
        """The history alone: this agent looks for no recurring jumps."""
        return MoveView(seen, nothing_recurs(seen))

    def inputs(self, look: MoveView, price: FloatArray) -> FloatArray:
        """The published inputs, scaled to [0, 1], which the original leaves out."""
        seen = look.seen
        columns = [
            np.nan_to_num(seen.used_cpu_m[:, -1]) / (seen.max_replicas * pod_size(seen, self.pod_m)),
            np.minimum(seen.waiting() / 5000, 1.0),
            np.nan_to_num(seen.late[:, -1]),
            seen.replicas / seen.max_replicas,
            np.nan_to_num(seen.rates[:, -1]) / 1000,
        ]
        return np.array(columns).T.reshape(-1, self.width)

    def possible(self, look: MoveView) -> BoolArray:
        """A mask that allows every action."""
        return np.ones((len(look.seen) // self.services, len(self.actions)), np.bool_)

    def take(self, look: MoveView, action: IntArray) -> Answers:
        """Replicas one fewer, the same or one more; at least one for each service."""
        step = np.array(self._moves)[action].reshape(-1)
        return Answers(np.maximum(look.seen.replicas + step, 1), pod_size(look.seen, self.pod_m))


@dataclass(frozen=True, slots=True)
class Bins:
    """The tabular ancestor: five bins of CPU utilisation, one replica less, the same or more."""

    pod_m: float = 500.0
    services: int = 1
    schema: str = "cpu-bins/1"
    width: int = 5
    actions: tuple[str, ...] = ("-1", "0", "+1")
    stay: int = 1

    def look(self, seen: ServiceHistory) -> MoveView:
        """The history alone: this agent looks for no recurring jumps."""
        return MoveView(seen, nothing_recurs(seen))

    def inputs(self, look: MoveView, price: FloatArray) -> FloatArray:
        """One-hot: a table is a network of one layer."""
        seen = look.seen
        used = np.nan_to_num(seen.used_cpu_m[:, -1]) / (np.maximum(seen.ready, 1) * pod_size(seen, self.pod_m))
        return np.eye(5)[np.clip((used * 5).astype(np.int64), 0, 4)]

    def possible(self, look: MoveView) -> BoolArray:
        """A mask that allows every action."""
        return np.ones((len(look.seen), 3), np.bool_)

    def take(self, look: MoveView, action: IntArray) -> Answers:
        """Replicas one fewer, the same or one more; at least one."""
        return Answers(np.maximum(look.seen.replicas + action - 1, 1), pod_size(look.seen, self.pod_m))
