"""Rows of long-lived pods in the placement study: what is played, and what is promised of it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("numba")

from tiphys_models.placement.study import figures, lives
from tiphys_models.placement.study.definition import POLICIES, Cell, PlacementStudy


def rows(seeds: int = 3, **hours: float) -> list[dict[str, Any]]:
    """Every world and seed; node-hours by policy, the slowdown of lifetimes a little less than of the others."""
    made = []
    for scenario in lives.SCENARIOS:
        for policy, figure in hours.items():
            name = policy.replace("_", "-")
            for seed in range(seeds):
                found = {"node_hours": figure + seed / 100, "slowdown": 1.0 if name == "lifetimes" else 1.01, "pct_of_hashing": None}
                made.append({"workload": lives.WORKLOAD, "scenario": scenario, "policy": name, "seed": seed, "mean_s": 900.0} | found)
    return made


def claim(made: list[dict[str, Any]], name: str) -> tuple[float | None, bool, bool]:
    return next((c.value, c.holds, c.void) for c in lives.claims(made) if c.id == name)


def test_long_lived_pods_are_played_in_every_world_and_calls_without_their_policies() -> None:
    cells = PlacementStudy(seeds=(0, 1)).cells({})
    long = [cell for cell in cells if isinstance(cell, lives.LivesCell)]
    assert {(cell.scenario.name, cell.seed) for cell in long} == {(name, seed) for name in lives.SCENARIOS for seed in (0, 1)}
    assert all(cell.policies == lives.POLICIES for cell in long)
    assert not any(set(cell.policies) & set(lives.POLICIES) for cell in cells if isinstance(cell, Cell)), "calls on nodes that queue"


def test_who_asks_for_policies_of_pods_that_stay_plays_no_calls_and_the_other_way_round() -> None:
    only = PlacementStudy(seeds=(0,), policies=("lifetimes",), quick=True).cells({})
    assert {cell.workload for cell in only} == {lives.WORKLOAD}
    assert all(cell.workload != lives.WORKLOAD for cell in PlacementStudy(seeds=(0,), policies=("hashing",), quick=True).cells({}))
    assert set(lives.POLICIES) <= set(POLICIES)


def test_fewer_node_hours_hold_their_claims_and_most_allocated_in_their_place_makes_them_void() -> None:
    made = rows(most_allocated=100.0, packing_6=97.0, lifetimes=90.0)
    value, holds, void = claim(made, "lifetimes-node-hours-k8s-long-predictable")
    assert value == pytest.approx(0.9, abs=0.001)
    assert (holds, void) == (True, False)
    assert claim(made, "lifetimes-over-packing-6-k8s-long-vague-ci95-high")[1]
    assert claim(made, "lifetimes-slowdown-k8s-long-hot-ci95-high")[1]
    assert claim(made, "lifetimes-node-hours-k8s-long-vague-ci95-high")[1:] == (True, True)  # most-allocated is not behind itself


def test_more_node_hours_hold_no_claim() -> None:
    made = rows(most_allocated=100.0, packing_6=97.0, lifetimes=102.0)
    assert not any(c.holds for c in lives.claims(made) if "slowdown" not in c.id)


def test_one_seed_has_no_interval_and_no_claim_on_an_end_holds() -> None:
    made = rows(seeds=1, most_allocated=100.0, packing_6=97.0, lifetimes=90.0)
    assert not any(c.holds for c in lives.claims(made) if c.id.endswith("ci95-high"))


def test_the_summary_pairs_policies_by_seed() -> None:
    line = next(s for s in lives.summarise(rows(most_allocated=100.0, lifetimes=90.0)) if s["policy"] == "lifetimes")
    assert (line["metric"], line["n"]) == ("node_hours over most-allocated", 3)
    assert line["ci95_low"] <= line["mean"] <= line["ci95_high"] < 0.91


def test_rows_of_pods_that_stay_change_no_figure_of_calls() -> None:
    assert figures.summarise(rows(most_allocated=100.0, lifetimes=90.0)) == []
    assert figures.claims(rows(most_allocated=100.0, lifetimes=90.0)) == []
