"""The one store of watched objects: typed, parsed once, and what cannot be read is set aside once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from tests.builders import policy_object
from tiphys_models.api.scheduling_policy import SchedulingPolicyStatus
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.kube.guard import GuardedSink, Troubles, said_without_words
from tiphys_models.kube.kinds import SCHEDULING_POLICIES
from tiphys_models.kube.objects import A_SLICE, ObjectLimits, Objects, SetAside
from tiphys_models.kube.operator_kinds import ALL
from tiphys_models.kube.reflector import Reflector, WatchLimits


def thing(name: str, version: int = 1, uid: str = "", value: Any = 0) -> dict[str, Any]:
    """An object whose spec is a number that `number_of` takes."""
    metadata = {"namespace": "default", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"value": value}}


def number_of(obj: dict[str, Any]) -> int:
    value = obj["spec"]["value"]
    if not isinstance(value, int):
        raise InvalidInput(f"{value!r} is no number")
    return value


class Told:
    """What a store told of."""

    def __init__(self) -> None:
        self.changes: list[tuple[int | None, int | None]] = []
        self.read = 0

    def changed(self, former: int | None, now: int | None) -> None:
        self.changes.append((former, now))

    def reading(self, obj: dict[str, Any]) -> int:
        self.read += 1
        return number_of(obj)


def test_a_change_is_told_with_what_was_there_before() -> None:
    told = Told()
    objects = Objects(told.reading, told.changed)
    objects.put(thing("a", 1, value=5))
    objects.put(thing("a", 2, value=6))
    objects.drop(thing("a", 3))
    assert told.changes == [(None, 5), (5, 6), (6, None)]
    assert len(objects) == 0


def test_a_version_that_was_seen_is_not_parsed_again() -> None:
    told = Told()
    objects = Objects(told.reading, told.changed)
    for _ in range(3):
        objects.put(thing("a", 7, value=5))
    assert told.read == 1


def test_news_that_is_older_than_what_is_known_changes_nothing() -> None:
    objects = Objects(number_of)
    objects.put(thing("a", 10, value=2))
    objects.put(thing("a", 9, value=1))
    assert objects.named("default", "a") == 2


def test_a_write_that_is_answered_after_its_object_has_gone_brings_it_not_back() -> None:
    told = Told()
    objects = Objects(told.reading, told.changed)
    objects.put(thing("a", 1, uid="first", value=5))
    objects.written(thing("a", 2, uid="first", value=6))
    assert objects.named("default", "a") == 6
    objects.drop(thing("a", 3, uid="first"))
    objects.written(thing("a", 3, uid="first", value=7))
    assert len(objects) == 0
    objects.put(thing("a", 4, uid="second", value=8))
    objects.written(thing("a", 3, uid="first", value=7))
    assert (objects.named("default", "a"), len(objects)) == (8, 1)


def test_an_object_that_cannot_be_read_leaves_its_last_good_state_and_says_why() -> None:
    objects = Objects(number_of)
    objects.put(thing("a", 1, value=5))
    with pytest.raises(InvalidInput):
        objects.put(thing("a", 2, value="six"))
    assert objects.get("uid-a") == 5
    assert objects.aside == {"uid-a": SetAside("default/a", "2", "'six' is no number")}


def test_where_the_last_state_must_not_stay_an_unreadable_object_counts_as_gone() -> None:
    told = Told()
    objects = Objects(told.reading, told.changed, keep_last=False)
    objects.put(thing("a", 1, value=5))
    with pytest.raises(InvalidInput):
        objects.put(thing("a", 2, value="six"))
    assert told.changes == [(None, 5), (5, None)]


def test_an_unreadable_version_is_set_aside_once_and_looked_at_again_when_it_changes() -> None:
    told = Told()
    objects = Objects(told.reading, told.changed)
    for _ in range(2):
        with contextlib.suppress(InvalidInput):
            objects.put(thing("a", 2, value="six"))
    assert told.read == 1
    objects.put(thing("a", 3, value=6))
    assert objects.aside == {}
    assert objects.all() == (6,)


def test_a_refused_object_is_passed_to_the_callback_and_raises_nothing() -> None:
    refused: list[SetAside] = []
    objects = Objects(number_of, refused=refused.append)
    objects.put(thing("a", 2, value="six"))
    assert [one.reason for one in refused] == ["'six' is no number"]


def test_an_object_that_was_deleted_and_made_again_is_another_one() -> None:
    told = Told()
    objects = Objects(told.reading, told.changed)
    objects.put(thing("a", 1, uid="first", value=1))
    objects.put(thing("a", 5, uid="second", value=2))
    assert told.changes == [(None, 1), (1, None), (None, 2)]
    objects.drop(thing("a", 6, uid="first"))
    assert objects.named("default", "a") == 2


def test_no_more_objects_are_kept_than_the_limit_and_room_is_found_by_the_next_list() -> None:
    objects = Objects(number_of, refused=lambda _: None, limits=ObjectLimits(objects=2))
    for name in "abc":
        objects.put(thing(name))
    assert len(objects) == 2
    assert "more than 2 objects" in objects.aside["uid-c"].reason
    objects.drop(thing("a"))
    objects.put(thing("c"))
    assert objects.named("default", "c") == 0


def test_no_more_bytes_are_kept_than_the_limit() -> None:
    objects = Objects(lambda obj: str(obj["spec"]["value"]), refused=lambda _: None, limits=ObjectLimits(total_bytes=1000))
    objects.put(thing("a", value="x" * 700))
    objects.put(thing("b", value="x" * 700))
    assert (len(objects), "bytes" in objects.aside["uid-b"].reason) == (1, True)
    objects.put(thing("a", 2, value="y"))
    assert objects.total_bytes < 100


def test_an_object_whose_size_is_hard_to_tell_is_read_all_the_same() -> None:
    objects = Objects(number_of)
    objects.put(thing("a", value=2**70))
    assert objects.named("default", "a") == 2**70
    assert objects.total_bytes > 20


def test_a_list_lets_go_of_what_it_does_not_show_slice_by_slice() -> None:
    objects = Objects(number_of)
    for number in range(2 * A_SLICE + 50):
        objects.put(thing(f"o{number}"))
    assert not objects.complete
    steps = sum(1 for _ in objects.sweep({"uid-o7"}))
    assert (steps, len(objects), objects.complete) == (2, 1, True)


def test_a_guard_counts_every_trip_and_says_each_version_once(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[str] = []
    objects = Objects(number_of)
    guarded = GuardedSink("things", objects, Troubles(counted.append, lambda kind: None))
    with caplog.at_level(logging.WARNING):
        for version in (1, 1, 2):
            guarded.put(thing("a", version, value="secret"))
    assert counted == ["things", "things"]
    assert len([r for r in caplog.records if r.message == "object left out"]) == 2


def test_a_guard_may_leave_out_the_words_of_an_error() -> None:
    with pytest.raises(InvalidInput) as trip:
        raise InvalidInput("hunter2")
    assert "hunter2" not in said_without_words(trip.value)
    assert said_without_words(trip.value).startswith("InvalidInput (test_objects.py:")


def test_a_sweep_that_trips_ends_and_is_counted() -> None:
    def changed(former: int | None, now: int | None) -> None:
        if now is None:
            raise RuntimeError("no")

    counted: list[str] = []
    objects = Objects(number_of, changed)
    guarded = GuardedSink("things", objects, Troubles(counted.append, lambda kind: None))
    guarded.put(thing("a"))
    guarded.listed(set())
    assert counted == ["things"]


def test_an_invalid_spec_has_a_reason_and_an_unreadable_status_is_empty() -> None:
    obj = policy_object(mode="Sideways")
    obj["metadata"] |= {"uid": "u", "resourceVersion": "1", "annotations": {"tiphys.io/paused": "true", "other.io/x": "y"}}
    obj["status"] = {"observedGeneration": "many"}
    seen = SCHEDULING_POLICIES.read(obj)
    assert seen.spec is None
    assert "mode" in seen.invalid
    assert seen.status == SchedulingPolicyStatus()
    assert seen.annotations == {"tiphys.io/paused": "true"}
    with pytest.raises(InvalidInput):
        SCHEDULING_POLICIES.read_valid(obj)


def test_every_kind_has_a_path_of_its_own() -> None:
    assert len({kind.path() for kind in ALL}) == 7
    assert SCHEDULING_POLICIES.path("a") == "/apis/tiphys.io/v1alpha1/namespaces/a/schedulingpolicies"


async def test_what_a_list_does_not_show_goes_while_others_are_let_through() -> None:
    class Listing:
        """An API server whose list is empty, and whose watch brings nothing."""

        async def pages(self, path: str, params: Mapping[str, str] | None = None) -> AsyncGenerator[dict[str, Any], None]:
            yield {"metadata": {"resourceVersion": "7"}, "items": []}

        async def watch(self, path: str, resource_version: str, **_: Any) -> AsyncGenerator[dict[str, Any], None]:
            await asyncio.sleep(60)
            yield {}

    objects = Objects(number_of)
    for number in range(10 * A_SLICE):
        objects.put(thing(f"o{number}"))
    seen: list[int] = []
    reflector = Reflector(Listing(), "/things", GuardedSink("things", objects, Troubles(lambda _: None, lambda _: None)), ManualClock())
    running = asyncio.ensure_future(reflector.run())
    while not reflector.synced.is_set():
        seen.append(len(objects))
        await asyncio.sleep(0)
    running.cancel()
    assert len(set(seen)) >= 9, "others ran between the slices"
    assert len(objects) == 0


def listed(objects: Objects[int], *shown: dict[str, Any]) -> None:
    """A whole list, as a reflector puts it."""
    objects.listing()
    for obj in shown:
        objects.put(obj)
    objects.listed({obj["metadata"]["uid"] for obj in shown})


def test_a_list_is_the_truth_also_where_its_versions_are_lower() -> None:
    """As after a restore of etcd from a backup."""
    told = Told()
    objects = Objects(told.reading, told.changed)
    objects.put(thing("a", 100, value=2))
    objects.put(thing("b", 101, value=3))
    listed(objects, thing("a", 50, value=1))
    assert objects.named("default", "a") == 1
    assert told.changes == [(None, 2), (None, 3), (2, 1), (3, None)]
    objects.put(thing("a", 51, value=4))
    assert objects.named("default", "a") == 4, "the watch goes on from there"
    objects.put(thing("a", 50, value=1))
    assert objects.named("default", "a") == 4, "and what is older in a watch is no news again"


def test_what_was_written_or_asked_for_while_a_list_was_read_is_newer_than_what_the_list_shows() -> None:
    objects = Objects(number_of)
    objects.put(thing("a", 10, value=1))
    objects.listing()
    objects.written(thing("a", 12, value=2))
    objects.answered(thing("b", 13, value=5))
    objects.put(thing("a", 11, value=1))
    objects.put(thing("b", 9, value=4))
    objects.listed({"uid-a", "uid-b"})
    assert objects.all() == (2, 5)


def test_a_write_to_a_restored_server_does_not_keep_the_list_from_being_taken() -> None:
    objects = Objects(number_of)
    objects.put(thing("a", 100, value=1))
    objects.listing()
    objects.written(thing("a", 51, value=2))
    assert objects.named("default", "a") == 1, "an answer is compared: nothing says yet that the server counts anew"
    objects.put(thing("a", 51, value=2))
    objects.listed({"uid-a"})
    assert objects.named("default", "a") == 2


def test_a_list_that_broke_off_leaves_nothing_to_the_next_one() -> None:
    objects = Objects(number_of)
    objects.put(thing("a", 10, value=1))
    objects.listing()
    objects.written(thing("a", 12, value=2))
    listed(objects, thing("a", 9, value=3))
    assert objects.named("default", "a") == 3


class Restored:
    """An API server that was restored from a backup: it counts lower, and a watch from a version that it has not reached is silent."""

    def __init__(self) -> None:
        self.version, self.value, self.lists, self.pages_asked = 100, 2, 0, 0

    async def pages(self, path: str, params: Mapping[str, str] | None = None) -> AsyncGenerator[dict[str, Any], None]:
        self.pages_asked += 1
        yield {"metadata": {"resourceVersion": str(self.version)}, "items": [thing("a", self.version, value=self.value)]}
        self.lists += 1

    async def watch(self, path: str, resource_version: str, **_: Any) -> AsyncGenerator[dict[str, Any], None]:
        told = int(resource_version)
        for _look in range(20):
            if self.version > told:
                told = self.version
                yield {"type": "MODIFIED", "object": thing("a", told, value=self.value)}
            await asyncio.sleep(0)
        raise Unavailable("no whole event within 75 s")


async def test_after_a_restore_a_silent_watch_is_followed_by_a_list_and_news_is_taken_again() -> None:
    server, objects = Restored(), Objects(number_of)
    guarded = GuardedSink("things", objects, Troubles(lambda _: None, lambda _: None))
    limits = WatchLimits(backoff_start_s=0.001, backoff_max_s=0.002)
    running = asyncio.ensure_future(Reflector(server, "/things", guarded, ManualClock(), limits=limits).run())

    async def shown(value: int) -> None:
        async with asyncio.timeout(5):
            while objects.named("default", "a") != value:  # noqa: ASYNC110 - a store has no event
                await asyncio.sleep(0.001)

    try:
        await shown(2)
        asked = server.pages_asked
        async with asyncio.timeout(5):
            while server.pages_asked < asked + 3:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert server.lists == 1, "a silent watch of a sound server costs one page, no list"
        server.version, server.value = 50, 1
        await shown(1)
        server.version, server.value = 51, 3
        await shown(3)
        assert server.lists == 2
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
