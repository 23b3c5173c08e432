"""LearnedModels reach decisions by watch, and nothing broken ever takes a good model away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.extender.fake_api import FakeApi, fake_api
from tests.extender.harness import Extender, untrained
from tests.extender.streams.builders import spec
from tests.models.test_store import varied
from tests.publications import BROKEN, OWN, published, published_agent
from tiphys_cli.model.publishing import publication
from tiphys_extender.learned_models import LearnedModels
from tiphys_extender.model_store import PLACEMENT_AND_STREAMS, ModelStore
from tiphys_extender.serve.metrics import Metrics
from tiphys_extender.streams.chooser import Chooser, Weights
from tiphys_extender.watches import Watches
from tiphys_models.api.scheduling_policy import Mode
from tiphys_models.artifacts.files import directories
from tiphys_models.artifacts.loaders import load_file
from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.artifacts.store import Source
from tiphys_models.base.clock import SystemClock
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.reflector import WatchLimits
from tiphys_models.placement.registry import PolicyName
from tiphys_models.placement.score_network import load_network

MODELS = f"/apis/tiphys.io/v1alpha1/namespaces/{OWN}/learnedmodels"
CONFIG_MAPS = f"/api/v1/namespaces/{OWN}/configmaps"
QUICK = WatchLimits(stall_s=1.0, backoff_start_s=0.02, backoff_max_s=0.1)
SHIPPED = load_network(WEIGHTS / "faasrank.json").card.sha256

pytestmark = pytest.mark.timeout(20, func_only=True)
"""Real sockets and retries: slow where the machine is busy."""


def serving(store: ModelStore, name: str = "m", mode: Mode = "Active") -> str:
    policy = store.policy(PolicyName.FAASRANK, name, mode)
    return policy.digest if policy is not None else ""


@dataclass
class Running:
    api: FakeApi
    extender: Extender
    watches: Watches
    learned: LearnedModels
    directory: Path

    @property
    def store(self) -> ModelStore:
        return self.extender.models

    async def until(self, what: Callable[[], bool], within_s: float = 3.0) -> None:
        await until(what, within_s)

    def publish(self, name: str = "m", seed: int = 0, stage: str = "active", spoil: Any = None) -> str:
        """Put the bytes, then the object; its digest."""
        config_map, model = published(self.directory, name, seed, stage)
        if spoil is not None:
            spoil(config_map, model)
        self.api.put(f"{CONFIG_MAPS}/{config_map['metadata']['name']}", config_map)
        self.api.put(MODELS, model)
        return str(model["spec"]["sha256"])

    @property
    def described(self) -> dict[str, Any]:
        found = [d for d in self.store.describe() if d["source"] == Source.LEARNED]
        return found[0] if found else {"sha256": "", "refused": "", "stage": ""}


class OneObject(FakeApi):
    """Also answers GETs of single ConfigMaps."""

    def _list(self, request: Any) -> Any:
        if request.path.startswith(f"{CONFIG_MAPS}/"):
            from aiohttp import web

            found = list(self.objects[request.path].values())
            return web.json_response(found[0]) if found else web.json_response({"reason": "NotFound"}, status=404)
        return super()._list(request)


@contextlib.asynccontextmanager
async def running(tmp_path: Path, prepare: Callable[[FakeApi], None] = lambda api: None) -> AsyncGenerator[Running, None]:
    async with fake_api(OneObject()) as (api, access):
        prepare(api)
        extender = Extender(nodes=3, policies=[], clock=SystemClock())
        async with KubeClient(access, request_timeout_s=2) as client:
            learned = LearnedModels(client, extender.models, extender.metrics, OWN, None, retry_s=0.1)
            watches = Watches(client, extender.world, extender.decisions, extender.metrics, extender.clock, "", learned, limits=QUICK)
            tasks = [asyncio.create_task(watches.run()), asyncio.create_task(learned.run())]
            try:
                yield Running(api, extender, watches, learned, tmp_path)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_agent_of_scaling_is_left_to_the_operator(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        config_map, model = published_agent(tmp_path, "m")
        run.api.put(f"{CONFIG_MAPS}/{config_map['metadata']['name']}", config_map)
        run.api.put(MODELS, model)
        first = run.publish("other")
        await run.until(lambda: serving(run.store, "other") == first)
        assert {d["name"] for d in run.store.describe() if d["source"] == Source.LEARNED} == {"other"}


async def test_a_published_model_serves_and_a_new_version_replaces_it_without_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        first = run.publish()
        await run.until(lambda: serving(run.store) == first)
        second = run.publish(seed=1)
        await run.until(lambda: serving(run.store) == second)
        labels = {"model": "m", "policy": "faasrank"}
        assert run.extender.counted("model_info", **labels, sha256=second) == 1
        assert run.extender.metrics.registry.get_sample_value("tiphys_extender_model_info", labels | {"sha256": first}) is None
        run.api.delete(MODELS, OWN, "m")
        await run.until(lambda: serving(run.store) == "")
        assert run.store.describe() == []


@pytest.mark.parametrize("kind", BROKEN)
async def test_broken_bytes_leave_the_last_good_model_and_are_counted_once(tmp_path: Path, kind: str) -> None:
    spoil, reason = BROKEN[kind]
    async with running(tmp_path) as run:
        good = run.publish()
        await run.until(lambda: serving(run.store) == good)
        run.publish(seed=1, spoil=spoil)
        await run.until(lambda: run.described["refused"] == reason)
        await asyncio.sleep(0.3)  # it is tried again meanwhile
        assert serving(run.store) == good
        assert run.extender.counted("model_load_failures_total", reason=reason) == 1
        better = run.publish(seed=2)
        await run.until(lambda: serving(run.store) == better)
        assert run.described["refused"] == ""


async def test_a_config_map_that_comes_late_is_found(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        config_map, model = published(tmp_path)
        run.api.put(MODELS, model)
        await run.until(lambda: run.described["refused"] == "Missing")
        run.api.put(f"{CONFIG_MAPS}/{config_map['metadata']['name']}", config_map)
        await run.until(lambda: serving(run.store) == model["spec"]["sha256"])


async def test_a_stage_counts_at_once_and_its_bytes_are_not_fetched_again(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        digest = run.publish(stage="candidate")
        await run.until(lambda: run.described["sha256"] == digest)
        fetched = len([q for q in run.api.queries if q["path"].startswith(CONFIG_MAPS)])
        for stage, modes in (
            ("shadow", ["Shadow"]),
            ("canary", ["Shadow", "Canary"]),
            ("active", ["Shadow", "Canary", "Active"]),
            ("retired", []),
        ):
            run.publish(stage=stage)
            await run.until(lambda stage=stage: run.described["stage"] == stage)  # type: ignore[misc]
            assert run.described["modes"] == modes
        assert len([q for q in run.api.queries if q["path"].startswith(CONFIG_MAPS)]) == fetched


async def test_an_invalid_spec_leaves_what_was_there(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        good = run.publish()
        await run.until(lambda: serving(run.store) == good)
        run.publish(seed=1, spoil=lambda c, m: m["spec"].update(weights={}))
        await run.until(lambda: run.described["refused"] == "InvalidSpec")
        assert serving(run.store) == good


async def test_an_object_made_anew_inherits_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as run:
        good = run.publish()
        await run.until(lambda: serving(run.store) == good)

        def other(config_map: Any, model: Any) -> None:
            model["metadata"]["uid"] = "another"
            model["spec"]["sha256"] = "0" * 64

        run.publish(seed=1, spoil=other)
        await run.until(lambda: run.described["refused"] == "DigestMismatch")
        assert serving(run.store) == ""


async def test_ready_waits_for_the_models_that_are_there(tmp_path: Path) -> None:
    def before(api: FakeApi) -> None:
        config_map, model = published(tmp_path)
        api.put(f"{CONFIG_MAPS}/{config_map['metadata']['name']}", config_map)
        api.put(MODELS, model)

    async with running(tmp_path, before) as run:
        await run.until(lambda: run.watches.missing == ())
        assert serving(run.store) != ""


@pytest.mark.parametrize("status", [403, 404])
async def test_a_cluster_without_the_kind_or_the_right_is_still_served(tmp_path: Path, status: int) -> None:
    async with running(tmp_path, lambda api: api.faults[MODELS].extend([status] * 1000)) as run:
        await run.until(lambda: run.watches.missing == ())
        assert run.extender.counted("cache_synced", kind="models") == 0


def test_the_shipped_model_serves_every_mode_without_any_file() -> None:
    store = ModelStore(None, Metrics(), 5, directories())
    modes: tuple[Mode, ...] = ("Shadow", "Canary", "Active")
    assert {serving(store, "faasrank", mode) for mode in modes} == {SHIPPED}


def test_without_the_test_bed_a_papers_own_weights_are_nobodys_and_the_default_serves() -> None:
    store = ModelStore(None, Metrics(), 5, (WEIGHTS,))
    assert store.policy("faasrank", "faasrank-paper", "Active") is None, "the fallback answers: model-missing"
    assert serving(store, "faasrank") == SHIPPED


async def test_each_mode_is_served_by_the_strongest_source_that_serves_it(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, Metrics(), 5, directories())
    assert serving(store, "faasrank") == SHIPPED
    mounted = untrained(tmp_path, "faasrank")
    await store.rescan()
    assert serving(store, "faasrank") == mounted
    (tmp_path / "new").mkdir()
    untrained(tmp_path / "new", "n", seed=7)
    loaded = load_file(tmp_path / "new" / "n.json")
    store.store.set_stage("faasrank", "shadow")
    store.store.take(Source.LEARNED, "faasrank", loaded)
    assert (serving(store, "faasrank", "Shadow"), serving(store, "faasrank")) == (loaded.digest, mounted)
    store.store.set_stage("faasrank", "active")
    assert serving(store, "faasrank") == loaded.digest
    store.store.refuse(Source.LEARNED, "faasrank", ArtifactRefused("NotFinite", "x"))
    assert serving(store, "faasrank") == loaded.digest
    assert [(d["source"], d["serves"]) for d in store.describe() if d["name"] == "faasrank"] == [
        ("LearnedModel", True), ("mounted", False), ("shipped", False),
    ]  # fmt: skip
    store.store.forget(Source.LEARNED, "faasrank")
    assert serving(store, "faasrank") == mounted
    (tmp_path / "faasrank.json").unlink()
    await store.rescan()
    assert serving(store, "faasrank") == SHIPPED


async def test_a_config_map_that_trips_the_checks_keeps_no_other_model_from_serving(tmp_path: Path) -> None:
    def spoil(config_map: dict[str, Any], model: dict[str, Any]) -> None:
        config_map["binaryData"] = ["no map at all"]

    async with running(tmp_path) as run:
        run.publish("bad", spoil=spoil)
        await run.until(lambda: run.described["refused"] == "WeightsUnreadable")
        digest = run.publish("good", seed=1)
        await run.until(lambda: serving(run.store, "good") == digest)


@pytest.mark.parametrize("name", ["score", "aset"])
async def test_a_binder_takes_models_of_streams_by_the_same_watch_and_an_extender_leaves_them_alone(tmp_path: Path, name: str) -> None:
    async with fake_api(OneObject()) as (api, access):
        extender = Extender(nodes=3, policies=[], clock=SystemClock())
        extender.models = ModelStore(None, extender.metrics, 5, directories(), PLACEMENT_AND_STREAMS)
        chooser = Chooser(Weights(extender.models.store).load, Weights(extender.models.store).stamp)
        chooser.obey(spec(policy=name), 0.0)
        shipped = chooser.policy

        def publish(version: int, stage: Any) -> None:
            made = publication(varied(WEIGHTS / f"{name}.json", tmp_path / str(version), version), "", OWN, stage)
            api.put(f"{CONFIG_MAPS}/{made.config_map['metadata']['name']}", dict(made.config_map))
            model = {**made.model, "metadata": {**made.model["metadata"], "uid": "uid"}}
            api.put(MODELS, model)

        async with KubeClient(access, request_timeout_s=2) as client:
            learned = LearnedModels(client, extender.models, extender.metrics, OWN, None, retry_s=0.1)
            of_placement = LearnedModels(client, ModelStore(None, Metrics(), 5, directories()), Metrics(), OWN, None, retry_s=0.1)
            watches = Watches(client, extender.world, extender.decisions, extender.metrics, extender.clock, "", learned, limits=QUICK)
            tasks = [asyncio.create_task(watches.run()), asyncio.create_task(learned.run())]
            try:
                publish(1, "candidate")
                await until(lambda: extender.models.store.entry(Source.LEARNED, name) is not None)
                await until(lambda: bool(digests(extender.models, name)))
                chooser.reload_if_changed(1.0)
                assert chooser.policy is shipped
                publish(1, "active")

                def taken() -> bool:
                    chooser.reload_if_changed(2.0)
                    return chooser.policy is not shipped

                await until(taken)
                assert chooser.fallback == ""
                of_placement.put(next(iter(api.objects[MODELS].values())))
                assert await of_placement.load(name) is None
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def digests(models: ModelStore, name: str) -> str:
    entry = models.store.entry(Source.LEARNED, name)
    return entry.loaded.digest if entry is not None and entry.loaded is not None else ""


async def until(what: Callable[[], bool], within_s: float = 5.0) -> None:
    async with asyncio.timeout(within_s):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
