"""Tables of `tiphys bench scaling` for people: the chosen settings by shape, frontiers, and where the vertical agent settles."""

from __future__ import annotations

from collections.abc import Sequence

from tiphys_cli.bench.report import Result, Row


def tables(result: Result) -> Sequence[tuple[str, Sequence[Row]]]:
    """Cost (attained) of the chosen settings, the rest of every frontier, settling."""
    chosen = result.inputs["chosen"]
    means: dict[tuple[str, str], dict[str, Row]] = {}
    for s in result.summary:
        means.setdefault((s["agent"], s["setting"]), {}).setdefault(s["shape"], {})[s["metric"]] = s["mean"]
    first = [_line(key, by) for key, by in means.items() if chosen.get(key[0], key[1]) == key[1] and not _settling(by)]
    others = [_line(key, by) for key, by in means.items() if chosen.get(key[0], key[1]) != key[1]]
    columns = ("agent", "shape", "seed", "start_m", "settled_m", "smallest_m", "slo_attained")
    settled = [{k: _short(r[k]) for k in columns} for r in result.rows if "start_m" in r]
    return [("cost (windows kept), chosen settings", first), ("cost (windows kept), other settings", others), ("settling", settled)]


def _settling(by: dict[str, Row]) -> bool:
    return all(shape.startswith("constant-") for shape in by)


def _line(key: tuple[str, str], by: dict[str, Row]) -> Row:
    cells = {shape: f"{m['cost']:.3f} ({m['slo_attained']:.3f})" for shape, m in by.items() if not shape.startswith("constant-")}
    return {"agent": key[0], "setting": key[1], **cells}


def _short(value: object) -> object:
    return f"{value:.3g}" if isinstance(value, float) else value
