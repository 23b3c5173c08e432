"""Benchmarks as a script calls them: one JSON object, the keys of the contract, claims that do not end the run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROW = {"policy", "names", "calls", "p50_ms", "p99_ms", "floor_p50_ms", "floor_p99_ms", "model_scored", "peak_mib"}
RATE_ROW = {
    "nodes", "names", "pods", "with_pods_per_s", "without_pods_per_s", "ratio", "with_cpu_ms_per_pod", "without_cpu_ms_per_pod",
    "model_scored", "run",
}  # fmt: skip
BINDING_ROW = {
    "topology", "scenario", "arrivals", "policy", "training_seed", "application", "lambda_per_min", "seed", "streams", "success", "reject",
    "failure",
}  # fmt: skip
CALLS_ROW = {
    "world", "run", "pair", "lane", "seed", "calls", "mean_s", "p50_s", "p95_s", "p99_s", "cold_starts", "held_share", "longest_hold_s",
    "creation_p50_ms", "void",
}  # fmt: skip
BINDER_ROW = {"sites", "variants", "streams_per_s", "p50_ms", "p99_ms"}
OBJECT = ["bench", "version", "quick", "seeds", "wall_seconds", "inputs", "rows", "summary", "claims"]


def bench(*arguments: str, deadline_s: float = 280) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tiphys_cli", "bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, check=False)


def printed(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert run.returncode == 0, run.stderr
    answer: dict[str, Any] = json.loads(run.stdout)
    assert list(answer) == OBJECT
    assert answer["quick"] is True
    assert all(claim.keys() - {"trivial", "void"} == {"id", "value", "bound", "holds"} for claim in answer["claims"])
    return answer


def test_bench_extender_prints_one_object_and_writes_its_files(tmp_path: Path) -> None:
    answer = printed(bench("extender", "--quick", "--json", "--out", str(tmp_path)))
    lanes = (
        "faasrank",
        "faasrank-paper",
        "estimator",
        "estimator",
        "estimator-network",
    )  # the estimator with few open calls, and with many
    expected = [(lane, names) for lane in lanes for names in (10, 100, 500, 1000, 5000)]
    assert [(row["policy"], row["names"]) for row in answer["rows"]] == expected
    assert all(row.keys() >= ROW for row in answer["rows"])
    assert all(row["connections"] == 1 for row in answer["rows"])
    assert min(row["model_scored"] for row in answer["rows"]) > 0.9
    assert not answer["inputs"]["torch_imported"]
    assert json.loads((tmp_path / "result.json").read_text()) == answer
    assert (tmp_path / "extender.svg").read_text().startswith("<svg ")


@pytest.mark.needs_local
@pytest.mark.timeout(300)
def test_bench_scheduler_prints_one_object() -> None:
    answer = printed(bench("scheduler", "--quick", "--json", "--nodes", "120"))
    assert [row["sampling"] for row in answer["rows"]] == ["83%", "default"]
    assert all(row.keys() >= RATE_ROW for row in answer["rows"])
    assert all(row["ratio"] == pytest.approx(row["with_pods_per_s"] / row["without_pods_per_s"], rel=0.01) for row in answer["rows"])
    assert answer["rows"][0]["names"] == 100


@pytest.mark.needs_local
@pytest.mark.timeout(300)
def test_bench_live_placement_prints_live_and_simulated_figures() -> None:
    pytest.importorskip("numba")
    answer = printed(bench("live-placement", "--quick", "--json", "--seeds", "1", "--reuse", "on"))
    assert [row["policy"] for row in answer["rows"]] == ["kube-scheduler", "faasrank", "warm-first", "static-rank", "faasrank-shadow"]
    for row in answer["rows"]:
        assert row["mean_s"] == pytest.approx(sum(row[stage] for stage in ("create_s", "bind_s", "wait_s", "run_s", "report_s")), abs=0.01)
        assert row["mean_s"] == pytest.approx(row["sim_s"] + row["choices_s"] + row["latency_s"], abs=0.01)
        assert row["latency_s"] == pytest.approx(row["mean_s"] - row["replayed_s"], abs=0.001)
        assert min(row[stage] for stage in ("create_s", "bind_s", "run_s", "report_s")) > 0, "each takes its time"
        # A call that is created late may find an instance that was busy when it was due: on a busy machine, which the result names, the live
        # run may be shorter than its replay.
        calm = {"reuse": True, "seed": 1} not in answer["inputs"]["disturbed"]
        assert row["latency_s"] < row["mean_s"]
        assert row["latency_s"] > 0 or not calm
    assert {claim["id"] for claim in answer["claims"]} >= {"live-faasrank-over-default", "live-faasrank-decided"}


@pytest.mark.needs_local
@pytest.mark.timeout(600)
def test_bench_live_placement_plays_stock_schedulers_beside_policies_whose_pods_wait() -> None:
    pytest.importorskip("numba")
    run = bench(
        "live-placement", "--quick", "--json", "--lanes", "most-allocated,estimator", deadline_s=560
    )  # compiles the simulator first
    answer = printed(run)
    assert [row["lane"] for row in answer["rows"]] == ["warm-first", "most-allocated", "estimator"]
    assert all(row.keys() >= CALLS_ROW for row in answer["rows"])
    gated = {row["lane"]: row["gated"] for row in answer["rows"]}
    # admission has held pods of whoever may wait, and of nobody else; our watch may miss a gate that was open at once
    assert gated.pop("estimator") > 0
    assert set(gated.values()) == {0}
    assert all(row["lost"] == 0 and row["sim_mean_s"] > 0 for row in answer["rows"] if not row["void"])
    held = {claim["id"]: claim["holds"] for claim in answer["claims"]}
    assert held["live-longest-hold-s"] or answer["rows"][0]["void"]
    assert {"live-standard-estimator-over-warm-first", "live-standard-estimator-over-warm-first-ci95-high"} <= held.keys() or answer[
        "rows"
    ][0]["void"]


@pytest.mark.timeout(300)
def test_bench_binding_prints_one_object_and_writes_its_files(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    few = ("--policies", "closest,relative-load,score", "--no-sensitivity", "--seeds", "0", "--jobs", "1")
    answer = printed(bench("binding", "--quick", "--json", *few, "--out", str(tmp_path)))
    assert all(row.keys() >= BINDING_ROW for row in answer["rows"])
    assert {row["policy"] for row in answer["rows"]} == {"closest", "relative-load", "score"}
    assert {row["training_seed"] for row in answer["rows"]} == {None}
    assert {row["topology"] for row in answer["rows"]} == {"full-edge", "co-dc-cloud", "dc-cloud"}
    assert {(row["scenario"], row["arrivals"]) for row in answer["rows"]} == {("default", "poisson")}
    everything = [row for row in answer["rows"] if row["application"] == "all"]
    assert all(row["success"] + row["reject"] + row["failure"] == pytest.approx(1) for row in everything)
    assert json.loads((tmp_path / "result.json").read_text()) == answer
    assert len(list(tmp_path.glob("*.svg"))) == 7


@pytest.mark.timeout(300)
def test_bench_calls_plays_every_lane_through_running_binders() -> None:
    answer = printed(bench("calls", "--quick", "--json", "--lanes", "warm-first,estimator"))
    assert [row["lane"] for row in answer["rows"]] == ["warm-first", "estimator"]
    assert all(row.keys() == CALLS_ROW for row in answer["rows"])
    waits = {row["lane"]: row["held_share"] for row in answer["rows"]}
    assert waits["warm-first"] == 0
    assert waits["estimator"] > 0
    assert {claim["id"]: claim["holds"] for claim in answer["claims"]} == {"calls-longest-hold-s": True}


@pytest.mark.timeout(300)
def test_bench_binder_prints_one_object() -> None:
    answer = printed(bench("binder", "--quick", "--json"))
    assert [row["policy"] for row in answer["rows"]] == ["aset", "relative-load"]
    assert all(row.keys() >= BINDER_ROW for row in answer["rows"])
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in answer["rows"])
    assert {claim["id"] for claim in answer["claims"]} >= {"binder-p50-ms-aset", "binder-p99-ms-relative-load"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("extender", "--seeds", "0,0"),
        ("extender", "--seeds", "x"),
        ("scheduler", "--nodes", "1"),
        ("live-placement", "--reuse", "often"),
        ("live-placement", "--worlds", "mars"),
        ("live-placement", "--lanes", "nobody"),
        ("binding", "--policies", "magic"),
        ("nothing",),
    ],
)
def test_bad_input_ends_with_status_2_and_says_why(arguments: tuple[str, ...]) -> None:
    run = bench(*arguments)
    assert run.returncode == 2
    assert run.stdout == ""
    assert run.stderr.strip()
