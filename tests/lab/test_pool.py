from __future__ import annotations

import pytest

from tiphys_models.lab.pool import play_all


def _square(cell: int) -> int:
    if cell == 13:
        raise ValueError("unlucky")
    return cell * cell


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_came_of_cells_is_in_the_order_of_the_cells_whoever_played_them(jobs: int) -> None:
    said: list[str] = []
    assert play_all([3, 1, 2], _square, str, said.append, jobs=jobs) == [9, 1, 4]
    assert [line.split(" ")[0] for line in said] == ["1/3", "2/3", "3/3"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_that_cannot_be_played_ends_the_run(jobs: int) -> None:
    with pytest.raises(ValueError, match="unlucky"):
        play_all([1, 13], _square, str, lambda _: None, jobs=jobs)


def test_an_empty_list_of_cells_gives_no_results() -> None:
    assert play_all([], _square, str, lambda _: None) == []
