"""All rows of a trace as a world of pods: what is read of them, and that they are played."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement.learned_profiles import ENDED, ENOUGH
from tiphys_models.placement.rules import WarmFirst
from tiphys_models.placement.sim.azure import FILE
from tiphys_models.placement.sim.kube.play import ESTIMATOR, WAITS, play_kube
from tiphys_models.placement.sim.kube.scenario import BLIND, TRACED
from tiphys_models.placement.sim.kube.trace import DURATIONS, MEMORY, has_durations, hour, read_functions
from tiphys_models.placement.study import kube

pytestmark = pytest.mark.timeout(300, func_only=True)
MINUTES = ",".join(map(str, range(1, 61)))


def made(directory: Path, rows: int = 4, average: str = "500") -> Path:
    """A trace of a few rows, each with a call every other minute; and a row that has no memory."""
    directory.mkdir(exist_ok=True)
    calls = [f"{2 * r},http," + ",".join(str(m % 2) for m in range(60)) for r in range(rows + 1)]
    (directory / FILE).write_text("\n".join([f"HashFunction,Trigger,{MINUTES}", *calls]))
    shape = "HashFunction,Average,percentile_Average_25,percentile_Average_75"
    (directory / DURATIONS).write_text("\n".join([shape, *(f"{2 * r},{average},200,800" for r in range(rows + 1))]))
    (directory / MEMORY).write_text("\n".join(["HashFunction,AverageAllocatedMb", *(f"{2 * r},150.5" for r in range(rows))]))
    return directory


def test_run_times_and_memory_are_the_trace_s_and_starts_those_of_known_functions(tmp_path: Path) -> None:
    found = read_functions(made(tmp_path / "a"))
    assert [model.name for model in found.models] == ["0", "2", "4", "6"]
    assert {(model.warm_s, model.memory_mib, model.parallelism) for model in found.models} == {(0.5, 151, 1)}
    assert all(1.3 <= model.init_s <= 4.8 and model.cold_s >= model.init_s + 0.5 for model in found.models)
    np.testing.assert_allclose(found.spread, np.log(4.0) / 1.349)


def test_calls_come_in_their_minute_and_vary_around_the_mean_of_their_row(tmp_path: Path) -> None:
    found = read_functions(made(tmp_path / "b", rows=60))
    calls = hour(found, 3)
    assert len(calls) == found.counts.sum() == 60 * 30
    assert (np.diff(calls.arrival_s) >= 0).all()
    assert (np.floor(calls.arrival_s / 60) % 2 == 1).all()
    assert calls.noise.mean() == pytest.approx(1.0, abs=0.15)
    np.testing.assert_array_equal(calls.arrival_s, hour(found, 3).arrival_s)
    assert calls.arrival_s[0] != hour(found, 4).arrival_s[0]


def test_a_number_that_is_none_names_its_row(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="row 0"):
        read_functions(made(tmp_path / "c", average="fast"))


def test_a_directory_of_calls_alone_has_no_such_world(tmp_path: Path) -> None:
    assert has_durations(made(tmp_path / "d"))
    (tmp_path / "d" / MEMORY).unlink()
    assert not has_durations(tmp_path / "d")
    policies = ("warm-first", "estimator")
    assert any(cell.scenario is TRACED for cell in kube.cells((0, 1), policies, quick=False, traced=True))
    assert not any(cell.scenario is TRACED for cell in kube.cells((0, 1), policies, quick=False))


def test_every_call_of_the_hour_is_placed_and_the_rows_show_it(tmp_path: Path) -> None:
    directory = made(tmp_path / "e")
    (cell,) = (cell for cell in kube.cells((0,), ("warm-first", "estimator"), quick=True, traced=True) if cell.scenario is TRACED)
    rows = kube.play(cell, {"hashing": WarmFirst(), "warm-first": WarmFirst()}, directory)
    assert [(row["policy"], row["calls"]) for row in rows] == [("hashing", 120), ("warm-first", 120), ("estimator", 120)]
    lines = kube.of_one_world(rows, kube.TRACED_WORLD)
    assert [line["policy"] for line in lines] == ["`hashing`", "`warm-first`", "`estimator`"]
    assert lines[1]["mean ÷ `warm-first`"] == "1.000"


def test_without_processor_time_the_estimator_places_and_waits_as_warm_first_waits_does(tmp_path: Path) -> None:
    found = read_functions(made(tmp_path / "f"))
    calls = hour(found, 0)
    crowded = replace(BLIND, cluster=replace(BLIND.cluster, nodes=2, memory_gib=0.35))
    known = play_kube(calls, ESTIMATOR, crowded, functions=found.models).learned
    assert known[:, ENDED].min() >= ENOUGH
    blind, waits, sees = (
        play_kube(calls, player, world, functions=found.models, learned=known)
        for player, world in ((ESTIMATOR, crowded), (WAITS, crowded), (ESTIMATOR, replace(crowded, core_seconds=True)))
    )
    np.testing.assert_array_equal(blind.calls.node, waits.calls.node)
    np.testing.assert_array_equal(blind.held_s, waits.held_s)
    assert (blind.calls.node != sees.calls.node).any()


def test_the_network_stands_over_the_estimator_on_the_same_calls_and_over_nothing_else() -> None:
    def row(policy: str, seed: int, mean_s: float) -> dict[str, object]:
        return {
            "scenario": "k8s",
            "history": "none",
            "workload": "M1",
            "policy": policy,
            "seed": seed,
            "mean_s": mean_s,
            "p99_s": 2 * mean_s,
        }

    estimator = [row("estimator", 0, 4.0), row("estimator", 1, 2.0)]
    rows = [*estimator, row("estimator-network", 0, 3.0), row("estimator-network", 1, 1.5)]
    (line,) = kube.network_table(kube.summarise(rows))
    assert line["mean ÷ `estimator`"] == "0.750 (0.750–0.750)"
    assert (line["world"], line["seeds"]) == ("`k8s`", 2)
    assert not kube.network_table(kube.summarise(estimator))
