"""Shares of a Canary."""

from __future__ import annotations

import pytest

from tiphys_models.seats.modes import mode_of
from tiphys_models.seats.shares import block_of, in_share

KNOWN = [f"uid-{i}" for i in (10, 13, 21, 23, 29, 31, 32, 38, 39, 43, 47, 49, 51, 52, 53)]
"""Pods of the first sixty that a canary of 20 % has decided since there are canaries: an upgrade must not change anybody's group."""


def test_a_share_is_about_as_large_as_its_percentage_and_grows_by_adding_units_only() -> None:
    units = [f"pod-{i}" for i in range(4_000)]
    tenth, third = ({unit for unit in units if in_share(unit, percent)} for percent in (10, 33))
    assert 0.08 < len(tenth) / len(units) < 0.12
    assert 0.30 < len(third) / len(units) < 0.36
    assert tenth <= third
    assert not any(in_share(unit, 0) for unit in units)
    assert all(in_share(unit, 100) for unit in units)


def test_the_share_of_a_pod_is_what_canaries_of_placement_have_always_had() -> None:
    assert [unit for unit in (f"uid-{i}" for i in range(60)) if in_share(unit, 20)] == KNOWN


def test_everybody_finds_the_same_block_by_the_wall_clock() -> None:
    at_s = 1_700_000_000.0
    blocks = {block_of("uid", at_s + off_s, 600, 60, 50).number for off_s in range(0, 600, 7)}
    assert len(blocks) <= 2  # a stretch as long as a block touches two at most
    assert block_of("uid", at_s, 600, 60, 50) == block_of("uid", at_s, 600, 60, 50)


def test_blocks_of_one_policy_say_nothing_about_those_of_another() -> None:
    ours, theirs = ([block_of(uid, 60.0 * n, 60, 0, 50).obeys for n in range(400)] for uid in ("ours", "theirs"))
    assert 0.4 < sum(ours) / 400 < 0.6
    assert 0.4 < sum(a == b for a, b in zip(ours, theirs, strict=True)) / 400 < 0.6


def test_only_the_beginning_of_a_block_of_another_group_is_washed_out() -> None:
    changed = next(
        n for n in range(1, 100) if block_of("uid", n * 60.0, 60, 0, 50).obeys != block_of("uid", (n - 1) * 60.0, 60, 0, 50).obeys
    )
    stayed = next(
        n for n in range(1, 100) if block_of("uid", n * 60.0, 60, 0, 50).obeys == block_of("uid", (n - 1) * 60.0, 60, 0, 50).obeys
    )
    assert block_of("uid", changed * 60.0 + 14.9, 60, 15, 50).washing
    assert not block_of("uid", changed * 60.0 + 15.0, 60, 15, 50).washing
    assert not block_of("uid", stayed * 60.0 + 1.0, 60, 15, 50).washing


@pytest.mark.parametrize("percent", [0, 100])
def test_where_all_or_nothing_obeys_no_time_is_washed_out(percent: int) -> None:
    assert not any(block_of("uid", at_s, 60, 60, percent).washing for at_s in range(0, 6_000, 13))


def test_recommend_is_the_older_word_for_shadow_and_unknown_words_are_refused() -> None:
    assert mode_of("Recommend") == "Shadow"
    assert mode_of("Canary") == "Canary"
    with pytest.raises(ValueError, match="'off' is no mode: it must be one of Off, Shadow, Canary, Active"):
        mode_of("off")
