"""`tiphys model`: what it writes, in which order, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from typer.testing import CliRunner

from tests.builders import node, pod
from tiphys_cli.app import app
from tiphys_cli.model.listing import published_rows, shipped_rows
from tiphys_cli.model.publishing import Publication, publication, publish
from tiphys_models.api.learned_model import parse_model
from tiphys_models.artifacts import files
from tiphys_models.artifacts.files import card_of
from tiphys_models.artifacts.shipped import TABLE, WEIGHTS, shipped
from tiphys_models.base.errors import InvalidInput
from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.unshipped import Need, Needs
from tiphys_models.placement.checkpoint import document, learned_of
from tiphys_models.placement.placed import CallEnd
from tiphys_models.placement.state import PlacementState
from tiphys_models.placement.untrained import write_untrained


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
    made = publication(card_of("faasrank-paper"), "", "ns", "candidate")
    assert made.model["metadata"]["name"] == "faasrank-paper"
    evaluation = made.model["spec"]["evaluation"]
    card = json.loads(card_of("faasrank-paper").read_text())
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
            await published_rows(client, "ns")


NAMED = ("faasrank", "gobi", "lstm-aco", "dqn", "metanet", "scaling-combined", "scaling-q-table", "score", "aset")


@pytest.mark.parametrize("name", NAMED)
def test_a_model_of_any_system_is_published_under_its_own_name_and_policy(name: str) -> None:
    made, line = publication(card_of(name), "", "ns", "candidate"), shipped()[name]
    assert (made.model["metadata"]["name"], made.model["spec"]["policy"], made.sha256) == (name, line.policy, line.sha256)
    assert parse_model(dict(made.model)).system == line.system


POLICIES: dict[str, list[dict[str, Any]]] = {
    "schedulingpolicies": [
        {"metadata": {"name": "place", "namespace": "a"}, "spec": {"mode": "Active", "policy": "faasrank", "selector": {}}},
        {"metadata": {"name": "off", "namespace": "a"}, "spec": {"mode": "Off", "policy": "faasrank", "selector": {}}},
        {"metadata": {"name": "odd", "namespace": "a"}, "spec": {"mode": "Sideways"}},
        {
            "metadata": {"name": "pick", "namespace": "a"},
            "spec": {"mode": "Active", "selector": {}, "select": {"by": "dqn", "among": ["gobi", "cost-lean"]}},
        },
    ],
    "streampolicies": [{"metadata": {"name": "s", "namespace": "b"}, "spec": {"accessSite": "x", "mode": "Active", "policy": "score"}}],
}


def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> list[dict[str, Any]]:
    """Rows of `tiphys model list --json` beside a cluster with these policies and one LearnedModel `gobi`."""
    gobi = {**publication(WEIGHTS / "gobi.json", "", "ns", "active").model, "status": {"servedDigest": "ab" * 32}}

    async def get(self: KubeClient, path: str, *_: Any, **__: Any) -> Any:
        plural = path.rpartition("/")[2]
        if plural == "scalingpolicies":
            raise ApiError(403, "Forbidden", path)
        return {"items": [gobi] if plural == "learnedmodels" else POLICIES.get(plural, [])}

    monkeypatch.setattr(KubeClient, "get", get)
    monkeypatch.setattr("tiphys_cli.model.commands.find_access", lambda _: ApiAccess("http://127.0.0.1:1", None))
    result = CliRunner().invoke(app, ["model", "list", "--json", *options])
    assert result.exit_code == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_every_model_is_listed_with_its_system_its_source_and_who_decides_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_untrained(tmp_path, "faasrank", np.random.default_rng(0))
    (tmp_path / "torn.json").write_text("{}")
    (tmp_path / "torn.safetensors").write_bytes(b"")
    rows = {(row["name"], row["source"]): row for row in listed(tmp_path, monkeypatch, "--all", "--models-dir", str(tmp_path))}
    assert {row["system"] for row in rows.values() if row["policy"]} == {"placement", "selection", "scaling", "streams"}
    users = {key: row["usedBy"] for key, row in rows.items() if row["usedBy"]}
    assert users == {
        ("gobi", "LearnedModel"): ["SchedulingPolicy a/pick (Active)"],
        ("faasrank", "mounted"): ["SchedulingPolicy a/place (Active)"],
        ("dqn", "shipped"): ["SchedulingPolicy a/pick (Active)"],
        ("score", "shipped"): ["StreamPolicy b/s (Active)"],
    }
    assert rows["torn", "mounted"]["reason"] == "CardInvalid"


def test_a_list_for_scripts_holds_published_models_only_unless_all_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [row["name"] for row in listed(tmp_path, monkeypatch)] == ["gobi"]


def test_without_a_cluster_what_ships_is_listed_and_a_script_hears_of_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, ["model", "list"])
    assert (shown.exit_code, "metanet" in shown.stdout, "no cluster" in shown.stderr) == (0, True, True)
    assert CliRunner().invoke(app, ["model", "list", "--json"]).exit_code != 0


def test_shipping_tells_what_changed_and_the_second_time_that_nothing_did(tmp_path: Path) -> None:
    def ship(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["model", "ship", *arguments], env={"COLUMNS": "200"})
        assert result.exit_code == 0, result.stderr
        return result.stdout

    into = ("--into", str(tmp_path / "volume"))
    assert "changed gobi.safetensors, gobi.json" in ship(str(WEIGHTS / "gobi.json"), *into)
    assert "is there already" in ship(str(WEIGHTS / "gobi.json"), *into)
    before = TABLE.read_bytes()
    assert "changed" not in ship(str(WEIGHTS)), "what ships is shipped"
    assert TABLE.read_bytes() == before
    (tmp_path / "torn.json").write_text("{}")
    for arguments in ((str(tmp_path / "torn.json"), *into), (str(WEIGHTS / "gobi.json"), "--role", "king", *into)):
        assert CliRunner().invoke(app, ["model", "ship", *arguments]).exit_code != 0


async def test_a_list_says_why_a_model_does_not_serve(tmp_path: Path) -> None:
    cluster = Cluster()
    refused = {"type": "Accepted", "status": "False", "reason": "NotFinite"}
    loaded = [{"type": "Accepted", "status": "True", "reason": "Accepted"}, {"type": "Loaded", "status": "False", "reason": "Candidate"}]
    model = dict(made_of(tmp_path).model)
    cluster.items = [model, model | {"status": {"conditions": [refused]}}, model | {"status": {"conditions": loaded}}]
    async with cluster as client:
        rows = await published_rows(client, "ns")
    assert [row.reason for row in rows] == ["no status: is the operator running?", "NotFinite", "Candidate"]


class Sent:
    """A cluster in the place of the network: what was written, by path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: dict[str, Any] = {}

        async def request(client: KubeClient, method: str, path: str, body: Any = None, **_: Any) -> Any:
            name = f"{path}/{body['metadata']['name']}"
            if name in self.written:
                raise ApiError(409, "AlreadyExists", path)
            self.written[name] = body
            return body

        async def apply(client: KubeClient, path: str, body: Any, manager: str) -> Any:
            self.written[path] = body
            return body

        monkeypatch.setattr(KubeClient, "request", request)
        monkeypatch.setattr(KubeClient, "apply", apply)
        monkeypatch.setattr("tiphys_cli.model.commands.find_access", lambda _: ApiAccess("http://127.0.0.1:1", None))


