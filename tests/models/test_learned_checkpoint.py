"""What was learned, kept and read back: a restart decides as before, and one number that cannot be spoils only its own entry."""

from __future__ import annotations

import math
from hashlib import sha256
from typing import Any

import numpy as np
import orjson
import pytest

from tests.builders import MIB, node, pod, request
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement import checkpoint
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.checkpoint import HALF_LIFE_S, MAX_BYTES, Learned, as_json, document, learned_of, read, recall
from tiphys_models.placement.learned_profiles import ENDED, STARTS, WIDTH
from tiphys_models.placement.lifetimes import BINS
from tiphys_models.placement.lifetimes import HALF_LIFE_S as LIVES_HALF_LIFE_S
from tiphys_models.placement.lives import LivesKept
from tiphys_models.placement.patient import Estimator
from tiphys_models.placement.placed import CallEnd
from tiphys_models.placement.rules import Lifetimes
from tiphys_models.placement.state import PlacementState

FUNCTIONS = ("default/f", "default/g", "default/h")
LATER_S = 4000.0


def nodes_only() -> PlacementState:
    made = PlacementState()
    for i in range(4):
        made.put_node(node(f"n{i}", memory_bytes=4096 * MIB))
    return made


def bind(state: PlacementState, uid: str, name: str, function: str, at_s: float) -> None:
    state.bound(pod(uid, node=name, function=function, scheduled_s=at_s), at_s)


def experienced() -> PlacementState:
    """Calls of three functions ended on four nodes, the last of which is slow; long pods, too."""
    rng = np.random.default_rng(1)
    state = nodes_only()
    Lifetimes().score(state.view(request(), state.nodes.rows(["n0", "n1"])), state.memory())  # from now on lifetimes are learned
    for i in range(240):
        function, on = i % 3, int(rng.integers(4))
        at_s, work = 10.0 * i, (1.0 + function) * (2.0 if on == 3 else 1.0)
        bind(state, f"c{i}", f"n{on}", FUNCTIONS[function], at_s)
        state.tick(at_s + 3.0)
        state.ran(f"c{i}", at_s + 3.0, CallEnd(start_s=1.0, core_seconds=work * float(rng.uniform(0.9, 1.1)), cold=i % 2 == 0))
    return state


def stay(state: PlacementState) -> None:
    """Pods that run on at `LATER_S`."""
    for i, function in enumerate(FUNCTIONS):
        bind(state, f"stays{i}", f"n{i}", function, 3000.0 + i)
    state.tick(LATER_S)


def scores(state: PlacementState, policy: Estimator | Lifetimes, function: str = "default/f") -> FloatArray:
    view = state.view(request("next", function=function), state.nodes.rows(["n0", "n1", "n2", "n3"]))
    return policy.score(view, state.memory())


def restarted(before: PlacementState, after_s: float = 0.0) -> PlacementState:
    """A new process that read the document before a watch showed it anything."""
    made = PlacementState()
    recall(made, read(document(learned_of(before, LATER_S)).content), LATER_S + after_s)
    for i in range(4):
        made.put_node(node(f"n{i}", memory_bytes=4096 * MIB))
    return made


def test_a_restart_decides_as_before() -> None:
    before = experienced()
    stay(before)
    before.lives.refresh(LATER_S)
    after = restarted(before)
    stay(after)
    blank = nodes_only()
    stay(blank)
    for function in FUNCTIONS:
        # books are not kept: both are asked about the same empty ones
        assert before.beliefs.learned.believed_of(before.functions.working(function).index) == pytest.approx(
            after.beliefs.learned.believed_of(after.functions.working(function).index)
        )
    np.testing.assert_allclose(after.beliefs.learned.speeds(np.arange(4)), before.beliefs.learned.speeds(np.arange(4)), rtol=1e-6)
    assert after.beliefs.learned.speeds(np.arange(4))[3] < 0.7
    for function in FUNCTIONS:
        before.beliefs.books.forget(function)
    for policy in (Estimator(), Lifetimes()):
        np.testing.assert_allclose(scores(after, policy), scores(before, policy), rtol=1e-6)
        assert not np.allclose(scores(after, policy), scores(blank, policy))


