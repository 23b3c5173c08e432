"""The figures as people read them: on a terminal, in Markdown, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table

from tiphys_cli.demo.lanes import CONTROL
from tiphys_cli.demo.records import CallRecord
from tiphys_cli.demo.results import Figure, LaneSummary, ReplayResult

NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the result."""

    title: str
    cell: Callable[[LaneSummary], str]


def _number(of: Callable[[LaneSummary], Figure], digits: int) -> Callable[[LaneSummary], str]:
    return lambda summary: show(of(summary), digits)


COLUMNS = (
    Column("placed by", lambda s: s.lane),
    Column("calls", lambda s: str(s.calls) if not s.lost else f"{s.calls} ({s.lost} lost)"),
    Column("mean s", _number(lambda s: s.mean_s, 2)),
    Column("p95 s", _number(lambda s: s.p95_s, 2)),
    Column("p99 s", _number(lambda s: s.p99_s, 2)),
    Column("cold starts", _number(lambda s: s.cold_starts, 0)),
    Column("mean in flight", _number(lambda s: s.mean_inflight, 1)),
    Column(f"mean, % of {CONTROL}", lambda s: "100" if s.lane == CONTROL else show(s.pct_of_control, 1)),
    Column("decided by policy", lambda s: share(s.scored_share)),
    Column("bound to the node answered 10", lambda s: share(s.best_bound_share)),
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
    """For a terminal."""
    table = Table(title="Completion time of a call: from the moment it is due until its pod is done")
    for index, column in enumerate(COLUMNS):
        table.add_column(column.title, justify="left" if index == 0 else "right")
    for summary in summaries:
        table.add_row(*(column.cell(summary) for column in COLUMNS))
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
    finished = [summary for summary in summaries if not math.isnan(summary.mean_s.mean)]
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
    return f"{text} Mean of {seeds} seeds; brackets hold 95 % of bootstrapped means."


def live_table(elapsed_s: float, span_s: float, lanes: Sequence[str], records: Sequence[CallRecord]) -> Table:
    """How far the replay is."""
    table = Table(title=f"{elapsed_s:.0f} s of {span_s:.0f} s" + (", waiting for the last calls" if elapsed_s > span_s else ""))
    for title in ("placed by", "came", "in flight", "done", "cold", "mean s"):
        table.add_column(title, justify="left" if title == "placed by" else "right")
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
    table = Table(title="Answers of the extender (the last one of each pod)")
    titles = (
        "placed by",
        "seed",
        "scored",
        "fallback",
        "neutral",
        "never asked",
        "best node bound",
        "nodes asked about",
        "ms in the extender",
    )
    for index, title in enumerate(titles):
        table.add_column(title, justify="left" if index == 0 else "right")
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
                f"{said.best_bound} of {compared}",
                f"{said.mean_candidates:.1f}",
                f"{said.mean_ms:.2f}",
            )
    return table


def _live_cells(elapsed_s: float, records: Sequence[CallRecord]) -> tuple[str, str, str, str, str]:
    came = sum(record.due_s <= elapsed_s for record in records)
    times = [record.completion_s for record in records if record.completion_s is not None]
    cold = sum(bool(record.cold) for record in records)
    mean = f"{sum(times) / len(times):.2f}" if times else NOTHING
    return str(came), str(came - len(times)), str(len(times)), str(cold), mean
