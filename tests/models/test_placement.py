from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.builders import MIB, node, pod, read, request, state, view
from tests.levels import levels
from tiphys_models.base.hashing import stable_hash
from tiphys_models.placement.rank import MAX_SCORE, order, tie_breakers
from tiphys_models.placement.registry import PolicyName, is_learned, make_policy
from tiphys_models.placement.scores import ScoreCache
from tiphys_models.placement.state import PlacementState, StateLimits


def inflight(filled: PlacementState, name: str) -> float:
    return float(filled.nodes.inflight[filled.nodes.row_of[name]])


def test_a_reservation_gives_way_to_the_node_that_was_bound() -> None:
    filled = state(2)
    filled.decided(request("a"), "n0", 0)
    assert (inflight(filled, "n0"), filled.reservations) == (1, 1)
    filled.put_pod(pod("a", node="n1"), 1)
    assert (inflight(filled, "n0"), inflight(filled, "n1"), filled.reservations) == (0, 1, 0)


def test_a_reservation_expires_and_a_bound_pod_does_not() -> None:
    filled = state(1)
    filled.decided(request("a"), "n0", 0)
    filled.bound(pod("b", node="n0"), 0)
    assert filled.expire(9.9) == 0
    assert filled.expire(10.0) == 1
    assert (inflight(filled, "n0"), filled.reservations) == (1, 0)


def test_a_pod_asked_again_moves_its_reservation_and_an_answer_after_the_bind_changes_nothing() -> None:
    filled = state(2)
    filled.decided(request("a"), "n0", 0)
    filled.decided(request("a"), "n1", 1)
    assert (inflight(filled, "n0"), inflight(filled, "n1")) == (0, 1)
    filled.bound(pod("a", node="n0"), 2)
    filled.decided(request("a"), "n1", 3)
    assert (inflight(filled, "n0"), inflight(filled, "n1")) == (1, 0)


def test_pods_seen_before_their_node_count_when_it_appears() -> None:
    filled = state(0)
    filled.put_pod(pod("a", node="n0"), 0)
    filled.put_node(node("n0"))
    assert inflight(filled, "n0") == 1
    filled.drop_node("n0")
    filled.put_node(node("n0"))
    assert inflight(filled, "n0") == 1


def test_daemon_sets_use_memory_but_are_not_in_flight() -> None:
    filled = state(1)
    filled.bound(pod("d", node="n0", from_daemon_set=True), 0)
    assert inflight(filled, "n0") == 0
    assert filled.nodes.memory_requested[0] == 256 * MIB or filled.nodes.memory_requested.sum() == 256 * MIB


def test_a_resize_in_place_changes_what_is_requested() -> None:
    filled = state(1)
    filled.bound(pod("a", node="n0", memory_bytes=100), 0)
    filled.bound(pod("a", node="n0", memory_bytes=300), 1)
    assert filled.nodes.memory_requested.sum() == 300


def test_open_calls_are_found_by_the_rows_they_are_on_and_those_on_unknown_nodes_by_none() -> None:
    filled = state(4)
    for uid, where in (("a", "n2"), ("b", "gone"), ("c", "n0"), ("d", "n2"), ("e", "n3")):
        filled.bound(pod(uid, node=where), 0)
    rows = filled.nodes.rows(["n3", "n1", "n2"])
    calls = filled.view(request("x"), rows).calls()
    here, place = calls.on(rows)
    assert here.tolist() == [0, 3, 4]  # in the order in which they were placed
    assert place.tolist() == [2, 2, 0]
    assert calls.node_row[here].tolist() == rows[place].tolist()
    assert [len(found) for found in calls.on(rows[:0])] == [0, 0]


def test_idle_instances_are_unknown_until_reported_and_taken_by_newer_placements() -> None:
    filled = state(2)
    assert np.isnan(view(filled).idle_instances).all()
    filled.put_idle({"default/f": {"n0": 2}}, 5.0)
    assert view(filled).idle_instances[0] == 2
    assert math.isnan(view(filled).idle_instances[1])
    filled.decided(request("a"), "n0", 6.0)
    filled.put_pod(pod("old", node="n0", scheduled_s=4.0), 6.0)  # started before the report: already counted in it
    assert view(filled).idle_instances[0] == 1
    filled.put_idle({"default/f": {"n0": 1}}, 7.0)
    assert view(filled).idle_instances[0] == 1
    filled.put_idle({"default/g": {"n0": 1}}, 8.0)
    assert view(filled).idle_instances[0] == 0  # the node reports, and no longer names f


