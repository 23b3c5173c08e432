"""What the placement state holds follows what there is, not what there ever was."""

from __future__ import annotations

import math
import time
import tracemalloc

import numpy as np

from tests.builders import node, pod, request, state, view
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.images import ImageRows
from tiphys_models.placement.rules import LeastConnections
from tiphys_models.placement.scores import ScoreCache
from tiphys_models.placement.state import PlacementState, StateLimits
from tiphys_models.placement.table import NodeTable


def _bounded(nodes: int = 3, **limits: int) -> PlacementState:
    filled = PlacementState(StateLimits(**limits))
    for index in range(nodes):
        filled.put_node(node(f"n{index}"))
    return filled


def test_finished_jobs_do_not_pile_up() -> None:
    filled = _bounded(most_functions=100)
    for job in range(20_000):
        name = f"batch/Job/nightly-{job}"
        filled.put_pod(pod(f"p{job}", node=f"n{job % 3}", function=name, scheduled_s=1.0, ready_s=2.0), float(job))
        filled.put_pod(pod(f"p{job}", node=f"n{job % 3}", function=name, finished=True), float(job))
        if job % 5_000 == 0:
            filled.put_idle({name: {"n0": 1.0}}, float(job))
    assert filled.kept["functions"] == 100
    assert filled.evicted["functions"] == 19_900
    assert filled.kept["start-times"] == 10_000
    assert len(filled.functions.profiles.rows) <= 256
    assert not filled.nodes.inflight.any()


def test_a_function_with_unfinished_pods_is_never_forgotten_and_the_least_recently_used_goes_first() -> None:
    filled = _bounded(most_functions=2)
    filled.put_pod(pod("running", node="n0", function="a/running"), 0.0)
    for name in ("one", "two", "one", "three"):
        filled.decided(request(name, function=f"a/{name}"), "n1", 1.0)
        filled.finished(name)
    assert [name in filled.functions for name in ("a/running", "a/one", "a/two", "a/three")] == [True, True, False, True]
    assert filled.unfinished("a/running") == {"n0": 1}


def test_a_place_that_a_forgotten_function_had_tells_its_next_owner_nothing() -> None:
    filled = _bounded(most_functions=1)
    first = FunctionProfile(1.0, 2.0, 3.0, 4.0, 5.0)
    filled.put_profiles({"a/first": first})
    filled.put_pod(pod("second", node="n0", function="a/second"), 0.0)
    assert filled.profile("a/second") is None
    filled.finished("second")
    filled.put_pod(pod("third", node="n0", function="a/third"), 0.0)
    assert filled.profile("a/third") is None
    filled.finished("third")
    filled.put_pod(pod("again", node="n0", function="a/first"), 0.0)
    assert filled.profile("a/first") == first  # reported once, and runtimes say it again only when it changes
    calls = filled.view(request(function="a/first"), filled.nodes.rows(["n0"])).calls()
    np.testing.assert_array_equal(calls.profiles[calls.own_function], first.as_row())
    assert calls.function.tolist() == [calls.own_function]


