"""A learned agent beside the rule: what each window was worth, what the rule would have got, and what there is to learn from it.

The rule decides in every window, too, from the size it would have had, through the same limits and masks. Its cost follows from that size,
its late requests from those that were measured (`scaling.reward.late_with`): where both sizes are equal, so are the rewards.
"""

from __future__ import annotations

import math
from collections import deque
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from tiphys_models.api.comparison_memory import ComparisonMemory
from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_status import RolledBack, ScalingMemory, Size
from tiphys_models.scaling.bounds import allowed, allowed_decision
from tiphys_models.scaling.learned import LearnedAgent, combined
from tiphys_models.scaling.moves import MoveView, Multiples
from tiphys_models.scaling.protocol import ScalingAgent, decide
from tiphys_models.scaling.reward import bill, late_with, pain, reward
from tiphys_models.scaling.rules import Rule
from tiphys_models.scaling.seen import seen_of
from tiphys_models.scaling.settings import RULE
from tiphys_models.scaling.state import ScalingState, Window
from tiphys_models.scaling.transition import Transition
from tiphys_models.seats.blocks import MeasuredBlock
from tiphys_models.seats.seat import Group
from tiphys_operator.scaling.decide import (
    Deciders,
    Outcome,
    View,
    clamped_size,
    current_size,
    decide_window,
    digest_of,
    stepped,
)
from tiphys_operator.scaling.metrics import WORSE_THAN_RULE
from tiphys_operator.scaling.seen import ScalingSeen

_TOLERANCE = 1e-9
_LEAST_NEED_M = 1.0


@dataclass(frozen=True, slots=True)
class Open:
    """A decision whose window is not over."""

    number: int
    state: ScalingState
    look: MoveView
    inputs: tuple[float, ...]
    possible: tuple[bool, ...]
    wanted: int
    digest: str
    acts: bool
    """Whether the agent's decision is carried out: only then is it compared."""
    rule_size: Size
    own_size: Size
    """What the agent's own decision came to."""
    raised: bool = False
    """Whether CPU grew before the window was over."""
    group: Group = ""
    """The canary's group in whose comparison the window counts; empty: in none."""
    block: int = 0


@dataclass(frozen=True, slots=True)
class Settled:
    """A decision whose window is over, with what that window cost and earned."""

    opened: Open
    at_s: float
    here: Size
    cost: float
    late: float
    reward: float