def test_each_report_of_idle_instances_counts_from_its_own_time() -> None:
    filled = state(3)
    filled.decided(request("a"), "n0", 6.0)
    filled.decided(request("b"), "n1", 6.0)
    filled.put_idle({"default/f": {"n0": 2, "n1": 2, "n2": 2}}, {"n0": 5.0, "n1": 7.0})
    assert view(filled).idle_instances[:2].tolist() == [1, 2]  # n0 reported before its placement, n1 after
    assert math.isnan(view(filled).idle_instances[2])  # nobody knows how old that report is
    filled.put_idle({"default/f": {"n1": 1}}, {"n1": 8.0})
    filled.put_idle({"default/f": {"n1": 1}}, {"n1": 9.0})
    assert view(filled).idle_instances[0] == 1  # other nodes' reports change nothing here, however often they come


def test_idle_reports_grow_stale() -> None:
    filled = state(1)
    filled.put_idle({"default/f": {"n0": 2}}, 5.0)
    filled.expire(5.0 + filled.limits.max_idle_age_s + 1)
    assert math.isnan(view(filled).idle_instances[0])


def test_readings_older_than_the_limit_are_missing() -> None:
    filled = state(2)
    read(filled, at_s=100.0)
    filled.expire(159.0)
    assert not np.isnan(view(filled).node_readings).any()
    filled.expire(161.0)
    assert np.isnan(view(filled).node_readings).all()


def test_start_times_are_learnt_once_a_pod_and_published_in_steps() -> None:
    filled = state(1)
    for _ in range(3):
        filled.put_pod(pod("a", node="n0", scheduled_s=10.0, ready_s=12.0), 13)
    assert filled.init_time_s("default/f") == 2.0
    filled.put_pod(pod("b", node="n0", scheduled_s=10.0, ready_s=12.1), 13)
    assert filled.init_time_s("default/f") == 2.0  # a change of one percent is not worth new scores
    filled.put_pod(pod("c", node="n0", scheduled_s=10.0, ready_s=15.0), 13)
    assert filled.init_time_s("default/f") == pytest.approx(2.02 + 0.2 * (5 - 2.02))


def test_a_fresh_list_removes_what_is_gone_but_no_reservation() -> None:
    filled = state(2)
    filled.bound(pod("a", node="n0"), 0)
    filled.decided(request("b"), "n1", 0)
    for uid in filled.bound_except(set()):
        filled.finished(uid)
    filled.drop_node("n0")
    assert (filled.pods, len(filled.nodes), filled.reservations) == (1, 1, 1)


