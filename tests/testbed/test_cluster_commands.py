"""`tiphys cluster` and `tiphys tools`: what users see when there is nothing, and that down ends what up left."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiphys_testbed.cluster.options import LocalOptions
from tiphys_testbed.cluster.processes import ProcessTable
from tiphys_testbed.cluster.runs import claim
from tiphys_testbed.commands import cluster_app
from tiphys_testbed.tools.commands import tools_app
from tiphys_testbed.tools.programs import programs


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIPHYS_CACHE", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path


def test_status_without_a_cluster_says_how_to_start_one() -> None:
    answer = CliRunner().invoke(cluster_app, ["status"])
    assert answer.exit_code == 1
    assert "tiphys cluster up" in answer.output


def test_down_without_a_cluster_is_an_error() -> None:
    answer = CliRunner().invoke(cluster_app, ["down", "--name", "mine"])
    assert answer.exit_code == 1
    assert "no cluster 'mine' runs here" in answer.output


def test_down_leaves_the_cluster_of_a_running_program_alone() -> None:
    run = claim(LocalOptions().run_dir, keep=False)
    answer = CliRunner().invoke(cluster_app, ["down"])
    assert answer.exit_code == 1
    assert "belongs to a running program" in answer.output
    assert run.path.exists()


def test_status_shows_processes_and_down_ends_a_kept_cluster() -> None:
    run = claim(LocalOptions().run_dir, keep=True)
    table = ProcessTable(run.path)
    one, two = (table.start(name, ("/bin/sleep", "60")) for name in ("one", "two"))
    answer = CliRunner().invoke(cluster_app, ["status"])
    assert answer.exit_code == 0
    assert str(one.pid) in answer.output
    assert "KUBECONFIG" in answer.output
    two.kill()
    answer = CliRunner().invoke(cluster_app, ["status"])
    assert answer.exit_code == 1
    assert "gone" in answer.output
    assert CliRunner().invoke(cluster_app, ["down"]).exit_code == 0
    assert not one.alive()
    assert not run.path.exists()


def test_what_a_crashed_program_left_can_be_taken_down() -> None:
    run = claim(LocalOptions().run_dir, keep=False)
    one = ProcessTable(run.path).start("one", ("/bin/sleep", "60"))
    (run.path / "owner.json").write_text(json.dumps({"pid": one.pid, "identity": "gone", "kept": False}))
    assert CliRunner().invoke(cluster_app, ["down"]).exit_code == 0
    assert not one.alive()


def test_list_names_every_program_and_what_is_built(cache: Path) -> None:
    answer = CliRunner().invoke(tools_app, ["list"])
    assert answer.exit_code == 0
    assert all(name in answer.output for name in programs())
    assert "not built" in answer.output
    assert "ready" not in answer.output
    assert not list(cache.glob("bin/*"))


def test_an_unknown_tool_is_an_error_with_the_names_there_are() -> None:
    answer = CliRunner().invoke(tools_app, ["path", "kubctl"])
    assert answer.exit_code == 1
    assert "kube-apiserver" in answer.output
