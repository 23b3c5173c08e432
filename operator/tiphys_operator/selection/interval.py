"""One interval of one policy: keep the books, learn, measure, choose, plan. It reads plain data and a time, and talks to nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiphys_models.api.comparison_memory import ComparisonMemory
from tiphys_models.api.placement_plan import MAX_FUNCTIONS, MAX_NODES, MAX_SLOTS, FunctionSlots, NodeSlots, PlacementPlanSpec
from tiphys_models.api.reasons import ChoiceReason
from tiphys_models.api.routing import Route, Router
from tiphys_models.api.selection import PredictedCost, SelectionStatus, SelectSpec, Switch, is_planner
from tiphys_models.base.quantity import rfc3339
from tiphys_models.seats.blocks import MeasuredBlock
from tiphys_models.seats.seat import Answered, Group
from tiphys_models.seats.shares import Block, block_of
from tiphys_models.selection.cloud.hosts import HostType
from tiphys_models.selection.cloud.repair import repair
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.selectors.hold import HOUR_S, Held
from tiphys_models.selection.selectors.protocol import Scored
from tiphys_operator.cluster.live import LiveNode, LivePod
from tiphys_operator.selection.chooser import UNIT, Asked, Chooser, Chosen
from tiphys_operator.selection.ledger import Settled, Spent, account, settled
from tiphys_operator.selection.measured import Measured as Seen
from tiphys_operator.selection.measured import measure, placed, slots
from tiphys_operator.selection.memory import Account, Memory

PLAN_LIVES_INTERVALS = 4
MEASURE = "weighted cost of a pod: less is better"
_SWITCHES_MAX = 3600


@dataclass(frozen=True, slots=True)
class View:
    """The cluster at one moment."""

    nodes: Mapping[str, LiveNode]
    pods: Mapping[str, LivePod]
    kinds: Mapping[str, HostType]
    router: Router
    """All policies' routes: which policy decides a pod."""
    busy_cores: Mapping[str, float] = field(default_factory=dict)
    """Cores in use by node, where Prometheus says so; elsewhere what pods request counts."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The candidate that decides an interval, and the deciders' answers."""

    held: Held
    """The candidate in force, and why."""
    chosen: Chosen | None
    """What selector and rule said; None where nobody was asked."""
    block: Block | None
    """The canary's block that the interval lies in; None in other modes."""

    @property
    def group(self) -> Group:
        """The canary's group that decides."""
        return "" if self.block is None else "treated" if self.block.obeys else "control"

    @property
    def predicted(self) -> Mapping[str, float]:
        """What the selector predicts of candidates, as far as it was asked."""
        choice = self.chosen.choice if self.chosen is not None else None
        return choice.predicted if choice is not None else {}

    def plan_of(self, candidate: str) -> Plan | None:
        """The plan that the selector had made of a candidate to look at; None if it had none."""
        choice = self.chosen.choice if self.chosen is not None else None
        return choice.plans.get(candidate) if choice is not None else None

    @property
    def agreed(self) -> bool | None:
        """Whether the other one would have named the same candidate; None if it was not asked."""
        if self.chosen is None or self.chosen.answered.would is None:
            return None
        return self.chosen.answered.would.candidate == self.held.candidate

    def compared_group(self, route: Route) -> Group:
        """The group for which the interval counts; empty: it washes the former one out, is frozen, or others place the pods."""
        counts = self.block is not None and not self.block.washing and route.spec.mode == "Active"
        return self.group if counts and self.held.reason != ChoiceReason.FROZEN else ""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a decision: all of its pods have ended."""

    decision: int
    group: Group
    cost: float | None
    """Weighted cost of a pod; None if it bound none."""
    how: str


@dataclass(frozen=True, slots=True)
class Result:
    """What an interval came to; `memory` is saved before anything is published."""

    memory: Memory
    plan: PlacementPlanSpec | None
    spent: Spent
    learned: tuple[tuple[float | None, float], ...]
    """Promised and measured J of the decisions that were settled."""
    endings: tuple[Ending, ...]
    decision: Decision
    switched: bool
    seen: Seen

    @property
    def reason(self) -> ChoiceReason:
        """The reason why this candidate decides."""
        return ChoiceReason(self.decision.held.reason)

    @property
    def state(self) -> CloudState:
        """The state of the cloud that the decision was made on."""
        return self.seen.state


def run_interval(memory: Memory, route: Route, spec: SelectSpec, scheduler_name: str, chooser: Chooser, view: View, now_s: float) -> Result:
    """The next interval; `memory` is changed in place and returned."""

    def mine(pod: LivePod) -> bool:
        if not pod.function or pod.namespace != route.namespace or pod.scheduler_name != scheduler_name:
            return False
        decides = view.router.route(pod.namespace, pod.labels)
        return decides is not None and decides.key == route.key

    interval_s = float(spec.interval_seconds)
    spent = account(memory, mine, view.pods, view.nodes, view.kinds, view.busy_cores, now_s, interval_s, spec.sla_factor)
    # in Shadow and Canary others place the pods: what they cost is no candidate's doing
    learned, endings = _learn(memory, chooser, interval_s, route.spec.mode == "Active" and spec.mode != "Off" and not spec.freeze, now_s)
    found = measure(memory, mine, view.nodes, view.pods.values(), view.kinds, view.busy_cores, now_s, interval_s, spec.sla_factor)
    memory.history = found.history
    memory.interval += 1
    decision = _choose(memory, chooser, route, spec, found, now_s)
    switched = _take(memory, decision, route, found, chooser.digest, now_s)
    memory.placed = []
    plan = _plan(memory, chooser, decision, route, found, now_s) if is_planner(memory.active) else None
    memory.generation, memory.chooser, memory.learned = route.generation, chooser.key, chooser.online_state()
    memory.status = _status(memory, decision, route.name if plan is not None else "")
    return Result(memory, plan, spent, tuple(learned), tuple(endings), decision, switched, found)


def _learn(
    memory: Memory, chooser: Chooser, interval_s: float, learning: bool, now_s: float
) -> tuple[list[tuple[float | None, float]], list[Ending]]:
    results, endings = [], []
    for done in settled(memory, now_s, interval_s):
        _compare(memory, chooser, done)
        endings.append(_ending(chooser, done))
        # what was predicted was predicted for the tasks then waiting and expected: measured cost is brought to as many
        outcome = done.outcome.scaled(done.account.tasks / done.account.pods) if done.account.pods else done.outcome
        if not done.account.pods or not learning:
            chooser.forget(done.decision)
            continue
        j = UNIT.share(chooser.weights, outcome)
        chooser.learn(Scored(done.decision, outcome, j))
        memory.status = memory.status.model_copy(
            update={
                "measured_interval": done.decision,
                "measured_candidate": done.account.candidate,
                "measured_cost": _short(j),
                "learned": memory.status.learned + 1,
            }
        )
        results.append((done.account.promised, j))
    return results, endings


def _ending(chooser: Chooser, done: Settled) -> Ending:
    account = done.account
    if not account.pods:
        return Ending(done.decision, account.group, None, "no pod was bound by it")
    cost = UNIT.share(chooser.weights, done.outcome) / account.pods
    return Ending(
        done.decision, account.group, cost, f"{account.pods} pods, {account.late} late, cost of each {cost:.4g}, {account.usd:.4g} USD"
    )


def _compare(memory: Memory, chooser: Chooser, done: Settled) -> None:
    """Enter what a decision cost into the comparison of its canary's groups; one of another spec or weights is another comparison."""
    account, comparison = done.account, memory.comparison
    if comparison is None or not account.group or not account.pods or comparison.subject != _subject(account.generation, account.digest):
        return
    found = MeasuredBlock(account.pods, UNIT.share(chooser.weights, done.outcome), account.usd, float(account.late))
    memory.comparison = comparison.ended(account.group, account.block, found)