def test_many_workloads_on_many_nodes_cost_what_is_there_and_not_their_product() -> None:
    filled = PlacementState()
    for index in range(5_000):
        filled.put_node(node(f"n{index}"))
    tracemalloc.start()
    try:
        for function in range(1_500):
            filled.put_pod(pod(f"p{function}", node=f"n{function}", function=f"shop/f{function}"), 1.0)
        filled.put_idle({f"shop/f{function}": {f"n{function + k}": 1.0 for k in range(3)} for function in range(1_500)}, 2.0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20  # four rows a function over all nodes would be 400 MiB
    assert filled.kept["idle-functions"] == 1_500
    rows = filled.nodes.rows(["n7", "n10", "n4999"])
    left = filled.view(request(function="shop/f7"), rows).idle_instances
    assert left[:2].tolist() == [1, 0]
    assert math.isnan(left[2])  # its runtime said nothing


def test_functions_with_idle_instances_are_bounded_too() -> None:
    filled = _bounded(most_functions=10)
    filled.put_idle({f"a/f{i}": {"n0": 1.0} for i in range(50)}, 1.0)
    assert (filled.kept["idle-functions"], filled.evicted["idle-functions"]) == (10, 40)
    assert filled.view(request(function="a/f49"), filled.nodes.rows(["n0"])).idle_instances.tolist() == [1]
    assert filled.view(request(function="a/f0"), filled.nodes.rows(["n0"])).idle_instances.tolist() == [0]


def test_a_report_of_far_too_many_functions_costs_what_it_says_and_not_its_square() -> None:
    filled = state(1)
    counts = {f"default/job-{number}": {"n0": 1.0} for number in range(60_000)}
    profiles = {name: FunctionProfile(1, 2, 1, 2, 2) for name in counts}
    began_s = time.thread_time()
    filled.put_idle(counts, 5.0)
    filled.put_profiles(profiles)
    assert time.thread_time() - began_s < 1.0, "0.1 s where nothing else runs; 5 s when functions were let go one by one"
    assert filled.kept["idle-functions"] == filled.limits.most_functions


def test_kept_scores_are_bounded_in_bytes_where_there_are_many_nodes() -> None:
    filled, kept = state(3), ScoreCache(max_bytes=10 * 16 * 64)
    for number in range(50):
        kept.score(LeastConnections(), filled, request(function=f"default/f{number}"), filled.nodes.rows(["n0", "n1", "n2"]))
    assert len(kept) == 10, "a table of 64 rows: 1 KiB an entry"


def test_while_nobody_reports_idle_instances_no_score_grows_stale() -> None:
    filled = state(3)
    filled.put_pod(pod("a", node="n0"), 1.0)
    before = filled.nodes.version.copy()
    filled.put_idle({}, {})
    assert (filled.nodes.version == before).all()
    filled.put_idle({"default/f": {"n0": 2}}, 5.0)
    assert (filled.nodes.version != before).all()


def test_a_placement_that_ends_without_a_report_takes_no_instance_of_the_next() -> None:
    filled = state(2)
    filled.decided(request("a"), "n0", 6.0)
    filled.drop_node("n0")
    filled.put_node(node("n0"))
    filled.put_idle({"default/f": {"n0": 1}}, 5.0)
    filled.finished("a")
    assert view(filled).idle_instances[0] == 1
    assert filled._idle._placed == {}


def test_image_names_cost_what_is_there_and_the_least_recently_used_go_first() -> None:
    table = NodeTable(most_images=1_000)
    tracemalloc.start()
    try:
        for index in range(2_000):
            table.put(node(f"n{index}", images=("common", f"own-{index}")))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20  # a row over all nodes for each name would be 4 MiB for a thousand and never end
    assert (len(table.images), table.images.evicted) == (1_000, 1_001)
    rows = table.rows(["n0", "n1999"])
    assert table.images_present(("common",), rows).tolist() == [True, True]
    assert table.images_present(("common", "own-1999"), rows).tolist() == [False, True]
    assert table.images_present(("own-0",), rows).tolist() == [False, False]


def test_columns_of_images_that_are_asked_for_follow_the_nodes() -> None:
    table = NodeTable(capacity=2)
    table.put(node("a", images=("i",)))
    assert table.images_present(("i",), table.rows(["a"])).tolist() == [True]
    for name in ("b", "c", "d"):  # the table grows
        table.put(node(name, images=("i",) if name != "c" else ()))
    names = ["a", "b", "c", "d"]
    assert table.images_present(("i",), table.rows(names)).tolist() == [True, True, False, True]
    table.put(node("c", images=("i",)))
    table.put(node("a"))
    assert table.images_present(("i",), table.rows(names)).tolist() == [False, True, True, True]
    for name in names:
        table.drop(name)
    assert len(table.images) == 0


def test_only_so_many_columns_of_images_are_held() -> None:
    images = ImageRows(most=100, most_columns=2)
    for name in "abcd":
        images.add(name, 1)
        column = images.column(name, 4)
        assert column is not None
        assert column.tolist() == [False, True, False, False]
    assert len(images._columns) == 2
