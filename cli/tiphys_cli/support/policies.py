"""`tiphys policies`: the names that a SchedulingPolicy, the benchmarks and the documentation use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tiphys_models.binding import registry as binding
from tiphys_models.planners import registry as planners
from tiphys_models.policies.registry import entries
from tiphys_models.scaling import registry as agents
from tiphys_models.selectors import registry as selectors


def rows() -> list[dict[str, Any]]:
    """Name, kind, whether learned, and the first line of what each says of itself."""
    placement = [_row(str(entry.name), "placement", learned=entry.learned, text=entry.summary) for entry in entries()]
    planning = [
        _row(e.name, "planner" if e.learned else "heuristic", learned=e.learned, text=_doc(f"{planners.__package__}.{e.module}", e.factory))
        for e in planners.entries()
    ]
    selecting = [
        _row(e.name, "selector", learned=e.learned, text=_doc(f"{selectors.__package__}.{e.module}", None)) for e in selectors.entries()
    ]
    scaling = [
        _row(e.name, "scaling agent", learned=e.learned, text=_doc(f"{agents.__package__}.{e.module}", e.make)) for e in agents.entries()
    ]
    streams = [_row(e.name, "binding", learned=e.learned, text=e.summary) for e in binding.entries()]
    return [*placement, *planning, *selecting, *scaling, *streams]


def _row(name: str, kind: str, *, learned: bool, text: str) -> dict[str, Any]:
    return {"name": name, "kind": kind, "learned": learned, "summary": text}


def _doc(module: str, factory: str | None) -> str:
    """A class's own first line; the module's where a function makes the object, unless that says something itself."""
    found = import_module(module)
    made = getattr(found, factory) if factory else None
    text = (made.__doc__ if isinstance(made, type) or factory not in (None, "make") else found.__doc__) or ""
    return text.strip().split("\n", 1)[0]
