"""What windows teach of a service in the operator: CPU a request, headroom, delays; what stands in the status, and what is believed of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operator.scaling.harness import Life, Prometheus, World
from tests.operator.scaling.small import NOW_S, measured, pod, policy, window
from tests.operator.scaling.test_decide import Fixed, after, decided
from tests.operator.scaling.test_unwritten import status as status_of_figures
from tiphys_models.api.learned_memory import LearnedMemory
from tiphys_models.api.scaling_reasons import ScalingReason
from tiphys_models.api.scaling_status import ScalingMemory
from tiphys_models.base.quantity import rfc3339
from tiphys_models.scaling.control import Control
from tiphys_models.scaling.headroom import LEAST, MOST, START
from tiphys_models.scaling.registry import make_agent
from tiphys_models.scaling.state import Window
from tiphys_operator.scaling.believed import believed
from tiphys_operator.scaling.learning import Lesson, request_ms, taught
from tiphys_operator.scaling.measured import Measured
from tiphys_operator.scaling.starting import Starts
from tiphys_operator.scaling.unwritten import has_moved, is_news

LATE = 0.5
CONTROL = Control(objective=0.985)


def spec_of(**spec: Any) -> Any:
    return policy(**{"agent": {}} | spec).spec


def windows(count: int, cpu_ms: float = 2.0, late: float = 0.0, begin: int = 0, **changes: Any) -> list[Window]:
    """Windows of a hundred requests a second, one after the other."""
    made = [window(late=late, at_s=NOW_S + 15 * n, **changes) for n in range(begin, begin + count)]
    return [replace(w, used_cpu_m=w.completed / w.length_s * cpu_ms) for w in made]


def lived(found: Iterable[Window], memory: ScalingMemory | None = None, spec: Any = None, **parts: Any) -> ScalingMemory:
    """The memory after these windows, each read as the newest one."""
    memory, seen = memory or ScalingMemory(), list[Window]()
    for w in found:
        seen.append(w)
        memory = read(seen[-20:], memory, spec, **parts)
    return memory


def read(seen: Sequence[Window], memory: ScalingMemory, spec: Any = None, partial: tuple[str, ...] = (), **parts: Any) -> ScalingMemory:
    spec = spec or spec_of()
    rates = parts.pop("rates", tuple(w.arrived / w.length_s for w in seen))
    found = Measured(tuple(seen), doubts=partial)
    known, memory = taught(memory, spec, Lesson(found, rates, seen[-1].at_s + 2, **parts))
    cpu_ms = request_ms(known, spec, memory, seen)
    return memory.model_copy(update={"request_cpu_microseconds": None if cpu_ms is None else round(cpu_ms * 1000)})


def learned(memory: ScalingMemory) -> LearnedMemory:
    assert memory.learned is not None
    return memory.learned


def headroom(memory: ScalingMemory) -> float:
    assert memory.learned is not None
    assert memory.learned.headroom is not None
    return memory.learned.headroom


@pytest.mark.parametrize("late", [0.0, LATE], ids=["in time", "all late"])
def test_after_a_release_the_number_is_right_within_three_windows_also_when_all_are_late(late: float) -> None:
    before = lived(windows(40))
    assert before.request_cpu_microseconds == 2000
    course = [lived(windows(count, 2.4, late, begin=40), before).request_cpu_microseconds for count in range(1, 5)]
    assert course[1:] == [2400] * 3, "two windows to the same side are a release"


def test_thirty_measured_requests_replace_what_was_declared() -> None:
    spec = spec_of(agent={"requestCpuMicroseconds": 1000})
    few = [replace(w, arrived=20.0, completed=20.0, used_cpu_m=20 * 2.0 / 15) for w in windows(2)]
    assert lived(few[:1], spec=spec).request_cpu_microseconds == 1000
    assert lived(few, spec=spec).request_cpu_microseconds == pytest.approx(2000, abs=1)


def test_what_was_measured_holds_when_few_requests_come_again() -> None:
    spec = spec_of(agent={"requestCpuMicroseconds": 1000})
    seldom = [replace(w, arrived=1.0, completed=1.0, used_cpu_m=2.0 / 15) for w in windows(100, begin=20)]
    memory = lived(seldom, lived(windows(20), spec=spec), spec)
    assert learned(memory).requests < 30
    assert memory.request_cpu_microseconds == 2000


def test_what_was_declared_holds_where_cpu_is_never_measured() -> None:
    blind = windows(30, used_cpu_m=None)
    blind = [replace(w, used_cpu_m=None) for w in blind]
    assert lived(blind, spec=spec_of(agent={"requestCpuMicroseconds": 1500})).request_cpu_microseconds == 1500
    assert lived(blind).request_cpu_microseconds is None


def test_requests_that_are_given_up_do_not_make_a_request_cheaper() -> None:
    spec, before = spec_of(), lived(windows(40))
    drowned = lived(windows(20, 0.7, LATE, begin=40), before, spec)
    assert drowned.request_cpu_microseconds == 2000, "they count as completed, and took no CPU"
    assert lived(windows(2, 0.7, begin=40), before, spec).request_cpu_microseconds == 700, "in time, it is a release"
    declared = lived(windows(5, 0.7, LATE), spec=spec_of(agent={"requestCpuMicroseconds": 2000}))
    assert declared.request_cpu_microseconds == 2000
    assert lived(windows(5, 0.7, LATE)).request_cpu_microseconds == 700, "where nobody knows more: at least so much"


def test_partial_windows_teach_nothing_and_do_not_teach_later() -> None:
    before = lived(windows(40), control=CONTROL)
    only = read([*windows(40), *windows(1, 4.0, LATE, begin=40)], before, partial=("no samples of web-1",), control=CONTROL)
    assert (only.request_cpu_microseconds, headroom(only)) == (2000, headroom(before))
    again = read([*windows(40), *windows(1, 4.0, LATE, begin=40)], only, control=CONTROL)
    assert learned(again).requests == learned(before).requests


def test_partial_windows_are_better_than_no_number_at_all() -> None:
    memory = read(windows(3), ScalingMemory(), partial=("Prometheus says: something",))
    assert memory.request_cpu_microseconds == 2000
    assert learned(memory).requests == pytest.approx(windows(1)[0].completed * (1 + 2 ** (-1 / 8))), "of the two before it"


def test_a_restart_takes_the_recent_windows_in_their_order_and_none_twice() -> None:
    all_of_them = windows(30) + windows(10, 2.4, begin=30)
    written = lived(all_of_them[:28], control=CONTROL)
    whole = lived(all_of_them, control=CONTROL)
    heir = read(all_of_them[-20:], written, control=CONTROL)
    assert learned(heir).requests == pytest.approx(learned(whole).requests)
    assert heir.request_cpu_microseconds == whole.request_cpu_microseconds == 2400
    assert headroom(heir) == pytest.approx(headroom(whole))
    assert read(all_of_them[-20:], heir, control=CONTROL) == heir


def test_misses_while_nobody_decided_are_not_lack_of_headroom() -> None:
    written = lived(windows(10), control=CONTROL)
    heir = read([*windows(10), *windows(8, 2.0, LATE, begin=10), *windows(1, begin=18)], written, control=CONTROL)
    assert headroom(heir) < headroom(written)


def test_misses_raise_headroom_and_kept_windows_take_it_back_slowly() -> None:
    calm = lived(windows(10), control=CONTROL)
    assert START * 0.98 < headroom(calm) < START
    missed = lived(windows(1, late=LATE, begin=10), calm, rates=(100.0,) * 11, control=CONTROL)
    assert headroom(missed) / headroom(calm) == pytest.approx(1.07, abs=0.005)
    assert headroom(lived(windows(5, begin=11), missed, rates=(100.0,) * 16, control=CONTROL)) > headroom(calm) * 1.06


def test_a_jump_does_not_raise_headroom() -> None:
    calm = lived(windows(10), control=CONTROL)
    jumped = [replace(w, arrived=w.arrived * 3) for w in windows(3, late=LATE, begin=10)]
    assert headroom(lived([*windows(10), *jumped][10:], calm, rates=(100.0,) * 10 + (300.0,), control=CONTROL)) < headroom(calm)


@pytest.mark.parametrize(
    "parts",
    [{"its_own": lambda _: False}, {"full": True}, {"control": None}, {"control": Control(headroom=False)}],
    ids=["another's sizes", "nothing left to grow", "nobody asks", "switched off"],
)
def test_misses_that_are_not_of_its_headroom_do_not_raise_it(parts: dict[str, Any]) -> None:
    calm = lived(windows(10), control=CONTROL)
    missed = lived(windows(6, late=LATE, begin=10), calm, rates=(100.0,) * 11, **{"control": CONTROL} | parts)
    assert headroom(missed) == headroom(calm)


def test_where_nobody_is_answered_headroom_does_not_grow() -> None:
    calm = lived(windows(10), control=CONTROL)
    down = [replace(w, completed=0.0, late=1.0, used_cpu_m=0.0) for w in windows(6, begin=10)]
    assert headroom(lived(down, calm, rates=(100.0,) * 11, control=CONTROL)) == headroom(calm)


def test_a_first_look_back_says_nothing_of_headroom() -> None:
    assert headroom(read(windows(20, late=LATE), ScalingMemory(), control=CONTROL)) == START


def test_after_hours_that_nobody_measured_sums_count_little_and_headroom_stays() -> None:
    noisy = lived(windows(40), control=CONTROL)
    noisy = noisy.model_copy(update={"learned": learned(noisy).model_copy(update={"headroom": 1.5, "excused": 0.1})})
    later = read(windows(1, 2.1, begin=1000), noisy, control=CONTROL)
    assert later.request_cpu_microseconds == pytest.approx(2100, abs=5)
    assert headroom(later) == pytest.approx(1.5, rel=0.01)
    assert learned(later).excused < 0.01


def test_sums_that_no_windows_like_these_can_come_to_count_no_more_than_theirs() -> None:
    lie = ScalingMemory(learned=LearnedMemory(until=NOW_S - 1, requests=1e15, used_milliseconds=8e15))
    assert lived(windows(3), lie).request_cpu_microseconds == 2000, "two windows to the same side are a release"
    slow = ScalingMemory(learned=LearnedMemory(until=NOW_S - 1, requests=1e15, used_milliseconds=2.1e15))
    assert lived(windows(40), slow).request_cpu_microseconds == pytest.approx(2000, abs=5)


def test_an_end_from_the_future_does_not_end_learning() -> None:
    memory = ScalingMemory(learned=LearnedMemory(until=1e15))
    assert lived(windows(3), memory).request_cpu_microseconds == 2000


FLOATS = st.one_of(st.floats(), st.floats(-10, 10), st.sampled_from([0.0, 1e300, 1e-300, math.nan, math.inf, NOW_S, 30.0, 3000.0, 6000.0]))
LEARNED = st.builds(
    LearnedMemory.model_construct,
    until=FLOATS, measured=st.booleans(), requests=FLOATS, used_milliseconds=FLOATS, variance=st.none() | FLOATS, last_requests=FLOATS,
    last_used_milliseconds=FLOATS, last_off=st.integers(-9, 9), headroom=st.none() | FLOATS, former_headroom=st.lists(FLOATS, max_size=4),
    exempt_windows=st.integers(-(2**60), 2**60), excused=FLOATS, start_seconds=st.none() | FLOATS, lag_seconds=FLOATS,
)  # fmt: skip


@given(LEARNED)
def test_whatever_stands_in_a_status_what_is_learned_from_it_can_be_so(found: LearnedMemory) -> None:
    memory = believed(ScalingMemory.model_construct(**ScalingMemory().__dict__ | {"learned": found}), NOW_S)
    memory = lived(windows(4, 2.0, LATE), memory, control=CONTROL, starts=(3.0,))
    assert memory.request_cpu_microseconds is not None
    assert 1 <= memory.request_cpu_microseconds <= 6e8
    # what was never measured may have come to less
    assert 0.6 <= headroom(memory) <= MOST
    assert 0 <= (learned(memory).start_seconds or 0.0) <= 900
    assert 0 <= learned(memory).lag_seconds <= 3600


@pytest.mark.parametrize("value", [-1.0, 0.0, 0.1, 3.5, 1e9])
def test_an_absurd_headroom_is_not_believed(value: float) -> None:
    memory = believed(ScalingMemory(learned=LearnedMemory(headroom=value, former_headroom=[value])), NOW_S)
    assert (learned(memory).headroom, learned(memory).former_headroom) == (None, [])
    alone = believed(ScalingMemory(learned=LearnedMemory(headroom=value)), NOW_S)
    assert learned(alone).headroom is None
    kept = believed(ScalingMemory(learned=LearnedMemory(headroom=1.4, former_headroom=[1.3], until=5.0)), NOW_S)
    assert (learned(kept).headroom, learned(kept).former_headroom, learned(kept).until) == (1.4, [1.3], 5.0)


def test_agents_that_ask_for_it_see_headroom_and_standing_pods_and_others_do_not() -> None:
    known = LearnedMemory(until=NOW_S - 20, headroom=1.4, start_seconds=40.0)
    seen = policy({"memory": {"learned": known.model_dump(by_alias=True)}}, agent={"kind": "rule+"})
    found = decided(make_agent("rule+"), seen)
    assert found.state is not None
    assert found.state.headroom == pytest.approx(1.4, rel=0.01)
    assert found.state.stands
    assert "headroom 1.4" in found.decision.message
    assert learned(found.memory).start_seconds == 40.0
    plain = decided(Fixed(), seen)
    assert plain.state is not None
    assert (plain.state.headroom, plain.state.stands) == (None, False)
    assert headroom(plain.memory) == 1.4, "kept for whoever asks again"


def test_what_is_learned_is_kept_where_a_window_comes_to_nothing() -> None:
    first = decided(make_agent("rule+"))
    held = decided(make_agent("rule+"), after(first), read=Measured(problem=ScalingReason.PROMETHEUS_UNREACHABLE))
    assert held.held is ScalingReason.PROMETHEUS_UNREACHABLE
    assert held.memory.learned == first.memory.learned


def test_a_recommendation_that_nobody_carries_out_learns_no_headroom() -> None:
    seen, agent = policy(mode="Recommend"), make_agent("rule+")
    for n in range(4):
        now_s = NOW_S + 15 * n
        found = decided(agent, seen, now_s, read=measured(window(late=LATE, at_s=now_s - 5)))
        seen = after(found, mode="Recommend")
    assert headroom(found.memory) == START
    assert found.memory.request_cpu_microseconds == 2000


def starting(name: str, created_s: float, ready_s: float | None) -> Any:
    return replace(pod(name), uid=name, created_s=created_s, ready_s=ready_s, ready=ready_s is not None)


def test_starts_are_taken_from_creation_to_readiness_and_each_once() -> None:
    starts = Starts()
    old = [starting("a", 0, 10), starting("b", 0, 12), starting("flapped", 0, 800), starting("new", 1000, None)]
    assert starts.seen(old) == (12,), "one for all that are ready: some may have been so before"
    assert starts.seen(old) == ()
    assert starts.seen([*old[:3], starting("new", 1000, 1031)]) == (31,)
    assert starts.seen([starting("new", 1000, None)]) == ()
    assert starts.seen([starting("new", 1000, 1500)]) == (), "ready for the second time"
    assert starts.seen([starting("late", 0, 1e6), starting("odd", 50, 20)]) == ()


def test_a_pod_tells_when_it_was_created_and_became_ready() -> None:
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(NOW_S)}]
    made = pod(metadata={"creationTimestamp": rfc3339(NOW_S - 7)}, status={"conditions": conditions})
    assert (made.created_s, made.ready_s) == (NOW_S - 7, NOW_S)
    assert pod(status={"conditions": []}).ready_s is None


def test_headroom_that_moved_is_written_in_time_and_what_moves_with_every_window_is_not() -> None:
    first = {"until": 5.0, "requests": 3000.0, "usedMilliseconds": 6000.0, "headroom": 1.2, "startSeconds": 5.0}
    before = status_of_figures(memory={"learned": first})
    moved = {"headroom": 1.3}, {"startSeconds": 9.0}, {"excused": 0.1}, {"measured": True}
    for change in moved:
        now = status_of_figures(memory={"learned": first | change})
        assert has_moved(before, now)
        assert not is_news(before, now, 0.05)
    calm = status_of_figures(memory={"learned": first | {"until": 20.0, "requests": 2999.0, "headroom": 1.19, "lagSeconds": 3.0}})
    assert not has_moved(before, calm)
    assert is_news(status_of_figures(), before, 0.05)


class Service(Prometheus):
    """Forty requests a second on four pods: 2 ms each, 2.4 after a release, and late ones for a while."""

    release_s = math.inf
    late: tuple[float, float] = (math.inf, math.inf)

    async def ranges(self, promql: str, *_: Any) -> Any:
        found = await super().ranges(promql)
        for row in found["data"]["result"]:
            if row["metric"]["le"] == "0.4":
                self._bend(row, lambda t: 0.5 if self.late[0] < t <= self.late[1] else 1.0)
            elif "cpu_usage" in row["metric"].get("__name__", ""):
                self._bend(row, lambda t: 1.2 if t > self.release_s else 1.0)
        return found

    @staticmethod
    def _bend(row: dict[str, Any], pace: Any) -> None:
        total, last, bent = 0.0, float(row["values"][0][1]), list[list[Any]]()
        for t, value in row["values"]:
            total, last = total + (float(value) - last) * pace(t), float(value)
            bent.append([t, str(total)])
        row["values"] = bent


async def windows_of(world: World, life: Life, count: int) -> None:
    for _ in range(count):
        await life.window()
        world.clock.advance(15)


async def test_rule_plus_serves_a_policy_and_what_it_learned_survives_a_restart() -> None:
    world = World(agent={"kind": "rule+"}, objective={"latencyMilliseconds": 400, "attainmentPercent": 99})
    world.prometheus = service = Service(world.clock)
    life = world.life()
    await windows_of(world, life, 3)
    assert (world.reason("Ready"), world.reason("ModelLoaded")) == ("Active", "ModelNotNeeded")
    assert world.decision["agent"] == "rule+"
    memory = world.status["memory"]
    assert memory["requestCpuMicroseconds"] == 2000
    assert LEAST < memory["learned"]["headroom"] <= START
    now_s = world.clock.now_s()
    service.late = (now_s - 17, now_s - 2)
    await windows_of(world, life, 1)
    raised = world.status["memory"]["learned"]["headroom"]
    assert raised / START == pytest.approx(1.07, abs=0.01)
    heir = world.life()
    await windows_of(world, heir, 1)
    assert heir.running.unwritten.latest(heir.cluster.policies["p"]).status.memory.learned.headroom == pytest.approx(raised, rel=0.01)  # type: ignore[union-attr]
    service.release_s = world.clock.now_s() - 17
    await windows_of(world, heir, 3)
    assert world.status["memory"]["requestCpuMicroseconds"] == pytest.approx(2400, rel=0.01)
    assert world.status["memory"]["learned"]["headroom"] < raised * 1.01, "a release is no lack of headroom"
