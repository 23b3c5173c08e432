"""The report: one HTML file with everything in it, and the same figures as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

import orjson

from tiphys_models.placement.sim.functions import FUNCTIONS, MIB
from tiphys_testbed.cluster.nodes import SimulatedNode
from tiphys_testbed.demo.lanes import CONTROL
from tiphys_testbed.demo.plots import Line, bar_plot, legend, line_plot
from tiphys_testbed.demo.results import LaneSummary, ReplayResult, calls_per_node, completion_curve, inflight_curve
from tiphys_testbed.demo.tables import COLUMNS, verdict

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; background: #fff; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; } svg text { fill: #333; }
.grid { stroke: #e4e4e4; stroke-width: 1; } .legend { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; margin: .4rem 0; }
.key svg { width: 26px; height: 10px; } .bad { color: #a40000; font-weight: 600; } code { background: #f3f3f3; padding: 0 .2em; }
"""


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Everything a run of the demo found."""

    version: str
    kubernetes: str
    wall_s: float
    replays: tuple[ReplayResult, ...]
    summaries: tuple[LaneSummary, ...]
    problems: tuple[str, ...]
    nodes: Mapping[str, SimulatedNode]
    workload: str
    reuse: bool

    def as_json(self) -> bytes:
        """Machine-readable; every call is in it."""
        document = {
            "demo": "placement",
            "version": self.version,
            "kubernetes": self.kubernetes,
            "wall_seconds": round(self.wall_s, 1),
            "seeds": [replay.seed for replay in self.replays],
            "workload": self.workload,
            "reuse": self.reuse,
            "nodes_per_lane": len(self.nodes) // max(len(self.summaries), 1),
            "rows": [asdict(lane) | {"lost": lane.lost} for replay in self.replays for lane in replay.lanes],
            "summary": [asdict(summary) for summary in self.summaries],
            "problems": list(self.problems),
            "calls": [asdict(record) | {"seed": replay.seed} for replay in self.replays for record in replay.records],
        }
        return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def write_report(result: DemoResult, directory: Path) -> Path:
    """Write `report.html` and `result.json`; return the former."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "result.json").write_bytes(result.as_json())
    report = directory / "report.html"
    report.write_text(render(result), encoding="utf-8")
    return report


def render(result: DemoResult) -> str:
    """The report as one HTML document that refers to nothing outside itself."""
    lanes = [summary.lane for summary in result.summaries]
    seeds = ", ".join(str(replay.seed) for replay in result.replays)
    first = result.replays[0]
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>Tiphys demo, seeds {seeds}</title>',
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>',
        "<h1>One workload, several schedulers</h1>",
        f"<p>{escape(verdict(result.summaries))}</p>",
        *(f'<p class="bad">{escape(problem)}</p>' for problem in result.problems),
        _result_table(result.summaries),
        f"<h2>Completion times, seed {first.seed}</h2>",
        "<p>Share of all calls that were done within so many seconds; further left is better.</p>",
        legend(lanes),
        line_plot("Completion times", "seconds from due to done", "share of calls", _completion_lines(first, lanes), y_max=1.0),
        f"<h2>Calls in flight, seed {first.seed}</h2><p>Calls that had come and were not yet done; lower is better.</p>",
        legend(lanes),
        line_plot("Calls in flight", "seconds since the start", "calls in flight", _inflight_lines(first, lanes)),
        f"<h2>Calls per node, seed {first.seed}</h2><p>Nodes of each lane in order of name.</p>",
        legend(lanes),
        _nodes_plot(result, first, lanes),
        "<h2>Every run</h2>",
        _runs_table(result.replays),
        "<h2>How it was made</h2>",
        _method(result),
        "</body></html>",
    ]
    return "\n".join(parts)


def _result_table(summaries: Sequence[LaneSummary]) -> str:
    head = [column.title for column in COLUMNS]
    return _table(head, [[column.cell(summary) for column in COLUMNS] for summary in summaries])


