"""Policies that know the books: what they look at, what they leave out, when they say "not yet"."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from tests.placement.test_books import MIB, F, G, pod, ran, request, state_of
from tiphys_models.base.facts import NodeFacts, PodFacts
from tiphys_models.placement import learned_profiles
from tiphys_models.placement.believed import Believed
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.candidates import CandidateView
from tiphys_models.placement.estimator import crowding, expected_rests, placement_costs
from tiphys_models.placement.experience import LearnedProfiles
from tiphys_models.placement.functions import Functions
from tiphys_models.placement.learned_profiles import COLD_WORK, CORES_USED, ENOUGH, NOTHING_KNOWN, START_S, WARM_WORK
from tiphys_models.placement.patient import Estimator, Rule6, WarmFirstBooks, WarmFirstWaits, outlook
from tiphys_models.placement.placed import CallEnd
from tiphys_models.placement.protocol import patient
from tiphys_models.placement.rules import WarmFirst
from tiphys_models.placement.state import PlacementState

SLOW_START = FunctionProfile(0.5, 5.5, 1.0, 1.0, 2.0)
"""Half a second of work, five seconds of start."""


def busy(nodes: int = 40, calls: int = 100, *, seed: int = 0, functions: int = 12) -> PlacementState:
    """Nodes of several sizes with open calls, some of them crowded, and idle instances."""
    rng = np.random.default_rng(seed)
    state = PlacementState()
    for i in range(nodes):
        state.put_node(NodeFacts(f"n{i:04d}", int(rng.choice([2000, 8000, 16000])), 4096 * MIB, True, "", ()))
    names = [f"shop/{f}" for f in range(functions)]
    state.put_profiles(
        {
            name: FunctionProfile(warm, warm + 3.0, warm * p, warm * p * 1.5, p)
            for name, warm, p in zip(names, rng.uniform(0.1, 4.0, functions), rng.choice([1.0, 2.0, 8.0], functions), strict=True)
        }
    )
    for i in range(2 * nodes):
        node = f"n{int(rng.integers(nodes)):04d}"
        _bind(state, f"over-{i}", node, names[int(rng.integers(functions))], 0.0)
        state.ran(f"over-{i}", 1.0 + float(rng.uniform()))
    for i in range(calls):
        node = f"n{int(nodes * rng.uniform() ** 2):04d}"
        _bind(state, f"open-{i}", node, names[int(rng.integers(functions))], 2.0 + 5.0 * float(rng.uniform()))
    state.tick(8.0)
    return state


def _bind(state: PlacementState, uid: str, node: str, function: str, at_s: float) -> None:
    state.bound(PodFacts(uid, "shop", uid, function, node, "tiphys", 0, 256 * MIB, False, False, (), at_s, None), at_s)


def _view(state: PlacementState, function: str, rows: np.ndarray | None = None) -> CandidateView:
    return state.view(request("asks", function), np.arange(len(state.nodes)) if rows is None else rows)


def _all_costs(view: CandidateView, b: Believed) -> np.ndarray:
    """The kernels on every open call of the cluster."""
    profile = b.profiles[b.open_function]
    used, work = profile[:, CORES_USED], np.where(b.open_cold, profile[:, COLD_WORK], profile[:, WARM_WORK])
    start_s = np.where(b.open_cold, profile[:, START_S], 0.0)
    slower = crowding(b.node_cores, b.open_row, used)[b.open_row]
    rests = expected_rests(slower, b.now_s - b.open_at_s, start_s, work / used, b.least_share)
    place = np.full(len(b.node_cores), -1)
    place[view.rows] = np.arange(len(view.rows))
    here = place[b.open_row] >= 0
    spare, value = view.available_memory_bytes - b.idle_bytes, b.idle_value_s(np.ones(len(view.rows), np.bool_))
    return placement_costs(
        view.cores, spare, b.idle_bytes, value, b.warm, b.speed(view.rows), place[b.open_row[here]], rests[here, 0], used[here], b.profile,
        float(view.request.memory_bytes),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_calls_that_are_left_out_change_no_cost(seed: int) -> None:
    state = busy(seed=seed)
    rows = np.random.default_rng(seed).permutation(40)[:25]
    for function in ("shop/0", "shop/3", "shop/7"):
        view = _view(state, function, rows)
        b = view.believed()
        wanted = _all_costs(view, b)
        np.testing.assert_allclose(outlook(view, b).costs, wanted, rtol=0, atol=1e-12)
        np.testing.assert_allclose(outlook(view, b, everywhere=True).costs, wanted, rtol=0, atol=1e-12)
        assert (wanted[:, 2] > 0).any()
        assert (wanted[:, 2] == 0).any()


@pytest.mark.parametrize("policy", [Estimator(), Rule6(), WarmFirstWaits()])
def test_one_decision_about_five_hundred_candidates_is_fast(policy: Estimator | Rule6 | WarmFirstWaits) -> None:
    """A scheduler waits for it: five milliseconds of processor time are four times what it takes, with five thousand open calls."""
    state = busy(500, 5000, functions=200)
    view = _view(state, "shop/3")
    spans = []
    for _ in range(9):
        before = time.thread_time()
        scores = policy.score(view, state.memory())
        policy.not_yet(view, scores, int(scores.argmax()), 0)
        spans.append(time.thread_time() - before)
    assert float(np.median(spans)) < 5e-3


def test_of_a_function_that_nobody_knows_the_books_decide() -> None:
    state = state_of(3)
    ran(state, "1", 10.0, node="b")
    view = state.view(request("2"), state.nodes.rows(["a", "b", "c"]))
    wanted = WarmFirstBooks().score(view, state.memory())
    assert wanted.argmax() == 1
    for policy in (Estimator(), Rule6(), WarmFirstWaits()):
        np.testing.assert_array_equal(policy.score(view, state.memory()), wanted)


def test_three_ended_calls_make_a_function_known() -> None:
    state = state_of(3)
    for i in range(int(ENOUGH)):
        assert not state.view(request("x"), np.zeros(1, np.int64)).believed().known
        ran(state, str(i), 10.0 + i)
    view = state.view(request("x"), state.nodes.rows(["a", "b"]))
    assert view.believed().known
    assert (Estimator().score(view, state.memory()) > -1e3).all()  # seconds, and no degrees of warmth


def _one_busy_instance() -> PlacementState:
    state = state_of(2)
    state.put_profiles({F: SLOW_START})
    state.bound(replace(pod("1"), scheduled_s=9.0), 9.0)
    state.tick(14.0)  # five seconds of start are over, half a second of work is left
    return state


@pytest.mark.parametrize("policy", [Estimator(), Rule6(), WarmFirstWaits()])
def test_a_call_that_would_start_cold_waits_for_an_instance_that_is_nearly_done(policy: Estimator | Rule6 | WarmFirstWaits) -> None:
    state = _one_busy_instance()
    view = state.view(request("2"), state.nodes.rows(["a", "b"]))
    scores = policy.score(view, state.memory())
    told = policy.not_yet(view, scores, int(scores.argmax()), 0)
    assert told is not None
    assert 0 < told.awaited_s < 5.0
    assert told.saved_s > 0
    assert policy.not_yet(view, scores, int(scores.argmax()), 1) is None  # that one is somebody else's
    state.ran("1", 14.5)
    view = state.view(request("2"), state.nodes.rows(["a", "b"]))
    scores = policy.score(view, state.memory())
    assert scores.argmax() == 0  # it is idle
    assert policy.not_yet(view, scores, 0, 0) is None


def test_only_policies_that_may_wait_are_patient() -> None:
    assert [patient(p) is not None for p in (WarmFirst(), WarmFirstBooks(), WarmFirstWaits(), Rule6(), Estimator())] == [
        False, False, True, True, True,
    ]  # fmt: skip


def test_beliefs_of_all_functions_are_those_of_each() -> None:
    rng = np.random.default_rng(1)
    rows, priors, calls = rng.uniform(0, 3, (20, learned_profiles.WIDTH)), rng.uniform(0.1, 3, (20, 4)), rng.uniform(0.5, 3, 20)
    rows[::3, learned_profiles.PARALLELISM] = 0.0
    one_by_one = [learned_profiles.believe(row, prior, float(worth)) for row, prior, worth in zip(rows, priors, calls, strict=True)]
    np.testing.assert_array_equal(learned_profiles.believe_all(rows, priors, calls), one_by_one)


def test_what_is_usual_stands_in_for_what_nobody_declared() -> None:
    state = state_of()
    state.bound(pod("1"), 1.0)
    of = state.functions.get(F)
    assert of is not None
    np.testing.assert_array_equal(state.beliefs.learned.believed_of(of.index), NOTHING_KNOWN)
    state.put_profiles({G: SLOW_START})
    np.testing.assert_allclose(state.beliefs.learned.believed_of(of.index), (5.0, 1.0, 1.0, 2.0))
    assert not state.beliefs.learned.is_known(of.index)


def test_starts_runs_and_processor_time_are_learned_from_what_pods_and_callers_tell() -> None:
    state = state_of()
    for i in range(40):
        state.put_pod(replace(pod(f"pod-{i}"), scheduled_s=10.0 * i), 10.0 * i)
        state.put_pod(replace(pod(f"pod-{i}"), scheduled_s=10.0 * i, started_s=10.0 * i + 3.0), 10.0 * i + 3.0)
        state.ran(f"pod-{i}", 10.0 * i + 5.0, CallEnd(core_seconds=8.0, cold=True))
    of = state.functions.get(F)
    assert of is not None
    start_s, _, cold_work, cores = state.beliefs.learned.believed_of(of.index)
    assert (start_s, cold_work, cores) == pytest.approx((3.0, 8.0, 4.0), rel=0.05)


def test_rows_of_functions_that_are_evicted_begin_anew() -> None:
    functions = Functions(2, lambda _, row: learned.forget(row))
    learned = LearnedProfiles(functions.profiles)
    for i in range(20):
        row = functions.working(f"shop/{i}").index
        assert not learned.is_known(row)
        for _ in range(5):
            learned.ended(row, 0, cold=True, start_s=1.0, run_s=1.0, work_core_s=1.0)
        assert learned.is_known(row)
        functions.rest(f"shop/{i}")
    assert len(learned.rows) == 16
