"""One decision: call x state -> ranking or a reason. Reads the world and a clock, changes nothing but kept scores."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from tiphys_models.api.reasons import FallbackReason, NeutralReason
from tiphys_models.api.routing import Route, Router
from tiphys_models.api.scheduling_policy import Mode, SchedulingPolicySpec
from tiphys_models.api.selection import PLANNERS
from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.base.errors import TiphysError
from tiphys_models.base.facts import PodFacts, pod_facts
from tiphys_models.base.hashing import stable_hash
from tiphys_models.placement.candidates import PlacementRequest
from tiphys_models.placement.encoder import encode
from tiphys_models.placement.faasrank import FaaSRank
from tiphys_models.placement.objectives import PricedEstimator
from tiphys_models.placement.patient import Estimator
from tiphys_models.placement.protocol import PlacementPolicy
from tiphys_models.placement.rank import order, tie_breakers
from tiphys_models.placement.registry import PolicyName, is_learned, usable_rules
from tiphys_models.placement.scores import ScoreCache
from tiphys_models.placement.slots import PlanPolicy, SlotPlan
from tiphys_models.placement.state import PlacementState
from tiphys_models.placement.table import UNKNOWN
from tiphys_models.seats.shares import in_share

_log = logging.getLogger(__name__)

READS_NODES = frozenset({PolicyName.FAASRANK, PolicyName.STATIC_RANK})
"""Policies that are worth nothing without node readings."""

_SAME = 1e-9


class Models(Protocol):
    """Where learned policies come from."""

    def policy(self, name: str, model: str, mode: Mode) -> PlacementPolicy | None:
        """The policy with the weights that serve this mode now; None without them."""
        ...


class World:
    """Everything a decision reads. Touched on the event loop only."""

    def __init__(self, state: PlacementState, models: Models, *, scheduler_name: str, own_namespace: str = "") -> None:
        self.state = state
        self.models = models
        self.router = Router((), own_namespace)
        self.scores = ScoreCache()
        self.plans: Mapping[str, SlotPlan] = {}
        """Published plans by the key of their SchedulingPolicy."""
        self.scheduler_name = scheduler_name
        self.own_namespace = own_namespace
        self.enabled = True
        self.synced = False
        # at the start, because importing another package's policy must not delay an answer
        self.rules: Mapping[str, PlacementPolicy] = usable_rules()
        self.reads_nodes = READS_NODES | {name for name, rule in self.rules.items() if getattr(rule, "reads_nodes", False)}


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates in order, with what the order was made of."""

    policy: PlacementPolicy
    fallback: FallbackReason | None
    """Why the fallback rule judged instead of the chosen policy."""
    rows: IntArray
    """Row of each candidate, UNKNOWN for nodes nobody has heard of."""
    scores: FloatArray
    """Score of each candidate, NaN where nothing is known."""
    best_first: IntArray
    """Positions in the candidates' list."""
    inputs: FloatArray | None = None
    """What a model read that looks at more than the columns of single nodes: a row for each candidate that is known, in order."""

    costs: FloatArray | None = None
    """What the estimator expected a placement to cost, in seconds: a row for each candidate that is known, in order."""

    def inputs_of(self, positions: IntArray) -> FloatArray | None:
        """A copy of the inputs of a few candidates, NaN for unknown nodes; None if all that was read are a node's columns."""
        return self._of(self.inputs, positions)

    def costs_of(self, positions: IntArray) -> FloatArray | None:
        """The same of expected costs; None where nobody has estimated any."""
        return self._of(self.costs, positions)

    def _of(self, table: FloatArray | None, positions: IntArray) -> FloatArray | None:
        if table is None:
            return None
        known = self.rows != UNKNOWN
        at = (np.cumsum(known) - 1)[positions]
        found: FloatArray = table[at]
        found[~known[positions]] = np.nan
        return found


