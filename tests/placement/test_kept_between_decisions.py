"""What decisions look at is kept from one to the next: it must be what would be found anew, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.placement.test_books import MIB, request
from tests.placement.test_patient import busy
from tiphys_models.base.facts import NodeFacts, PodFacts
from tiphys_models.placement.learned_profiles import COLD_WORK, CORES_USED, START_S, WARM_WORK, differences, least_share_left, speeds
from tiphys_models.placement.patient import Estimator
from tiphys_models.placement.placed import CallEnd
from tiphys_models.placement.state import PlacementState


def _pod(uid: str, function: str, node: str, at_s: float) -> PodFacts:
    return PodFacts(uid, "shop", uid, function, node, "tiphys", 0, 256 * MIB, False, False, (), at_s, None)


class Days:
    """Calls that come and end, nodes that come and go, one event after the other."""

    def __init__(self, seed: int) -> None:
        self.state = busy(30, 150, seed=seed)
        self.now_s = 8.0
        self._rng = np.random.default_rng(seed)
        self._open = [f"open-{i}" for i in range(150)]
        self._count = 0

    def pass_by(self) -> None:
        """The next event."""
        rng, state = self._rng, self.state
        self.now_s += 0.05
        self._count += 1
        node, function = f"n{int(rng.integers(33)):04d}", f"shop/{int(rng.integers(14))}"
        match int(rng.integers(6)):
            case 0 | 1 if self._open:
                seen = CallEnd(core_seconds=float(rng.uniform(0.1, 5.0))) if rng.random() < 0.5 else CallEnd()
                state.ran(self._open.pop(int(rng.integers(len(self._open)))), self.now_s, seen)
            case 2 | 3:
                self._open.append(f"new-{self._count}")
                state.bound(_pod(self._open[-1], function, node, self.now_s), self.now_s)
            case 4:
                state.decided(request(f"asked-{self._count}", function), node, self.now_s)
            case _:
                state.drop_node(node)
                state.put_node(NodeFacts(node, int(rng.choice([2000, 8000])), 4096 * MIB, True, "", ()))
        state.tick(self.now_s)

    def asked(self) -> tuple[PlacementState, np.ndarray]:
        """The state and the rows of all its nodes."""
        return self.state, np.array(sorted(self.state.nodes.row_of.values()))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("every", [1, 7, 40])
def test_threads_are_those_of_all_open_calls_however_many_came_and_went(seed: int, every: int) -> None:
    days = Days(seed)
    for i in range(240):
        days.pass_by()
        if i % every:
            continue
        state, rows = days.asked()
        b = state.view(request("asks", "shop/3"), rows).believed()
        there = b.open_row >= 0
        wanted = np.bincount(b.open_row[there], b.profiles[b.open_function[there], CORES_USED], len(b.node_cores))
        np.testing.assert_array_equal(b.threads(), wanted)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_of_functions_and_nodes_follows_from_what_was_learned(seed: int) -> None:
    days = Days(seed)
    for _ in range(200):
        days.pass_by()
        state, rows = days.asked()
        learned = state.beliefs.learned
        b = state.view(request("asks", "shop/3"), rows).believed()
        np.testing.assert_array_equal(b.cores_used, b.profiles[:, CORES_USED])
        np.testing.assert_array_equal(b.alone_start_s[1::2], b.profiles[:, START_S])
        np.testing.assert_array_equal(b.alone_start_s[::2], 0.0)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(b.alone_run_s[::2], b.profiles[:, WARM_WORK] / b.profiles[:, CORES_USED])
            np.testing.assert_array_equal(b.alone_run_s[1::2], b.profiles[:, COLD_WORK] / b.profiles[:, CORES_USED])
        assert b.least_share == least_share_left(learned.rows)


@pytest.mark.parametrize("seed", range(3))
def test_who_is_warm_where_is_what_the_lists_of_nodes_say(seed: int) -> None:
    days = Days(seed)
    for _ in range(200):
        days.pass_by()
        state, rows = days.asked()
        for function in ("shop/1", "shop/12"):
            warm = state.beliefs.books.warm(function, rows)
            assert warm.tolist() == [function in state.beliefs.books.counts(row) for row in rows.tolist()]


def test_instances_go_at_their_time_although_nobody_looks_at_all_nodes_each_time() -> None:
    state = busy(5, 0)
    books = state.beliefs.books
    before = len(books)
    books.expire(600.9)  # the first became idle after 1.0
    assert len(books) == before
    oldest_s = min(entry.since_s for row in range(5) for entry in books.entries(row))
    books.expire(oldest_s + 600.0 + 1e-6)
    assert len(books) == before - 1
    books.expire(603.0)
    assert len(books) == 0


def test_a_few_nodes_are_as_fast_as_they_are_among_all() -> None:
    rng = np.random.default_rng(4)
    nodes, functions = np.zeros((300, 2)), np.zeros((8, 10))
    nodes[:200, 0] = rng.uniform(4.0, 90.0, 200)
    nodes[:200, 1] = nodes[:200, 0] * rng.choice([-0.4, 0.0, 0.4], 200)
    functions[:, 8], functions[:, 9] = 20.0, 1.0
    between = differences(nodes, functions)
    everywhere, asked = speeds(nodes, between), rng.permutation(300)[:37]
    assert (everywhere[:200] > 1.1).any()
    assert (everywhere[:200] < 0.9).any()
    assert (everywhere[200:] == 1.0).all()
    np.testing.assert_array_equal(speeds(nodes[asked], between), everywhere[asked])


@pytest.mark.parametrize("seed", range(3))
def test_a_state_that_was_asked_all_along_answers_as_one_that_is_asked_for_the_first_time(seed: int) -> None:
    watched, fresh = Days(seed), Days(seed)
    policy = Estimator()
    for _ in range(300):
        watched.pass_by()
        fresh.pass_by()
        state, rows = watched.asked()
        policy.score(state.view(request("asks", "shop/5"), rows), state.memory())
    answers = []
    for state, rows in (watched.asked(), fresh.asked()):
        view = state.view(request("asks", "shop/5"), rows)
        answers.append(policy.score(view, state.memory()))
    np.testing.assert_array_equal(answers[0], answers[1])