def _subject(generation: int, digest: str) -> str:
    return f"{generation} {digest[:64]}".strip()


def _choose(memory: Memory, chooser: Chooser, route: Route, spec: SelectSpec, found: Seen, now_s: float) -> Decision:
    """The decision of this interval. Where nothing is to be placed, neither selector nor rule is asked."""
    active = memory.active if memory.active in chooser.among else ""
    former = memory.chosen if memory.chosen in chooser.among else active
    block = _block(route, spec, now_s)
    obeys = spec.mode == "Active" or (block is not None and block.obeys)
    if not len(found.tasks) or not found.hosts:
        idle = ChoiceReason.NOTHING_TO_PLACE if found.hosts else ChoiceReason.NO_USABLE_NODE
        kept = active if spec.freeze else former if obeys else chooser.rule_candidate(spec)
        return Decision(Held(kept or chooser.among[0], idle if active else ChoiceReason.FIRST), None, block)
    asked = Asked(memory.interval, found.state, found.tasks, former, memory.switches_at_s)
    chosen = chooser.choose(asked, spec, obeys=obeys)
    frozen = bool(spec.freeze and active)
    held = Held(active, ChoiceReason.FROZEN) if frozen else _reasoned(chosen.answered)
    if chosen.choice is not None:
        chooser.commit(memory.interval, chosen.choice, held.candidate)
        if frozen:
            chooser.forget(memory.interval)
    if chosen.selected is not None and not frozen:
        if former and chosen.selected.candidate != former:
            memory.switches_at_s = [*[at_s for at_s in memory.switches_at_s if at_s > now_s - HOUR_S][-_SWITCHES_MAX:], now_s]
        memory.chosen = chosen.selected.candidate
    return Decision(held, chosen, block)


