"""The ledger: dollars, joules, seconds and missed deadlines of pods, charged to the decision that was in force when each was bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tiphys_models.selection.cloud.hosts import HostType, power_w
from tiphys_models.selection.cloud.score import Outcome
from tiphys_operator.cluster.live import LiveNode, LivePod
from tiphys_operator.selection.memory import FUNCTIONS_MAX, TRACKED_MAX, Account, Memory, Profile, Tracked

DEFAULT_RUN_S = 30.0
"""The assumed run time of a function none of whose pods has ended yet."""
_LONGEST_GAP_INTERVALS = 10
"""What ran while no operator looked is not known better than this."""
_SETTLE_AFTER_INTERVALS = 90
"""A decision whose pods still run after so long is settled as it stands: services never end."""
_SMOOTHING = 0.5
_RUNS_REMEMBERED = 20
_NO_ARRIVALS = 0.05
_LEAST_CORES = 0.1
_SLACK_S = 1.0
_CLOCK_S = 1.0
"""Times of the API server are whole seconds, rounded down."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A decision whose pods have all ended."""

    decision: int
    account: Account
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Spent:
    """What a stretch of time added, for metrics."""

    usd: float = 0.0
    joules: float = 0.0
    ended: int = 0
    late: int = 0


def account(
    memory: Memory, mine: Callable[[LivePod], bool], pods: Mapping[str, LivePod], nodes: Mapping[str, LiveNode],
    kinds: Mapping[str, HostType], busy_cores: Mapping[str, float], now_s: float, interval_s: float, sla_factor: int,
) -> Spent:  # fmt: skip
    """Bring the books from the last look to now: arrivals, binds, shares of the nodes in use, ends."""
    since_s = max(memory.at_s, now_s - _LONGEST_GAP_INTERVALS * interval_s) if memory.at_s else now_s
    arrived: dict[str, int] = {}
    for uid, pod in pods.items():
        if uid in memory.tracked or not mine(pod):
            continue
        since_last = bool(memory.at_s) and pod.created_s >= memory.at_s - _CLOCK_S
        if pod.finished_s is not None and not (since_last and pod.finished_s >= math.floor(memory.at_s)):
            continue  # charged before; one that came and went between two looks is entered and settled below
        if not pod.node or since_last:  # what ran before the first look did not arrive
            arrived[pod.function] = arrived.get(pod.function, 0) + 1
        _know(memory, pod)
        if len(memory.tracked) < TRACKED_MAX:
            due_s = sla_factor * run_s(memory.profiles.get(pod.function)) + _SLACK_S
            memory.tracked[uid] = Tracked(function=pod.function, created_s=pod.created_s, due_s=due_s)
    for uid, tracked in memory.tracked.items():
        seen = pods.get(uid)
        if tracked.bound_s or seen is None or not seen.node:
            continue
        tracked.bound_s = seen.scheduled_s or now_s
        found = memory.accounts.get(memory.decided) if memory.decided is not None else None
        if found is not None and tracked.bound_s >= found.at_s - _CLOCK_S:
            tracked.decision = memory.decided
            found.pods += 1
    usd, joules = _charge(memory, pods.values(), nodes, kinds, busy_cores, since_s, now_s)
    ended, late = _end(memory, pods, now_s)
    _smooth(memory, arrived, (now_s - memory.at_s) / interval_s if memory.at_s else 1.0)
    memory.at_s = now_s
    return Spent(usd, joules, ended, late)


def settled(memory: Memory, now_s: float, interval_s: float) -> list[Settled]:
    """Decisions that no unfinished pod belongs to and that no pod can join any more; they leave the books."""
    open_decisions = {tracked.decision for tracked in memory.tracked.values()}
    done = []
    for decision, found in sorted(memory.accounts.items()):
        if decision == memory.decided:
            continue
        if decision in open_decisions and now_s - found.at_s < _SETTLE_AFTER_INTERVALS * interval_s:
            continue
        del memory.accounts[decision]
        for uid in [uid for uid, tracked in memory.tracked.items() if tracked.decision == decision]:
            del memory.tracked[uid]
        done.append(Settled(decision, found, Outcome(found.usd, found.joules, found.response_s, found.late, found.pods)))
    return done