@pytest.mark.parametrize("name", ["faasrank-paper", "scaling-q-table", "metanet-paper"])
def test_a_papers_own_row_is_shipped_into_a_cluster_by_its_name_and_twice_is_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sent = Sent(monkeypatch)
    for _ in range(2):
        result = CliRunner().invoke(app, ["model", "ship", name, "--namespace", "ours"], env={"COLUMNS": "200"})
        assert result.exit_code == 0, result.stderr
        assert f"ours/{name} at stage active" in result.stdout
    config_map, model = sent.written.values()
    assert (model["metadata"]["name"], model["spec"]["stage"], model["spec"]["sha256"]) == (name, "active", shipped()[name].sha256)
    assert model["spec"]["weights"]["configMap"]["name"] == config_map["metadata"]["name"]


def test_a_name_that_cannot_be_shipped_says_why_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sent = Sent(monkeypatch)

    def refused(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["model", "ship", *arguments], env={"COLUMNS": "200"})
        assert result.exit_code != 0
        return result.stderr.strip()

    assert "every image carries the weights of gobi" in refused("gobi")
    assert "are for files" in refused("faasrank-paper", "--into", str(tmp_path))
    assert "named by its card" in refused("nobodys-name")
    bed = tmp_path / "weights"
    bed.mkdir()
    for suffix in (".json", ".safetensors"):  # of another version than this release's table
        (bed / f"faasrank-paper{suffix}").write_bytes((WEIGHTS / f"faasrank{suffix}").read_bytes())
    monkeypatch.setattr(files, "brought", lambda: (bed,))
    assert "install both of one version" in refused("faasrank-paper")
    monkeypatch.setattr(files, "brought", tuple)
    assert refused("faasrank-paper").endswith("pip install tiphys-testbed")
    assert sent.written == {}


