"""Records of decisions, and the log that keeps them."""

from __future__ import annotations

import orjson
import pytest

from tiphys_models.seats.record import Record, RecordLog, ended, recorded
from tiphys_models.seats.seat import Said, Seat


def record(subject: str, at_s: float = 1.0) -> Record:
    seat: Seat[str, int] = Seat(lambda _: Said(3, "hpa"), lambda _: Said(5, "dqn", "sha"), "Shadow")
    return recorded(
        seat.answer("window"), lambda size: f"{size} pods", at_s=at_s, system="scaling", policy=("ScalingPolicy", "shop", "web"),
        subject=subject, mode="Shadow", detail={"arrivals": 12.5, "queue": None},
    )  # fmt: skip


def test_a_record_tells_who_answered_what_and_what_the_other_would_have_answered() -> None:
    told = record("Deployment/web").as_json()
    assert {key: told[key] for key in ("system", "kind", "namespace", "name", "subject", "mode", "group", "outcome", "reason")} == {
        "system": "scaling", "kind": "ScalingPolicy", "namespace": "shop", "name": "web", "subject": "Deployment/web", "mode": "Shadow",
        "group": "", "outcome": "rule", "reason": "shadow",
    }  # fmt: skip
    assert (told["by"], told["answer"], told["would"], told["ended"]) == ("hpa", "3 pods", "5 pods", "")


def test_a_record_survives_being_written_and_read() -> None:
    log: RecordLog[Record] = RecordLog(10)
    log.append(original := record("a"))
    assert Record.from_json(orjson.loads(orjson.dumps(original.as_json()))) == original


def test_a_full_log_forgets_the_oldest_and_tells_a_late_reader_how_many_it_lost() -> None:
    dropped: list[str] = []
    log: RecordLog[Record] = RecordLog(3, on_drop=lambda old: dropped.append(old.subject))
    for i in range(5):
        log.append(record(f"s{i}"))
    assert dropped == ["s0", "s1"]
    page = log.after(0, 100)
    assert (page["first"], page["last"], page["lost"]) == (3, 5, 2)
    assert [item["seq"] for item in page["items"]] == [3, 4, 5]
    assert log.after(4, 100)["lost"] == 0
    assert [item["seq"] for item in log.after(2, 2)["items"]] == [3, 4]
    assert log.of_subject("s0") == ()


def test_an_empty_log_says_where_it_will_begin() -> None:
    log: RecordLog[Record] = RecordLog(3)
    assert (log.first, log.last, len(log)) == (1, 0, 0)
    assert log.after(0, 10) == {"first": 1, "last": 0, "lost": 0, "items": []}


def test_all_that_is_kept_about_one_subject_is_found_oldest_first() -> None:
    log: RecordLog[Record] = RecordLog(4)
    for i, subject in enumerate("abaab"):
        log.append(record(subject, float(i)))
    assert [kept.at_s for kept in log.of_subject("a")] == [2.0, 3.0]
    assert [kept.at_s for kept in log.newest(2, lambda kept: kept.subject == "b")] == [1.0, 4.0]


def test_how_a_decision_ended_is_added_while_it_is_kept() -> None:
    log: RecordLog[Record] = RecordLog(2)
    first = log.append(record("a"))
    assert ended(log, first, "kept")
    assert log.after(0, 1)["items"][0]["ended"] == "kept"
    log.append(record("b"))
    log.append(record("c"))
    assert not ended(log, first, "kept")
    assert not ended(log, 99, "kept")


def test_a_log_goes_on_after_what_was_restored_and_keeps_no_more_than_it_may() -> None:
    old: RecordLog[Record] = RecordLog(10)
    for subject in "abcd":
        old.append(record(subject))
    log = RecordLog(3, [Record.from_json(item) for item in old.after(0, 10)["items"]])
    assert (log.first, log.last, len(log)) == (2, 4, 3)
    assert log.append(record("e")) == 5
    assert [kept.seq for kept in log.of_subject("e")] == [5]


def test_something_that_is_no_record_is_refused() -> None:
    with pytest.raises(KeyError):
        Record.from_json({"seq": 1})
