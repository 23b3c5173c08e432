"""Placement policies by the names that the CRD, the command and the benchmarks use; others come through entry points."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np

from tiphys_models.artifacts.files import card_of
from tiphys_models.artifacts.loaders import load_file
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.placement.candidates import CandidateView, PlacementMemory
from tiphys_models.placement.faasrank import FaaSRank
from tiphys_models.placement.protocol import PlacementPolicy
from tiphys_models.placement.score_network import ScoreNetwork
from tiphys_models.seats.pace import Pace
from tiphys_models.seats.registry import BrokenDecider, Entry, Registry

GROUP = "tiphys.placement_policies"
"""Entry point group of policies from other distributions: name -> a class or function without arguments."""
FOREIGN_BUDGET_S = 0.025
"""A scheduling cycle waits for it; another package's policy that takes longer is set aside for a while."""
EPSILON = 1e-3
"""Scores closer than this are equal, for a policy that does not say so itself."""


class PolicyName(StrEnum):
    """Our own placement policies. A SchedulingPolicy may also name one of another package."""

    HASHING = "hashing"
    ROUND_ROBIN = "round-robin"
    LEAST_CONNECTIONS = "least-connections"
    GREEDY = "greedy"
    STATIC_RANK = "static-rank"
    WARM_FIRST = "warm-first"
    FAASRANK = "faasrank"
    WARM_FIRST_BOOKS = "warm-first-books"
    WARM_FIRST_WAITS = "warm-first-waits"
    RULE_6 = "rule-6"
    ESTIMATOR = "estimator"
    ESTIMATOR_NETWORK = "estimator-network"
    MOST_ALLOCATED = "most-allocated"
    LIFETIMES = "lifetimes"
    CONSOLIDATION_AWARE = "consolidation-aware"


_LEARNED = frozenset({PolicyName.FAASRANK, PolicyName.ESTIMATOR_NETWORK})
_RULES = "tiphys_models.placement.rules"
_PATIENT = "tiphys_models.placement.patient"
REGISTRY: Registry[Callable[..., Any]] = Registry(
    "placement-policy",
    GROUP,
    (
        Entry(PolicyName.HASHING, f"{_RULES}:Hashing"),
        Entry(PolicyName.ROUND_ROBIN, f"{_RULES}:RoundRobin"),
        Entry(PolicyName.LEAST_CONNECTIONS, f"{_RULES}:LeastConnections"),
        Entry(PolicyName.GREEDY, f"{_RULES}:Greedy"),
        Entry(PolicyName.STATIC_RANK, f"{_RULES}:StaticRank"),
        Entry(PolicyName.WARM_FIRST, f"{_RULES}:WarmFirst"),
        Entry(PolicyName.FAASRANK, "tiphys_models.placement.faasrank:FaaSRank", learned=True, model="faasrank"),
        Entry(PolicyName.WARM_FIRST_BOOKS, f"{_PATIENT}:WarmFirstBooks"),
        Entry(PolicyName.WARM_FIRST_WAITS, f"{_PATIENT}:WarmFirstWaits"),
        Entry(PolicyName.RULE_6, f"{_PATIENT}:Rule6"),
        Entry(PolicyName.ESTIMATOR, f"{_PATIENT}:Estimator"),
        Entry(
            PolicyName.ESTIMATOR_NETWORK,
            "tiphys_models.placement.estimator_network:EstimatorNetwork",
            learned=True,
            model="estimator-network",
        ),
        Entry(PolicyName.MOST_ALLOCATED, f"{_RULES}:MostAllocated"),
        Entry(PolicyName.LIFETIMES, f"{_RULES}:Lifetimes"),
        Entry(PolicyName.CONSOLIDATION_AWARE, f"{_RULES}:ConsolidationAware"),
    ),
)


class ForeignPolicy:
    """A placement policy of another package: what it leaves unsaid is filled in, and what it answers is checked.

    Only `score` is asked of it. `epsilon`, `row_wise`, `reads_nodes` and `digest` count where it has them.
    """

    def __init__(self, policy: Any, name: str, digest: str = "", pace: Pace | None = None) -> None:
        self._policy, self._pace, self.name = policy, pace, name
        self.epsilon = float(getattr(policy, "epsilon", EPSILON))
        self.row_wise = bool(getattr(policy, "row_wise", False))
        self.reads_nodes = bool(getattr(policy, "reads_nodes", False))
        self.digest = str(getattr(policy, "digest", "") or digest)

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """See `PlacementPolicy`; ValueError for anything but one number a candidate."""
        ask = partial(self._policy.score, view, memory)
        scores: FloatArray = np.asarray(ask() if self._pace is None else self._pace.run(ask), np.float64)
        if scores.shape != (len(view.rows),):
            raise ValueError(f"{len(view.rows)} candidates got scores of shape {scores.shape}")
        return scores


def adopted(policy: Any, name: str, digest: str = "", pace: Pace | None = None) -> PlacementPolicy:
    """Any object with a method `score` as a placement policy; InvalidInput for another one."""
    REGISTRY.needs(REGISTRY.entry(name) or Entry(name, ""), policy, "score")
    return ForeignPolicy(policy, name, digest, pace)


def make_policy(name: str, network: ScoreNetwork | PlacementPolicy | None = None) -> PlacementPolicy:
    """The policy of that name; those that need a model need their network, or what a loader made of it. InvalidInput if it is unknown or
    cannot be used."""
    entry = REGISTRY.entry(name)
    if entry is None:
        raise REGISTRY.unknown(name)
    if is_learned(name):
        if network is None:
            raise ArtifactRefused("Missing", f"policy {name} needs a model and none is loaded")
        return FaaSRank(network) if isinstance(network, ScoreNetwork) else network
    made = REGISTRY.make(name)
    if entry.package:
        return adopted(made, name, entry.digest, Pace(FOREIGN_BUDGET_S))
    return made  # type: ignore[return-value]


def shipped_policy(name: str) -> PlacementPolicy:
    """The policy of that name, a learned one with the weights that are installed. Loaders take a moment: not for a decision."""
    return make_policy(name, load_file(card_of(name)).value if is_learned(name) else None)


def unpaced(name: str) -> PlacementPolicy:
    """Another package's policy for simulators, where nobody waits and a clock must not decide."""
    return adopted(REGISTRY.make(name), name, REGISTRY.foreign[name].digest)


def is_learned(name: str) -> bool:
    """Whether it needs a model of ours; policies of other packages carry what they have learned."""
    return name in _LEARNED


def is_ours(name: str) -> bool:
    """Whether it is one of `PolicyName`."""
    return name in REGISTRY.ours


def as_named(name: str) -> str:
    """The same name, as `PolicyName` where it is ours."""
    return PolicyName(name) if is_ours(name) else name


def usable_rules() -> dict[str, PlacementPolicy]:
    """Every policy that needs no model of ours: our rules, and those of other packages that can be used."""
    made = {str(name): make_policy(name) for name in PolicyName if not is_learned(name)}
    for name in REGISTRY.foreign:
        with contextlib.suppress(BrokenDecider):  # logged and counted where it was found
            made[name] = make_policy(name)
    return made


def usable_names() -> list[str]:
    """Every policy that this process can be asked for; packages that turned out to be broken are not among them."""
    broken = {fault.name for fault in REGISTRY.faults() if fault.name in REGISTRY.foreign}
    return [*map(str, PolicyName), *(name for name in REGISTRY.foreign if name not in broken)]


def entries() -> tuple[Entry, ...]:
    """Our own, whether their weights are there or not."""
    return tuple(REGISTRY.ours.values())
