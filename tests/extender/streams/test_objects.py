"""From watched objects to what is bound."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.binding_corpus import POLICY, SITE, VARIANT
from tests.extender.streams.builders import KEYS, PLATFORM, WANTED, Binder, shipped_models
from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.requests import parse
from tiphys_extender.streams.binder import StreamBinder
from tiphys_extender.streams.chooser import Chooser, Weights
from tiphys_extender.streams.metrics import POLICIES, SITES, VARIANTS, StreamMetrics
from tiphys_extender.streams.objects import StreamObjects, put_file
from tiphys_extender.streams.requests import Wanted
from tiphys_models.api.catalogue import Catalogue
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.errors import InvalidInput

DELAYS = [{"from": "a1", "meanMs": 1}]
WIDE = {"capacityQps": 1000, "delayMs": 5}


def obj(kind: str, name: str, spec: dict[str, Any], status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": "n", "uid": f"{kind}-{name}", **metadata},
        "spec": spec,
        "status": status or {},
    }


def site(name: str, reachable: str = "True") -> dict[str, Any]:
    condition = {"type": "Reachable", "status": reachable, "reason": "Probed", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    return obj("InferenceSite", name, SITE | {"delays": DELAYS, "probe": {"url": "http://a"}}, {"conditions": [condition]})


def policy(name: str = "p", created: str = "2026-01-02T03:04:05Z", **spec: Any) -> dict[str, Any]:
    return obj("StreamPolicy", name, POLICY | {"mode": "Active"} | spec, creationTimestamp=created, generation=4)


def world(binder: Binder) -> StreamObjects:
    objects = StreamObjects(binder.streams, binder.clock)
    for name in ("a1", "b1"):
        objects.sinks[SITES].put(site(name))
        objects.sinks[VARIANTS].put(obj("ModelVariant", f"v-{name}", VARIANT | WIDE | {"site": name}))
    objects.sinks[POLICIES].put(policy())
    uids = {"StreamPolicy-p", *(f"{kind}{name}" for kind in ("InferenceSite-", "ModelVariant-v-") for name in ("a1", "b1"))}
    for sink in objects.sinks.values():
        sink.listed(uids)
    return objects


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_site_that_goes_down_receives_nothing_after_that_one_event() -> None:
    binder = Binder(site="a1")
    objects = world(binder)
    await settled()
    assert {binder.bind()["site"] for _ in range(4)} == {"a1", "b1"}
    objects.sinks[SITES].put(site("b1", "False"))
    await settled()
    assert {binder.bind()["site"] for _ in range(4)} == {"a1"}
    objects.sinks[SITES].drop(site("a1"))
    await settled()
    with pytest.raises(Refused, match="is down"):
        binder.bind()


async def test_while_a_kind_is_not_listed_the_binder_is_not_ready_rather_than_without_offers() -> None:
    clock = ManualClock()
    streams = StreamBinder(
        "a1", "default", lambda: KEYS, Chooser(Weights(shipped_models()).load), StreamMetrics(CollectorRegistry()), clock
    )
    streams.activate(lambda: True, recover=False)
    objects = StreamObjects(streams, clock)
    for kind, seen in ((SITES, site("a1")), (POLICIES, policy())):
        objects.sinks[kind].put(seen)
        objects.sinks[kind].listed({seen["metadata"]["uid"]})
    await settled()
    assert not streams.ready.is_set()
    wanted = parse(Wanted, json.dumps(WANTED).encode())
    with pytest.raises(Refused, check=lambda error: error.reason == "not-ready"):
        streams.bind(PLATFORM, wanted)
    objects.sinks[VARIANTS].put(obj("ModelVariant", "v", VARIANT | WIDE | {"site": "a1"}))
    objects.sinks[VARIANTS].listed({"ModelVariant-v"})
    await settled()
    assert streams.ready.is_set()
    assert streams.bind(PLATFORM, wanted)["site"] == "a1"


async def test_of_two_policies_for_one_access_site_the_older_is_obeyed() -> None:
    binder = Binder(site="a1")
    objects = world(binder)
    objects.sinks[POLICIES].put(policy("older", "2025-01-02T03:04:05Z", policy="farthest"))
    objects.sinks[POLICIES].put(policy("elsewhere", "2024-01-02T03:04:05Z", accessSite="b1"))
    await settled()
    summary = binder.streams.summary()
    assert (summary.policy, summary.active_policy, summary.generation) == ("older", "farthest", 4)
    objects.sinks[POLICIES].listed({"StreamPolicy-p"})
    await settled()
    assert binder.streams.summary().policy == "p"


async def test_a_list_is_compiled_once_and_what_does_not_matter_not_at_all() -> None:
    binder = Binder(site="a1")
    objects = world(binder)
    compiled: list[Catalogue] = []
    publish = binder.streams.publish

    def publish_and_tell(catalogue: Catalogue) -> None:
        compiled.append(catalogue)
        publish(catalogue)

    binder.streams.publish = publish_and_tell  # type: ignore[method-assign]
    await settled()
    assert len(compiled) == 1
    changed = site("a1")
    changed["metadata"]["resourceVersion"] = "77"
    objects.sinks[SITES].put(changed)
    await settled()
    assert len(compiled) == 1


async def test_objects_from_a_file_are_those_of_a_watch(tmp_path: Path) -> None:
    binder = Binder(site="a1")
    objects = StreamObjects(binder.streams, binder.clock)
    path = tmp_path / "objects.json"
    items = [site("a1"), obj("ModelVariant", "v", VARIANT | {"site": "a1"}), policy()]
    path.write_text(json.dumps({"kind": "List", "items": items}))
    put_file(objects, path)
    await settled()
    assert binder.streams.summary().offers == 1
    for content, words in (("[]", "JSON List"), ("{", "JSON List"), ('{"items": [{"kind": "Pod"}]}', "item 0 is no InferenceSite")):
        path.write_text(content)
        with pytest.raises(InvalidInput, match=words):
            put_file(objects, path)
