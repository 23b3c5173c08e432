"""What a queue-proxy says, as recorded from a real one, and bytes that it never says."""

from __future__ import annotations

import math
import random
import struct

import pytest

from tests.operator.platforms.recorded import POD, metrics, stats
from tiphys_models.base.errors import InvalidInput
from tiphys_operator.platforms.knative import InstanceStats, stats_of


def test_an_instance_is_idle_before_and_after_its_call_and_in_no_second_of_it() -> None:
    said = {moment: stats_of(stats(moment)) for moment in ("idle", "busy", "just-ended", "ended")}
    assert {found.pod for found in said.values()} == {POD}
    assert {moment: found.idle for moment, found in said.items()} == {"idle": True, "busy": False, "just-ended": False, "ended": True}
    assert said["busy"].concurrency == 1
    assert 0 < said["just-ended"].concurrency < 1, "the call took a part of that second"


def test_an_instance_that_has_not_measured_a_whole_second_is_not_called_idle() -> None:
    beginning = stats_of(stats("beginning"))
    assert (beginning.concurrency, beginning.uptime_s, beginning.idle) == (0, 0, False)


def test_what_the_queue_proxy_tells_prometheus_cannot_tell_a_call_in_progress_from_one_that_has_ended() -> None:
    depth = [
        [line.rpartition(" ")[2] for line in metrics(moment) if line.startswith("kn_serving_queue_depth")] for moment in ("busy", "ended")
    ]
    assert depth == [["1"], ["1"]]


@pytest.mark.parametrize("concurrency", [math.nan, math.inf, -1.0, 1e-300])
def test_a_number_that_is_not_zero_is_not_idle(concurrency: float) -> None:
    assert not InstanceStats("p", concurrency, 5.0).idle


def test_fields_of_later_versions_are_skipped() -> None:
    later = b"\x38\xac\x02" + b"\x4d" + struct.pack("<f", 1.0) + b"\x52\x02ab"  # a varint, a float and a text
    assert stats_of(later + stats("idle") + later) == stats_of(stats("idle"))


def test_bytes_that_are_no_statistics_are_refused_and_nothing_else_happens() -> None:
    chance = random.Random(7)
    whole, taken = stats("busy"), 0
    for _ in range(5_000):
        body = bytearray(whole[: chance.randrange(len(whole) + 1)])
        for _ in range(chance.randrange(4)):
            if body:
                body[chance.randrange(len(body))] = chance.randrange(256)
        try:
            taken += bool(stats_of(bytes(body)).pod)
        except InvalidInput:
            continue
    assert 0 < taken < 5_000, "both happen"
    for odd in (b"", b"\x0a", b"\x0b", b"\xff" * 20, b"# TYPE up gauge\nup 1\n", b"\x0a\xff\xff\xff\xff\x0f", b"<html>"):
        with pytest.raises(InvalidInput):
            stats_of(odd)