def _runs_table(replays: Sequence[ReplayResult]) -> str:
    head = (
        "placed by",
        "seed",
        "calls",
        "mean s",
        "p50 s",
        "p95 s",
        "p99 s",
        "cold starts",
        "mean in flight",
        "mean s to be bound",
        "scored",
        "fallback",
        "neutral",
        "never asked",
        "nodes asked about",
        "ms an answer",
    )
    rows = []
    for replay in replays:
        for lane in replay.lanes:
            said = lane.decisions
            answers = ["–"] * 6
            if said is not None:
                answers = [str(n) for n in (said.scored, said.fallback, said.neutral, said.not_asked)]
                answers += [f"{said.mean_candidates:.1f}", f"{said.mean_ms:.2f}"]
            times = (f"{value:.2f}" for value in (lane.mean_s, lane.p50_s, lane.p95_s, lane.p99_s))
            numbers = (str(lane.cold_starts), f"{lane.mean_inflight:.1f}", f"{lane.mean_scheduling_s:.3f}")
            rows.append([lane.lane, str(replay.seed), str(lane.calls), *times, *numbers, *answers])
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _completion_lines(replay: ReplayResult, lanes: Sequence[str]) -> list[Line]:
    return [Line(lane, *completion_curve(replay.records_of(lane)), steps=True) for lane in lanes]


def _inflight_lines(replay: ReplayResult, lanes: Sequence[str]) -> list[Line]:
    return [Line(lane, *inflight_curve(replay.records_of(lane)), steps=True) for lane in lanes]


def _nodes_plot(result: DemoResult, replay: ReplayResult, lanes: Sequence[str]) -> str:
    series: dict[str, list[float]] = {}
    size = 0
    for lane in lanes:
        counts = calls_per_node(replay.records_of(lane))
        pool = sorted(node.name for node in result.nodes.values() if node.pool == lane)
        size = max(size, len(pool))
        series[lane] = [float(counts.get(name, 0)) for name in pool]
    return bar_plot("Calls per node", "calls", [str(index) for index in range(size)], series)


def _method(result: DemoResult) -> str:
    replay = result.replays[0]
    calls = len(replay.records_of(CONTROL))
    pool = [node for node in result.nodes.values() if node.pool == CONTROL]
    machine = pool[0].machine
    machines = f"{len(pool)} × {machine.cores} cores, {machine.memory_bytes / MIB / 1024:g} GiB for functions"
    functions = _table(
        ("function", "memory MiB", "cold s", "warm s", "start s", "cores at once"),
        [[f.name, str(f.memory_mib), f"{f.cold_s:g}", f"{f.warm_s:g}", f"{f.init_s:g}", str(f.parallelism)] for f in FUNCTIONS],
    )
    return (
        f"<p>Kubernetes {escape(result.kubernetes)}: real etcd, API server, controllers and two kube-schedulers; a real Prometheus, "
        f"operator and extender. Nodes are simulated: each lane has a pool of its own ({escape(machines)}), all pools alike. The same "
        f"{calls} calls (workload {result.workload} of the placement simulator, test split, seed {replay.seed}) came to every lane over "
        f"{replay.span_s:g} s, {len(FUNCTIONS)} functions{'' if result.reuse else '; no container serves a second call'}.</p>"
        "<p>A call is a pod. On its node it finds an idle container of its function (warm), or a container is started first (cold: a "
        "wait, then more work). Computing calls share the node's cores by memory, none idles while a call could use it; idle containers "
        "leave when memory is needed. The work of single calls varies around the mean of their function. Images lie on all nodes. "
        "Completion time is wall time from the moment a call is due until the API server has accepted the pod's end: it holds the "
        "creation of the pod, its scheduling, the start, the work and the report.</p>"
        "<p>All lanes run at the same time on one machine, so that noise meets all of them alike; it does not vanish. Another machine, "
        "other functions, or other seeds can change the order. No policy is preferred by the demo.</p>"
        f"{functions}<p>Times and memory: Yu et al., FaaSRank (ACSOS 2021), table II; cores at once: the same group's simulator.</p>"
    )
