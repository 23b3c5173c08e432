from __future__ import annotations

import numpy as np
import pytest

from tiphys_models.base.replay import Replay


def filled(number: int, size: int = 5) -> Replay:
    replay = Replay(size, {"value": ((2,), np.float32), "action": ((), np.int64)})
    for at in range(number):
        replay.add(value=np.full((1, 2), at), action=np.array([at]))
    return replay


@pytest.mark.parametrize("number", [0, 3, 5, 6, 13])
def test_the_newest_rows_are_kept_and_told_from_the_oldest_on(number: int) -> None:
    replay = filled(number)
    assert len(replay) == min(number, 5)
    assert replay.in_order("action").tolist() == list(range(number))[-5:]
    assert replay.in_order("value").shape == (len(replay), 2)


def test_rows_that_come_together_wrap_around_the_end() -> None:
    replay = filled(3)
    replay.add(value=np.zeros((4, 2)), action=np.array([3, 4, 5, 6]))
    assert replay["action"].tolist() == [5, 6, 2, 3, 4]
    assert replay.in_order("action").tolist() == [2, 3, 4, 5, 6]


def test_only_rows_that_came_are_drawn() -> None:
    assert set(filled(3).draw(200, np.random.default_rng(0)).tolist()) == {0, 1, 2}
    assert set(filled(9).draw(200, np.random.default_rng(0)).tolist()) == {0, 1, 2, 3, 4}


def test_what_is_forgotten_is_not_drawn_again() -> None:
    replay = filled(9)
    replay.clear()
    assert len(replay) == 0
    replay.add(value=np.ones((1, 2)), action=np.array([42]))
    assert replay.in_order("action").tolist() == [42]