class Judged(NamedTuple):
    """Scores of the known candidates."""

    policy: PlacementPolicy
    scores: FloatArray
    inputs: FloatArray | None = None
    """Inputs of the model, see `Ranking.inputs`."""
    costs: FloatArray | None = None
    """See `Ranking.costs`."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What is answered and why."""

    outcome: str
    """scored, fallback or neutral."""
    reason: str
    pod: PodFacts | None
    request: PlacementRequest | None
    route: Route | None
    names: Sequence[str]
    ranking: Ranking | None
    """Also in Shadow, where it is what would have been answered."""

    @property
    def reserves(self) -> bool:
        """Whether the node ranked first is now expected to get the pod."""
        return self.outcome != "neutral"


class Freshness:
    """Which known candidates have readings young enough for the policy."""

    __slots__ = ("_mask", "_oldest_s", "_read_at_s", "_rows")

    def __init__(self, read_at_s: FloatArray, rows: IntArray, oldest_s: float) -> None:
        self._read_at_s, self._rows, self._oldest_s = read_at_s, rows, oldest_s
        self._mask: BoolArray | None = None

    @property
    def mask(self) -> BoolArray:
        """Looked at only for policies that read nodes."""
        if self._mask is None:
            self._mask = self._read_at_s[self._rows] >= self._oldest_s  # NaN, never read, compares false
        return self._mask

    @property
    def count(self) -> int:
        """How many there are."""
        return int(np.count_nonzero(self.mask))

    @property
    def all(self) -> bool:
        """Whether all candidates have."""
        return self.count == len(self.mask)


class OutOfTime(Exception):
    """The budget of the answer is used up."""


def decide(world: World, pod: Any, names: Sequence[str], now_s: float, in_time: Callable[[], bool]) -> Decision:
    """The decision for a call at a time; `in_time` is asked between stages."""
    facts = _facts(pod)
    if facts is None:
        return _neutral(NeutralReason.BAD_POD, None, None, names)
    route: Route | None = None
    if not world.enabled:
        return _neutral(NeutralReason.DISABLED, facts, None, names)
    if facts.scheduler_name != world.scheduler_name:
        return _neutral(NeutralReason.OTHER_SCHEDULER, facts, None, names)
    if not world.synced:
        return _neutral(NeutralReason.NOT_SYNCED, facts, None, names)
    route = world.router.route(facts.namespace, pod["metadata"].get("labels") or {})
    if route is None:
        return _neutral(NeutralReason.NO_POLICY, facts, None, names)
    mode: Mode = route.spec.mode
    if mode == "Off":
        return _neutral(NeutralReason.MODE_OFF, facts, route, names)
    if mode == "Canary" and route.spec.canary is not None and not in_share(facts.uid, route.spec.canary.percent):
        return _neutral(NeutralReason.CANARY, facts, route, names)
    request = PlacementRequest(
        facts.uid, facts.namespace, facts.function, facts.cpu_milli, facts.memory_bytes, facts.images, facts.protected
    )
    try:
        ranking = _rank(world, route, request, names, now_s, in_time)
    except OutOfTime:
        return _neutral(NeutralReason.DEADLINE, facts, route, names)
    if isinstance(ranking, NeutralReason):
        return _neutral(ranking, facts, route, names)
    if mode == "Shadow":
        return Decision("neutral", NeutralReason.SHADOW, facts, request, route, names, ranking)
    if ranking.fallback is not None:
        return Decision("fallback", ranking.fallback, facts, request, route, names, ranking)
    return Decision("scored", "", facts, request, route, names, ranking)


def _neutral(reason: NeutralReason, pod: PodFacts | None, route: Route | None, names: Sequence[str]) -> Decision:
    return Decision("neutral", reason, pod, None, route, names, None)


def _facts(pod: Any) -> PodFacts | None:
    """None for what is no pod: its names can be answered all the same."""
    try:
        labels = pod["metadata"].get("labels")
        return pod_facts(pod) if labels is None or isinstance(labels, dict) else None
    except (AttributeError, TypeError, KeyError, ValueError, ArithmeticError, TiphysError):
        return None


