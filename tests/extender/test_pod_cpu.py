"""Processor time of pods, from the watch and Prometheus to the policy that learns it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from aiohttp import web

from tests.builders import policy_object
from tests.extender.harness import Extender, pod_json
from tiphys_extender.placement.objects import PodSink
from tiphys_extender.placement.pod_cpu import PodCpu
from tiphys_extender.placement.readings import PrometheusReadings
from tiphys_models.api.reasons import FallbackReason
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.quantity import rfc3339
from tiphys_models.kube.prometheus import PrometheusClient
from tiphys_models.placement.learned_profiles import CORES_USED

Told = dict[str, tuple[float, float]]
"""Core-seconds and age by pod."""


class Scene:
    """An extender, the sink of its watch of pods, and a Prometheus that answers what it is told."""

    def __init__(self, policies: list[dict[str, Any]]) -> None:
        self.clock = ManualClock()
        self.clock.advance(1_000_000.0)
        self.extender = Extender(nodes=4, policies=policies, clock=self.clock)
        self.cpu = PodCpu(self.extender.world, self.extender.metrics)
        self.sink = PodSink(self.extender.world, self.extender.decisions, self.clock, self.cpu)
        self.told: Told = {}
        self.asked: list[str] = []
        self.broken = False

    def answer(self, query: str) -> web.Response:
        if "container_cpu_usage" not in query:
            result: list[dict[str, Any]] = []
        else:
            self.asked.append(query)
            if self.broken:
                return web.Response(status=500)
            result = [
                {"metric": {"namespace": "default", "pod": pod, "quantity": quantity}, "value": [1.0, str(value)]}
                for pod, values in self.told.items()
                for quantity, value in zip(("core_seconds", "age_seconds"), values, strict=True)
            ]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    def start(self, uid: str, node: str = "n3", **status: Any) -> dict[str, Any]:
        """A pod is shown running since now."""
        began = rfc3339(self.clock.now_s())
        running = {"name": "c", "state": {"running": {"startedAt": began}}, **status}
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": began}
        shown = pod_json(
            uid, spec={"nodeName": node}, status={"phase": "Running", "conditions": [scheduled], "containerStatuses": [running]}
        )
        self.sink.put(shown)
        return shown

    async def run(self, uid: str, readings: PrometheusReadings, core_seconds: float, **status: Any) -> None:
        """A pod runs for a hundred seconds; the last reading, of so much, comes after ninety and is ten seconds old."""
        shown = self.start(uid, **status)
        self.clock.advance(90.0)
        self.told = {f"pod-{uid}": (core_seconds, 10.0)}
        await readings.poll()
        self.clock.advance(10.0)
        self.sink.drop(shown)

    def learned(self) -> float:
        return self.extender.counted("pod_cpu_learned_total")

    def unknown(self, reason: str) -> float:
        return self.extender.counted("pod_cpu_unknown_total", reason=reason)


ESTIMATOR = [policy_object("p", mode="Active", policy="estimator")]


@contextlib.asynccontextmanager
async def polling(scene: Scene) -> AsyncGenerator[PrometheusReadings]:
    async def query(request: web.Request) -> web.StreamResponse:
        return scene.answer(str((await request.post())["query"]))

    app = web.Application()
    app.router.add_post("/api/v1/query", query)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made = scene.extender
    try:
        async with PrometheusClient(f"http://127.0.0.1:{runner.addresses[0][1]}", window_s=5) as client:
            yield PrometheusReadings(client, made.state, made.metrics, made.clock, 5.0, pod_cpu=scene.cpu)
    finally:
        await runner.cleanup()


async def test_after_three_pods_with_processor_time_the_estimator_decides() -> None:
    scene = Scene(ESTIMATOR)
    async with polling(scene) as readings:
        for i in range(3):
            await scene.run(f"ended-{i}", readings, core_seconds=160.0)
    scene.extender.ask("next", names=["n0", "n1", "n2", "n3"])
    assert (scene.extender.last["outcome"], scene.extender.last["policyName"]) == ("scored", "estimator")
    assert scene.learned() == 3
    index = scene.extender.state.functions.working("default/f").index
    cores = float(scene.extender.state.beliefs.learned.believed_of(index)[CORES_USED])
    assert cores == pytest.approx(2.0, rel=0.1), "160 core-seconds in the first 80 of 100 seconds"


@pytest.mark.parametrize(
    ("status", "core_seconds", "reason"),
    [
        ({}, -1.0, "no-sample"),
        ({"restartCount": 1}, 160.0, "restarted"),
        ({}, 100_000.0, "implausible"),
        ({"name": "x"}, 1.0, "start-unseen"),
    ],
)
async def test_without_processor_time_the_rule_answers_as_ever_and_the_reason_is_counted(
    status: dict[str, Any], core_seconds: float, reason: str
) -> None:
    scene = Scene(ESTIMATOR)
    async with polling(scene) as readings:
        for i in range(3):
            await scene.run(f"ended-{i}", readings, core_seconds, **status)
    scene.extender.ask("next")
    assert (scene.extender.last["reason"], scene.extender.last["policyName"]) == (FallbackReason.CPU_MISSING, "warm-first-waits")
    assert (scene.learned(), scene.unknown(reason)) == (0, 3)


@pytest.mark.parametrize(
    ("changes", "asks"),
    [
        ({"policy": "estimator", "mode": "Shadow"}, True),
        ({"policy": "estimator-network"}, True),
        ({"policy": "rule-6"}, True),
        ({"objective": "both"}, True),
        ({"policy": "estimator", "mode": "Off"}, False),
        ({"policy": "warm-first"}, False),
        ({"policy": "estimator", "namespace": "elsewhere"}, False),
    ],
    ids=str,
)
async def test_prometheus_is_asked_only_while_an_end_could_teach_somebody(changes: dict[str, Any], asks: bool) -> None:
    scene = Scene([policy_object("p", **{"mode": "Active", **changes})])
    async with polling(scene) as readings:
        await readings.poll()
        assert not scene.asked, "no pod is open"
        shown = scene.start("u")
        await readings.poll()
        assert len(scene.asked) == asks
        scene.sink.drop(shown)
        await readings.poll()
        assert len(scene.asked) == asks
    assert scene.unknown("no-sample") == asks


async def test_a_policy_that_selects_among_such_policies_counts_as_one() -> None:
    select = {"by": "preview", "among": ["estimator", "warm-first"]}
    scene = Scene([policy_object("p", mode="Active", select=select)])
    async with polling(scene) as readings:
        scene.start("u")
        await readings.poll()
    assert len(scene.asked) == 1


async def test_a_pod_that_was_deleted_failed_or_is_no_longer_listed_teaches_nothing_and_is_forgotten() -> None:
    scene = Scene(ESTIMATOR)
    async with polling(scene) as readings:
        for uid, change in (("deleted", {"metadata": {"deletionTimestamp": "now"}}), ("failed", {"status": {"phase": "Failed"}})):
            shown = scene.start(uid)
            await readings.poll()
            scene.sink.drop({**shown, **{part: {**shown[part], **values} for part, values in change.items()}})
        scene.start("lost")
        assert len(scene.cpu.pods) == 1
        scene.sink.listed(set())
        assert len(scene.cpu.pods) == 0
        scene.start("odd")
        with pytest.raises(AttributeError):
            scene.sink.put({**pod_json("odd", spec={"nodeName": "n1"}), "status": ["odd"]})
    assert len(scene.cpu.pods) == 0
    assert scene.learned() == 0


async def test_a_pod_that_is_shown_as_finished_is_learned_from_as_one_that_left_the_list() -> None:
    scene = Scene(ESTIMATOR)
    async with polling(scene) as readings:
        shown = scene.start("u")
        scene.clock.advance(50.0)
        scene.told = {"pod-u": (50.0, 0.0)}
        await readings.poll()
    scene.sink.put({**shown, "status": {**shown["status"], "phase": "Succeeded"}})
    assert scene.learned() == 1
    assert len(scene.cpu.pods) == 0


async def test_a_broken_answer_is_counted_and_the_last_samples_stay() -> None:
    scene = Scene(ESTIMATOR)
    async with polling(scene) as readings:
        shown = scene.start("u")
        scene.clock.advance(50.0)
        scene.told = {"pod-u": (50.0, 0.0)}
        await readings.poll()
        scene.broken = True
        await readings.poll()
    scene.sink.drop(shown)
    assert scene.extender.counted("readings_errors_total", reason="pod-cpu-unavailable") == 1
    assert scene.learned() == 1
