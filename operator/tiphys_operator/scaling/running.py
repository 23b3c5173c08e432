"""One ScalingPolicy between its windows, and the case that a window's steps hand on to each other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_reasons import DecisionPhase
from tiphys_models.base.clock import Clock
from tiphys_operator.scaling.acting import Workload
from tiphys_operator.scaling.agents import Chosen
from tiphys_operator.scaling.believed import believed, resumed, shifted
from tiphys_operator.scaling.judging import Judge
from tiphys_operator.scaling.reader import WindowReader
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.starting import Starts
from tiphys_operator.scaling.unwritten import Unwritten

_CLOCK_SET_S = 1.0
"""A difference between the two clocks that no drift makes between two windows."""


@dataclass(slots=True)
class Running:
    """One policy between its windows. Nothing in it is missed after a restart."""

    generation: int = -1
    chosen: Chosen | None = None
    judge: Judge | None = None
    reader: WindowReader | None = None
    workload: Workload | None = None
    starts: Starts = field(default_factory=Starts)
    recorded: int = 0
    """Number of the last decision in the log whose window is not over; 0: none."""
    in_force_m: int | None = None
    """CPU of each pod as this process last decided or found it; None while it does not act."""
    finished: str = ""
    """Signature of the last intent that was done and written down as done: shown once more, it is none."""
    ahead_s: float | None = None
    """The lead of the wall clock over the monotonic one when the status was last written."""
    now_ahead_s: float = 0.0
    unwritten: Unwritten = field(default_factory=Unwritten)
    """What was decided since the status was last written."""

    @property
    def shift_s(self) -> float:
        """Seconds by which the wall clock was set forward since the status was last written (negative: back); small drift counts as 0."""
        shift_s = 0.0 if self.ahead_s is None else self.now_ahead_s - self.ahead_s
        return shift_s if abs(shift_s) > _CLOCK_SET_S else 0.0

    def begin_anew(self) -> None:
        """Half of a step may be in what decides, and a thread that ran away still writes into it."""
        self.generation, self.chosen, self.judge, self.reader = -1, None, None, None

    def trusted(self, policy: ScalingSeen, clock: Clock) -> ScalingSeen:
        """The policy with only that of its status's memory which can be so, in the time of today's clock."""
        policy, now_s = self.unwritten.latest(policy), clock.now_s()
        self.now_ahead_s = now_s - clock.monotonic_s()
        before = policy.status.memory
        memory = believed(shifted(before, self.shift_s) if self.shift_s else before, now_s)
        if self.ahead_s is None:
            self.ahead_s, memory = self.now_ahead_s, resumed(memory, now_s)
        status = policy.status.model_copy(update={"memory": memory}) if memory != before else policy.status
        return replace(policy, stands=policy.stands or policy.status, status=status)

    @property
    def shown(self) -> Chosen | None:
        """The agent that decides, with how it compares with the rule."""
        chosen, judge = self.chosen, self.judge
        if chosen is None or chosen.seen is None or judge is None:
            return chosen
        compared = len(judge.ahead)
        ahead = round(1000 * judge.mean_ahead) if compared else None
        return replace(chosen, seen=chosen.seen.model_copy(update={"compared": compared, "ahead_permille": ahead}))


@dataclass(frozen=True, slots=True)
class Case:
    """One policy at one moment: its object, its spec, and what this process remembers of it."""

    policy: ScalingSeen
    spec: ScalingPolicySpec
    running: Running

    @property
    def settled(self) -> bool:
        """Whether the status was written for this very generation of the spec."""
        return self.policy.status.observed_generation == self.policy.generation

    @property
    def acts_between(self) -> bool:
        """Whether sizes may be changed between windows: as the last status says, for this very generation."""
        policy, last = self.policy, self.policy.status.last_decision
        over = last is not None and last.phase in (DecisionPhase.DONE, DecisionPhase.HELD)
        free = any(c.type == "Conflict" and c.status == "False" for c in policy.status.conditions)
        active = self.spec.acts and self.spec.vertical is not None and not policy.paused and not policy.deleting
        return active and over and free and self.settled

    @property
    def looks(self) -> bool:
        """Whether CPU may be raised between windows."""
        vertical, in_flight = self.spec.vertical, self.spec.objective.metrics.in_flight
        return vertical is not None and vertical.between_windows == "Raise" and in_flight is not None and self.acts_between
