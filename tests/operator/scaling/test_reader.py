"""Windows between decisions, and after a restart."""

from __future__ import annotations

import math
from typing import Any, cast

from tests.operator.scaling.small import NOW_S, pod, policy
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.prometheus import AnswerTooLarge, PrometheusClient
from tiphys_operator.scaling.reader import WindowReader

L = 15.0
START = 1_799_999_985.0
"""A multiple of a window."""


class Prometheus:
    """Ten requests a second on one pod; before that, what subqueries say."""

    def __init__(self) -> None:
        self.now_s, self.queries, self.past, self.down = START, list[str](), dict[float, float](), False

    async def ranges(self, promql: str, *_: Any) -> Any:
        self.queries.append(promql)
        if self.down:
            raise Unavailable("refused")
        if promql.startswith("sum(rate("):
            values = [[t, str(v)] for t, v in sorted(self.past.items())]
            return {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": values}] if values else []}}
        times = [START - 400 + 5 * step for step in range(2000) if START - 400 + 5 * step <= self.now_s]
        edges = ("0.4", "+Inf") if "bucket" in promql else ()
        result = [{"metric": {"pod": "web-1", "le": edge}, "values": [[t, str(10.0 * t)] for t in times]} for edge in edges]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def reader() -> WindowReader:
    spec = policy().spec
    assert spec is not None
    return WindowReader(spec, "default", "main")


async def read(own: WindowReader, prometheus: Prometheus) -> Any:
    return await own.read(cast("PrometheusClient", prometheus), [pod("web-1")], prometheus.now_s)


async def test_the_first_look_reads_recent_windows_and_later_ones_add_one_each() -> None:
    prometheus, own = Prometheus(), reader()
    first = await read(own, prometheus)
    assert len(first.windows) == 20
    assert list(own.rates) == [10.0] * 20
    prometheus.now_s += L
    second = await read(own, prometheus)
    assert second.windows[-1].at_s == START + L
    assert list(own.rates) == [10.0] * 21
    assert "[45000ms]" in prometheus.queries[-1], "a later look reaches back one window and a scrape or two"


async def test_without_a_new_sample_there_is_no_new_window() -> None:
    prometheus, own = Prometheus(), reader()
    await read(own, prometheus)
    await read(own, prometheus)
    assert len(own.rates) == 20


async def test_windows_that_nobody_measured_are_gaps_and_not_zeros() -> None:
    prometheus, own = Prometheus(), reader()
    await read(own, prometheus)
    prometheus.now_s += 4 * L
    await read(own, prometheus)
    assert len(own.rates) == 24
    assert [math.isnan(rate) for rate in own.rates[-4:]] == [True, True, True, False]


async def test_hours_before_a_restart_come_from_prometheus_with_their_gaps() -> None:
    prometheus, own = Prometheus(), reader()
    oldest = START - 19 * L
    prometheus.past = {oldest - 3 * L: 70.0, oldest - L: 90.0, oldest: 1.0, START: 2.0}
    await read(own, prometheus)
    assert own.rates[0] == 70.0
    assert math.isnan(own.rates[1])
    assert own.rates[2:] == (90.0, *(10.0,) * 20)


async def test_what_was_measured_stays_when_prometheus_goes() -> None:
    prometheus, own = Prometheus(), reader()
    await read(own, prometheus)
    prometheus.down = True
    gone = await read(own, prometheus)
    assert gone.problem == "PrometheusUnreachable"
    assert len(gone.windows) == 20


async def test_a_pod_that_just_went_is_still_asked_for() -> None:
    prometheus, own = Prometheus(), reader()
    await own.read(cast("PrometheusClient", prometheus), [pod("web-1"), pod("web-2")], NOW_S)
    await own.read(cast("PrometheusClient", prometheus), [pod("web-1")], NOW_S + L)
    assert 'pod=~"web-1|web-2"' in prometheus.queries[-1]
    await own.read(cast("PrometheusClient", prometheus), [pod("web-1")], NOW_S + 4 * L)
    assert 'pod=~"web-1"' in prometheus.queries[-1]


class Crowded(Prometheus):
    """It has more to say about many windows than is read, or about any."""

    def __init__(self, most_ms: int) -> None:
        super().__init__()
        self.most_ms = most_ms

    async def ranges(self, promql: str, *rest: Any) -> Any:
        if "bucket" in promql and not promql.startswith("sum(") and int(promql.rpartition("[")[2].removesuffix("ms]")) > self.most_ms:
            self.queries.append(promql)
            raise AnswerTooLarge("Prometheus sent more than 8 MiB for one query")
        return await super().ranges(promql, *rest)


async def test_a_first_look_at_many_windows_that_is_too_long_becomes_one_at_the_last() -> None:
    found = await read(reader(), Crowded(most_ms=60_000))
    assert (found.problem, len(found.windows)) == (None, 1)


async def test_an_answer_that_is_too_long_holds_with_a_reason_of_its_own() -> None:
    prometheus, own = Crowded(most_ms=60_000), reader()
    await read(own, prometheus)
    prometheus.most_ms = 0
    found = await read(own, prometheus)
    assert (found.problem, len(found.windows)) == ("AnswerTooLarge", 1)
