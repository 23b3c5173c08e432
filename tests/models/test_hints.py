"""What we wrote is told from what users wrote, and only ours is ever changed."""

from __future__ import annotations

import pytest

from tiphys_models.base.facts import DO_NOT_DISRUPT
from tiphys_models.placement.hints import DELETION_COST, MARK, Hint, changes, marked, standing

DND, COST = Hint.DO_NOT_DISRUPT, Hint.DELETION_COST


def test_a_hint_is_written_with_a_mark_that_names_it() -> None:
    assert changes({}, {DND: "95s"}) == {DO_NOT_DISRUPT: "95s", MARK: "doNotDisrupt=95s"}
    assert changes({}, {DND: "95s", COST: "13"}) == {
        DO_NOT_DISRUPT: "95s",
        DELETION_COST: "13",
        MARK: "deletionCost=13,doNotDisrupt=95s",
    }


def test_what_stands_is_not_written_again_and_another_value_is() -> None:
    there = {DELETION_COST: "13", MARK: "deletionCost=13"}
    assert changes(there, {COST: "13"}) == {}
    assert changes(there, {COST: "10"}) == {DELETION_COST: "10", MARK: "deletionCost=10"}
    assert standing(there) == {COST: "13"}


@pytest.mark.parametrize("value", ["true", "false", "1h", ""])
def test_what_a_user_wrote_stays(value: str) -> None:
    assert changes({DO_NOT_DISRUPT: value}, {DND: "95s"}) == {}
    assert changes({DO_NOT_DISRUPT: value}, {}) == {}
    assert changes({DO_NOT_DISRUPT: value}, {DND: "95s", COST: "1"}) == {DELETION_COST: "1", MARK: "deletionCost=1"}


def test_what_a_user_made_of_ours_is_the_users() -> None:
    changed = {DO_NOT_DISRUPT: "true", MARK: "doNotDisrupt=95s"}
    taken_off = {MARK: "doNotDisrupt=95s"}
    for there in (changed, taken_off):
        assert changes(there, {DND: "95s"}) == {}
        assert standing(there) == {}
        assert changes(there, {}) == {MARK: None}, "nobody wants it any more: the mark goes, and nothing else"


def test_what_nobody_wants_any_more_is_taken_off() -> None:
    both = {DO_NOT_DISRUPT: "95s", DELETION_COST: "13", MARK: "deletionCost=13,doNotDisrupt=95s", "example.com/a": "b"}
    assert changes(both, {}) == {DO_NOT_DISRUPT: None, DELETION_COST: None, MARK: None}
    assert changes(both, {DND: "95s"}) == {DELETION_COST: None, MARK: "doNotDisrupt=95s"}


@pytest.mark.parametrize("mark", ["", "x", "=", "doNotDisrupt", ",,", "a=b,c=d", "doNotDisrupt=1s," * 100])
def test_a_mark_that_we_did_not_write_names_nothing(mark: str) -> None:
    assert marked({MARK: mark, DO_NOT_DISRUPT: "1s"}) == {}
