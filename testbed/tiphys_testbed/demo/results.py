"""Figures of a replay, and of several: pure functions of the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tiphys_testbed.demo.decisions import LaneDecisions
from tiphys_testbed.demo.records import CallRecord

LEAST_SCORED_SHARE = 0.95
LEAST_ASKED_SHARE = 0.75
"""Fewer: not a full cluster, but a scheduler that does not ask."""
_RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class LaneResult:
    """One lane in one replay. Times in seconds."""

    lane: str
    seed: int
    calls: int
    done: int
    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    cold_starts: int
    mean_inflight: float
    """Calls that had come and were not done, averaged over the span in which calls came."""
    mean_scheduling_s: float
    drained_s: float
    """When the last call was done."""
    decisions: LaneDecisions | None
    """None: not a lane of Tiphys."""
    problems: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """Calls that were never done."""
        return self.calls - self.done

    @property
    def scored_share(self) -> float | None:
        """Part of the calls asked about that the lane's policy itself decided; a pod that one node alone can take is asked about
        by nobody."""
        return None if self.decisions is None else self.decisions.scored / max(self.calls - self.decisions.not_asked, 1)

    @property
    def asked_share(self) -> float:
        """Part of all calls that the extender was asked about."""
        return 1.0 if self.decisions is None else 1 - self.decisions.not_asked / max(self.calls, 1)

    @property
    def best_bound_share(self) -> float | None:
        """Part of the decided calls that went to the node answered 10."""
        if self.decisions is None:
            return None
        compared = self.decisions.best_bound + self.decisions.best_other
        return self.decisions.best_bound / compared if compared else None


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over seeds with its 95 % interval; without one for a single seed."""

    mean: float
    low: float | None = None
    high: float | None = None
    n: int = 1


