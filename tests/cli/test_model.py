"""`tiphys model`: what it writes, in which order, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from typer.testing import CliRunner

from tiphys_cli.app import app
from tiphys_cli.model.publishing import Publication, listed, publication, publish
from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.artifacts.untrained import write_untrained
from tiphys_models.clients.access import ApiAccess
from tiphys_models.clients.kube import ApiError, KubeClient
from tiphys_models.domain.errors import InvalidInput


def made_of(tmp_path: Path, seed: int = 0, name: str = "mine") -> Publication:
    write_untrained(tmp_path, "card", np.random.default_rng(seed))
    return publication(tmp_path / "card.json", name, "ns", "shadow")


def test_a_config_map_is_named_by_what_it_holds_and_never_changes(tmp_path: Path) -> None:
    first, same, other = made_of(tmp_path), made_of(tmp_path), made_of(tmp_path, seed=1)
    assert first == same
    assert first.config_map["immutable"] is True
    assert first.config_map["metadata"]["name"].startswith("mine-")
    assert first.config_map["metadata"]["name"] != other.config_map["metadata"]["name"]
    assert first.model["spec"]["weights"]["configMap"]["name"] == first.config_map["metadata"]["name"]


def test_the_shipped_model_brings_its_own_name_and_evidence() -> None:
    made = publication(WEIGHTS / "faasrank-paper.json", "", "ns", "candidate")
    assert made.model["metadata"]["name"] == "faasrank-paper"
    evaluation = made.model["spec"]["evaluation"]
    card = json.loads((WEIGHTS / "faasrank-paper.json").read_text())
    assert (evaluation["metric"], float(evaluation["value"])) == (
        "validation_pct_of_hashing",
        card["training"]["validation_pct_of_hashing"],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["card.json", "--stage", "live"], "no stage is called 'live'"),
        (["card.json", "--name", "x" * 64], "at most 63"),
        (["card.json", "--name", "Not_A_Name"], "lower-case"),
        (["card.safetensors"], "a model is named by its card"),
        (["nothing.json"], "Missing"),
        (["card.json"], "no cluster"),
        (["long.json"], "models volume"),
    ],
)
def test_bad_input_ends_with_one_clear_line_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    write_untrained(tmp_path, "card", np.random.default_rng(0))
    card = write_untrained(tmp_path, "long", np.random.default_rng(0)).card.model_dump()
    (tmp_path / "long.json").write_text(json.dumps(card | {"notes": "x" * 70_000}))
    result = CliRunner().invoke(app, ["model", "publish", *arguments])
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert "Traceback" not in result.output + result.stderr


class Cluster:
    """Answers with these statuses, and remembers what it was sent."""

    def __init__(self, **statuses: int) -> None:
        self.statuses, self.sent = statuses, list[tuple[str, str]]()
        self.items: list[dict[str, Any]] = []

    async def __aenter__(self) -> KubeClient:
        application = web.Application()
        application.router.add_route("*", "/{rest:.*}", self._answer)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._client = KubeClient(ApiAccess(f"http://127.0.0.1:{self._runner.addresses[0][1]}", None))
        return await self._client.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self._client.__aexit__(None, None, None)
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        kind = next(part for part in request.path.split("/") if part in ("configmaps", "learnedmodels"))
        self.sent.append((request.method, kind))
        return web.json_response({"items": self.items}, status=self.statuses.get(kind, 200))


async def test_the_bytes_are_there_before_the_object_that_names_them(tmp_path: Path) -> None:
    cluster = Cluster()
    async with cluster as client:
        await publish(client, made_of(tmp_path))
    assert cluster.sent == [("POST", "configmaps"), ("PATCH", "learnedmodels")]


async def test_publishing_again_is_no_error(tmp_path: Path) -> None:
    cluster = Cluster(configmaps=409)
    async with cluster as client:
        await publish(client, made_of(tmp_path))
    assert cluster.sent[-1] == ("PATCH", "learnedmodels")


async def test_refusals_of_the_server_are_told(tmp_path: Path) -> None:
    async with Cluster(configmaps=403) as client:
        with pytest.raises(ApiError, match="403"):
            await publish(client, made_of(tmp_path))
    async with Cluster(learnedmodels=404) as client:
        with pytest.raises(InvalidInput, match="does not know the kind LearnedModel"):
            await publish(client, made_of(tmp_path))
        with pytest.raises(InvalidInput, match="does not know the kind LearnedModel"):
            await listed(client, "ns")


async def test_a_list_says_why_a_model_does_not_serve(tmp_path: Path) -> None:
    cluster = Cluster()
    refused = {"type": "Accepted", "status": "False", "reason": "NotFinite"}
    loaded = [{"type": "Accepted", "status": "True", "reason": "Accepted"}, {"type": "Loaded", "status": "False", "reason": "Candidate"}]
    model = dict(made_of(tmp_path).model)
    cluster.items = [model, model | {"status": {"conditions": [refused]}}, model | {"status": {"conditions": loaded}}]
    async with cluster as client:
        rows = await listed(client, "ns")
    assert [row["reason"] for row in rows] == ["no status: is the operator running?", "NotFinite", "Candidate"]
