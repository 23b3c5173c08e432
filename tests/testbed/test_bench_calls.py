"""The live benchmark of calls: figures from rows, and what its platform tells of its nodes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tiphys_models.placement.sim.functions import FUNCTIONS
from tiphys_testbed.bench import calls
from tiphys_testbed.bench.calls_platform import Platform, PlatformOptions, memory_of, models


def row(lane: str, pair: int, mean_s: float, **changes: Any) -> dict[str, Any]:
    made = {"world": "standard", "run": "M1", "pair": pair, "lane": lane, "seed": pair, "calls": 10, "mean_s": mean_s, "p50_s": mean_s}
    made |= {"p95_s": 2 * mean_s, "p99_s": 3 * mean_s, "cold_starts": 4, "held_share": 0.1, "longest_hold_s": 2.0}
    return made | {"creation_p50_ms": 3.0, "void": False} | changes


ROWS = [row(lane, pair, base * (1 + 0.01 * pair)) for pair in range(5) for lane, base in (("warm-first", 4.0), ("estimator", 3.0))]


def test_ratios_are_paired_and_leave_out_runs_that_were_disturbed() -> None:
    assert calls.ratios(ROWS, "standard", "estimator", "warm-first") == pytest.approx([0.75] * 5)
    disturbed = [*ROWS[2:], row("warm-first", 0, 9.0, void=True), row("estimator", 0, 1.0, void=True)]
    assert len(calls.ratios(disturbed, "standard", "estimator", "warm-first")) == 4


def test_the_claims_hold_a_lead_and_the_bound_on_waiting() -> None:
    found = {claim.id: claim for claim in calls.claims(ROWS)}
    assert found["calls-standard-estimator-over-warm-first-ci95-high"].holds
    assert found["calls-longest-hold-s"].holds
    late = {claim.id: claim for claim in calls.claims([*ROWS, row("estimator", 5, 3.0, longest_hold_s=15.1)])}
    assert not late["calls-longest-hold-s"].holds


def test_the_table_has_a_line_for_every_lane_that_was_played() -> None:
    lines = calls.table(ROWS)
    assert [line["policy"] for line in lines] == ["`warm-first`", "`estimator`"]
    assert lines[1]["over `warm-first`"].startswith("0.750")


def test_dear_starts_cost_twice_and_warm_runs_the_same() -> None:
    for plain, dear in zip(FUNCTIONS, models(2.0), strict=True):
        assert dear.init_s == pytest.approx(2 * plain.init_s)
        assert dear.warm_s == plain.warm_s
        assert dear.cold_s - dear.init_s - dear.warm_s == pytest.approx(2 * max(plain.cold_s - plain.init_s - plain.warm_s, 0.0))


async def test_runtimes_report_idle_instances_as_of_the_last_sample() -> None:
    platform = Platform(PlatformOptions("team", ("n0", "n1"), 8.0, memory_of(2.0)))
    app = web.Application()
    app.router.add_route("*", "/api/v1/query", platform.query)
    async with TestClient(TestServer(app)) as client:

        async def idle() -> dict[tuple[str, str], float]:
            answer = await client.post("/api/v1/query", data={"query": "sum by (node, function) (tiphys_runtime_idle_instances)"})
            found = json.loads(await answer.text())["data"]["result"]
            return {(s["metric"]["node"], s["metric"]["function"]): float(s["value"][1]) for s in found}

        function = FUNCTIONS[0]
        platform.invokers["n0"].submit("0", function, time.monotonic())
        platform.invokers["n0"].advance(time.monotonic() + 60.0)
        assert (await idle())["n0", f"team/{function.name}"] == 0.0, "nobody has looked since"
        platform._take_sample()
        found = await idle()
        assert found["n0", f"team/{function.name}"] == 1.0
        assert found["n1", f"team/{function.name}"] == 0.0
        profile = await client.get("/api/v1/query", params={"query": "max by (function, quantity) (tiphys_runtime_call_profile)"})
        assert len(json.loads(await profile.text())["data"]["result"]) == 5 * len(FUNCTIONS)
