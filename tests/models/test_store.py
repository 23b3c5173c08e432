"""One store for four systems: what is published, mounted and shipped, by stage and digest, and what broken versions leave in place."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from tests.publications import OWN, Object, change_card, change_weights
from tiphys_cli.model.publishing import publication
from tiphys_extender.serve.metrics import MODEL_REFUSALS
from tiphys_models.api.reasons import ModelReason
from tiphys_models.artifacts.card import Card
from tiphys_models.artifacts.directory import scan
from tiphys_models.artifacts.files import Parts, card_of, directories, read_parts
from tiphys_models.artifacts.loaders import LOADERS, REASONS, Loader, load, load_file
from tiphys_models.artifacts.shipped import WEIGHTS, names_of, read_table, shipped
from tiphys_models.artifacts.shipping import cards_in, ship
from tiphys_models.artifacts.store import Mounted, Source, Store
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.errors import ArtifactRefused, InvalidInput, Unavailable
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.learned_models import RETRY_S, ModelFeed

CARDS = sorted(str(path.relative_to(where).with_suffix("")) for where in directories() for path in where.rglob("*.json"))
PUBLISHED = {
    "placement": "faasrank",
    "a planner": "gobi",
    "a forecaster": "lstm-aco",
    "a selector": "metanet",
    "a selector that learns on": "dqn",
    "scaling": "scaling-combined",
    "a stream policy": "score",
    "a stream agent": "aset",
}


class Server:
    """An API server that has ConfigMaps only."""

    def __init__(self) -> None:
        self.maps: dict[str, Object] = {}
        self.error: Exception | None = None

    async def get(self, path: str, params: Any = None, *, accept: str = "") -> Any:
        if self.error is not None:
            raise self.error
        name = path.rpartition("/")[2]
        if name not in self.maps:
            raise ApiError(404, "NotFound", path)
        return self.maps[name]


class Scene:
    """A process that serves one system, and who publishes for it."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self.card = directory, card_of(name)
        loaded = load_file(self.card)
        self.policy, self.system, self.shipped = loaded.policy, loaded.system, loaded.digest
        self.server, self.clock, self.store = Server(), ManualClock(), Store()
        self.store.take_shipped(directories(), names_of(self.system))
        self.feed = ModelFeed(cast("KubeClient", self.server), self.store, OWN, None, {self.system}, clock=self.clock)

    def publish(self, version: int, stage: Any, spoil: Callable[[Object, Object], Any] | None = None) -> str:
        """Put a version under the shipped model's own name; its digest."""
        made = publication(varied(self.card, self.directory / str(version), version), self.card.stem, OWN, stage)
        config_map, model = deepcopy(dict(made.config_map)), deepcopy(dict(made.model))
        model["metadata"] |= {"uid": "uid"}
        if spoil is not None:
            spoil(config_map, model)
        self.server.maps[config_map["metadata"]["name"]] = config_map
        self.feed.put(model)
        return str(model["spec"]["sha256"])

    def served(self, mode: str = "Active") -> str:
        found = self.store.find(self.policy, self.card.stem, mode)
        return found.loaded.digest if found is not None else ""

    def refused(self) -> str:
        """Why the newest version does not serve; empty if it does."""
        entry = self.store.entry(Source.LEARNED, self.card.stem)
        return entry.refusal.reason if entry is not None and entry.refusal is not None else ""

    async def load(self) -> str:
        """Load what was published; the reason of a refusal."""
        try:
            await self.feed.load(self.card.stem)
        except ArtifactRefused as refusal:
            return refusal.reason
        return ""


def varied(card: Path, directory: Path, version: int) -> Path:
    """The same artifact with slightly other weights."""
    directory.mkdir(exist_ok=True)
    arrays = load_tensors(card.with_suffix(".safetensors").read_bytes())
    largest = max(arrays, key=lambda name: (arrays[name].size, name))
    arrays[largest] = arrays[largest] * np.float32(1 + version / 100)
    weights = save_tensors(arrays)
    said = json.loads(card.read_bytes()) | {"sha256": sha256(weights).hexdigest()}
    (directory / card.name).write_text(json.dumps(said))
    (directory / card.name).with_suffix(".safetensors").write_bytes(weights)
    return directory / card.name


