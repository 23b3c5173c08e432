"""The decision log: bounded, gapless, completed later, and harmless when the disk is not there."""

from __future__ import annotations

import gc
import resource
import signal
import sys
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from tests.builders import policy_object
from tests.extender.harness import Extender
from tiphys_extender.placement.answer import Answerer, AnswerLimits
from tiphys_extender.placement.decision_file import DecisionFile
from tiphys_extender.placement.decisions import DecisionLog, Detail, Record
from tiphys_extender.placement.explain import explain
from tiphys_extender.serve.metrics import Metrics
from tiphys_extender.serve.watchdog import Watchdog
from tiphys_extender.ticker import Ticker
from tiphys_models.placement.schema import FEATURES


def record(uid: str = "u", **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "at_s": 1.0, "uid": uid, "namespace": "default", "pod": f"pod-{uid}", "function": "default/f", "attempt": 1, "outcome": "scored",
        "reason": "", "policy": "default/p", "mode": "Active", "policy_name": "greedy", "model_digest": "", "candidates": 2,
        "top": (("n0", 10, 1.0), ("n1", 9, 0.5)), "duration_ms": 0.2,
    }  # fmt: skip
    return Record(**(fields | changes))


def log(capacity: int = 5, restored: list[Record] | None = None) -> tuple[DecisionLog, Metrics]:
    metrics = Metrics()
    return DecisionLog(capacity, metrics, restored or []), metrics


def test_numbers_go_up_by_one_and_a_late_reader_learns_what_it_lost() -> None:
    decisions, _ = log(capacity=5)
    assert decisions.after(0, 10) == {"first": 1, "last": 0, "lost": 0, "items": []}
    for index in range(12):
        assert decisions.append(record(f"u{index}")) == index + 1
    page = decisions.after(3, 2)
    assert (page["first"], page["last"], page["lost"]) == (8, 12, 4)
    assert [item["seq"] for item in page["items"]] == [8, 9]
    assert [item["seq"] for item in decisions.after(9, 100)["items"]] == [10, 11, 12]
    assert decisions.after(12, 10)["items"] == []
    assert decisions.after(99, 10) == {"first": 8, "last": 12, "lost": 0, "items": []}


@pytest.mark.parametrize(
    ("changes", "seat", "by", "answer", "group"),
    [
        ({"policy_name": "faasrank", "model_digest": "sha"}, "learned", "faasrank", "n0", ""),
        ({}, "rule", "greedy", "n0", ""),
        ({"outcome": "fallback", "reason": "model-missing"}, "fallback", "greedy", "n0", ""),
        ({"outcome": "neutral", "reason": "shadow", "mode": "Shadow"}, "rule", "kube-scheduler", "", ""),
        ({"mode": "Canary"}, "rule", "greedy", "n0", "treated"),
        ({"mode": "Canary", "outcome": "neutral", "reason": "canary", "top": ()}, "rule", "kube-scheduler", "", "control"),
        ({"outcome": "neutral", "reason": "deadline", "top": ()}, "fallback", "kube-scheduler", "", ""),
        ({"outcome": "neutral", "reason": "no-policy", "policy": "", "mode": "", "top": ()}, None, "kube-scheduler", "", ""),
    ],
)
def test_a_decision_says_whose_turn_it_was_as_every_record_does(
    changes: dict[str, Any], seat: str | None, by: str, answer: str, group: str
) -> None:
    told = record("u", **changes).as_json()
    assert (told["seat"], told["by"], told["answer"], told["group"]) == (seat, by, answer, group)
    assert (told["system"], told["kind"], told["subject"], told["ended"]) == ("placement", "SchedulingPolicy", "u", "")
    assert told["name"] == ("p" if told["policy"] else "")


def test_whose_turn_it_was_is_counted_by_group_and_reason() -> None:
    canary = policy_object(mode="Canary", canary={"percent": 50}, policy="faasrank", model="m", fallback="least-connections")
    extender = Extender(nodes=3, policies=[canary])
    for index in range(40):
        extender.ask(f"uid-{index}")
    value = extender.metrics.registry.get_sample_value
    name = "tiphys_extender_placement_answers_total"
    control = value(name, {"outcome": "rule", "group": "control", "reason": "control"}) or 0
    treated = value(name, {"outcome": "fallback", "group": "treated", "reason": "model-missing"}) or 0
    assert control + treated == 40
    assert 10 < control < 30


def test_in_shadow_the_node_that_was_bound_is_compared_with_the_first_choice() -> None:
    extender = Extender(nodes=3, policies=[policy_object(mode="Shadow", policy="least-connections")])
    extender.ask("a")
    extender.ask("b")
    extender.decisions.bound("a", extender.decisions.of_uid("a")[0].would or "")
    extender.decisions.bound("b", "elsewhere")
    value = extender.metrics.registry.get_sample_value
    assert [value("tiphys_extender_placement_compared_total", {"would": would}) for would in ("same", "other", "nothing")] == [1, 1, 0]
    assert value("tiphys_extender_placement_answers_total", {"outcome": "rule", "group": "", "reason": "shadow"}) == 2


