"""Who plays against whom: lanes by name, groups of at most four with one in common, and the stock schedulers among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from tiphys_models.artifacts.shipped import is_carried
from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement.registry import PolicyName, is_learned, is_ours
from tiphys_testbed.demo.lanes import PATIENT, Lane

BASE = "warm-first"
"""The lane that every group has: policies of different groups are compared through it."""
AGAIN = "warm-first-again"
"""The same policy once more: what it differs from itself is the noise of the machine."""
KUBE_DEFAULT = "kube-default"
MOST_ALLOCATED = "most-allocated"
PACKING, BALANCING = "trimaran-target-load-packing", "trimaran-load-variation"
TRIMARAN: Mapping[str, str] = {PACKING: "TargetLoadPacking", BALANCING: "LoadVariationRiskBalancing"}
"""Trimaran's plugins, by lane."""
STOCK = (KUBE_DEFAULT, MOST_ALLOCATED, *TRIMARAN)
"""Lanes of which Tiphys places nothing."""
GROUPS: Mapping[str, tuple[str, ...]] = {
    "waiting": (BASE, KUBE_DEFAULT, "rule-6", "estimator"),
    "packing": (BASE, MOST_ALLOCATED, PACKING, BALANCING),
    "network": (BASE, "rule-6", "estimator", "estimator-network"),
    "books": (BASE, AGAIN, "warm-first-books", "warm-first-waits"),
}
CHOSEN = ("waiting", "packing")
"""Groups that are played unless others are asked for."""
MOST_LANES = 4
LOADS_FROM = "a load-watcher of the test bed: mean and deviation of the last minute, asked for every 30 s"
"""Where Trimaran's plugins have the load of nodes from."""


def group_of(names: Sequence[str]) -> tuple[str, ...]:
    """A group made of these lanes, the common one first; InvalidInput if there is no such lane, or too many."""
    lanes = tuple(dict.fromkeys((BASE, *names)))
    for name in lanes:
        if name not in (*STOCK, AGAIN) and (not is_ours(name) or (is_learned(name) and not is_carried(name))):
            raise InvalidInput(f"--lanes: {name!r} is neither a policy that can decide as it ships nor one of {', '.join((*STOCK, AGAIN))}")
    if not 2 <= len(lanes) <= MOST_LANES:
        raise InvalidInput(f"--lanes: name one to {MOST_LANES - 1} lanes beside {BASE}")
    return lanes


def lane_of(name: str) -> Lane:
    """The lane of that name; pods of patient policies let themselves be held."""
    if name in STOCK:
        return Lane(name, None, scheduler="" if name == KUBE_DEFAULT else name)
    policy = PolicyName(BASE if name == AGAIN else name)
    return Lane(name, policy, may_wait=policy in PATIENT)


def rotated(groups: Sequence[str], pair: int) -> tuple[str, ...]:
    """The groups in the order in which a pair plays them: each is first as often as any other."""
    first = pair % len(groups)
    return (*groups[first:], *groups[:first])


def stock_config(names: Sequence[str], watcher_url: str) -> str:
    """One KubeSchedulerConfiguration with a profile for each of these lanes; everything else as Kubernetes has it."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 500, "burst": 1000},
        "enableProfiling": False,
        "profiles": [_profile(name, watcher_url) for name in names],
    }
    return yaml.safe_dump(config, sort_keys=False)


def _profile(name: str, watcher_url: str) -> dict[str, Any]:
    if name == MOST_ALLOCATED:
        resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
        args: dict[str, Any] = {"scoringStrategy": {"type": "MostAllocated", "resources": resources}}
        return {"schedulerName": name, "pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}
    plugin = TRIMARAN[name]
    score: dict[str, Any] = {"enabled": [{"name": plugin}]}
    if name == PACKING:
        # as in the project's own manifest: what would spread again scores no longer, and goes on filtering
        score["disabled"] = [{"name": "NodeResourcesBalancedAllocation"}, {"name": "NodeResourcesFit"}]
    return {
        "schedulerName": name,
        "plugins": {"score": score},
        "pluginConfig": [{"name": plugin, "args": {"watcherAddress": watcher_url}}],
    }
