"""The live benchmark of placement: worlds, lanes, runs and their journal, and figures from rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import orjson
import pytest
import yaml

pytest.importorskip("numba")

from tiphys_extender.settings import Settings as ExtenderSettings
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.report import Result
from tiphys_models.placement.gate import MAY_WAIT
from tiphys_models.placement.sim.functions import FUNCTIONS
from tiphys_models.placement.sim.workloads import make_workload
from tiphys_operator.settings import Settings as OperatorSettings
from tiphys_testbed.bench.live import figures, lanes
from tiphys_testbed.bench.live.command import Asked
from tiphys_testbed.bench.live.journal import Journal, RunKey
from tiphys_testbed.bench.live.loads import WINDOW_S, LoadWatcher, LoadWindow
from tiphys_testbed.bench.live.plan import FAULTS, LivePlan
from tiphys_testbed.bench.live.play import ATTEMPTS, rows_of, scene_of
from tiphys_testbed.bench.live.run import finished
from tiphys_testbed.bench.live.worlds import WORLDS
from tiphys_testbed.cluster.counters import NodeCounters, NodeLoad
from tiphys_testbed.demo.lanes import pod_manifest
from tiphys_testbed.demo.records import CallRecord
from tiphys_testbed.demo.stage import OPENER_SETTINGS

GIB = 2**30


def row(lane: str, pair: int, mean_s: float, **changes: Any) -> dict[str, Any]:
    made = {"world": "standard", "run": "M1", "pair": pair, "lane": lane, "seed": pair, "calls": 10, "mean_s": mean_s, "p50_s": mean_s}
    made |= {"p95_s": 2 * mean_s, "p99_s": 3 * mean_s, "cold_starts": 4, "held_share": 0.1, "longest_hold_s": 2.0, "creation_p50_ms": 3.0}
    made |= {"void": False, "lost": 0, "gated": 3, "group": "waiting", "fault": "", "attempt": 0, "sim_mean_s": mean_s * 0.9}
    return made | changes


ROWS = [
    row(lane, pair, base * (1 + 0.01 * pair))
    for pair in range(5)
    for lane, base in (("warm-first", 4.0), ("rule-6", 3.2), ("estimator", 3.0))
]


def record(lane: str, due_s: float, **changes: Any) -> CallRecord:
    facts: dict[str, Any] = {
        "created_s": due_s + 0.01,
        "bound_s": due_s + 0.1,
        "node": f"{lane}-0000",
        "done_s": due_s + 2.0,
        "cold": False,
    }
    return CallRecord(lane=lane, pod=f"{lane}-{due_s:g}", function="eg", due_s=due_s, **(facts | changes))


# ---- worlds and lanes ------------------------------------------------------------------------------------------------


def test_worlds_are_those_of_the_simulator_as_machines_and_scrapes() -> None:
    assert set(WORLDS) == {"standard", "dear-starts", "readings-15s", "memory-short", "half-profiles", "pulls"}
    assert WORLDS["memory-short"].machine.memory_bytes == GIB
    assert WORLDS["standard"].machine.memory_bytes == 2 * GIB
    assert WORLDS["readings-15s"].scrape_s == 15.0
    assert WORLDS["dear-starts"].functions[0].init_s == pytest.approx(2 * FUNCTIONS[0].init_s)
    assert WORLDS["pulls"].rules.image_mib == 400.0
    assert all(world.nodes == 10 for world in WORLDS.values())


def test_the_window_of_rates_holds_two_scrapes() -> None:
    for world in WORLDS.values():
        assert scene_of(world, ("warm-first", "estimator")).window_s > 2 * world.scrape_s


def test_half_of_the_functions_are_declared_where_half_of_the_profiles_are_missing() -> None:
    calls = make_workload("M1", "test", 0, 10)
    assert len(WORLDS["half-profiles"].declared(calls)) == 5
    assert len(WORLDS["standard"].declared(calls)) == 10


def test_every_group_has_the_common_lane_and_at_most_four() -> None:
    for group in lanes.GROUPS.values():
        assert group[0] == lanes.BASE
        assert len(set(group)) == len(group) <= lanes.MOST_LANES
    assert lanes.group_of(["estimator", "estimator-network"]) == ("warm-first", "estimator", "estimator-network")
    for wrong in (["faasrank-paper"], ["nobody"], ["rule-6", "estimator", "greedy", "hashing"], ["warm-first"]):
        with pytest.raises(InvalidInput):
            lanes.group_of(wrong)


def test_groups_take_turns_in_being_first() -> None:
    assert [lanes.rotated(("a", "b"), pair) for pair in range(3)] == [("a", "b"), ("b", "a"), ("a", "b")]


def test_only_pods_of_policies_that_wait_let_themselves_be_held() -> None:
    labelled = {}
    for name in ("warm-first", "estimator", "estimator-network", "rule-6", "kube-default", "most-allocated"):
        pod = pod_manifest(lanes.lane_of(name), "p", FUNCTIONS[0], "r")
        labelled[name] = MAY_WAIT in pod["metadata"]["labels"]
        assert "schedulingGates" not in pod["spec"]  # admission's to put on
    assert labelled == {
        "warm-first": False,
        "estimator": True,
        "estimator-network": True,
        "rule-6": True,
        "kube-default": False,
        "most-allocated": False,
    }
    assert lanes.lane_of("kube-default").scheduler_name == "default-scheduler"
    assert lanes.lane_of("most-allocated").scheduler_name == "most-allocated"
    assert lanes.lane_of("estimator").scheduler_name == "tiphys"


def test_the_same_policy_once_more_has_a_pool_of_its_own() -> None:
    once, again = lanes.lane_of("warm-first"), lanes.lane_of(lanes.AGAIN)
    assert once.policy == again.policy
    assert once.pool != again.pool
    assert once.namespace != again.namespace


def test_stock_schedulers_get_their_own_strategy_and_nothing_of_ours() -> None:
    config = yaml.safe_load(lanes.stock_config([lanes.MOST_ALLOCATED, lanes.PACKING, lanes.BALANCING], "http://127.0.0.1:1"))
    assert "extenders" not in config
    profiles = {profile["schedulerName"]: profile for profile in config["profiles"]}
    assert profiles["most-allocated"]["pluginConfig"][0]["args"]["scoringStrategy"]["type"] == "MostAllocated"
    for name, plugin in lanes.TRIMARAN.items():
        assert profiles[name]["plugins"]["score"]["enabled"] == [{"name": plugin}]
        assert profiles[name]["pluginConfig"] == [{"name": plugin, "args": {"watcherAddress": "http://127.0.0.1:1"}}]
    assert "disabled" not in profiles[lanes.BALANCING]["plugins"]["score"]


# ---- what is asked for -----------------------------------------------------------------------------------------------


def test_what_is_asked_for_becomes_worlds_groups_and_pairs() -> None:
    plan = Asked((0, 1, 2), worlds="standard,pulls").plan()
    assert plan.worlds == ("standard", "pulls")
    assert list(plan.groups) == ["waiting", "packing"]
    runs = plan.runs("standard")
    assert [(run.pair, run.group) for run in runs[:4]] == [(0, "waiting"), (0, "packing"), (1, "packing"), (1, "waiting")]
    assert plan.journal is not None
    assert Asked((0,), worlds="all").plan().worlds == tuple(WORLDS)


def test_a_quick_run_is_one_pair_that_no_journal_keeps() -> None:
    plan = Asked((3, 4), quick=True).plan()
    assert (plan.seeds, plan.journal, list(plan.groups)) == ((3,), None, ["waiting"])
    whole = replace(plan.runs("standard")[0], quick=False)
    assert len(plan.runs("standard")[0].calls()) < len(whole.calls())


def test_faults_are_runs_of_their_own_where_starts_are_dear() -> None:
    plan = Asked((0, 1), fault="all").plan()
    assert plan.worlds == ("dear-starts",)
    assert [run.fault for run in plan.runs("dear-starts")] == list(FAULTS)
    assert list(plan.groups) == ["waiting"]


@pytest.mark.parametrize("wrong", [{"worlds": "mars"}, {"groups": "all-stars"}, {"fault": "etcd"}, {"lanes": "nobody"}])
def test_what_there_is_not_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Asked((0,), **wrong).plan()


def test_the_ten_workloads_take_turns_by_seed() -> None:
    runs = LivePlan(seeds=(0, 9, 10), groups={"waiting": lanes.GROUPS["waiting"]}).runs("standard")
    assert [run.workload_name for run in runs] == ["M1", "M10", "M1"]


# ---- the journal -----------------------------------------------------------------------------------------------------


def test_a_run_is_known_again_after_a_restart_by_what_decides_it(tmp_path: Path) -> None:
    run = LivePlan().runs("standard")[0]
    Journal(tmp_path / "j.jsonl").add(run.key, [row("estimator", 0, 3.0)])
    again = Journal(tmp_path / "j.jsonl")
    assert again.attempts(run.key)[0][0]["mean_s"] == 3.0
    assert finished(again, run)
    for other in (replace(run, seed=1), replace(run, lanes=("warm-first", "estimator")), replace(run, fault="operator")):
        assert not again.attempts(other.key)
    assert replace(run, pair=7).key == run.key  # a place in a list of seeds decides nothing


def test_a_line_that_was_cut_off_is_played_again(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    run = LivePlan().runs("standard")[0]
    Journal(path).add(run.key, [row("estimator", 0, 3.0)])
    path.write_bytes(path.read_bytes()[:-20])
    assert not finished(Journal(path), run)


def test_a_run_that_is_measured_anew_counts_instead_of_the_older_one(tmp_path: Path) -> None:
    path, run = tmp_path / "j.jsonl", LivePlan().runs("standard")[0]
    Journal(path).add(run.key, [row("estimator", 0, 3.0)])
    fresh = Journal(path, read=False)
    assert not finished(fresh, run)
    fresh.add(run.key, [row("estimator", 0, 4.0)])
    assert [rows[0]["mean_s"] for rows in Journal(path).attempts(run.key)] == [3.0, 4.0]


def test_void_runs_are_repeated_and_given_up_at_last() -> None:
    journal, run = Journal(None), LivePlan().runs("standard")[0]
    for tried in range(ATTEMPTS):
        assert not finished(journal, run), tried
        journal.add(run.key, [row("estimator", 0, 3.0, void=True)])
    assert finished(journal, run)
    assert isinstance(run.key, RunKey)


# ---- rows ------------------------------------------------------------------------------------------------------------


def test_rows_tell_how_long_gates_were_on() -> None:
    run = replace(LivePlan().runs("standard")[0], lanes=("warm-first", "estimator"))
    records = [record("warm-first", 0.0), record("warm-first", 1.0)]
    records += [record("estimator", 0.0, gated=True, opened_s=0.05), record("estimator", 1.0, gated=True, opened_s=4.01, cold=True)]
    plain, patient = rows_of(run, records)
    assert (plain["held_share"], plain["longest_hold_s"], plain["gated"]) == (0.0, 0.0, 0)
    assert (patient["held_share"], patient["longest_hold_s"], patient["gated"], patient["cold_starts"]) == (0.5, 3.0, 2, 1)
    assert not plain["void"]
    assert patient["creation_p50_ms"] == pytest.approx(10.0)


def test_a_run_is_void_if_pods_come_late_or_are_lost_or_a_process_ends() -> None:
    run = replace(LivePlan().runs("standard")[0], lanes=("warm-first",))
    calm = [record("warm-first", 0.0), record("warm-first", 1.0)]
    late = [record("warm-first", at_s, created_s=at_s + 0.2) for at_s in (0.0, 1.0)]
    lost = [calm[0], record("warm-first", 1.0, done_s=None)]
    assert [rows_of(run, records)[0]["void"] for records in (calm, late, lost)] == [False, True, True]
    assert rows_of(run, calm, whole=False)[0]["void"]
    told = rows_of(replace(run, fault="extender"), lost)[0]
    assert (told["void"], told["lost"]) == (False, 1)


def test_a_pod_whose_gate_is_never_seen_open_counts_as_held_to_the_end() -> None:
    run = replace(LivePlan().runs("standard")[0], lanes=("estimator",), fault="opener")
    stranded = record("estimator", 0.0, gated=True, bound_s=None, node="", done_s=None)
    assert rows_of(run, [stranded, record("estimator", 1.0)])[0]["longest_hold_s"] > 100


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_ratios_are_paired_within_a_run_and_leave_out_void_and_faulty_ones() -> None:
    assert figures.ratios(ROWS, "standard", "estimator", "warm-first") == pytest.approx([0.75] * 5)
    other = [row("warm-first", 0, 8.0, group="packing"), row("most-allocated", 0, 16.0, group="packing")]
    assert figures.ratios([*ROWS, *other], "standard", "most-allocated", "warm-first") == pytest.approx([2.0])
    assert figures.ratios([*ROWS, *other], "standard", "estimator", "warm-first") == pytest.approx([0.75] * 5)
    void = [row(lane, 9, 1.0, void=True) for lane in ("warm-first", "estimator")]
    faulty = [row(lane, 9, 1.0, fault="extender") for lane in ("warm-first", "estimator")]
    assert len(figures.ratios([*ROWS, *void, *faulty], "standard", "estimator", "warm-first")) == 5


def test_claims_hold_the_lead_of_the_default_and_the_bound_on_holding() -> None:
    held = {claim.id: claim for claim in figures.claims(ROWS)}
    assert held["live-standard-estimator-over-warm-first"].value == pytest.approx(0.75)
    assert all(claim.holds and not claim.void for claim in held.values())
    slow = [row("warm-first", 0, 4.0), row("estimator", 0, 3.99), row("warm-first", 1, 4.0), row("estimator", 1, 3.9)]
    assert not {claim.id: claim for claim in figures.claims(slow)}["live-standard-estimator-over-warm-first"].holds
    killed = figures.claims([row("estimator", 0, 4.0, fault="extender", longest_hold_s=15.1)])
    assert [(claim.id, claim.holds) for claim in killed] == [("live-longest-hold-s-extender-killed", False)]


def test_a_claim_on_slower_worlds_has_the_bound_of_that_world() -> None:
    rows = [line | {"world": "dear-starts"} for line in ROWS]
    claim = {claim.id: claim for claim in figures.claims(rows)}["live-dear-starts-estimator-over-warm-first"]
    assert not claim.holds  # 0.75 is enough in the standard world only
    assert claim.limit == 0.70


def test_tables_show_every_lane_beside_the_simulators_figures() -> None:
    rows = [*ROWS, row("trimaran-load-variation", 0, 5.0, sim_mean_s=None), row("estimator", 0, 3.0, fault="prometheus")]
    lines = figures.table(rows)
    assert [line["placed by"] for line in lines] == ["`warm-first`", "`rule-6`", "`estimator`", "Trimaran's LoadVariationRiskBalancing"]
    assert lines[2]["over `warm-first`"].startswith("0.750")
    assert lines[2]["simulated"] == "2.75"
    assert lines[3]["simulated"] == ""
    assert [line["killed"] for line in figures.fault_table(rows)] == ["prometheus"]
    made = figures.tables(Result("live-placement", False, (0,), 1.0, {}, rows, figures.summarise(rows), figures.claims(rows)))
    assert [title for title, _ in made] == ["live placement", "with a process killed"]


def test_the_summary_has_live_and_simulated_ratios() -> None:
    found = {(line["lane"], line["metric"]): line for line in figures.summarise(ROWS)}
    assert found["estimator", "mean_s over warm-first"]["mean"] == pytest.approx(0.75)
    assert found["estimator", "mean_s over rule-6"]["mean"] == pytest.approx(0.9375)
    assert found["estimator", "sim_mean_s over warm-first"]["n"] == 5
    assert ("warm-first", "mean_s over warm-first") not in found


# ---- loads for Trimaran ----------------------------------------------------------------------------------------------


def test_a_load_watcher_tells_mean_and_deviation_of_the_last_minute() -> None:
    window = LoadWindow()
    for second in range(4):
        window.add(float(second), {"n": (8.0 * 0.5 * (second // 2), 0.25, 8)})  # idle, half a second's work of all cores, idle
    told = {(m["type"], m["operator"]): m["value"] for m in window.answer(4.0)["data"]["NodeMetricsMap"]["n"]["metrics"]}
    assert told["CPU", "AVG"] == pytest.approx(100 * 0.5 / 3, abs=1e-3)
    assert told["CPU", "STD"] == pytest.approx(100 * (0.5 / 3) * 2**0.5, abs=1e-3)
    assert told["Memory", "AVG"] == 25.0
    window.add(4.0 + WINDOW_S, {"n": (4.0, 0.25, 8)})
    assert window.answer(4.0 + WINDOW_S)["data"]["NodeMetricsMap"]["n"]["metrics"][0]["value"] == 0.0  # the work is over a minute ago
    window.forget()
    assert window.answer(100.0)["data"]["NodeMetricsMap"] == {}


def test_a_load_watcher_serves_the_path_that_the_plugins_ask() -> None:
    counters = NodeCounters(8, GIB)
    counters.advance(1.0, NodeLoad(busy_cores=4.0, memory_used_bytes=GIB / 2))
    assert counters.load() == pytest.approx((4.0, 0.5))
    with LoadWatcher({"n": counters}) as watcher, urlopen(f"{watcher.url}/watcher", timeout=5) as answer:  # noqa: S310 - our own
        told = orjson.loads(answer.read())
    assert set(told) == {"timestamp", "window", "source", "data"}


def test_both_openers_know_the_setting_by_which_they_let_pods_go() -> None:
    for settings in (OperatorSettings, ExtenderSettings):
        assert {name.lower() for name in OPENER_SETTINGS} <= set(settings.model_fields)
