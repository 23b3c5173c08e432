"""`tiphys bench selection --calibrate`: the constants of `cloud/bill.py` and `cloud/score.py`, measured anew for somebody to copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from tiphys_cli.bench.report import Row
from tiphys_models.planners.registry import candidates, entries
from tiphys_models.sim.cloud.calibration import divisors, scheduling_time
from tiphys_models.sim.cloud.workloads import WORKLOADS


def constants(names: Sequence[str] | None) -> Row:
    """Scheduling times of these planners (all by default); divisors only of all, since they are a mean over them."""
    times = {name: asdict(scheduling_time(name)) for name in names or [e.name for e in entries()]}
    return {"scheduling_times": times, "divisors": {} if names else {w: asdict(divisors(w, candidates())) for w in WORKLOADS}}