def test_a_bind_completes_the_newest_attempt_once() -> None:
    decisions, metrics = log()
    decisions.append(record("a"))
    decisions.append(record("a", attempt=2, top=(("n1", 10, 1.0),)))
    decisions.bound("a", "n1")
    decisions.bound("a", "n1")
    decisions.bound("stranger", "n1")
    assert [r.chosen for r in decisions.of_uid("a")] == [None, "n1"]
    value = metrics.registry.get_sample_value
    assert value("tiphys_extender_choices_total", {"result": "same", "mode": "Active"}) == 1
    assert value("tiphys_extender_choices_total", {"result": "other", "mode": "Active"}) == 0


def test_a_decision_forgotten_before_its_bind_counts_as_unknown() -> None:
    decisions, metrics = log(capacity=1)
    decisions.append(record("a", mode="Shadow", outcome="neutral", reason="shadow"))
    decisions.append(record("b"))
    assert metrics.registry.get_sample_value("tiphys_extender_choices_total", {"result": "unknown", "mode": "Shadow"}) == 1
    assert decisions.of_uid("a") == ()
    assert decisions.of_name("default", "pod-a") == ()


def test_two_pods_of_one_name_are_told_apart() -> None:
    decisions, _ = log(capacity=2)
    decisions.append(record("old", pod="web-0"))
    decisions.append(record("new", pod="web-0"))
    assert [r.uid for r in decisions.of_name("default", "web-0")] == ["new"]
    decisions.append(record("x"))  # 'old' goes; the name still finds 'new'
    assert [r.uid for r in decisions.of_name("default", "web-0")] == ["new"]


def test_records_survive_json(tmp_path: Path) -> None:
    original = record(top=(("n0", 10, None),), chosen="n0", fallback_reason="model-missing", seq=7)
    assert Record.from_json(orjson.loads(orjson.dumps(original.as_json()))) == original


def test_decisions_are_reread_after_a_restart(tmp_path: Path) -> None:
    decisions, _ = log()
    decisions.append(record("a"))
    decisions.append(record("b"))
    file = DecisionFile(tmp_path, 100)
    assert file.write(decisions.take_changes()) == 0
    decisions.bound("a", "n0")
    assert file.write(decisions.take_changes()) == 0
    assert decisions.take_changes() == []
    again, _ = log(restored=DecisionFile(tmp_path, 100).read())
    assert [(r["uid"], r["chosen"]) for r in again.after(0, 10)["items"]] == [("a", "n0"), ("b", None)]
    assert again.append(record("c")) == 3
    assert again.attempts("a") == 1


def test_a_log_cut_in_the_middle_of_a_line_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    file = DecisionFile(tmp_path, 100)
    file.write([record("a", seq=1), record("b", seq=2)])
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(path.read_bytes() + b'{"seq":3,"uid":"c","nam')
    assert [r.uid for r in DecisionFile(tmp_path, 100).read()] == ["a", "b"]
    path.write_bytes(b"\x00\xff\n[]\n7\n" + path.read_bytes())
    assert [r.uid for r in DecisionFile(tmp_path, 100).read()] == ["a", "b"]


def test_what_is_written_behind_a_torn_line_is_read_again(tmp_path: Path) -> None:
    DecisionFile(tmp_path, 100).write([record("a", seq=1), record("b", seq=2)])
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(path.read_bytes() + b'{"seq":3,"uid":"c","nam')  # and there the process was killed
    again = DecisionFile(tmp_path, 100)
    assert len(again.read()) == 2
    again.write([record("c", seq=3)])
    again.write([(3, "n0"), record("d", seq=4)])
    assert [(r.uid, r.chosen) for r in DecisionFile(tmp_path, 100).read()] == [("a", None), ("b", None), ("c", "n0"), ("d", None)]


def test_a_disk_that_fills_up_in_the_middle_of_a_line_costs_what_it_did_not_take(tmp_path: Path) -> None:
    """A limit on the length of files stops a write halfway, as a full disk does."""
    file = DecisionFile(tmp_path, 100)
    assert file.write([record("a", seq=1)]) == 0
    length = (tmp_path / "decisions.jsonl").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (length + 50, hard))
        assert file.write([record("b", seq=2)]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "decisions.jsonl").stat().st_size == length + 50, "half a line is there"
    assert file.write([record("b", seq=2), record("c", seq=3)]) == 0
    assert [r.uid for r in DecisionFile(tmp_path, 100).read()] == ["a", "b", "c"]


def test_a_log_whose_directory_was_emptied_while_it_ran_goes_on(tmp_path: Path) -> None:
    """What is left of an emptyDir that was over its limit, or of a volume that somebody tidied up."""
    file = DecisionFile(tmp_path, 100)
    file.write([record("a", seq=1)])
    for path in tmp_path.iterdir():
        path.unlink()
    assert file.write([record("b", seq=2)]) == 0
    assert [r.uid for r in DecisionFile(tmp_path, 100).read()] == ["b"]