class Bookkeeping(RuleBasedStateMachine):
    """Whatever happens in whatever order, the columns equal a recount."""

    def __init__(self) -> None:
        super().__init__()
        self.state = PlacementState(StateLimits(reservation_ttl_s=5))
        self.now_s = 0.0
        self.truth: dict[str, tuple[str, bool, float]] = {}
        self.nodes: set[str] = set()

    names = st.sampled_from(["n0", "n1", "n2"])
    uids = st.sampled_from(["a", "b", "c", "d", "e"])

    @rule(name=names)
    def node_seen(self, name: str) -> None:
        self.state.put_node(node(name))
        self.nodes.add(name)

    @rule(name=names)
    def node_gone(self, name: str) -> None:
        self.state.drop_node(name)
        self.nodes.discard(name)

    @rule(uid=uids, name=names)
    def decide(self, uid: str, name: str) -> None:
        self.state.decided(request(uid), name, self.now_s)
        if self.truth.get(uid, ("", True, 0.0))[1]:
            self.truth[uid] = (name, True, self.now_s + 5)

    @rule(uid=uids, name=names)
    def bind(self, uid: str, name: str) -> None:
        self.state.put_pod(pod(uid, node=name), self.now_s)
        self.truth[uid] = (name, False, math.inf)

    @rule(uid=uids)
    def finish(self, uid: str) -> None:
        self.state.put_pod(pod(uid, node="n0", finished=True), self.now_s)
        self.truth.pop(uid, None)

    @rule(counts=st.dictionaries(names, st.integers(0, 3)))
    def report_idle(self, counts: dict[str, int]) -> None:
        self.state.put_idle({"default/f": {n: float(c) for n, c in counts.items()}}, self.now_s)

    @rule(seconds=st.sampled_from([0.5, 3.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.state.expire(self.now_s)
        self.truth = {u: p for u, p in self.truth.items() if p[2] > self.now_s}

    @invariant()
    def columns_equal_a_recount(self) -> None:
        counts = Counter(name for name, _, _ in self.truth.values() if name in self.nodes)
        for name in self.nodes:
            row = self.state.nodes.row_of[name]
            assert self.state.nodes.inflight[row] == counts[name]
            assert self.state.nodes.memory_requested[row] == counts[name] * 256 * MIB
        assert len(self.state.nodes) == len(self.nodes)
        assert self.state.pods == len(self.truth)
        if self.nodes:
            idle = view(self.state).idle_instances
            assert ((idle >= 0) | np.isnan(idle)).all()


TestBookkeeping = Bookkeeping.TestCase
TestBookkeeping.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


# ---- rank ----------------------------------------------------------------------------------------------------------

finite = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(finite | st.just(math.nan), min_size=1, max_size=60), st.text(max_size=5))
def test_the_best_alone_holds_ten_and_the_order_is_never_inverted(scores: list[float], uid: str) -> None:
    array = np.array(scores)
    ties = tie_breakers(uid, np.arange(len(scores), dtype=np.uint64))
    best_first = order(array, ties, 1e-3)
    answer = levels(best_first)
    assert sorted(best_first.tolist()) == list(range(len(scores)))
    assert answer.min() >= 0
    assert (answer == MAX_SCORE).sum() == 1
    for i, a in enumerate(scores):
        for j, b in enumerate(scores):
            if not math.isnan(a) and not math.isnan(b) and a > b + 2e-3:
                assert answer[i] >= answer[j]


def test_a_node_nobody_can_judge_ranks_in_the_middle() -> None:
    scores = np.array([3.0, math.nan, 1.0, 2.0, 0.0])
    assert 0 < order(scores, np.zeros(5), 1e-6).tolist().index(1) < 4
    assert order(np.full(3, math.nan), np.array([0.3, 0.1, 0.2]), 1e-6).tolist() == [1, 2, 0]


def test_equal_nodes_are_spread_by_pod_and_the_choice_is_repeatable() -> None:
    hashes = np.array([stable_hash(f"n{i}") for i in range(20)], np.uint64)
    winners = [int(order(np.zeros(20), tie_breakers(f"pod-{p}", hashes), 1e-3)[0]) for p in range(2000)]
    counts = Counter(winners)
    assert len(counts) == 20
    assert max(counts.values()) < 2 * 2000 / 20
    assert winners[7] == int(order(np.zeros(20), tie_breakers("pod-7", hashes), 1e-3)[0])


# ---- kept scores ---------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("name", [n for n in PolicyName if not is_learned(n)])
def test_kept_scores_equal_fresh_ones_after_any_events(name: PolicyName, seed: int) -> None:
    rng = np.random.default_rng(seed)
    policy, cache, filled = make_policy(name), ScoreCache(), state(6)
    for step in range(12):
        uid = f"u{rng.integers(0, 5)}"
        match rng.integers(0, 6):
            case 0:
                filled.decided(request(uid), f"n{rng.integers(0, 6)}", float(step))
            case 1:
                filled.put_pod(pod(uid, node=f"n{rng.integers(0, 6)}"), float(step))
            case 2:
                filled.finished(uid)
            case 3:
                filled.put_idle({"default/f": {f"n{rng.integers(0, 6)}": 1.0}}, float(step))
            case 4:
                read(filled, at_s=float(step), cpu_load_avg={"n1": float(step)})
            case _:
                filled.put_node(node(f"n{rng.integers(0, 9)}"))
        names = sorted(filled.nodes.row_of)
        rows = filled.nodes.rows(names)[: int(rng.integers(1, len(names) + 1))]
        wanted = request(f"new{step}")
        kept = cache.score(policy, filled, wanted, rows)
        np.testing.assert_allclose(kept, policy.score(filled.view(wanted, rows), filled.memory()))


def test_kept_scores_follow_the_table_when_it_grows() -> None:
    policy, cache, filled = make_policy(PolicyName.LEAST_CONNECTIONS), ScoreCache(), state(10)
    cache.score(policy, filled, request(), filled.nodes.rows(["n1"]))
    for index in range(10, 200):
        filled.put_node(node(f"n{index}"))
    filled.put_idle({"default/f": {"n199": 1.0}}, 0.0)
    assert cache.score(policy, filled, request(), filled.nodes.rows(["n199", "n1"])).tolist() == [0, 0]
    assert view(filled).idle_instances[sorted(filled.nodes.row_of).index("n199")] == 1