@pytest.fixture(params=PUBLISHED)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    return Scene(tmp_path, PUBLISHED[request.param])


def _nan(arrays: dict[str, Any]) -> None:
    next(iter(arrays.values())).flat[0] = np.nan


def _cut(arrays: dict[str, Any]) -> None:
    arrays.pop(next(iter(arrays)))


BROKEN: dict[str, tuple[Callable[[Object, Object], Any], str]] = {
    "other bytes": (lambda c, m: m["spec"].update(sha256="0" * 64), "DigestMismatch"),
    "a weight that is no number": (lambda c, m: change_weights(c, m, _nan), "NotFinite"),
    "an array is missing": (lambda c, m: change_weights(c, m, _cut), "ShapeMismatch"),
    "other inputs": (lambda c, m: change_card(c, feature_schema="other/1"), "SchemaMismatch"),
    "no bytes": (lambda c, m: c["binaryData"].clear(), "Missing"),
    "another system's card": (lambda c, m: change_card(c, policy="score" if m["spec"]["policy"] != "score" else "gobi"), "PolicyMismatch"),
    "a card that claims another system": (lambda c, m: change_card(c, system=other_system(m)), "CardInvalid"),
}


def other_system(model: Object) -> str:
    return "streams" if LOADERS[model["spec"]["policy"]].system != "streams" else "scaling"


async def test_a_candidate_decides_nothing_and_is_used_by_its_digest_once_it_is_promoted(scene: Scene) -> None:
    assert scene.served() == scene.shipped
    first = scene.publish(1, "candidate")
    assert await scene.load() == ""
    assert [scene.served(mode) for mode in ("Shadow", "Canary", "Active")] == [scene.shipped] * 3
    scene.publish(1, "shadow")
    assert [scene.served(mode) for mode in ("Shadow", "Canary", "Active")] == [first, scene.shipped, scene.shipped]
    scene.publish(1, "active")
    assert [scene.served(mode) for mode in ("Shadow", "Canary", "Active")] == [first] * 3
    scene.publish(1, "retired")
    assert scene.served() == scene.shipped


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_newer_version_leaves_the_last_good_one_with_its_reason(scene: Scene, name: str) -> None:
    spoil, reason = BROKEN[name]
    good = scene.publish(1, "active")
    assert await scene.load() == ""
    scene.publish(2, "active", spoil)
    assert await scene.load() == reason
    assert (scene.served(), scene.refused()) == (good, reason)
    better = scene.publish(3, "active")
    assert await scene.load() == ""
    assert (scene.served(), scene.refused()) == (better, "")
    scene.publish(1, "active")
    assert await scene.load() == ""
    assert scene.served() == good, "going back is naming the former one"