def run_s(profile: Profile | None) -> float:
    """Seconds a pod of the function is expected to run."""
    return profile.run_s if profile is not None and profile.runs else DEFAULT_RUN_S


def _charge(
    memory: Memory, pods: Iterable[LivePod], nodes: Mapping[str, LiveNode], kinds: Mapping[str, HostType],
    busy_cores: Mapping[str, float], since_s: float, now_s: float,
) -> tuple[float, float]:  # fmt: skip
    """A node in use is paid and powered for the whole stretch; its pods share that by requested core-seconds."""
    used: dict[str, list[tuple[LivePod, float]]] = {}
    for pod in pods:
        if pod.node and not pod.of_machine:
            start_s = max(since_s, pod.scheduled_s if pod.scheduled_s is not None else since_s)
            present_s = min(now_s, pod.finished_s if pod.finished_s is not None else now_s) - start_s
            if present_s > 0:
                used.setdefault(pod.node, []).append((pod, present_s * max(pod.cores, 0.001)))
    spent_usd = spent_joules = 0.0
    for name, shares in used.items():
        node = nodes.get(name)
        kind = kinds.get(node.instance_type or "unknown") if node is not None else None
        if kind is None:
            continue
        total = sum(share for _, share in shares)
        stretch_s = now_s - since_s
        joules = power_w(kind.power_w, busy_cores.get(name, total / stretch_s) / max(kind.cores, _LEAST_CORES)) * stretch_s
        usd = kind.usd_per_hour / 3600.0 * stretch_s
        for pod, share in shares:
            tracked = memory.tracked.get(pod.uid)
            found = memory.accounts.get(tracked.decision) if tracked is not None and tracked.decision is not None else None
            if found is not None:
                found.usd += usd * share / total
                found.joules += joules * share / total
                spent_usd, spent_joules = spent_usd + usd * share / total, spent_joules + joules * share / total
    return spent_usd, spent_joules


def _end(memory: Memory, pods: Mapping[str, LivePod], now_s: float) -> tuple[int, int]:
    ended = late = 0
    for uid, tracked in list(memory.tracked.items()):
        seen = pods.get(uid)
        if seen is not None and seen.finished_s is None:
            continue
        del memory.tracked[uid]
        end_s = seen.finished_s if seen is not None and seen.finished_s is not None else now_s
        if tracked.bound_s and (profile := memory.profiles.get(tracked.function)) is not None:
            profile.runs += 1
            profile.run_s += (max(end_s - tracked.bound_s, 0.1) - profile.run_s) / min(profile.runs, _RUNS_REMEMBERED)
        found = memory.accounts.get(tracked.decision) if tracked.decision is not None else None
        if found is None:
            continue  # bound before the first decision, or never
        response_s = max(end_s - tracked.created_s, 0.0)
        was_late = response_s > tracked.due_s
        found.response_s += response_s
        found.late += was_late
        ended, late = ended + 1, late + was_late
    return ended, late


def _know(memory: Memory, pod: LivePod) -> None:
    profile = memory.profiles.get(pod.function)
    if profile is None:
        if len(memory.profiles) >= FUNCTIONS_MAX:
            del memory.profiles[min(memory.profiles, key=lambda name: memory.profiles[name].arrivals)]
        profile = memory.profiles[pod.function] = Profile()
    profile.cores, profile.ram_mib, profile.selector = pod.cores, pod.ram_mib, pod.node_selector


def _smooth(memory: Memory, arrived: Mapping[str, int], intervals: float) -> None:
    """Moving mean of arrivals an interval; nearly none is none."""
    keep = math.pow(1.0 - _SMOOTHING, max(intervals, 0.1))
    for name, profile in memory.profiles.items():
        rate = arrived.get(name, 0) / max(intervals, 0.1)
        profile.arrivals = keep * profile.arrivals + (1.0 - keep) * rate
        if profile.arrivals < _NO_ARRIVALS:
            profile.arrivals = 0.0