class Judge:
    """The comparison for one policy's spec and one agent's weights; a restart begins a new one, a rollback is kept in status."""

    def __init__(self, encoder: LearnedAgent, windows: int) -> None:
        """`encoder`: the learned agent itself, or for a policy whose rule decides the one that could."""
        self.encoder, self._windows = encoder, windows
        moves = encoder.moves
        self.rule = Rule(moves.rule if isinstance(moves, Multiples) else RULE)
        self.ahead: deque[float] = deque(maxlen=windows)
        """The lead of the agent's reward over the rule's, by window."""
        self.broken = 0
        """Decisions whose window was not measured."""
        self.settled: Settled | None = None
        """What became of the decision before, if its window was measured."""
        self._open: Open | None = None
        self._beside: tuple[Size, ScalingMemory] | None = None

    def copy(self) -> Judge:
        """One that a thread may write into: whoever runs away spoils the copy, and the evidence is kept."""
        made = copy(self)
        made.ahead = deque(self.ahead, maxlen=self.ahead.maxlen)
        return made

    @property
    def mean_ahead(self) -> float:
        """Over all windows that count; those not seen yet count as equal."""
        return math.fsum(self.ahead) / self._windows

    def settle(self, view: View, spec: ScalingPolicySpec) -> Settled | None:
        """The decision before, if the window that just ended was the one it was for."""
        opened, self._open, self.settled = self._open, None, None
        windows = view.measured.windows
        if opened is None:
            return None
        if view.measured.problem is not None or not windows or not _follows(opened.state.windows[-1], windows[-1]):
            self.broken += 1
            self._beside = None
            return None
        window, here, price = windows[-1], current_size(view), self.encoder.price
        need_m = max(_mean_rate(opened.state) * opened.state.cpu_ms, _LEAST_NEED_M)
        late = window.late or 0.0
        tolerated = 1 - spec.objective.percentile / 100 + _TOLERANCE

        def worth(size: Size, late: float) -> tuple[float, float]:
            cost = float(bill(size.replicas, size.cpu_milli)) * 1000 / need_m
            return cost, float(reward(cost, pain(late, tolerated), price))

        cost, gained = worth(here, late)
        if opened.acts:
            # a raise between windows is nobody's merit: both are compared by what they had decided
            own = opened.own_size if opened.raised else here
            demand_m = (window.arrived + _waiting(opened.state)) / window.length_s * opened.state.cpu_ms * self.rule.setting.headroom
            rule_late = late_with(_capacity_m(opened.rule_size), late, _capacity_m(own), demand_m)
            self.ahead.append(worth(own, late)[1] - worth(opened.rule_size, rule_late)[1])
        self.settled = Settled(opened, window.at_s, here, cost, late, gained)
        return self.settled

    def open(self, policy: ScalingSeen, spec: ScalingPolicySpec, outcome: Outcome, *, acts: bool, counted: Group = "") -> None:
        """A decision was made: its window begins. `counted`: the canary's group in whose comparison the window counts."""
        state = outcome.state
        if state is None:
            self._beside = None
            return
        moves = self.encoder.moves
        look = moves.look(seen_of([state]))
        inputs = moves.inputs(look, np.full(1, self.encoder.price))[0]
        if not np.isfinite(inputs).all():
            self.broken += 1
            self._beside = None
            return
        size, memory = self._beside or (outcome.decision.former, policy.status.memory)
        there = replace(state, replicas=size.replicas, cpu_m=size.cpu_milli)
        wanted = decide(self.rule, there)
        clamped, memory, _ = clamped_size(spec, memory, size, wanted, state.now_s)
        kept = allowed_decision(there, replace(wanted, replicas=clamped.replicas, cpu_m=clamped.cpu_milli))
        applied = Size(replicas=kept.replicas, cpu_milli=kept.cpu_m)
        # while the agent may not act, the rule might not either: both begin from what is there once it may
        self._beside = (applied, stepped(memory, size, applied, state.now_s)) if acts else None
        decision = outcome.decision
        self._open = Open(
            number=decision.number,
            state=state,
            look=look,
            inputs=tuple(inputs.tolist()),
            possible=tuple(moves.possible(look)[0].tolist()),
            wanted=moves.actions.index(outcome.action) if outcome.action in moves.actions else -1,
            digest=decision.model_digest,
            acts=acts,
            rule_size=applied,
            own_size=decision.applied,
            group=counted,
            block=outcome.block.number if outcome.block is not None else 0,
        )

    def hindered(self) -> None:
        """What was just decided was refused or undone: the rule would have met the same, so nothing is compared."""
        self._beside = None
        if self._open is not None:
            self._open = replace(self._open, acts=False)

    def raised(self) -> None:
        """CPU grows before the window is over, as it would have under the rule: the window has two sizes and teaches no action."""
        self._beside = None
        if self._open is not None:
            self._open = replace(self._open, raised=True)

    def transition(self, settled: Settled, key: str) -> Transition | None:
        """What the trainer learns from: the settled decision and the state of the one after it; None if there is no such state."""
        opened, after = settled.opened, self._open
        if opened.raised:
            self.broken += 1
            return None
        if after is None:
            return None
        action, off = self._nearest(opened, settled.here)
        return Transition(
            policy=key,
            number=opened.number,
            at=settled.at_s,
            window_seconds=opened.state.window_s,
            agent=self.encoder.name,
            digest=opened.digest,
            feature_schema=self.encoder.moves.schema,
            price=self.encoder.price,
            inputs=list(opened.inputs),
            possible=list(opened.possible),
            wanted=opened.wanted,
            action=action,
            off=off,
            cost=settled.cost,
            late=settled.late,
            reward=settled.reward,
            after=list(after.inputs),
            possible_after=list(after.possible),
        )

    def _nearest(self, opened: Open, here: Size) -> tuple[int, float]:
        """The action that would have come closest to the size in force: limits, masks, refusals and other writers may have changed it."""
        moves = self.encoder.moves
        taken = [allowed(opened.look.seen, moves.take(opened.look, np.array([action]))) for action in range(len(moves.actions))]
        had = max(_capacity_m(here), 1.0)
        off = [abs(math.log(max(float(a.replicas[0] * a.cpu_m[0]), 1.0) / had)) for a in taken]
        best = min(range(len(off)), key=lambda i: (off[i], i != opened.wanted, i != moves.stay))
        return best, off[best]


def judge_of(agent: ScalingAgent, spec: ScalingPolicySpec) -> Judge | None:
    """The judge of a learned agent; where windows are collected or a canary compares, one with the shipped agent's prices; else None."""
    if isinstance(agent, LearnedAgent):
        return Judge(agent, spec.agent.rollback.windows)
    priced = spec.agent.learning == "Collect" or spec.mode == "Canary"
    return Judge(combined(spec.objective.attainment_percent / 100), 1) if priced else None