def _reasoned(answered: Answered[Held]) -> Held:
    """The answer; a rule that stands in for a selector that was due says so."""
    return Held(answered.answer.candidate, ChoiceReason.SELECTOR_FAILED) if answered.outcome == "fallback" else answered.answer


def _block(route: Route, spec: SelectSpec, now_s: float) -> Block | None:
    canary, interval_s = spec.canary, spec.interval_seconds
    if canary is None:
        return None
    return block_of(route.uid, now_s, canary.block_intervals * interval_s, canary.wash_out_intervals * interval_s, canary.percent)


def _take(memory: Memory, decision: Decision, route: Route, found: Seen, digest: str, now_s: float) -> bool:
    """Enter the decision into the books; whether it is a switch."""
    held, predicted = decision.held, decision.predicted
    placing = bool(len(found.tasks)) and bool(found.hosts)
    memory.decided = memory.interval if placing else None
    if placing:
        memory.accounts[memory.interval] = Account(
            candidate=held.candidate, at_s=now_s, tasks=len(found.tasks), promised=predicted.get(held.candidate),
            generation=route.generation, digest=digest[:64], group=decision.compared_group(route),
            block=decision.block.number if decision.block else 0,
        )  # fmt: skip
    if decision.block is not None:
        comparison = (memory.comparison or ComparisonMemory()).of(_subject(route.generation, digest), now_s)
        chosen = decision.chosen
        memory.comparison = comparison if chosen is None else comparison.answered(chosen.answered, same=decision.agreed)
    if held.candidate == memory.active:
        return False
    former, memory.active = memory.active, held.candidate
    if memory.status.group and decision.group and memory.status.group != decision.group:
        return False  # the canary's groups take turns: that is nobody's switch
    mine, other = predicted.get(former), predicted.get(held.candidate)
    foreseen = f"predicted cost {other:.4g} against {mine:.4g}" if mine is not None and other is not None else "no prediction of both"
    waiting = f"{found.waiting} pods wait, {len(found.tasks) - found.waiting} more are expected"
    switch = Switch(former=former, to=held.candidate, reason=str(held.reason), message=f"{foreseen}; {waiting}", at=rfc3339(now_s))
    switches = memory.status.switches + bool(former)
    memory.status = memory.status.model_copy(update={"last_switch": switch, "switches": switches})
    return bool(former)


def _plan(memory: Memory, chooser: Chooser, decision: Decision, route: Route, found: Seen, now_s: float) -> PlacementPlanSpec:
    planned: dict[str, dict[str, int]] = {}
    if len(found.tasks) and found.hosts:
        made = decision.plan_of(memory.active)
        if made is None or memory.active in chooser.models.planners:  # selectors look at plans with the weights that ship
            made = chooser.planner(memory.active).assign(found.state, found.tasks, found.state.digest(found.tasks))
        feasible = repair(found.state, found.tasks, made, chooser.weights)
        memory.placed = placed(found, feasible)
        planned = slots(found, feasible, MAX_NODES, MAX_FUNCTIONS, MAX_SLOTS)
    return PlacementPlanSpec(
        policy_uid=route.uid,
        policy_generation=route.generation,
        planner=memory.active,
        interval=memory.interval,
        valid_until=rfc3339(now_s + PLAN_LIVES_INTERVALS * found.state.interval_s + 1.0),
        functions=[
            FunctionSlots(function=function, nodes=[NodeSlots(node=node, slots=count) for node, count in nodes.items()])
            for function, nodes in planned.items()
        ],
    )


def _status(memory: Memory, decision: Decision, plan: str) -> SelectionStatus:
    predicted = [PredictedCost(candidate=name, cost=_short(cost)) for name, cost in decision.predicted.items()]
    would = decision.chosen.answered.would if decision.chosen is not None else None
    shown = memory.comparison.status(MEASURE, more_is_better=False) if memory.comparison is not None else None
    return memory.status.model_copy(
        update={
            "interval": memory.interval,
            "reason": str(decision.held.reason),
            "group": decision.group,
            "would": would.candidate if would is not None else "",
            "comparison": shown,
            "predicted_cost": predicted or memory.status.predicted_cost,
            "plan": plan,
        }
    )


def _short(value: float) -> float:
    """Six digits: what came back from the API server must equal what was sent."""
    return float(f"{value:.6g}")
