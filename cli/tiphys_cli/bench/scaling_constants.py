"""`tiphys bench scaling --calibrate`: the settings of `scaling/settings.py`, searched anew for somebody to copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import numpy as np

from tiphys_cli.bench.report import Row
from tiphys_models.scaling.rules import Rule, RuleHorizontal
from tiphys_models.sim.scaling.calibration import Bench, search


def constants(tell: Callable[[str], None]) -> Row:
    """The best setting of each rule, with what it attains and costs on the train split."""
    bench = Bench()
    found = {
        name: search(make, bench, np.random.default_rng(0), tell) for name, make in (("rule", Rule), ("rule-horizontal", RuleHorizontal))
    }
    return {name: asdict(judged) for name, judged in found.items()}
