"""A workload, a policy and a world under Kubernetes' filter in; one record a call out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.calls import filled
from tiphys_models.placement.learned_profiles import DECLARED_CALLS, NOTHING_KNOWN, TYPICAL_CALLS
from tiphys_models.placement.patient import EPSILON, RULE_6_WEIGHTS, WAITS_WEIGHTS
from tiphys_models.placement.rules import WarmFirst
from tiphys_models.placement.sim.cluster import SimulatedFleet, new_cluster
from tiphys_models.placement.sim.episode import CallRecords, Player, compile_rule, name_hashes, records_of
from tiphys_models.placement.sim.functions import FUNCTIONS, FunctionModel
from tiphys_models.placement.sim.kube import deciding
from tiphys_models.placement.sim.kube.belief import Belief, new_belief
from tiphys_models.placement.sim.kube.deciding import KubeRule
from tiphys_models.placement.sim.kube.run import Clock, run_pods
from tiphys_models.placement.sim.kube.scenario import KubeScenario, declared_wrongly, varied
from tiphys_models.placement.sim.observe import new_seen
from tiphys_models.placement.sim.scenario import make_fleet, profiled_functions
from tiphys_models.placement.sim.workloads import CallWorkload, make_workload
from tiphys_models.placement.waiting import LONGEST_S, LOOK_AGAIN_S


@dataclass(frozen=True, slots=True)
class KubePlayer:
    """A policy that knows the books; `weights` are those of its kind."""

    name: str
    kind: int
    weights: tuple[float, ...] = ()
    longest_s: float = LONGEST_S
    guarded: bool = True
    least_share: float = -1.0


KUBE_DEFAULT = KubePlayer("kube-default", deciding.KUBE_DEFAULT)
MOST_ALLOCATED = KubePlayer("most-allocated", deciding.MOST_ALLOCATED)
BOOKS = KubePlayer("warm-first-books", deciding.BOOKS)
WAITS = KubePlayer("warm-first-waits", deciding.WAITS, WAITS_WEIGHTS)
RULE_6 = KubePlayer("rule-6", deciding.LINEAR_WAITS, RULE_6_WEIGHTS)
ESTIMATOR = KubePlayer("estimator", deciding.ESTIMATOR)
ESTIMATOR_NETWORK = KubePlayer("estimator-network", deciding.ESTIMATOR_NETWORK)
"""Without weights: what they are is up to whoever plays."""
UNGUARDED = KubePlayer("estimator-unguarded", deciding.ESTIMATOR, guarded=False)
"""The estimator that trusts what it has learned from the first call on, whatever it could not see."""
AnyPlayer = Player | KubePlayer


@dataclass(frozen=True, slots=True)
class KubeRecords:
    """What has become of the calls, and how long each was told to wait."""

    calls: CallRecords
    placed_s: FloatArray
    held_s: FloatArray
    """From the first "not yet" to the placement; zero for calls that were never held."""
    learned: FloatArray = field(repr=False)
    """What was learned of the functions, for the minute after."""


def compile_kube(player: AnyPlayer, workload: CallWorkload, nodes: int) -> KubeRule:
    """The policy as compiled code reads it."""
    if isinstance(player, KubePlayer):
        epsilon = 0.5 if player.kind in (deciding.KUBE_DEFAULT, deciding.MOST_ALLOCATED) else EPSILON
        weights = np.array(player.weights, np.float64)
        scraped = compile_rule(WarmFirst(), workload, nodes)
        return KubeRule(player.kind, epsilon, weights, player.longest_s, player.guarded, player.least_share, scraped)
    scraped = compile_rule(player, workload, nodes)
    return KubeRule(scraped.kind, scraped.epsilon, np.zeros(0), 0.0, False, -1.0, scraped)


def priors(
    scenario: KubeScenario, workload: CallWorkload, fleet: SimulatedFleet, functions: tuple[FunctionModel, ...] = FUNCTIONS
) -> tuple[FloatArray, FloatArray]:
    """What is declared of each function, or usual where nothing is, and how many calls that is worth."""
    records = fleet.functions
    truth = np.stack([records["init_s"], records["warm_work"], records["cold_work"], records["parallelism"]], axis=1).astype(np.float64)
    known = profiled_functions(replace(scenario.cluster, profiled=scenario.declared), workload, functions)
    told = np.where(known[:, None], declared_wrongly(truth, scenario, workload), np.nan)
    usual = filled(told)[-1] if known.any() else np.array(NOTHING_KNOWN)
    return np.where(known[:, None], told, usual), np.where(known, DECLARED_CALLS, TYPICAL_CALLS)


def play_kube(
    workload: CallWorkload,
    player: AnyPlayer,
    scenario: KubeScenario,
    *,
    learned: FloatArray | None = None,
    functions: tuple[FunctionModel, ...] = FUNCTIONS,
) -> KubeRecords:
    """The workload through the policy."""
    if scenario.history and learned is None:
        before = make_workload(workload.name, workload.split, workload.seed + 500_000, scenario.cluster.nodes)  # type: ignore[arg-type]
        learned = play_kube(before, player, replace(scenario, history=False)).learned
    workload = varied(workload, scenario.variation)
    cluster_of = scenario.cluster
    fleet = make_fleet(replace(cluster_of, profiled=scenario.declared), workload, functions)._replace(
        image_mib=scenario.image_mib, pull_mib_per_s=scenario.pull_mib_per_s, images_kept_mib=scenario.images_kept_mib
    )
    calls, nodes = len(workload), cluster_of.nodes
    cluster = new_cluster(
        cluster_of.cores(), cluster_of.capacity_bytes(), float(fleet.functions["memory"].min()), calls, len(fleet.functions)
    )
    cluster.nodes["speed"][:-1] = scenario.speeds()
    seen = new_seen(nodes, len(fleet.functions), calls, cluster_of.period_s, cluster_of.delay_s)
    prior, prior_calls = priors(scenario, workload, fleet, functions)
    belief = new_belief(nodes, calls, prior, prior_calls, learned, measured=scenario.core_seconds)
    placed_s = np.full(calls, np.nan)
    run_pods(
        cluster, fleet, seen, belief, compile_kube(player, workload, nodes), Clock(cluster_of.period_s, cluster_of.delay_s, LOOK_AGAIN_S),
        name_hashes(nodes), workload.uid_hash, placed_s, scenario.core_seconds,
    )  # fmt: skip
    return KubeRecords(records_of(workload, cluster), placed_s, _held(belief, placed_s), belief.learned)


def _held(belief: Belief, placed_s: FloatArray) -> FloatArray:
    held: FloatArray = np.where(np.isnan(belief.held_s), 0.0, placed_s - belief.held_s)
    return held
