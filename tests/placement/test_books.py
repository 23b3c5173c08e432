"""Books of idle instances: what follows from calls that are placed, end, lapse and move, and what a reading corrects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tiphys_models.base.facts import NodeFacts, PodFacts
from tiphys_models.placement.books import CHANGES, LISTED
from tiphys_models.placement.candidates import PlacementRequest
from tiphys_models.placement.sim.kube import belief
from tiphys_models.placement.state import PlacementState, StateLimits

MIB = 2**20
F, G = "shop/f", "shop/g"


def state_of(nodes: int = 2, *, memory_mib: int = 1024, **limits: float) -> PlacementState:
    """Empty nodes a, b, …"""
    state = PlacementState(StateLimits(**limits))  # type: ignore[arg-type]
    for i in range(nodes):
        state.put_node(NodeFacts(chr(ord("a") + i), 8000, memory_mib * MIB, True, "", ()))
    return state


def request(uid: str, function: str = F, memory_mib: int = 256) -> PlacementRequest:
    """One that wants a node."""
    return PlacementRequest(uid, "shop", function, 0, memory_mib * MIB)


def pod(uid: str, node: str = "a", function: str = F, memory_mib: int = 256) -> PodFacts:
    """One that is bound."""
    return PodFacts(uid, "shop", uid, function, node, "tiphys", 0, memory_mib * MIB, False, False, (), None, None)


def ran(state: PlacementState, uid: str, at_s: float, *, node: str = "a", function: str = F, took_s: float = 1.0) -> None:
    """A call that began and ended."""
    state.bound(pod(uid, node, function), at_s - took_s)
    state.ran(uid, at_s)


def listed(state: PlacementState, node: str = "a") -> dict[str, int]:
    """Idle instances by function, as the next decision sees them."""
    rows = state.nodes.rows([node])
    state.view(request("asks"), rows).believed()
    return dict(state.beliefs.books.counts(int(rows[0])))


def test_a_call_that_has_ended_leaves_an_instance_that_the_next_one_takes() -> None:
    state = state_of()
    ran(state, "1", 10.0)
    assert state.view(request("2"), state.nodes.rows(["a", "b"])).believed().warm.tolist() == [True, False]
    state.decided(request("2"), "a", 11.0)
    assert listed(state) == {}


@pytest.mark.parametrize("over", ["deleted", "failed"])
def test_a_call_that_did_not_run_to_its_end_leaves_none(over: str) -> None:
    state = state_of()
    state.put_pod(pod("1"), 1.0)
    if over == "deleted":
        state.finished("1")
    else:
        state.put_pod(replace(pod("1"), finished=True, failed=True), 2.0)
    assert listed(state) == {}


def test_a_reservation_that_lapses_has_taken_nothing() -> None:
    state = state_of(reservation_ttl_s=5.0)
    ran(state, "1", 10.0)
    state.decided(request("2"), "a", 11.0)
    assert listed(state) == {}
    state.expire(17.0)
    assert listed(state) == {F: 1}


def test_a_reservation_that_moves_gives_back_here_and_takes_there() -> None:
    state = state_of()
    ran(state, "1", 10.0)
    ran(state, "2", 10.5, node="b")
    state.decided(request("3"), "a", 11.0)
    state.bound(pod("3", "b"), 12.0)
    assert (listed(state, "a"), listed(state, "b")) == ({F: 1}, {})


def test_what_a_lapsed_reservation_evicted_is_back_in_its_place() -> None:
    state = state_of(reservation_ttl_s=5.0)
    for i in range(4):  # as much as the node holds
        state.bound(pod(str(i), function=f"shop/{i}"), 1.0)
    for i in range(4):
        state.ran(str(i), 10.0 + i)
    state.decided(request("large", G, 512), "a", 15.0)
    assert listed(state) == {"shop/2": 1, "shop/3": 1}
    state.expire(30.0)
    assert listed(state) == {f"shop/{i}": 1 for i in range(4)}
    state.decided(request("other", G, 256), "a", 31.0)
    assert "shop/0" not in listed(state)  # still the oldest


def test_a_reading_after_a_reservation_knows_better_than_its_withdrawal() -> None:
    state = state_of(reservation_ttl_s=5.0)
    ran(state, "1", 10.0)
    state.decided(request("2"), "a", 11.0)
    state.put_idle({F: {"a": 1.0}}, 12.0)  # the pod never came: the instance was idle all along
    state.expire(17.0)
    assert listed(state) == {F: 1}


def test_a_new_instance_evicts_the_oldest_only_while_memory_is_short() -> None:
    state = state_of(memory_mib=768)
    for i, function in enumerate(("shop/0", "shop/1", "shop/2")):
        state.bound(pod(str(i), function=function), 1.0)
    for i in range(3):
        state.ran(str(i), 10.0 + i)
    state.decided(request("new", G), "a", 15.0)
    assert listed(state) == {"shop/1": 1, "shop/2": 1}


def test_instances_go_when_they_have_been_idle_for_longer_than_the_keep_alive() -> None:
    state = state_of(keep_alive_s=60.0)
    ran(state, "1", 10.0)
    state.tick(70.0)
    assert listed(state) == {F: 1}
    state.tick(70.1)
    assert listed(state) == {}
    none = state_of(keep_alive_s=0.0)
    ran(none, "1", 10.0)
    assert listed(none) == {}


def test_a_reading_corrects_as_of_when_it_was_sampled() -> None:
    state = state_of()
    ran(state, "1", 10.0)
    ran(state, "2", 20.0, took_s=12.0)
    state.put_idle({F: {"a": 1.0}}, 15.0)  # the second was not idle yet
    assert listed(state) == {F: 2}
    state.put_idle({F: {"a": 3.0}}, 21.0)
    assert listed(state) == {F: 3}
    state.decided(request("3"), "a", 23.0)
    state.put_idle({F: {"a": 1.0}, G: {"a": 2.0}}, 22.0)
    assert listed(state) == {G: 2}
    state.put_idle({F: {"a": 9.0}}, 21.5)  # older than what was heard
    assert listed(state) == {G: 2}


def test_a_node_that_goes_loses_its_list_and_comes_back_with_none() -> None:
    state = state_of()
    ran(state, "1", 10.0)
    facts = NodeFacts("a", 8000, 1024 * MIB, True, "", ())
    state.drop_node("a")
    state.put_node(facts)
    assert listed(state) == {}
    assert len(state.beliefs.books) == 0


def test_what_a_reservation_took_on_a_node_that_went_stays_gone() -> None:
    state = state_of(reservation_ttl_s=5.0)
    ran(state, "1", 10.0)
    state.decided(request("2"), "a", 11.0)
    state.drop_node("a")
    state.put_node(NodeFacts("a", 8000, 1024 * MIB, True, "", ()))
    state.expire(20.0)
    assert listed(state) == {}


def test_lists_and_memories_of_changes_are_bounded() -> None:
    state = state_of(memory_mib=10**6)
    for i in range(3 * CHANGES):
        state.bound(pod(str(i)), 1.0)
    for i in range(3 * CHANGES):
        state.ran(str(i), 10.0 + i / 100)
    assert len(state.beliefs.books) == LISTED
    state.put_idle({F: {"a": 1.0}}, 10.0)  # nobody remembers what has happened since
    assert listed(state) == {F: LISTED}


def test_a_function_that_is_evicted_is_forgotten_everywhere() -> None:
    state = state_of(most_functions=2)
    for i in range(4):
        ran(state, str(i), 10.0 + i, function=f"shop/{i}", node="ab"[i % 2])
    assert (listed(state, "a"), listed(state, "b")) == ({"shop/2": 1}, {"shop/3": 1})


def test_the_books_that_serve_and_those_that_are_simulated_stay_alike() -> None:
    """Random placements, ends and readings, some of them late: the same instances in the same order of eviction."""
    rng = np.random.default_rng(5)
    names, sizes_mib = [f"shop/{i}" for i in range(4)], [256, 256, 512, 128]
    memory = np.stack([np.array(sizes_mib) * float(MIB)] * 2, axis=1)[:, 0]  # strided, as in the simulator: compiled code is there
    capacity_mib = 1536
    state = state_of(1, memory_mib=capacity_mib)
    prior = np.ones((4, 4))
    simulated = belief.new_belief(1, 1, prior, np.ones(4))
    for f, name in enumerate(names):  # nobody knows the size of an instance of which no call was seen
        state.bound(replace(pod(name, "a", name, sizes_mib[f]), scheduled_s=0.1 * f), 0.1 * f)
        state.finished(name)
    running: list[tuple[str, int]] = []
    snapshots: list[tuple[float, list[int]]] = []
    for step in range(400):
        now_s = 1.0 + step * 0.5
        open_bytes = float(sum(memory[f] for _, f in running))
        do = rng.uniform()
        f = int(rng.integers(4))
        if do < 0.4 and open_bytes + memory[f] <= capacity_mib * MIB:
            uid = f"call-{step}"
            state.bound(replace(pod(uid, "a", names[f], sizes_mib[f]), scheduled_s=now_s), now_s)
            cold = belief.take(simulated, 0, f, memory, open_bytes + memory[f], capacity_mib * float(MIB), now_s)
            assert state.beliefs.was_cold(uid) == cold
            running.append((uid, f))
        elif do < 0.75 and running:
            uid, f = running.pop(int(rng.integers(len(running))))
            state.ran(uid, now_s)
            belief.give_back(simulated, 0, f, memory, now_s)
        elif do < 0.85:
            snapshots.append((now_s, [int(rng.integers(0, 3)) for _ in names]))
        elif snapshots:
            at_s, counts = snapshots.pop(0)
            state.put_idle({name: {"a": float(count)} for name, count in zip(names, counts, strict=True)}, at_s)
            belief.correct(simulated, 0, np.array(counts, np.float64), memory, at_s)
        there = [names[int(of)] for of in simulated.function[0, : simulated.listed[0]]]
        assert [entry.function for entry in state.beliefs.books.entries(0)] == there
        assert state.beliefs.books.idle_bytes(np.zeros(1, np.int64))[0] == simulated.idle_bytes[0]