def _rank(
    world: World,
    route: Route,
    request: PlacementRequest,
    names: Sequence[str],
    now_s: float,
    in_time: Callable[[], bool],
) -> Ranking | NeutralReason:
    nodes = world.state.nodes
    rows = nodes.rows(names)
    unknown = rows == UNKNOWN
    some_unknown = np.count_nonzero(unknown) > 0
    known_rows = rows[~unknown] if some_unknown else rows
    if not len(known_rows):
        return NeutralReason.NO_KNOWN_NODE
    spec = route.spec
    oldest_s = now_s - spec.guardrails.max_reading_age_seconds
    fresh = Freshness(nodes.read_at_s, known_rows, oldest_s)
    judged: Judged | FallbackReason
    if spec.select is None:
        judged = _judge_by_objective(world, spec, request, known_rows, fresh, len(rows), in_time)
    elif not route.chosen:
        judged = FallbackReason.NOT_CHOSEN
    elif (learned := is_learned(route.chosen)) or route.chosen in world.rules:
        model = route.chosen if learned else None
        judged = _judge(world, route.chosen, model, spec.mode, request, known_rows, fresh, len(rows), in_time)
    elif route.chosen in PLANNERS or route.key in world.plans:  # planners of other packages are the operator's to know
        judged = _by_plan(world, route, request, known_rows, now_s)
    else:
        judged = FallbackReason.POLICY_UNKNOWN
    fallback: FallbackReason | None = None
    if isinstance(judged, FallbackReason):
        fallback = judged
        stand_in = spec.stand_in(fallback)
        rule = world.rules[stand_in]
        try:
            judged = _scores(world, rule, stand_in, request, known_rows, fresh)
        except Exception as error:  # noqa: BLE001 - whatever a rule trips over, the answer is neutral and says so
            _report(rule, error)
            return NeutralReason.INTERNAL_ERROR
        if not np.isfinite(judged.scores).all():
            return NeutralReason.BAD_SCORES
    policy, scores = judged.policy, judged.scores
    if not in_time():
        raise OutOfTime
    if some_unknown:
        spread: FloatArray = np.full(len(rows), np.nan)
        spread[~unknown] = scores
        scores = spread
        ties: FloatArray = np.empty(len(rows))
        ties[~unknown] = tie_breakers(request.uid, nodes.name_hash[known_rows])
        hashes = np.array([stable_hash(names[i]) for i in np.flatnonzero(unknown).tolist()], np.uint64)
        ties[unknown] = tie_breakers(request.uid, hashes)
    else:
        ties = tie_breakers(request.uid, nodes.name_hash[rows])
    best_first = order(scores, ties, policy.epsilon)
    if spec.guardrails.max_node_share_percent < 100:
        best_first = _crowded_last(world.state, request.function, spec.guardrails.max_node_share_percent, rows, best_first)
    if not in_time():
        raise OutOfTime
    return Ranking(policy, fallback, rows, scores, best_first, judged.inputs, judged.costs)


def _by_plan(world: World, route: Route, request: PlacementRequest, rows: IntArray, now_s: float) -> Judged | FallbackReason:
    """Scores by the published plan. It may be a moment newer than the status, which only says that a planner is active."""
    plan = world.plans.get(route.key)
    if plan is None or (plan.policy_uid, plan.policy_generation) != (route.uid, route.generation):
        return FallbackReason.PLAN_MISSING
    if now_s >= plan.valid_until_s:
        return FallbackReason.PLAN_EXPIRED
    policy = PlanPolicy(plan, world.state)
    scores = policy.score(world.state.view(request, rows), world.state.memory())
    return Judged(policy, scores) if scores.any() else FallbackReason.PLAN_EXHAUSTED


def _judge_by_objective(
    world: World,
    spec: SchedulingPolicySpec,
    request: PlacementRequest,
    rows: IntArray,
    fresh: Freshness,
    candidates: int,
    in_time: Callable[[], bool],
) -> Judged | FallbackReason:
    """Scores of the policy that judges by the spec's objective, or why none can."""
    if (name := spec.judge) is None:
        return FallbackReason.OBJECTIVE_UNSUPPORTED
    priced = PricedEstimator(worth_s=spec.node_second_worth_milliseconds / 1000) if spec.objective == "both" else None
    return _judge(world, name, spec.model_name, spec.mode, request, rows, fresh, candidates, in_time, priced)


