"""One node of the simulated cluster against closed forms of processor sharing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiphys_models.placement.sim.functions import FUNCTIONS, MIB, FunctionModel
from tiphys_models.placement.sim.invoker import CallStep, Event, Invoker, InvokerRules, core_shares

GIB = 1024 * MIB


def function(
    name: str = "f", memory_mib: int = 256, cold_s: float = 5.0, warm_s: float = 2.0, init_s: float = 1.0, cores: int = 1
) -> FunctionModel:
    return FunctionModel(name, memory_mib, cold_s, warm_s, init_s, cores, 1, 1, 1, 1)


def node(cores: int = 4, memory_bytes: int = 4 * GIB, keep_alive_s: float = 600.0, reuse: bool = True) -> Invoker:
    return Invoker(cores, memory_bytes, 0.0, InvokerRules(keep_alive_s, reuse))


def finish_times(runtime: Invoker, until_s: float = 1e6) -> dict[str, float]:
    return ends_of(runtime.advance(until_s))


def ends_of(events: list[Event]) -> dict[str, float]:
    return {event.call: event.at_s for event in events if event.step is CallStep.DONE}


def test_a_call_alone_takes_its_cold_time_and_the_next_one_its_warm_time() -> None:
    for profile in FUNCTIONS:
        runtime = node(cores=8)
        runtime.submit("first", profile, 0.0)
        first = runtime.advance(100.0)
        assert [(event.call, event.step, event.cold) for event in first] == [
            ("first", CallStep.READY, True),
            ("first", CallStep.DONE, True),
        ]
        assert [event.at_s for event in first] == pytest.approx([profile.init_s, profile.cold_s])
        second = runtime.submit("second", profile, 100.0) + runtime.advance(200.0)
        assert [(event.step, event.cold) for event in second] == [(CallStep.READY, False), (CallStep.DONE, False)]
        assert [event.at_s for event in second] == pytest.approx([100.0, 100.0 + profile.warm_s])


def test_the_work_reproduces_the_cpu_seconds_of_the_paper() -> None:
    warm = sum(profile.warm_work_core_s for profile in FUNCTIONS) / len(FUNCTIONS)
    cold = sum(profile.cold_s * profile.parallelism for profile in FUNCTIONS) / len(FUNCTIONS)
    assert warm == pytest.approx(8.7, abs=0.1)
    assert cold == pytest.approx(20.4, abs=0.1)


def test_equal_calls_share_the_cores_equally() -> None:
    # Three calls of 4 core-seconds that could use four cores each, on two cores: each has 2/3 of a core, 12 core-seconds take 6 s.
    runtime = node(cores=2)
    for call in ("a", "b", "c"):
        runtime.submit(call, function(cold_s=2.0, init_s=1.0, cores=4), 0.0)
    assert finish_times(runtime) == pytest.approx({"a": 7.0, "b": 7.0, "c": 7.0})


def test_calls_on_few_cores_use_no_more_than_there_are() -> None:
    runtime = node(cores=2)
    runtime.submit("a", function(cold_s=5.0, init_s=1.0, cores=8), 0.0)  # 32 core-seconds
    assert finish_times(runtime)["a"] == pytest.approx(1 + 32 / 2)


def test_shares_are_by_memory_until_a_call_cannot_use_its_share() -> None:
    assert core_shares(6.0, [(512, 8), (256, 8)]) == pytest.approx([4.0, 2.0])
    assert core_shares(6.0, [(512, 1), (256, 8)]) == pytest.approx([1.0, 5.0])  # what the first leaves, the second takes
    assert core_shares(6.0, [(512, 1), (256, 2)]) == pytest.approx([1.0, 2.0])  # nobody can use the rest
    assert core_shares(6.0, []) == []


@settings(deadline=None)  # a busy machine is no failure
@given(
    cores=st.integers(1, 64),
    claims=st.lists(st.tuples(st.sampled_from([128.0, 256.0, 512.0, 1024.0]), st.integers(1, 16).map(float)), max_size=20),
)
def test_no_core_idles_while_a_call_could_use_it(cores: int, claims: list[tuple[float, float]]) -> None:
    shares = core_shares(float(cores), claims)
    assert sum(shares) == pytest.approx(min(float(cores), sum(most for _, most in claims)))
    assert all(0 <= share <= most + 1e-9 for share, (_, most) in zip(shares, claims, strict=True))
    # Max-min: whoever gets less than it could use has no smaller share by weight than anybody else.
    hungry = [share / weight for share, (weight, most) in zip(shares, claims, strict=True) if share < most - 1e-6]
    assert all(share / weight <= min(hungry, default=math.inf) + 1e-6 for share, (weight, _) in zip(shares, claims, strict=True))


def test_a_departure_speeds_up_those_who_stay() -> None:
    # Warm work of 2 and 6 core-seconds on one core: together until the short one is done at 4 s, then the other alone until 8 s.
    runtime = node(cores=1)
    short, long = function("short", cold_s=1.0, warm_s=2.0, init_s=1.0), function("long", cold_s=1.0, warm_s=6.0, init_s=1.0)
    runtime.submit("w1", short, 0.0)  # no work after the start: only warms the container
    runtime.submit("w2", long, 0.0)
    runtime.advance(10.0)
    runtime.submit("s", short, 10.0)
    runtime.submit("l", long, 10.0)
    assert finish_times(runtime) == pytest.approx({"s": 14.0, "l": 18.0})


def test_a_start_waits_and_does_not_compute() -> None:
    runtime = node(cores=1)
    runtime.submit("running", function("a", cold_s=11.0, init_s=1.0), 0.0)
    runtime.submit("starting", function("b", cold_s=6.0, init_s=6.0), 0.0)
    assert finish_times(runtime) == pytest.approx({"starting": 6.0, "running": 11.0})
    assert runtime.usage().busy_core_s == pytest.approx(10.0)


def test_memory_is_taken_from_the_containers_that_have_been_idle_longest() -> None:
    runtime = node(memory_bytes=512 * MIB)
    for second, name in enumerate(("old", "young")):
        runtime.submit(name, function(name, cold_s=1.0, init_s=1.0), 10.0 * second)
    runtime.advance(50.0)
    assert runtime.idle_instances() == {"old": 1, "young": 1}
    runtime.submit("third", function("third"), 50.0)
    assert runtime.idle_instances() == {"young": 1}


def test_a_call_without_memory_waits_its_turn_and_nobody_overtakes() -> None:
    runtime = node(cores=8, memory_bytes=768 * MIB)
    runtime.submit("first", function("a", memory_mib=512), 0.0)  # until 5 s
    runtime.submit("large", function("b", memory_mib=512), 1.0)
    runtime.submit("small", function("c", memory_mib=256), 1.0)  # would fit at once
    assert runtime.unfinished == ["first", "large", "small"]
    ended = runtime.advance(100.0)
    assert ends_of(ended) == pytest.approx({"first": 5.0, "large": 10.0, "small": 10.0})
    assert {event.call: event.begun_s for event in ended} == pytest.approx({"first": 0.0, "large": 5.0, "small": 5.0})


def test_idle_containers_leave_after_their_time() -> None:
    runtime = node(keep_alive_s=30.0)
    runtime.submit("a", function(), 0.0)  # until 5 s
    runtime.advance(34.9)
    assert runtime.idle_instances() == {"f": 1}
    runtime.advance(35.0)
    assert runtime.idle_instances() == {}
    assert runtime.usage().memory_bytes == 0


def test_without_reuse_every_call_starts_cold_and_its_container_leaves_with_it() -> None:
    runtime = node(cores=8, reuse=False)
    for start_s in (0.0, 100.0):
        runtime.submit("call", function(), start_s)
        assert finish_times(runtime, start_s + 50.0) == pytest.approx({"call": start_s + 5.0})
    assert (runtime.usage().cold_starts, runtime.usage().memory_bytes, runtime.next_event_s()) == (2, 0, math.inf)


def test_a_call_of_twice_the_work_computes_twice_as_long() -> None:
    runtime = node(cores=8)
    runtime.submit("call", function(), 0.0, noise=2.0)
    assert finish_times(runtime) == pytest.approx({"call": 1.0 + 2 * 4.0})


def test_a_cancelled_call_gives_its_container_up() -> None:
    runtime = node(cores=1)
    runtime.submit("a", function(), 0.0)
    runtime.submit("b", function(), 0.0)
    runtime.cancel("a", 3.0)
    assert finish_times(runtime, 100.0) == pytest.approx({"b": 3.0 + 3.0})  # 1 s start, 2 s at half a core, 3 s alone
    assert runtime.idle_instances() == {"f": 1}
    assert runtime.next_event_s() == pytest.approx(606.0)


@settings(deadline=None)  # a busy machine is no failure
@given(
    calls=st.lists(st.tuples(st.floats(0, 30), st.sampled_from(FUNCTIONS)), min_size=1, max_size=30),
    looks=st.lists(st.floats(0, 60), max_size=20),
)
def test_looking_more_often_changes_nothing(calls: list[tuple[float, FunctionModel]], looks: list[float]) -> None:
    def ends(moments: list[float]) -> tuple[dict[str, float], float]:
        runtime = node(cores=2, memory_bytes=GIB)
        found: dict[str, float] = {}
        events: list[tuple[float, int, FunctionModel | None]] = [(at_s, i, f) for i, (at_s, f) in enumerate(calls)]
        events += [(at_s, -1, None) for at_s in moments]
        for at_s, number, profile in sorted(events, key=lambda event: event[:2]):
            ended = runtime.advance(at_s) if profile is None else runtime.submit(str(number), profile, at_s)
            found |= ends_of(ended)
        found |= finish_times(runtime)
        return found, runtime.usage().busy_core_s

    (once, busy_once), (often, busy_often) = ends([]), ends(looks)
    assert len(once) == len(calls)
    assert often == pytest.approx(once, abs=1e-6)
    assert busy_often == pytest.approx(busy_once)


def test_pulls_of_one_node_come_one_after_the_other_and_a_kept_image_is_there_at_once() -> None:
    rules = InvokerRules(image_mib=400.0, pull_mib_per_s=100.0, images_kept_mib=800.0)
    runtime = Invoker(8, 8 * GIB, 0.0, rules)
    for name in ("f", "g"):
        runtime.submit(name, function(name), 0.0)
    ready = {event.call: event.at_s for event in runtime.advance(100.0) if event.step is CallStep.READY}
    assert ready == pytest.approx({"f": 5.0, "g": 9.0})  # each start takes a second after its pull of four
    runtime.submit("warm", function("f"), 100.0)
    runtime.submit("cold", function("f"), 100.0)
    ready = {event.call: event.at_s for event in runtime.advance(200.0) if event.step is CallStep.READY}
    assert ready["cold"] == pytest.approx(101.0)


def test_the_image_that_was_used_longest_ago_gives_way() -> None:
    runtime = Invoker(8, 300 * MIB, 0.0, InvokerRules(image_mib=400.0, pull_mib_per_s=100.0, images_kept_mib=800.0))
    starts = {}
    for at_s, name in enumerate(("f", "g", "f", "h", "f", "g")):  # memory for one instance: every start is a cold one
        runtime.submit(str(at_s), function(name), 100.0 * at_s)
        events = runtime.advance(100.0 * at_s + 99.0)
        starts[at_s] = next(event.at_s for event in events if event.step is CallStep.READY) - 100.0 * at_s
    assert [starts[k] for k in range(6)] == pytest.approx([5.0, 5.0, 1.0, 5.0, 1.0, 5.0])  # h drove g out, not f