async def test_a_published_model_wins_over_a_mounted_one_and_that_over_what_ships(scene: Scene, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    mounted = Mounted(scene.store, volume, {scene.system})
    varied(scene.card, volume, 7)
    mounted.take(*mounted.look())
    on_disk = load_file(volume / scene.card.name).digest
    assert scene.served() == on_disk
    own = scene.publish(1, "shadow")
    await scene.load()
    assert (scene.served("Shadow"), scene.served()) == (own, on_disk)
    scene.publish(1, "active")
    assert scene.served() == own
    scene.feed.drop({"metadata": {"name": scene.card.stem}})
    assert scene.served() == on_disk
    (volume / scene.card.name).unlink()
    mounted.take(*mounted.look())
    assert scene.served() == scene.shipped


async def test_a_volume_that_fails_for_a_while_leaves_what_serves(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(*_: Any) -> Any:
        raise OSError(errno.ESTALE, "Stale file handle")

    mounted = Mounted(scene.store, tmp_path / "volume", {scene.system})
    varied(scene.card, tmp_path / "volume", 7)
    mounted.take(*mounted.look())
    served = scene.served()
    assert served != scene.shipped
    with monkeypatch.context() as patch:
        patch.setattr(Path, "glob", stale)
        mounted.take(*mounted.look())
    assert scene.served() == served
    varied(scene.card, tmp_path / "volume", 8)
    mounted.take(*mounted.look())
    assert scene.served() == load_file(tmp_path / "volume" / scene.card.name).digest != served


async def test_what_could_not_be_read_is_no_refusal_and_what_was_refused_is_remembered_for_a_while(scene: Scene) -> None:
    scene.server.error = Unavailable("no answer")
    scene.publish(1, "active")
    with pytest.raises(Unavailable):
        await scene.load()
    scene.server.error = None
    scene.server.maps.clear()
    assert await scene.load() == "Missing"
    good = scene.publish(1, "active")
    assert await scene.load() == "Missing", "from memory"
    scene.clock.advance(RETRY_S + 1)
    assert await scene.load() == ""
    assert scene.served() == good


async def test_models_of_other_systems_are_left_to_those_who_serve_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "score")
    other = Scene(tmp_path, "gobi")
    scene.feed.put({"metadata": {"name": "gobi", "uid": "u"}, "spec": other_spec(other)})
    assert await scene.feed.load("gobi") is None
    assert scene.store.entry(Source.LEARNED, "gobi") is None
    varied(other.card, tmp_path / "volume", 1)
    (tmp_path / "volume" / "broken.json").write_text("{}")
    mounted = Mounted(scene.store, tmp_path / "volume", {"streams"})
    mounted.take(*mounted.look())
    assert scene.store.entry(Source.MOUNTED, "gobi") is None
    broken = scene.store.entry(Source.MOUNTED, "broken")
    assert broken is not None, "nobody knows whose it is: whoever looks says that it is wrong"


def other_spec(scene: Scene) -> Object:
    return dict(publication(scene.card, "gobi", OWN, "active").model["spec"])


async def test_an_invalid_spec_keeps_what_serves_and_a_valid_one_takes_the_complaint_back(scene: Scene) -> None:
    good = scene.publish(1, "active")
    await scene.load()
    scene.feed.put({"metadata": {"name": scene.card.stem, "uid": "uid"}, "spec": {}})
    assert (scene.served(), scene.refused()) == (good, "InvalidSpec")
    scene.publish(1, "active")
    await scene.load()
    assert (scene.served(), scene.refused()) == (good, "")


@pytest.mark.parametrize("card", CARDS)
def test_every_card_that_was_ever_shipped_is_read(card: str) -> None:
    loaded, line = load_file(card_of(card)), shipped()[card]
    assert (loaded.system, loaded.policy, loaded.digest) == (line.system, line.policy, line.sha256)
    assert loaded.card.origin.seeds, "older cards tell their seeds, too"
    assert type(loaded.card).model_validate_json(loaded.card.as_json()) == loaded.card


def test_the_table_of_shipped_models_and_the_files_are_the_same_set() -> None:
    assert sorted(shipped()) == CARDS
    own = {str(path.relative_to(WEIGHTS).with_suffix("")) for path in WEIGHTS.rglob("*.json")}
    assert {name for name, line in shipped().items() if line.role == "default"} == own, "services carry defaults and nothing else"
    assert all(LOADERS[line.policy].system == line.system for line in shipped().values())


def test_shipping_a_trained_directory_twice_changes_nothing_the_second_time(tmp_path: Path) -> None:
    source, into, table = tmp_path / "out", tmp_path / "weights", tmp_path / "shipped.json"
    (source / "seeds").mkdir(parents=True)
    varied(WEIGHTS / "gobi.json", source, 1)
    varied(card_of("seeds/aset-1"), source / "seeds", 1)
    first = ship(cards_in(source), into, command="tiphys train planners", commit="abc1234", table_path=table)
    assert [(one.name, len(one.changed)) for one in first] == [("gobi", 2), ("seeds/aset-1", 2)]
    assert [one.changed for one in ship(cards_in(source), into, command="tiphys train planners", commit="abc1234", table_path=table)] == [
        (),
        (),
    ]
    lines = read_table(table)
    assert {name: (line.system, line.role) for name, line in lines.items()} == {
        "gobi": ("selection", "default"), "seeds/aset-1": ("streams", "seed"),
    }  # fmt: skip
    shipped_card = load_file(into / "gobi.json").card
    assert shipped_card.provenance is not None
    assert (shipped_card.system, shipped_card.provenance.command, shipped_card.provenance.seeds) == (
        "selection",
        "tiphys train planners",
        (0,),
    )
    assert shipped_card.sha256 == lines["gobi"].sha256 == load_file(source / "gobi.json").digest


def test_a_directory_with_one_broken_artifact_ships_none(tmp_path: Path) -> None:
    source = tmp_path / "out"
    varied(WEIGHTS / "gobi.json", source, 1)
    shutil.copy(source / "gobi.json", source / "graf.json")
    shutil.copy(source / "gobi.safetensors", source / "graf.safetensors")
    (source / "graf.safetensors").write_bytes(b"torn")
    with pytest.raises(ArtifactRefused, match="DigestMismatch"):
        ship(cards_in(source), tmp_path / "weights", table_path=tmp_path / "shipped.json")
    assert not (tmp_path / "weights").exists()
    with pytest.raises(InvalidInput, match="no card"):
        cards_in(tmp_path)


def test_a_loader_of_another_package_loads_its_own_policy_and_never_one_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def __init__(self, name: str, found: Any) -> None:
            self.name, self.found = name, found

        def load(self) -> Any:
            if isinstance(self.found, Exception):
                raise self.found
            return self.found

    def refuse(parts: Parts) -> Any:
        raise ArtifactRefused("TheirOwnWord", parts.origin)

    points = [
        Point("theirs", Loader("scaling", lambda parts: "their agent")),
        Point("clumsy", Loader("scaling", lambda parts: json.loads(parts.weights))),
        Point("wordy", Loader("scaling", refuse)),
        Point("gobi", Loader("streams", lambda parts: "not gobi")),
        Point("torn", ImportError("their dependency")),
        Point("nonsense", 5),
    ]
    from tiphys_models.artifacts import loaders

    monkeypatch.setattr(loaders, "entry_points", lambda group: points)
    loaders._foreign.cache_clear()
    try:
        card = Card(name="t", policy="theirs", feature_schema="x/1", sha256="0" * 64).as_json()
        parts = read_parts(WEIGHTS / "gobi.json")
        theirs = load(type(parts)(card, b"", "t"))
        assert (theirs.system, theirs.value) == ("scaling", "their agent")
        assert load(parts).system == "selection"
        for name in ("clumsy", "wordy"):
            with pytest.raises(ArtifactRefused) as refused:
                load(type(parts)(card.replace(b"theirs", name.encode()), b"", "t"))
            assert refused.value.reason == "CardInvalid"
        for name in ("torn", "nonsense"):
            with pytest.raises(ArtifactRefused, match="UnknownPolicy"):
                load(type(parts)(card.replace(b"theirs", name.encode()), b"", "t"))
    finally:
        loaders._foreign.cache_clear()


def test_a_directory_of_too_many_cards_is_read_up_to_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiphys_models.artifacts import directory

    monkeypatch.setattr(directory, "MOST_CARDS", 2)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.json").write_text("{}")
    names, changed = scan(tmp_path, {})
    assert names == {"a", "b"}
    assert all(isinstance(one.found, ArtifactRefused) for one in changed)


def test_every_reason_of_a_refusal_is_a_documented_one() -> None:
    assert {str(reason) for reason in ModelReason} >= REASONS
    assert set(MODEL_REFUSALS) >= REASONS