def test_pods_that_run_on_are_not_counted_twice_at_risk() -> None:
    before = experienced()
    stay(before)
    before.lives.refresh(LATER_S)
    after = restarted(before)
    stay(after)
    after.lives.gone("default/f", LATER_S)
    np.testing.assert_allclose(after.lives.kept().at_risk[0], before.lives.kept().at_risk[0], rtol=1e-6)


def test_what_was_learned_counts_half_after_a_day_without_a_process() -> None:
    before = experienced()
    row = restarted(before, HALF_LIFE_S)
    index = row.functions.working("default/f").index
    known = before.functions.working("default/f").index
    assert row.beliefs.learned.rows[index, STARTS] == pytest.approx(before.beliefs.learned.rows[known, STARTS] / 2)
    row.lives.gone("default/f", LATER_S + LIVES_HALF_LIFE_S)
    assert row.lives.kept().at_risk[0, 0] < 0.6 * before.lives.kept().at_risk[0, 0]


def test_what_this_process_has_seen_is_not_replaced() -> None:
    before, now = experienced(), nodes_only()
    bind(now, "own", "n0", "default/f", 0.0)
    now.ran("own", 3.0, CallEnd(start_s=1.0, core_seconds=77.0, cold=True))
    seen = now.beliefs.learned.kept(now.functions.working("default/f").index)
    recall(now, learned_of(before, 0.0), 0.0)
    np.testing.assert_array_equal(now.beliefs.learned.kept(now.functions.working("default/f").index), seen)
    assert now.beliefs.learned.kept(now.functions.working("default/g").index)[ENDED] == 80


def test_a_node_that_comes_late_gets_what_was_known_of_it_and_one_that_left_does_not() -> None:
    after = PlacementState()
    recall(after, learned_of(experienced(), 0.0), 0.0)
    assert set(learned_of(after, 0.0).nodes) == {"n0", "n1", "n2", "n3"}  # nothing is lost before a watch has shown any
    for i in range(4):
        after.put_node(node(f"n{i}"))
    assert after.beliefs.learned.kept_of_node(after.nodes.row_of["n3"])[0] > 0
    after.drop_node("n3")
    after.put_node(node("n3"))
    assert after.beliefs.learned.kept_of_node(after.nodes.row_of["n3"])[0] == 0


def many(functions: int) -> Learned:
    """As many functions and applications; the later, the more calls ended."""
    row = np.full(WIDTH + 1, 1.23456789)
    names = [f"namespace/function-{i:05d}" for i in range(functions)]
    rows = {name: np.where(np.arange(WIDTH + 1) == ENDED, float(i + 3), row) for i, name in enumerate(names)}
    at_risk = np.full((functions + 1, BINS), 9.87654321) + np.arange(functions + 1, dtype=np.float64)[:, None]
    return Learned(0.0, rows, {}, LivesKept(tuple(names), at_risk / 3, at_risk, 0.0))


def test_the_document_has_a_bound_and_the_least_used_functions_go_first() -> None:
    learned = many(3000)
    written = document(learned)
    assert len(written.content) <= MAX_BYTES
    found = read(written.content)
    assert 500 < len(found.functions) < 3000
    assert written.dropped == len(learned) - len(found)
    assert "namespace/function-02999" in found.functions
    assert "namespace/function-00000" not in found.functions
    assert document(many(20)).dropped == 0


def test_a_document_of_no_room_at_all_is_empty_and_readable() -> None:
    written = document(many(20), max_bytes=1500)
    assert len(read(written.content)) + written.dropped == 40


def spoiled(change: Any) -> bytes:
    """A document with one thing changed, and a checksum that fits."""
    body = as_json(learned_of(experienced(), 0.0))
    change(body)
    checksum = sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()
    return orjson.dumps({"format": checkpoint.FORMAT, "sha256": checksum, "learned": body})


def _set(body: Any, place: tuple[Any, ...], value: Any) -> None:
    for key in place[:-1]:
        body = body[key]
    body[place[-1]] = value


