"""The operator's decision log: what stands in it, how it is read, and what it costs."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cli.test_explain_targets import invoke, kubeconfig
from tests.cli.test_explain_targets import pages as api_and_pages
from tests.operator.api_server import FakeApiServer
from tests.operator.scaling.harness import World
from tests.operator.selection.harness import Kube, running, selecting, until
from tiphys_models.base.clock import ManualClock
from tiphys_models.kube.leases import Lease, LeaseOptions
from tiphys_models.seats.record import Record
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.records import CAPACITY, Records, make_records
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.status_server import StatusServer


def record(name: str = "web", system: str = "scaling", kind: str = "ScalingPolicy") -> Record:
    return Record(
        at_s=1.0, system=system, kind=kind, namespace="default", name=name, subject=f"Deployment/{name}", mode="Canary",  # type: ignore[arg-type]
        group="treated", outcome="learned", by="combined", answer="2 x 300m", would="2 x 200m",
        detail={"number": 1, "phase": "Done", "from": "2 x 100m", "reasons": ["BestValue"], "message": "200 requests a second"},
    )  # fmt: skip


@dataclass
class Pages:
    url: str
    records: Records

    async def get(self, path: str, token: str = "secret") -> tuple[int, Any]:  # noqa: S107
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with aiohttp.ClientSession() as session, session.get(self.url + path, headers=headers) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.status == 200 else text


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[Pages]:
    from tiphys_operator.runtime.health import Health

    clock, records, token = ManualClock(), make_records(), tmp_path / "token"
    token.write_text("secret\n")
    async with FakeApiServer() as server, server.client() as client:
        health = Health(clock, Lease(client, LeaseOptions("n", "l", "a"), clock), dead_after_s=150)
        async with StatusServer("127.0.0.1", 0, health, OperatorMetrics(), TransitionLog(), token, records=records) as status:
            yield Pages(f"http://127.0.0.1:{status.port}", records)


async def test_decisions_are_read_page_by_page(pages: Pages) -> None:
    for n in range(5):
        pages.records.append(record(f"w{n}"))
    status, page = await pages.get("/decisions?after=1&limit=2")
    assert status == 200
    assert [(item["seq"], item["name"], item["would"]) for item in page["items"]] == [(2, "w1", "2 x 200m"), (3, "w2", "2 x 200m")]
    assert (page["first"], page["last"], page["lost"]) == (1, 5, 0)


async def test_the_command_explains_a_policy_from_these_pages(pages: Pages, tmp_path: Path) -> None:
    kept = record()
    kept.namespace = "shop"
    pages.records.append(kept)
    token = ("--token-file", str(tmp_path / "token"))
    with api_and_pages() as api:
        config = kubeconfig(tmp_path, api)
        arguments = ("scp/web", "-n", "shop", "--kubeconfig", config, "--operator-url", pages.url, *token)
        code, text = await asyncio.to_thread(invoke, *arguments)
    assert code == 0
    assert "combined decided: 2 x 300m; the other one would have said 2 x 200m" in text
    assert "BestValue" in text


async def test_one_object_is_explained_by_its_own_records(pages: Pages) -> None:
    for n in range(300):
        pages.records.append(record(f"w{n % 2}"))
    status, page = await pages.get("/explain/ScalingPolicy/default/w1")
    assert status == 200
    assert {item["name"] for item in page["items"]} == {"w1"}
    assert [item["seq"] for item in page["items"]] == list(range(102, 301, 2))
    assert (await pages.get("/explain/ScalingPolicy/other/w1"))[1]["items"] == []


@pytest.mark.parametrize("path", ["/decisions", "/explain/ScalingPolicy/default/web"])
async def test_nobody_reads_decisions_without_the_token(pages: Pages, path: str) -> None:
    assert [(await pages.get(path, token))[0] for token in ("", "wrong", "secret")] == [401, 401, 200]


@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=1e3", "after=" + "9" * 30])
async def test_a_query_that_means_nothing_is_refused(pages: Pages, query: str) -> None:
    assert (await pages.get(f"/decisions?{query}"))[0] == 400


async def test_a_full_log_forgets_the_oldest_says_so_and_stays_small(pages: Pages) -> None:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for n in range(CAPACITY + 10):
        pages.records.append(record(f"w{n % 300}"))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    _, page = await pages.get("/decisions?after=0&limit=1")
    assert (page["first"], page["lost"]) == (11, 10)
    assert grown < 24 * 2**20


async def test_a_window_is_recorded_with_its_fate_and_then_with_its_end() -> None:
    world = World(
        mode="Canary", canary={"percent": 50, "blockWindows": 2, "washOutWindows": 0}, agent={"kind": "hpa", "requestCpuMicroseconds": 2000}
    )
    life = world.life()
    records = life.runner.records
    for _ in range(12):
        await life.window()
        world.clock.advance(15)
    found = [records.get(seq) for seq in range(1, 13)]
    assert all(one is not None for one in found)
    first, last = found[0], found[-1]
    assert first is not None
    assert last is not None
    assert (first.system, first.kind, first.namespace, first.name, first.subject) == (
        "scaling",
        "ScalingPolicy",
        "default",
        "web",
        "Deployment/web",
    )
    assert first.detail["phase"] == "Done"
    assert first.ended.startswith("objective kept: 0.0% of")
    assert last.ended == ""
    assert {(one.group, one.by, one.outcome) for one in found if one is not None} == {
        ("treated", "hpa", "learned"),
        ("control", "rule", "rule"),
    }
    assert all(one.would for one in found if one is not None)
    shown = life.metrics.render().decode()
    counted = [
        f'tiphys_operator_scaling_answers_total{{group="{g}",outcome="{o}",reason="{r}"}}'
        for g, o, r in (("treated", "learned", ""), ("control", "rule", "control"))
    ]
    lines = dict(line.rsplit(" ", 1) for line in shown.splitlines() if not line.startswith("#"))
    assert sum(float(lines[name]) for name in counted) == 12


async def test_a_window_that_decided_nothing_is_no_record() -> None:
    world = World()
    life = world.life()
    await life.window()
    world.prometheus.down = True
    world.clock.advance(15)
    await life.window()
    (only,) = life.runner.records.newest(10, lambda _: True)
    assert only.ended == "not measured"


async def test_an_interval_is_recorded_with_what_the_other_one_would_have_chosen() -> None:
    metrics = OperatorMetrics()
    policy = selecting(mode="Shadow", among=["cost-lean", "one-per-host"])
    async with running(Kube(), policy, metrics=metrics) as loop:
        await until(lambda: loop._records.last >= 2)
        first = loop._records.get(1)
    assert first is not None
    assert (first.system, first.kind, first.namespace, first.name, first.subject, first.mode) == (
        "selection",
        "SchedulingPolicy",
        "a",
        "p",
        "1",
        "Shadow",
    )
    assert (first.by, first.answer, first.outcome, first.reason) == ("cost-lean", "cost-lean", "rule", "shadow")
    assert first.would in ("cost-lean", "one-per-host")
    assert first.detail["predicted"]
    shown = metrics.render().decode()
    assert 'tiphys_operator_selection_answers_total{group="",outcome="rule",reason="shadow"}' in shown
