"""The figures as people read them: on a terminal, in Markdown, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tiphys_testbed.demo.lanes import CONTROL, SHADOW_SUFFIX
from tiphys_testbed.demo.records import CallRecord
from tiphys_testbed.demo.results import Figure, LaneSummary, ReplayResult

NOTHING = "–"
_FEW_SEEDS = 5


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the result."""

    title: str
    cell: Callable[[LaneSummary], str]
    narrow: str = ""
    """Title on a terminal; empty: not shown there, another table says it."""


def _number(of: Callable[[LaneSummary], Figure], digits: int) -> Callable[[LaneSummary], str]:
    return lambda summary: show(of(summary), digits)


COLUMNS = (
    Column("placed by", lambda s: s.lane, "placed by"),
    Column("calls", lambda s: str(s.calls) if not s.lost else f"{s.calls} ({s.lost} lost)", "calls"),
    Column("mean s", _number(lambda s: s.mean_s, 2), "mean s"),
    Column("p95 s", _number(lambda s: s.p95_s, 2), "p95 s"),
    Column("p99 s", _number(lambda s: s.p99_s, 2), "p99 s"),
    Column("cold starts", _number(lambda s: s.cold_starts, 0), "cold"),
    Column("mean in flight", _number(lambda s: s.mean_inflight, 1), "in flight"),
    Column(f"mean, % of {CONTROL}", lambda s: "100" if s.lane == CONTROL else show(s.pct_of_control, 1), "% of control"),
    Column("decided by policy", lambda s: share(s.scored_share)),
    Column("bound to its first choice", lambda s: share(s.best_bound_share)),
)


def show(figure: Figure, digits: int) -> str:
    """`3.44`, or `3.44 [3.2, 3.7]` with an interval."""
    if math.isnan(figure.mean):
        return NOTHING
    text = f"{figure.mean:.{digits}f}"
    if figure.low is None or figure.high is None:
        return text
    return f"{text} [{figure.low:.{digits}f}, {figure.high:.{digits}f}]"


def share(value: float | None) -> str:
    """A fraction as a percentage that never rounds up to 100."""
    if value is None:
        return NOTHING
    return f"{math.floor(value * 1000) / 10:.1f} %"


def result_table(summaries: Sequence[LaneSummary]) -> Table:
    """The results as a table for a terminal."""
    shown = [column for column in COLUMNS if column.narrow]
    table = _table("Completion time: from the moment a call is due until its pod is done", [column.narrow for column in shown])
    for summary in summaries:
        table.add_row(*(column.cell(summary) for column in shown))
    return table


def markdown(summaries: Sequence[LaneSummary]) -> str:
    """The same for a README."""
    lines = [
        "| " + " | ".join(column.title for column in COLUMNS) + " |",
        "|" + "|".join(" --- " if index == 0 else " ---: " for index in range(len(COLUMNS))) + "|",
    ]
    lines += ["| " + " | ".join(column.cell(summary) for column in COLUMNS) + " |" for summary in summaries]
    return "\n".join(lines)


def verdict(summaries: Sequence[LaneSummary]) -> str:
    """One sentence on who was quickest, and how far that goes."""
    finished = [summary for summary in summaries if not (math.isnan(summary.mean_s.mean) or summary.lane.endswith(SHADOW_SUFFIX))]
    if not finished:
        return "No call was done."
    best = min(finished, key=lambda summary: summary.mean_s.mean)
    seeds = best.mean_s.n
    if best.lane == CONTROL:
        text = f"The plain {CONTROL} had the shortest mean completion time."
    else:
        text = f"{best.lane} had the shortest mean completion time: {best.pct_of_control.mean:.0f} % of the plain {CONTROL}'s."
    if seeds == 1:
        return f"{text} One run of one seed on a machine that does other things as well: more seeds (--seeds 0,1,2) tell more."
    caution = ", with so few seeds little more than their range" if seeds < _FEW_SEEDS else ""
    return f"{text} Mean of {seeds} seeds; brackets hold 95 % of bootstrapped means{caution}."


def live_table(elapsed_s: float, span_s: float, lanes: Sequence[str], records: Sequence[CallRecord]) -> Table:
    """How far the replay is."""
    title = f"{elapsed_s:.0f} s of {span_s:.0f} s" + (", waiting for the last calls" if elapsed_s > span_s else "")
    table = _table(title, ("placed by", "came", "in flight", "done", "cold", "mean s"))
    for lane in lanes:
        table.add_row(lane, *_live_cells(elapsed_s, [record for record in records if record.lane == lane]))
    return table


def live_line(elapsed_s: float, lanes: Sequence[str], records: Sequence[CallRecord]) -> str:
    """The same in one line, for logs."""
    parts = []
    for lane in lanes:
        came, under_way, done, _, mean = _live_cells(elapsed_s, [record for record in records if record.lane == lane])
        parts.append(f"{lane} {done}/{came} done, {under_way} in flight, mean {mean} s")
    return f"{elapsed_s:5.0f} s  " + "; ".join(parts)


def decisions_table(replays: Sequence[ReplayResult]) -> Table:
    """What the extender answered, lane by lane."""
    titles = ("placed by", "seed", "scored", "fallback", "neutral", "not asked", "best bound")
    table = _table("Last answer of the extender for each pod; best bound: pods on the node answered 10", titles)
    for replay in replays:
        for result in replay.lanes:
            said = result.decisions
            if said is None:
                continue
            compared = said.best_bound + said.best_other
            numbers = (said.scored, said.fallback, said.neutral, said.not_asked)
            table.add_row(
                result.lane,
                str(replay.seed),
                *(str(number) for number in numbers),
                f"{said.best_bound}/{compared}",
            )
    return table


def _table(title: str, titles: Sequence[str]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, column in enumerate(titles):
        table.add_column(column, justify="right" if index else "left", no_wrap=not index)
    return table


def _live_cells(elapsed_s: float, records: Sequence[CallRecord]) -> tuple[str, str, str, str, str]:
    came = sum(record.due_s <= elapsed_s for record in records)
    times = [record.completion_s for record in records if record.completion_s is not None]
    cold = sum(bool(record.cold) for record in records)
    mean = f"{sum(times) / len(times):.2f}" if times else NOTHING
    return str(came), str(came - len(times)), str(len(times)), str(cold), mean