@pytest.mark.parametrize("value", [None, "7", True, -1.0, 1e300, [1.0], {"a": 1}])
@pytest.mark.parametrize("column", range(WIDTH + 1))
def test_a_number_that_cannot_be_spoils_only_its_function(column: int, value: Any) -> None:
    found = read(spoiled(lambda body: _set(body, ("functions", "default/g", column), value)))
    assert set(found.functions) == {"default/f", "default/h"}
    assert (found.spoiled, len(found.nodes), len(found.lives.names)) == (1, 4, 3)


@pytest.mark.parametrize("value", [None, [], [1.0], [1.0, 1e9], [-1.0, 0.0], "n1"])
def test_what_cannot_be_of_a_node_spoils_only_that(value: Any) -> None:
    found = read(spoiled(lambda body: _set(body, ("nodes", "n1"), value)))
    assert (set(found.nodes), found.spoiled) == ({"n0", "n2", "n3"}, 1)


@pytest.mark.parametrize("value", [None, [0.0] * 40, [-1.0], [1e12], ["x"], 3])
def test_what_cannot_be_of_a_lifetime_spoils_only_its_application(value: Any) -> None:
    found = read(spoiled(lambda body: _set(body, ("lifetimes", "applications", 0, 1), value)))
    assert (len(found.lives.names), found.spoiled, len(found.functions)) == (2, 1, 3)


def test_a_pool_that_cannot_be_is_what_its_applications_add_up_to() -> None:
    found = read(spoiled(lambda body: _set(body, ("lifetimes", "all", 0), [-5.0])))
    np.testing.assert_allclose(found.lives.at_risk[0], found.lives.at_risk[1:].sum(axis=0))
    assert found.lives.at_risk[0].sum() > 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no json",
        b"[]",
        b"{}",
        b'{"format":"tiphys.io/learned-placement/9","sha256":"","learned":{}}',
        b'{"format":"tiphys.io/learned-placement/1","sha256":"","learned":{}}',
        b"[" * (5 * MAX_BYTES),
    ],
)
def test_another_document_is_refused_in_one_word(content: bytes) -> None:
    with pytest.raises(InvalidInput, match="learned"):
        read(content)


def test_a_bit_that_fell_over_is_noticed() -> None:
    content = document(learned_of(experienced(), 0.0)).content
    at = content.index(b"default/f")
    with pytest.raises(InvalidInput, match="as it was written"):
        read(content[:at] + b"default/x" + content[at + 9 :])


def test_a_clock_that_was_set_back_lets_nothing_count_more() -> None:
    before = experienced()
    after = PlacementState()
    recall(after, learned_of(before, LATER_S), 0.0)
    index = after.functions.working("default/f").index
    assert after.beliefs.learned.rows[index, STARTS] == before.beliefs.learned.rows[before.functions.working("default/f").index, STARTS]
    after.lives.gone("default/f", 1.0)
    assert np.isfinite(after.lives.kept().at_risk).all()
    assert math.isclose(after.lives.kept().at_risk[0, 0], before.lives.kept().at_risk[0, 0], rel_tol=1e-3)


def test_a_profile_that_was_learned_elsewhere_counts_as_declared_until_somebody_declares_one() -> None:
    state = nodes_only()
    state.functions.publish({"default/f": np.array([5.0, 1.0, 2.0, 4.0])})
    bind(state, "first", "n0", "default/f", 0.0)
    row = state.functions.working("default/f").index
    learned = state.beliefs.learned
    assert (learned.is_known(row), learned.is_measured(row)) == (True, True)
    np.testing.assert_allclose(learned.believed_of(row), [5.0, 1.0, 2.0, 4.0])
    state.put_profiles({"default/f": FunctionProfile(0.5, 5.5, 1.0, 1.0, 2.0)})
    assert learned.believed_of(row)[3] == 2.0
    state.put_profiles({})
    state.functions.publish({})
    bind(state, "other", "n0", "default/g", 0.0)
    assert not learned.is_known(state.functions.working("default/g").index)


def test_a_profile_that_was_learned_elsewhere_is_taken_back() -> None:
    state = nodes_only()
    bind(state, "first", "n0", "default/f", 0.0)
    row = state.functions.working("default/f").index
    state.functions.publish({"default/f": np.array([5.0, 1.0, 2.0, 4.0])})
    assert state.beliefs.learned.is_known(row)
    state.functions.publish({})
    assert not state.beliefs.learned.is_known(row)