def test_rows_of_papers_are_listed_as_not_shipped_though_the_test_bed_is_installed_here() -> None:
    reasons = {row.name: (row.accepted, row.reason) for row in shipped_rows()}
    assert {name for name, said in reasons.items() if said == ("False", "WeightsNotShipped")} == {
        name for name, line in shipped().items() if line.role == "paper"
    }
    assert reasons["faasrank"] == ("True", "")


def test_who_needs_weights_is_listed_and_a_gap_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Needs((Need("ScalingPolicy a/b", "scaling-q-table"),), ("streampolicies could not be listed: no",))

    async def needs(client: KubeClient, namespace: str) -> Needs:
        assert namespace == "ours"
        return found if answers.pop() else Needs((), ())

    answers = [False, True]
    monkeypatch.setattr("tiphys_cli.model.commands.needed", needs)
    monkeypatch.setattr("tiphys_cli.model.commands.find_access", lambda _: ApiAccess("http://127.0.0.1:1", None))
    run = CliRunner()
    shown = run.invoke(app, ["model", "needed", "-n", "ours"], env={"COLUMNS": "200"})
    assert ("tiphys model ship scaling-q-table" in shown.stdout, "streampolicies" in shown.stderr) == (True, True)
    assert run.invoke(app, ["model", "needed", "-n", "ours"]).stdout == "every policy has its weights\n"


def test_what_was_learned_is_shown_and_exported_from_a_document(tmp_path: Path) -> None:
    state = PlacementState()
    state.put_node(node("n0"))
    for i in range(5):
        state.bound(pod(f"c{i}", function="shop/pay", node="n0", scheduled_s=10.0 * i), 10.0 * i)
        state.ran(f"c{i}", 10.0 * i + 4.0, CallEnd(start_s=1.0, core_seconds=6.0, cold=True))
    (tmp_path / "learned.json").write_bytes(document(learned_of(state, 0.0)).content)
    shown = CliRunner().invoke(app, ["model", "learned", "--from", str(tmp_path / "learned.json")], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "shop/pay" in shown.output
    made = CliRunner().invoke(app, ["model", "export", str(tmp_path / "out"), "--from", str(tmp_path / "learned.json")])
    assert made.exit_code == 0
    assert publication(tmp_path / "out" / "estimator.json", "", "ns", "active").model["spec"]["policy"] == "estimator"


def test_a_document_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "learned.json").write_text("{}")
    shown = CliRunner().invoke(app, ["model", "learned", "--from", str(tmp_path / "learned.json")])
    assert shown.exit_code != 0
    assert "format" in shown.output
