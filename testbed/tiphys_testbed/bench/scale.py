"""`tiphys bench scale`: what a service needs in a cluster of 5,000 nodes, against a made-up API server with realistic objects."""

from __future__ import annotations

import time
from collections.abc import Callable

from tiphys_models.lab.report import Claim, Result, Row
from tiphys_testbed.bench import scale_extender, scale_operator, scale_windows

PARTS = ("extender", "operator", "windows")
Part = Callable[[bool, Callable[[str], None]], tuple[list[Row], list[Claim]]]


def _extender(quick: bool, tell: Callable[[str], None]) -> tuple[list[Row], list[Claim]]:
    plan = scale_extender.ExtenderPlan.quickly() if quick else scale_extender.ExtenderPlan()
    row, claims = scale_extender.run(plan, tell)
    return [row], claims


def _operator(quick: bool, tell: Callable[[str], None]) -> tuple[list[Row], list[Claim]]:
    row, claims = scale_operator.run(scale_operator.OperatorPlan.quickly() if quick else scale_operator.OperatorPlan(), tell)
    return [row], claims


def _windows(quick: bool, tell: Callable[[str], None]) -> tuple[list[Row], list[Claim]]:
    row, claims = scale_windows.run(scale_windows.WindowsPlan.quickly() if quick else scale_windows.WindowsPlan(), tell)
    return [row], claims


_RUN: dict[str, Part] = {"extender": _extender, "operator": _operator, "windows": _windows}
"""The function of each part of the benchmark, by name: (quick, tell) → rows and claims."""


def run(part: str, quick: bool, tell: Callable[[str], None]) -> Result:
    """One part, or all of them."""
    began_s = time.monotonic()
    rows: list[Row] = []
    claims: list[Claim] = []
    for name in PARTS if part == "all" else (part,):
        found, held = _RUN[name](quick, tell)
        rows += found
        claims += held
    return Result("scale", quick, (0,), time.monotonic() - began_s, {"parts": part}, rows, [], claims)
