"""Placement policies by the names that the CRD, the command and the benchmarks use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tiphys_models.artifacts.score_network import ScoreNetwork
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_models.policies.faasrank import FaaSRank
from tiphys_models.policies.protocol import PlacementPolicy
from tiphys_models.policies.rules import Greedy, Hashing, LeastConnections, RoundRobin, StaticRank, WarmFirst


class PolicyName(StrEnum):
    """Every placement policy a SchedulingPolicy may name."""

    HASHING = "hashing"
    ROUND_ROBIN = "round-robin"
    LEAST_CONNECTIONS = "least-connections"
    GREEDY = "greedy"
    STATIC_RANK = "static-rank"
    WARM_FIRST = "warm-first"
    FAASRANK = "faasrank"


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A line of `tiphys policies`."""

    name: PolicyName
    summary: str
    learned: bool


_RULES: dict[PolicyName, Callable[[], PlacementPolicy]] = {
    PolicyName.HASHING: Hashing,
    PolicyName.ROUND_ROBIN: RoundRobin,
    PolicyName.LEAST_CONNECTIONS: LeastConnections,
    PolicyName.GREEDY: Greedy,
    PolicyName.STATIC_RANK: StaticRank,
    PolicyName.WARM_FIRST: WarmFirst,
}


def make_policy(name: PolicyName, network: ScoreNetwork | None = None) -> PlacementPolicy:
    """The policy of that name; learned ones need their network."""
    if name in _RULES:
        return _RULES[name]()
    if network is None:
        raise ArtifactRefused("Missing", f"policy {name} needs a model and none is loaded")
    return FaaSRank(network)


def is_learned(name: PolicyName) -> bool:
    """Whether it needs a model."""
    return name not in _RULES


def entries() -> tuple[PolicyEntry, ...]:
    """All of them, with the first line of what each says of itself."""
    kinds = {**_RULES, PolicyName.FAASRANK: FaaSRank}
    return tuple(PolicyEntry(name, (kinds[name].__doc__ or "").strip().splitlines()[0], is_learned(name)) for name in PolicyName)