@dataclass(frozen=True, slots=True)
class LaneSummary:
    """One lane over all seeds."""

    lane: str
    calls: int
    lost: int
    mean_s: Figure
    p95_s: Figure
    p99_s: Figure
    cold_starts: Figure
    mean_inflight: Figure
    pct_of_control: Figure
    """Mean completion time in percent of the control's, seed by seed."""
    scored_share: float | None
    best_bound_share: float | None


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One seed: figures of every lane, and the records behind them."""

    seed: int
    span_s: float
    wall_s: float
    lanes: tuple[LaneResult, ...]
    records: tuple[CallRecord, ...] = field(repr=False)

    def records_of(self, lane: str) -> list[CallRecord]:
        """The calls of one lane."""
        return [record for record in self.records if record.lane == lane]


def lane_result(lane: str, seed: int, records: Sequence[CallRecord], span_s: float, decisions: LaneDecisions | None) -> LaneResult:
    """Figures of one lane."""
    times = np.array([record.completion_s for record in records if record.completion_s is not None], np.float64)
    waits = [record.scheduling_s for record in records if record.scheduling_s is not None]
    p50, p95, p99 = (float(p) for p in np.percentile(times, (50, 95, 99))) if len(times) else (np.nan,) * 3
    return LaneResult(
        lane=lane,
        seed=seed,
        calls=len(records),
        done=len(times),
        mean_s=float(times.mean()) if len(times) else np.nan,
        p50_s=p50,
        p95_s=p95,
        p99_s=p99,
        cold_starts=sum(bool(record.cold) for record in records),
        mean_inflight=mean_inflight(records, span_s),
        mean_scheduling_s=float(np.mean(waits)) if waits else np.nan,
        drained_s=max((record.done_s for record in records if record.done_s is not None), default=np.nan),
        decisions=decisions,
        problems=tuple(f"{record.pod}: {record.problem}" for record in records if record.problem),
    )


def mean_inflight(records: Sequence[CallRecord], span_s: float) -> float:
    """Calls under way, averaged over the first `span_s` seconds; a call that is never done stays under way."""
    total = 0.0
    for record in records:
        end_s = span_s if record.done_s is None else min(record.done_s, span_s)
        total += max(end_s - min(record.due_s, span_s), 0.0)
    return total / span_s


def inflight_curve(records: Sequence[CallRecord], step_s: float = 0.5) -> tuple[list[float], list[int]]:
    """Calls under way at every step of time, from the start until nobody is left."""
    last_s = max((record.done_s or record.due_s for record in records), default=0.0)
    times = np.arange(0.0, last_s + 2 * step_s, step_s)
    came = np.sort([record.due_s for record in records])
    went = np.sort([record.done_s for record in records if record.done_s is not None])
    under_way = np.searchsorted(came, times, "right") - np.searchsorted(went, times, "right")
    return [float(t) for t in times], [int(n) for n in under_way]


def completion_curve(records: Sequence[CallRecord]) -> tuple[list[float], list[float]]:
    """Completion times in order, and the share of all calls that were done within each."""
    times = sorted(record.completion_s for record in records if record.completion_s is not None)
    return times, [(index + 1) / len(records) for index in range(len(times))]


def calls_per_node(records: Sequence[CallRecord]) -> dict[str, int]:
    """How many calls each node got; nodes without calls are missing."""
    counts: dict[str, int] = {}
    for record in records:
        if record.node:
            counts[record.node] = counts.get(record.node, 0) + 1
    return counts


def summarize(replays: Sequence[ReplayResult], control: str) -> list[LaneSummary]:
    """Every lane over all seeds, lanes in their own order."""
    summaries = []
    for lane in (result.lane for result in replays[0].lanes):
        results = [_of(replay, lane) for replay in replays]
        against = [_of(replay, control) for replay in replays]
        shares = [r.scored_share for r in results if r.scored_share is not None]
        hits = [r.best_bound_share for r in results if r.best_bound_share is not None]
        summaries.append(
            LaneSummary(
                lane=lane,
                calls=sum(r.calls for r in results),
                lost=sum(r.lost for r in results),
                mean_s=_figure(results, lambda r: r.mean_s),
                p95_s=_figure(results, lambda r: r.p95_s),
                p99_s=_figure(results, lambda r: r.p99_s),
                cold_starts=_figure(results, lambda r: float(r.cold_starts)),
                mean_inflight=_figure(results, lambda r: r.mean_inflight),
                pct_of_control=figure([100 * r.mean_s / c.mean_s for r, c in zip(results, against, strict=True)]),
                scored_share=min(shares) if shares else None,
                best_bound_share=min(hits) if hits else None,
            )
        )
    return summaries


def problems(replays: Sequence[ReplayResult]) -> list[str]:
    """What makes the demo fail: calls that were lost, and policies that did not decide."""
    found = []
    for replay in replays:
        for result in replay.lanes:
            if result.lost:
                examples = "; ".join(result.problems[:3])
                found.append(f"lane {result.lane}, seed {replay.seed}: {result.lost} of {result.calls} calls were never done ({examples})")
            share = result.scored_share
            if share is None or result.decisions is None:
                continue
            if result.asked_share < LEAST_ASKED_SHARE:
                found.append(
                    f"lane {result.lane}, seed {replay.seed}: the extender was never asked about {result.decisions.not_asked} of "
                    f"{result.calls} calls"
                )
            if share < LEAST_SCORED_SHARE:
                why = (
                    ", ".join(f"{reason} {count}" for reason, count in sorted((result.decisions.reasons or {}).items()))
                    or "no reason counted"
                )
                found.append(
                    f"lane {result.lane}, seed {replay.seed}: its policy decided {share:.1%} of the calls asked about, fewer than "
                    f"{LEAST_SCORED_SHARE:.0%} ({why}; never asked {result.decisions.not_asked})"
                )
    return found


def figure(values: Sequence[float]) -> Figure:
    """Mean and a 95 % bootstrap interval over seeds."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Figure(mean)
    picks = np.random.default_rng(0).integers(0, len(values), (_RESAMPLES, len(values)))
    low, high = np.percentile(np.asarray(values)[picks].mean(axis=1), (2.5, 97.5))
    return Figure(mean, float(low), float(high), len(values))


def _figure(results: Sequence[LaneResult], of: Callable[[LaneResult], float]) -> Figure:
    return figure([of(result) for result in results])


def _of(replay: ReplayResult, lane: str) -> LaneResult:
    return next(result for result in replay.lanes if result.lane == lane)
