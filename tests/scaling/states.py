"""States by hand."""

from __future__ import annotations

from typing import Any

from tiphys_models.scaling.state import ScalingState, Window

NOW_S = 1_700_000_000.0
WINDOW_S = 15.0


def window(rate: float = 100.0, *, back: int = 0, late: float | None = 0.0, **changed: Any) -> Window:
    """One that ended `back` windows ago, in which everything went as it should."""
    plain = {"p90_s": 0.004, "in_flight": 0.3, "used_cpu_m": rate / 0.6, "throttled": 0.0}
    return Window(NOW_S - back * WINDOW_S, WINDOW_S, rate * WINDOW_S, rate * WINDOW_S, late, **{**plain, **changed})


def state(*rates: float, replicas: int = 1, ready: int | None = None, cpu_m: int = 300, **changed: Any) -> ScalingState:
    """A service that saw these rates, the last one just now; fields of the newest window by `newest`."""
    newest = changed.pop("newest", {})
    count = len(rates)
    windows = tuple(window(r, back=count - 1 - i, **(newest if i == count - 1 else {})) for i, r in enumerate(rates))
    ready = replicas if ready is None else ready
    return ScalingState("shop/front", NOW_S, WINDOW_S, replicas, ready, cpu_m, windows, tuple(rates), 1 / 0.6, **changed)
