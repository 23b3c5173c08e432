"""One interval of one policy: keep the books, learn, measure, choose, plan. It reads plain data and a time, and talks to nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tiphys_models.api.placement_plan import MAX_FUNCTIONS, MAX_NODES, MAX_SLOTS, FunctionSlots, NodeSlots, PlacementPlanSpec
from tiphys_models.api.reasons import ChoiceReason
from tiphys_models.api.routing import Route, Router
from tiphys_models.api.selection import PredictedCost, SelectionStatus, SelectSpec, Switch, is_planner
from tiphys_models.cloud.hosts import HostType
from tiphys_models.cloud.repair import repair
from tiphys_models.cloud.state import CloudState
from tiphys_models.selectors.protocol import Choice, Scored
from tiphys_operator.selection.chooser import HOUR_S, UNIT, Chooser, Held
from tiphys_operator.selection.cluster import LiveNode, LivePod
from tiphys_operator.selection.ledger import Spent, account, settled
from tiphys_operator.selection.measured import Measured, measure, placed, slots
from tiphys_operator.selection.memory import Account, Memory

PLAN_LIVES_INTERVALS = 4
_SWITCHES_MAX = 3600


@dataclass(frozen=True, slots=True)
class View:
    """The cluster at one moment."""

    nodes: Mapping[str, LiveNode]
    pods: Mapping[str, LivePod]
    kinds: Mapping[str, HostType]
    router: Router
    """Of all policies: which of them decides a pod."""
    busy_cores: Mapping[str, float] = field(default_factory=dict)
    """Cores in use by node, where Prometheus says so; elsewhere what pods request counts."""


@dataclass(frozen=True, slots=True)
class Result:
    """What an interval came to; `memory` is saved before anything is published."""

    memory: Memory
    plan: PlacementPlanSpec | None
    spent: Spent
    learned: tuple[tuple[float | None, float], ...]
    """Promised and measured J of the decisions that were settled."""
    reason: ChoiceReason
    switched: bool
    state: CloudState


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
    learned = _learn(memory, chooser, interval_s, route.spec.mode == "Active" and not spec.freeze, now_s)
    found = measure(memory, mine, view.nodes, view.pods.values(), view.kinds, view.busy_cores, now_s, interval_s, spec.sla_factor)
    memory.history = found.history
    memory.interval += 1
    held, choice = _choose(memory, chooser, spec, found)
    switched = _take(memory, held, choice, found, now_s)
    memory.placed = []
    plan = _plan(memory, chooser, route, found, now_s, interval_s) if is_planner(memory.active) else None
    memory.generation, memory.chooser, memory.learned = route.generation, chooser.key, chooser.online_state()
    memory.status = _status(memory, held, choice, route.name if plan is not None else "")
    return Result(memory, plan, spent, tuple(learned), held.reason, switched, found.state)


def _learn(memory: Memory, chooser: Chooser, interval_s: float, learning: bool, now_s: float) -> list[tuple[float | None, float]]:
    results = []
    for done in settled(memory, now_s, interval_s):
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
    return results


def _choose(memory: Memory, chooser: Chooser, spec: SelectSpec, found: Measured) -> tuple[Held, Choice]:
    active = memory.active if memory.active in chooser.among else ""
    if not len(found.tasks) or not found.hosts:
        idle = ChoiceReason.NOTHING_TO_PLACE if found.hosts else ChoiceReason.NO_USABLE_NODE
        return Held(active or chooser.among[0], idle if active else ChoiceReason.FIRST), Choice("", "")
    held, choice = chooser.choose(memory.interval, found.state, found.tasks, spec, active, memory.switches_at_s)
    if spec.freeze and active:
        chooser.forget(memory.interval)
        return Held(active, ChoiceReason.FROZEN), choice
    return held, choice


def _take(memory: Memory, held: Held, choice: Choice, found: Measured, now_s: float) -> bool:
    """Enter the choice into the books; whether it is a switch."""
    placing = bool(len(found.tasks)) and bool(found.hosts)
    memory.decided = memory.interval if placing else None
    if placing:
        promised = choice.predicted.get(held.candidate)
        memory.accounts[memory.interval] = Account(candidate=held.candidate, at_s=now_s, tasks=len(found.tasks), promised=promised)
    if held.candidate == memory.active:
        return False
    former, memory.active = memory.active, held.candidate
    mine, other = choice.predicted.get(former), choice.predicted.get(held.candidate)
    foreseen = f"predicted cost {other:.4g} against {mine:.4g}" if mine is not None and other is not None else "no prediction of both"
    waiting = f"{found.waiting} pods wait, {len(found.tasks) - found.waiting} more are expected"
    switch = Switch(former=former, to=held.candidate, reason=str(held.reason), message=f"{foreseen}; {waiting}", at=timestamp(now_s))
    switches = memory.status.switches + bool(former)
    memory.status = memory.status.model_copy(update={"last_switch": switch, "switches": switches})
    if not former:
        return False
    memory.switches_at_s = [*[at_s for at_s in memory.switches_at_s if at_s > now_s - HOUR_S][-_SWITCHES_MAX:], now_s]
    return True


def _plan(memory: Memory, chooser: Chooser, route: Route, found: Measured, now_s: float, interval_s: float) -> PlacementPlanSpec:
    planned: dict[str, dict[str, int]] = {}
    if len(found.tasks) and found.hosts:
        made = chooser.planner(memory.active).assign(found.state, found.tasks, found.state.digest(found.tasks))
        feasible = repair(found.state, found.tasks, made, chooser.weights)
        memory.placed = placed(found, feasible)
        planned = slots(found, feasible, MAX_NODES, MAX_FUNCTIONS, MAX_SLOTS)
    return PlacementPlanSpec(
        policy_uid=route.uid,
        policy_generation=route.generation,
        planner=memory.active,
        interval=memory.interval,
        valid_until=timestamp(now_s + PLAN_LIVES_INTERVALS * interval_s + 1.0),
        functions=[
            FunctionSlots(function=function, nodes=[NodeSlots(node=node, slots=count) for node, count in nodes.items()])
            for function, nodes in planned.items()
        ],
    )


def _status(memory: Memory, held: Held, choice: Choice, plan: str) -> SelectionStatus:
    predicted = [PredictedCost(candidate=name, cost=_short(cost)) for name, cost in choice.predicted.items()]
    return memory.status.model_copy(
        update={
            "interval": memory.interval,
            "reason": str(held.reason),
            "predicted_cost": predicted or memory.status.predicted_cost,
            "plan": plan,
        }
    )


def _short(value: float) -> float:
    """Six digits: what came back from the API server must equal what was sent."""
    return float(f"{value:.6g}")


def timestamp(at_s: float) -> str:
    """RFC 3339, whole seconds."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
