from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiphys_cli.app import app
from tiphys_models.scaling.learned import load_agent

pytest.importorskip("torch")
pytest.importorskip("numba")


def test_a_missing_cluster_is_told_before_hours_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["train", "placement", "--out", str(tmp_path / "out"), "--publish", "mine"])
    assert result.exit_code == 2
    assert "no cluster" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preset", "dqn"], "no preset is called 'dqn'"),
        (["--workload", "M11"], "no workload is called 'M11'"),
        (["--steps", "0"], "from 1 on"),
        (["--resume"], "without --resume"),
    ],
)
def test_bad_inputs_end_with_one_clear_line(options: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "placement", "--preset", "faasrank-rollouts", "--out", str(tmp_path), *options])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preset", "bandit"], "no preset is called 'bandit'"),
        (["--episodes", "0"], "from 1 on"),
        (["--seeds", "x"], "seeds"),
    ],
)
def test_bad_inputs_of_selection_end_with_one_clear_line(options: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "selection", "--out", str(tmp_path), *options])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preset", "bandit"], "no preset is called 'bandit'"),
        (["--rounds", "0"], "from 1 on"),
        (["--seeds", "x"], "seeds"),
    ],
)
def test_bad_inputs_of_scaling_end_with_one_clear_line(options: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "scaling", "--out", str(tmp_path), *options])
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_scaling_agent_is_trained_and_written_as_it_will_be_served(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "scaling", "--out", str(tmp_path), "--preset", "q-table", "--rounds", "1", "--seeds", "0,1"])
    assert result.exit_code == 0, result.stderr
    agent = load_agent(tmp_path / "scaling-q-table.json")
    assert agent.network.layers[0][0].shape == (5, 3)
    assert {p.name for p in tmp_path.glob("*.json")} == {f"scaling-q-table{s}.json" for s in ("", "-0", "-1")}


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--preset", "asset"], "no preset is called 'asset'"), (["--episodes", "3"], "for aset-paper only"), (["--seeds", "x"], "seeds")],
)
def test_bad_inputs_of_binding_end_with_one_clear_line(options: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "binding", "--out", str(tmp_path), *options])
    assert result.exit_code == 2
    assert message in result.stderr


def test_episodes_of_another_run_are_not_overwritten_by_chance(tmp_path: Path) -> None:
    (tmp_path / "episodes").mkdir()
    result = CliRunner().invoke(app, ["train", "selection", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "--resume" in result.stderr
