"""Names that nobody answers for: Prometheus' and those of other access sites' binders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dead_names import DEAD, dead_names
from tests.extender.harness import Extender
from tests.extender.streams.builders import Binder
from tiphys_extender.placement.readings import PrometheusReadings
from tiphys_extender.streams import others as module
from tiphys_extender.streams.others import OtherBinders
from tiphys_models.base.clock import SystemClock
from tiphys_models.kube.prometheus import PrometheusClient
from tiphys_models.serving.bearer import BearerTokens
from tiphys_models.serving.certificates import TrustedAuthority


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    with dead_names(monkeypatch) as names:
        yield names


async def threads_are_free() -> None:
    """Decisions are written, models read and answers parsed in these."""
    async with asyncio.timeout(1):
        await asyncio.gather(*(asyncio.to_thread(lambda: None) for _ in range(8)))


async def test_while_nobody_answers_for_the_name_of_prometheus_pods_are_placed_at_once(asked: list[str]) -> None:
    extender = Extender(nodes=3, clock=SystemClock())
    async with PrometheusClient(f"http://prometheus{DEAD}:9090", window_s=5, timeout_s=0.05) as client:
        readings = PrometheusReadings(client, extender.state, extender.metrics, extender.clock, 5.0)
        polling = asyncio.create_task(readings.poll())
        while not asked:  # noqa: ASYNC110 - told by threads
            await asyncio.sleep(0.01)
        since_s = time.monotonic()
        assert max(extender.ask("u").values()) == 10
        assert time.monotonic() - since_s < 1.0
        await threads_are_free()
        async with asyncio.timeout(5):
            await polling
    assert len(asked) == 1, "one lookup, however many queries"
    assert extender.counted("readings_errors_total", reason="unavailable") == 1


async def test_binders_whose_names_nobody_answers_for_are_silent_and_nothing_waits_for_them(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.2)
    (tmp_path / "token").write_text("the-token-of-the-status-pages")
    binder = Binder(policy="closest")
    urls = [f"http://site-{number}{DEAD}:8080" for number in range(20)]
    others = OtherBinders(binder.streams, urls, BearerTokens("", tmp_path / "token"), TrustedAuthority(None))
    async with others.session() as session:
        for _ in range(3):
            since_s = time.monotonic()
            await others.round(session)
            assert time.monotonic() - since_s < 3.0, "one after the other they would take 4 s"
        await threads_are_free()
        assert binder.bind(rateQps=15, maxDelayMs=200, minAccuracy=20)["site"] == "edge"
    assert len(asked) == len(set(asked)) == 20
