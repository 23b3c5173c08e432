"""Tables of `tiphys bench live-placement` for people."""

from __future__ import annotations

from collections.abc import Sequence

from tiphys_models.lab.report import Result, Row
from tiphys_testbed.demo.lanes import CONTROL

_OVER = f" over {CONTROL}"
_COLUMNS = {
    "mean_s": "live",
    "sim_s": "simulated",
    "kubernetes_sim_s": "with Kubernetes' filter",
    "aged_sim_s": "and older readings",
}


def tables(result: Result) -> Sequence[tuple[str, Sequence[Row]]]:
    """Live and simulated, then where the difference comes from, for each setting of reuse."""
    found: list[tuple[str, Sequence[Row]]] = []
    for reuse in dict.fromkeys(row["reuse"] for row in result.summary):
        own = [row for row in result.summary if row["reuse"] == reuse]
        policies = list(dict.fromkeys(row["policy"] for row in own))
        cells = {(row["policy"], row["metric"]): row for row in own}
        title = "warm reuse" if reuse else "no reuse"
        found.append((f"{title}: live and simulated", [_compared(policy, cells) for policy in policies]))
        found.append((f"{title}: where the difference comes from, s", [_explained(policy, cells) for policy in policies]))
    return found


def _compared(policy: str, cells: dict[tuple[str, str], Row]) -> Row:
    line: Row = {"placed by": policy}
    for metric, title in _COLUMNS.items():
        line[f"{title}, mean s"] = f"{cells[policy, metric]['mean']:.2f}"
        ratio = cells.get((policy, metric + _OVER))
        line[f"{title}, over {CONTROL}"] = "1" if ratio is None else _spanned(ratio)
    agreed = cells.get((policy, "bound_to_first_choice"))
    line["bound to its first choice"] = None if agreed is None else f"{100 * agreed['mean']:.1f} %"
    return line


def _spanned(ratio: Row) -> str:
    span = "" if ratio["ci95_low"] is None else f" [{ratio['ci95_low']:.3f}, {ratio['ci95_high']:.3f}]"
    return f"{ratio['mean']:.3f}{span}"


def _explained(policy: str, cells: dict[tuple[str, str], Row]) -> Row:
    titles = {
        "sim_s": "simulated",
        "choices_s": "+ other choices",
        "latency_s": "+ latencies",
        "mean_s": "= live",
        "create_s": "created",
        "bind_s": "bound, seen by its kubelet",
        "wait_s": "waits for memory",
        "run_s": "start and work",
        "report_s": "end reported",
    }
    return {"placed by": policy} | {title: f"{cells[policy, metric]['mean']:.3f}" for metric, title in titles.items()}