def judged_window(
    policy: ScalingSeen, spec: ScalingPolicySpec, agent: ScalingAgent, judge: Judge | None, view: View, now_s: float, barred: str = ""
) -> tuple[Outcome, Transition | None]:
    """One decision by agent or rule, as mode, group and a rollback say; and what the last window taught, if it is collected.

    `barred`: why the agent is not asked in this window; empty: it is.
    """
    if judge is None:
        return decide_window(_with(policy, None), spec, deciders_of(agent, None, barred), view, now_s), None
    settled, learned = judge.settle(view, spec), agent is judge.encoder
    back = _standing(policy, spec, judge, now_s) if learned else None
    policy = _compared(_with(policy, back), spec, agent, settled, now_s)
    outcome = decide_window(policy, spec, deciders_of(agent, judge, WORSE_THAN_RULE if back is not None else barred), view, now_s)
    free = spec.acts and view.conflict is None and not policy.paused
    acts = learned and free and outcome.answered is not None and outcome.answered.outcome == "learned"
    judge.open(policy, spec, outcome, acts=acts, counted=_counted_group(outcome) if free else "")
    return _with_answer(outcome), judge.transition(
        settled, policy.key
    ) if settled is not None and spec.agent.learning == "Collect" else None


def deciders_of(agent: ScalingAgent, judge: Judge | None, barred: str = "") -> Deciders:
    """Agent and rule; where the spec names the rule itself, it is alone."""
    if isinstance(agent, Rule):
        return Deciders(agent)
    return Deciders(judge.rule if judge is not None else Rule(RULE), agent, barred)


def _counted_group(outcome: Outcome) -> Group:
    """The canary's group in whose comparison the coming window counts; empty: it washes the former group out, or nobody was asked."""
    if outcome.answered is None or outcome.block is None or outcome.block.washing:
        return ""
    return outcome.answered.group


def _compared(policy: ScalingSeen, spec: ScalingPolicySpec, agent: ScalingAgent, settled: Settled | None, now_s: float) -> ScalingSeen:
    """The policy with what the last window says of its group."""
    if spec.canary is None:
        return policy
    former = policy.status.memory.comparison or ComparisonMemory()
    comparison = former.of(f"{policy.generation} {agent.name} {digest_of(agent)}"[:512], now_s)
    if settled is not None:
        # also a window whose step was refused: it is what the group came to
        found = MeasuredBlock(1, settled.reward, settled.cost, settled.late)
        comparison = comparison.ended(settled.opened.group, settled.opened.block, found)
    memory = policy.status.memory.model_copy(update={"comparison": comparison})
    return replace(policy, status=policy.status.model_copy(update={"memory": memory}))


def _with_answer(outcome: Outcome) -> Outcome:
    """The outcome, its answer counted in the comparison."""
    answered, comparison = outcome.answered, outcome.memory.comparison
    if answered is None or not answered.group or comparison is None:
        return outcome
    return replace(outcome, memory=outcome.memory.model_copy(update={"comparison": comparison.answered(answered, same=outcome.agreed)}))


def _standing(policy: ScalingSeen, spec: ScalingPolicySpec, judge: Judge, now_s: float) -> RolledBack | None:
    """The rollback in force: one that stands in the status, or a new one; None if the agent may decide."""
    back = policy.status.memory.rolled_back
    if back is not None:  # not before it stands in the status: a write that fails must not cost the evidence
        judge.ahead.clear()
        if (back.digest, back.retry) == (judge.encoder.digest, policy.retry):
            return back
    margin = spec.agent.rollback.margin_percent / 100
    return _rolled_back(policy, spec, judge, now_s) if judge.mean_ahead < -margin else None


def _rolled_back(policy: ScalingSeen, spec: ScalingPolicySpec, judge: Judge, now_s: float) -> RolledBack:
    ahead, windows = judge.mean_ahead, spec.agent.rollback.windows
    message = f"the rule's mean reward over {windows} windows would have been better by {-ahead:.1%}"
    return RolledBack(digest=judge.encoder.digest, at=round(now_s, 3), retry=policy.retry, message=message)


def _with(policy: ScalingSeen, back: RolledBack | None) -> ScalingSeen:
    if policy.status.memory.rolled_back == back:
        return policy
    memory = policy.status.memory.model_copy(update={"rolled_back": back})
    return replace(policy, status=policy.status.model_copy(update={"memory": memory}))


def _follows(before: Window, after: Window) -> bool:
    """Whether one window lies between two ends, give or take the jitter of scrapes."""
    return 0.5 < (after.at_s - before.at_s) / after.length_s < 1.5


def _capacity_m(size: Size) -> float:
    return float(size.replicas * size.cpu_milli)


def _waiting(state: ScalingState) -> float:
    """Requests that wait beyond the half second's worth that is in flight anyway."""
    rate = state.windows[-1].arrived / state.windows[-1].length_s
    return max((state.windows[-1].in_flight or 0.0) - 0.5 * rate, 0.0)


def _mean_rate(state: ScalingState) -> float:
    """Requests a second, over all that is known."""
    known = [rate for rate in state.rates if not math.isnan(rate)]
    return math.fsum(known) / len(known) if known else 0.0