def _judge(
    world: World,
    name: str,
    model: str | None,
    mode: Mode,
    request: PlacementRequest,
    rows: IntArray,
    fresh: Freshness,
    candidates: int,
    in_time: Callable[[], bool],
    instead: PlacementPolicy | None = None,
) -> Judged | FallbackReason:
    """The scores of the chosen policy, or of who judges `instead` under its name; or why it cannot judge."""
    policy = instead or world.rules.get(name) if model is None else world.models.policy(name, model, mode)
    if policy is None:
        return FallbackReason.POLICY_UNKNOWN if model is None else FallbackReason.MODEL_MISSING
    reads_nodes = name in world.reads_nodes
    if reads_nodes and 2 * fresh.count < candidates:
        return FallbackReason.READINGS_MISSING
    if isinstance(policy, FaaSRank) and policy.reads_profiles and (gap := world.state.profile_gap(request.function)) is not None:
        return FallbackReason(gap)
    if isinstance(policy, Estimator) and world.state.beliefs.cpu_unseen(request.function):
        return FallbackReason.CPU_MISSING
    if not in_time():
        raise OutOfTime
    try:
        judged = _scores(world, policy, name, request, rows, fresh)
    except Exception as error:  # noqa: BLE001 - weights are data from elsewhere: the rule answers and the reason is counted
        _report(policy, error)
        return FallbackReason.POLICY_ERROR
    scores = judged.scores
    finite = np.isfinite(scores)
    # NaN alone is honest where nobody has measured the node
    if np.count_nonzero(finite) < len(finite) and (np.isinf(scores).any() or (fresh.mask & ~finite).any() or not reads_nodes):
        return FallbackReason.SCORES_NOT_FINITE
    if model is not None and reads_nodes and _makes_no_difference(world.state, request, rows, scores, fresh.mask):
        return FallbackReason.SCORES_CONSTANT
    return judged


def _report(policy: PlacementPolicy, error: Exception) -> None:
    # the kind only: the message of an error may quote its input, and that may be a pod's
    _log.error("policy failed", extra={"fields": {"policy": policy.name, "error": type(error).__name__}})


def _scores(world: World, policy: PlacementPolicy, name: str, request: PlacementRequest, rows: IntArray, fresh: Freshness) -> Judged:
    """Scores in which stale readings count as missing."""
    stale = name in world.reads_nodes and not fresh.all
    if policy.row_wise:
        scores = world.scores.score(policy, world.state, request, rows)
        return Judged(policy, np.where(fresh.mask, scores, np.nan) if stale else scores)
    view = world.state.view(request, rows)
    if stale:
        view = replace(view, unread=~fresh.mask)
    if isinstance(policy, FaaSRank):  # what it read cannot be had again once time has passed: it is kept until the answer is logged
        inputs = policy.inputs(view)
        return Judged(policy, policy.score_inputs(inputs), inputs)
    if isinstance(policy, Estimator) and (costs := policy.costs(view)) is not None:  # explain shows what was reckoned with
        return Judged(policy, policy.weighed(view, costs), costs=costs)
    return Judged(policy, policy.score(view, world.state.memory()))


def _makes_no_difference(state: PlacementState, request: PlacementRequest, rows: IntArray, scores: FloatArray, fresh: BoolArray) -> bool:
    """Whether a learned policy gives one score to nodes that differ: saturated or broken."""
    if len(rows) < 2 or not abs(float(scores[0] - scores[-1])) <= _SAME:
        return False  # the first look costs nothing and is nearly always enough
    judged = rows[fresh]
    known = scores[fresh]
    if len(judged) < 2 or known.max() - known.min() > _SAME:
        return False
    inputs = encode(state.view(request, judged))
    first = inputs[0]
    return bool(((inputs != first) & ~(np.isnan(inputs) & np.isnan(first))).any())


def _crowded_last(state: PlacementState, function: str, percent: int, rows: IntArray, best_first: IntArray) -> IntArray:
    """Nodes that hold more than their share of the function's pods go behind the others, in unchanged order."""
    crowded = state.crowded(function, percent)
    if not crowded:
        return best_first
    behind = np.isin(rows, np.fromiter(crowded, np.int64, len(crowded)))[best_first]
    if behind.all():
        return best_first
    return np.concatenate([best_first[~behind], best_first[behind]])
