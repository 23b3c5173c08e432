"""Models come, go and are swapped; a bad file never takes a good model away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from tests.builders import policy_object
from tests.extender.harness import Extender, untrained
from tiphys_extender.model_store import ModelStore
from tiphys_extender.serve.metrics import Metrics
from tiphys_models.placement.registry import PolicyName


def opened(directory: Path | None, metrics: Metrics | None = None) -> ModelStore:
    store = ModelStore(directory, metrics or Metrics(), 5)
    store.rescan_now()
    return store


def digest(store: ModelStore, name: str = "m") -> str | None:
    policy = store.policy(PolicyName.FAASRANK, name, "Active")
    return policy.digest if policy is not None else None


def change_card(directory: Path, **changes: Any) -> None:
    path = directory / "m.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_weights(directory: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """New weights with a card that fits them, whatever is wrong inside."""
    path = directory / "m.safetensors"
    tensors = load(path.read_bytes())
    change(tensors)
    path.write_bytes(save(tensors))
    change_card(directory, sha256=sha256(path.read_bytes()).hexdigest())


def _nan(tensors: dict[str, Any]) -> None:
    tensors["actor.0.weight"][0, 0] = np.nan


def _wrong_shape(tensors: dict[str, Any]) -> None:
    tensors["actor.0.weight"] = tensors["actor.0.weight"][:20].copy()


def _missing_layer(tensors: dict[str, Any]) -> None:
    del tensors["actor.2.bias"]


def _pickle(directory: Path) -> None:
    # protocol 4 of an object whose loading would write a marker: it must only ever be bytes to us
    marker = directory / "executed"
    payload = b"\x80\x04cos\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
    (directory / "m.safetensors").write_bytes(payload)
    change_card(directory, sha256=sha256(payload).hexdigest())


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "truncated": (lambda d: (d / "m.safetensors").write_bytes((d / "m.safetensors").read_bytes()[:-9]), "DigestMismatch"),
    "bit flipped": (
        lambda d: (d / "m.safetensors").write_bytes((d / "m.safetensors").read_bytes()[:-1] + b"\x7f"), "DigestMismatch",
    ),
    "empty": (lambda d: (d / "m.safetensors").write_bytes(b""), "DigestMismatch"),
    "no weights": (lambda d: (d / "m.safetensors").unlink(), "Missing"),
    "huge": (lambda d: (d / "m.safetensors").write_bytes(b"\0" * (17 * 2**20)), "TooLarge"),
    "card not json": (lambda d: (d / "m.json").write_text("{"), "CardInvalid"),
    "card of nothing": (lambda d: (d / "m.json").write_text("{}"), "CardInvalid"),
    "card with nan": (lambda d: change_card(d, mean=[float("nan")] * 26), "CardInvalid"),
    "scale of zero": (lambda d: change_card(d, scale=[0.0] * 26), "CardInvalid"),
    "another name": (lambda d: change_card(d, name="other"), "CardInvalid"),
    "older features": (lambda d: change_card(d, feature_schema="faasrank-25/9"), "SchemaMismatch"),
    "too few means": (lambda d: change_card(d, mean=[0.0] * 25), "ShapeMismatch"),
    "policy without weights": (lambda d: change_card(d, policy="greedy"), "UnknownPolicy"),
    "policy unheard of": (lambda d: change_card(d, policy="oracle"), "UnknownPolicy"),
    "nan weight": (lambda d: change_weights(d, _nan), "NotFinite"),
    "wrong shape": (lambda d: change_weights(d, _wrong_shape), "ShapeMismatch"),
    "missing layer": (lambda d: change_weights(d, _missing_layer), "ShapeMismatch"),
    "a pickle": (_pickle, "WeightsUnreadable"),
}  # fmt: skip


@pytest.mark.parametrize("kind", list(BAD))
async def test_a_bad_file_is_refused_counted_once_and_leaves_the_last_good_model(tmp_path: Path, kind: str) -> None:
    spoil, reason = BAD[kind]
    good = untrained(tmp_path)
    metrics = Metrics()
    store = opened(tmp_path, metrics)
    spoil(tmp_path)
    for _ in range(3):
        await store.rescan()
    assert digest(store) == good
    assert not (tmp_path / "executed").exists()
    counted = {sample.labels["reason"]: sample.value for m in metrics.registry.collect() if m.name == "tiphys_extender_model_load_failures"
               for sample in m.samples if sample.name.endswith("_total")}  # fmt: skip
    assert {r: n for r, n in counted.items() if n} == {reason: 1}
    (described,) = store.describe()
    assert (described["serves"], described["refused"], described["sha256"]) == (True, reason, good)
    assert reason in described["message"]

    fresh = opened(tmp_path)  # a process that never saw the good one has none
    assert digest(fresh) is None

    better = untrained(tmp_path, seed=1)
    await store.rescan()
    assert digest(store) == better
    assert store.describe()[0]["refused"] == ""


async def test_models_appear_and_disappear_without_a_restart(tmp_path: Path) -> None:
    metrics = Metrics()
    store = opened(tmp_path, metrics)
    assert digest(store) is None
    first = untrained(tmp_path)
    await store.rescan()
    assert digest(store) == first
    labels = {"model": "m", "policy": "faasrank", "sha256": first}
    assert metrics.registry.get_sample_value("tiphys_extender_model_info", labels) == 1
    (tmp_path / "m.json").unlink()
    await store.rescan()
    assert digest(store) is None
    assert metrics.registry.get_sample_value("tiphys_extender_model_info", labels) is None
    assert store.describe() == []


async def test_a_swap_of_the_symlink_of_a_mounted_config_map_is_seen(tmp_path: Path) -> None:
    digests: list[str] = []
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        digests.append(untrained(tmp_path / version, seed=len(digests)))
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "..data").symlink_to(tmp_path / "v1")
    for file in ("m.json", "m.safetensors"):
        (mounted / file).symlink_to(Path("..data") / file)
    store = opened(mounted)
    assert digest(store) == digests[0]
    (mounted / "..data_tmp").symlink_to(tmp_path / "v2")
    (mounted / "..data_tmp").rename(mounted / "..data")
    await store.rescan()
    assert digest(store) == digests[1]


def test_no_directory_is_no_model() -> None:
    assert digest(opened(None)) is None
    assert digest(opened(Path("/does/not/exist"))) is None


async def test_swapping_under_load_fails_no_call_and_every_answer_names_one_model(tmp_path: Path) -> None:
    digests = {untrained(tmp_path, "faasrank", seed=0)}
    extender = Extender(nodes=20, policies=[policy_object(mode="Active", policy="faasrank")], models=tmp_path, capacity=5000)
    extender.read(cpu_load_avg={f"n{i}": i * 0.2 for i in range(20)})

    async def swap() -> None:
        for seed in range(1, 16):
            digests.add(untrained(tmp_path, "faasrank", seed=seed))
            await extender.models.rescan()
            await asyncio.sleep(0.01)

    swapping = asyncio.create_task(swap())
    calls = 0
    while not swapping.done():
        answer = extender.ask(f"u{calls}")
        calls += 1
        assert max(answer.values()) == 10
        assert extender.last["outcome"] == "scored"
        assert extender.last["modelDigest"] in digests
        await asyncio.sleep(0)
    await swapping
    used = {record["modelDigest"] for record in extender.decisions.after(0, 5000)["items"]}
    assert len(used) >= 5
    assert calls > 50
