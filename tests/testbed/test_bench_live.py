from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from tiphys_models.lab.report import Result
from tiphys_models.placement.registry import PolicyName
from tiphys_models.placement.sim.functions import FUNCTIONS
from tiphys_models.placement.sim.reference import Reference
from tiphys_models.placement.sim.scenario import FaasScenario
from tiphys_testbed.bench.live_placement import claims, disturbed, ratios, stages, summarise
from tiphys_testbed.bench.live_tables import tables
from tiphys_testbed.bench.live_twin import LeastRequested, policy_of, replayed_mean_s, simulate
from tiphys_testbed.demo.lanes import CONTROL
from tiphys_testbed.demo.records import CallRecord
from tiphys_testbed.demo.session import DemoOptions

GIB = 2**30


def row(policy: str, seed: int, mean_s: float, *, reuse: bool = True) -> dict[str, Any]:
    times = dict.fromkeys(("sim_s", "kubernetes_sim_s", "aged_sim_s", "replayed_s", "latency_s", "choices_s"), mean_s)
    waits = dict.fromkeys(("create_s", "bind_s", "wait_s", "run_s", "report_s"), 0.1)
    said = None if policy == CONTROL else 1.0
    own = {"policy": policy, "seed": seed, "reuse": reuse, "mean_s": mean_s, "decided": said, "bound_to_first_choice": said}
    return own | times | waits


ROWS = [
    row(policy, seed, s + seed, reuse=reuse)
    for reuse in (True, False)
    for seed in (0, 1)
    for policy, s in ((CONTROL, 4.0), ("faasrank", 2.0))
]


def test_the_claim_is_the_ratio_paired_by_seed_with_warm_reuse() -> None:
    held = {claim.id: claim for claim in claims(ROWS)}
    assert held["live-faasrank-over-default"].value == pytest.approx((2 / 4 + 3 / 5) / 2)
    assert held["live-faasrank-over-default-ci95-high"].value == pytest.approx(0.55 + 12.7062 * 0.05, abs=1e-4)  # Student's t of two
    assert [name for name, claim in held.items() if not claim.holds] == ["live-faasrank-over-default-ci95-high"]  # of two seeds
    slow = [row(CONTROL, 0, 4.0), row("faasrank", 0, 4.2), row(CONTROL, 0, 4.0, reuse=False), row("faasrank", 0, 2.0, reuse=False)]
    assert [claim.holds for claim in claims(slow)] == [False, False, True]


def test_the_summary_tells_both_settings_of_reuse_apart_and_the_tables_show_them() -> None:
    summary = summarise(ROWS)
    line = next(s for s in summary if s["metric"] == f"mean_s over {CONTROL}" and not s["reuse"])
    assert (line["policy"], line["n"], line["mean"]) == ("faasrank", 2, pytest.approx(0.55))
    made = tables(Result("live-placement", False, (0, 1), 1.0, {}, ROWS, summary, claims(ROWS)))
    assert [title.split(":")[0] for title, _ in made] == ["warm reuse", "warm reuse", "no reuse", "no reuse"]
    assert [line["placed by"] for line in made[0][1]] == [CONTROL, "faasrank"]
    assert ratios(ROWS[:4], "faasrank") == [0.5, 0.6]


def test_the_stages_of_a_call_add_up_to_its_completion_time() -> None:
    calls = [
        CallRecord("a", "p", "eg", 1.0, created_s=1.5, taken_s=1.7, begun_s=2.0, finished_s=4.0, done_s=4.5),
        CallRecord("a", "q", "eg", 2.0, created_s=2.5, taken_s=2.4, begun_s=2.4, finished_s=3.0, done_s=3.1),  # seen before the answer
        CallRecord("a", "lost", "eg", 2.0, created_s=2.5),
    ]
    parts = stages(calls)
    assert list(parts.values()) == pytest.approx([0.5, 0.1, 0.15, 1.25, 0.3])
    assert sum(parts.values()) == pytest.approx((3.5 + 1.1) / 2)


def test_runs_on_a_busy_machine_are_named() -> None:
    assert disturbed([row(CONTROL, 0, 4.0) | {"create_s": 0.015}]) == []
    slow = row("faasrank", 3, 4.0) | {"create_s": 0.5}
    assert disturbed([row(CONTROL, 0, 4.0) | {"create_s": 0.015}, slow, slow]) == [{"reuse": True, "seed": 3}]


@pytest.mark.parametrize("reuse", [True, False])
def test_simulated_choices_replayed_without_latencies_take_the_simulated_time(reuse: bool) -> None:
    calls = DemoOptions(first_s=20.0).calls(0)
    found = Reference(calls, policy_of(PolicyName.WARM_FIRST), FaasScenario(reuse=reuse)).run()
    pool = [(str(n), 8, 2 * GIB) for n in range(10)]
    records = [
        CallRecord("a", str(k), FUNCTIONS[f].name, float(at_s), float(noise), node=str(node))
        for k, (f, at_s, noise, node) in enumerate(zip(calls.function, calls.arrival_s, calls.noise, found.node, strict=True))
    ]
    assert replayed_mean_s(records, pool, reuse=reuse) == pytest.approx(float(found.completion_s.mean()), abs=1e-6)


def test_with_kubernetes_filter_no_node_is_overcommitted_and_every_call_is_done() -> None:
    calls = DemoOptions(nodes_per_lane=2, workload="SA").calls(0)  # far more than two nodes hold
    found = Reference(calls, LeastRequested(), FaasScenario(nodes=2), kubernetes=True).run()
    assert np.isfinite(found.finish_s).all()
    memory = np.array([f.memory_mib * 2**20 for f in FUNCTIONS])[calls.function]
    for node in range(2):
        for at_s in found.start_s[found.node == node]:
            here = (found.node == node) & (found.start_s <= at_s) & (found.finish_s > at_s)
            assert memory[here].sum() <= 2 * GIB
    assert (found.start_s - found.arrival_s).max() > 1.0  # they waited for a node


def test_the_twin_plays_the_demos_workload() -> None:
    calls = DemoOptions(first_s=15.0).calls(1)
    figures = {name: simulate(calls, name, FaasScenario(), kubernetes=True) for name in (None, PolicyName.WARM_FIRST)}
    assert figures[PolicyName.WARM_FIRST].cold_starts < figures[None].cold_starts
    assert figures[PolicyName.WARM_FIRST].mean_s < figures[None].mean_s