def test_the_files_stay_bounded(tmp_path: Path) -> None:
    file = DecisionFile(tmp_path, 50)
    for seq in range(1, 1001):
        file.write([record(f"u{seq}", seq=seq), (seq, "n0")])
    lines = sum(len(path.read_bytes().splitlines()) for path in tmp_path.iterdir())
    assert lines <= 4 * 50
    kept = DecisionFile(tmp_path, 50).read()
    assert [r.seq for r in kept] == list(range(951, 1001))


@pytest.mark.parametrize("trouble", ["missing directory", "a file in the way", "full"])
async def test_a_disk_that_fails_costs_a_counter_and_no_answer(tmp_path: Path, trouble: str) -> None:
    directory = tmp_path / "log"
    if trouble == "a file in the way":
        directory.write_text("")
    elif trouble == "full":
        directory.mkdir()
        (directory / "decisions.jsonl").symlink_to("/dev/full")
    extender = Extender(nodes=3)
    ticker = Ticker(extender.world, extender.decisions, extender.metrics, extender.models, extender.answerer, Watchdog(1.0), extender.clock)
    ticker.file = DecisionFile(directory, 100)
    for index in range(3):
        assert max(extender.ask(f"u{index}").values()) == 10
    await ticker.flush()
    assert extender.counted("decision_log_dropped_total") == 3
    assert max(extender.ask("after").values()) == 10
    assert extender.decisions.last == 4


def test_explain_shows_scores_features_and_attempts() -> None:
    extender = Extender(nodes=4, policies=[policy_object(mode="Active", policy="least-connections")])
    extender.read(cpu_load_avg={"n2": 4.0})
    extender.ask("a")
    first = extender.last
    extender.ask("a")
    answer = explain(extender.decisions, extender.decisions.of_uid("a"), 0.0)
    assert answer["asked"] is True
    assert [attempt["attempt"] for attempt in answer["attempts"]] == [1, 2]
    assert answer["policyName"] == "least-connections"
    assert len(answer["scores"]) == answer["candidates"] == 4
    assert [entry["score"] for entry in answer["scores"]] == [10, 9, 6, 3]
    assert len(answer["features"]) == 3
    assert set(answer["features"][answer["would"]]) == {feature.name for feature in FEATURES}
    # the features are those the decision saw: of the second attempt, with the reservation of the first
    if first["would"] in answer["features"]:
        assert answer["features"][first["would"]]["inflight"] == 1.0
    assert answer["features"][answer["would"]]["inflight"] == 0.0
    orjson.dumps(answer)


def test_explain_of_a_pod_never_asked_about_says_when_that_happens() -> None:
    decisions, _ = log()
    answer = explain(decisions, decisions.of_name("default", "single"), 12.0)
    assert answer["asked"] is False
    assert "exactly one node" in answer["message"]
    assert answer["since"] == 12.0


def test_memory_of_details_is_bounded() -> None:
    extender = Extender(nodes=3)
    answerer = Answerer(extender.world, extender.decisions, extender.metrics, extender.clock, AnswerLimits(deadline_s=10))
    extender.answerer = answerer
    names = [f"n{i}" for i in range(3)] + [f"unknown-{i}" for i in range(3997)]
    for index in range(60):
        extender.ask(f"u{index}", names)
    assert extender.decisions.detail(60) is not None
    assert extender.decisions.detail(1) is None
    kept = sum(extender.decisions.detail(seq) is not None for seq in range(1, 61))
    assert kept == 25  # 100,000 candidates
    old = explain(extender.decisions, extender.decisions.of_uid("u0"), 0.0)
    assert "scores" not in old
    assert "newest decisions only" in old["message"]


def test_a_kept_decision_is_small_from_the_start_and_no_list_for_the_collector() -> None:
    extender = Extender(nodes=3)
    names = [f"unknown-{i:05d}" for i in range(2997)] + [f"n{i}" for i in range(3)]
    extender.ask("a", names)
    detail = extender.decisions.detail(1)
    assert detail is not None
    assert (detail.names, detail.candidates) == (names, 3000)
    kept = gc.get_referents(detail)
    assert all(len(item) < 10 for item in kept if isinstance(item, list | tuple | dict))
    # a name with its quotes and comma, a place and a score
    assert sum(sys.getsizeof(item) for item in kept) <= sum(len(name) + 3 + 4 + 8 for name in names) + 2000
    shown = explain(extender.decisions, extender.decisions.of_uid("a"), 0.0)["scores"]
    assert sorted(entry["node"] for entry in shown) == sorted(names)
    assert [entry["node"] for entry in shown[:3]] == [names[i] for i in detail.best_first[:3]]


class _Untouchable:
    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"somebody asked for {name}")


async def test_a_tick_looks_at_no_candidate_of_past_decisions() -> None:
    """It runs between two answers: what it does for each candidate of each decision of half a second, the scheduler waits for."""
    extender = Extender(nodes=3)
    ticker = Ticker(extender.world, extender.decisions, extender.metrics, extender.models, extender.answerer, Watchdog(1.0), extender.clock)
    for index in range(20):
        extender.ask(f"u{index}")
    details = extender.decisions._details
    assert len(details) == 20
    details.update(dict.fromkeys(details, cast("Detail", _Untouchable())))
    await ticker.tick()
    assert len(details) == 20
