from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiphys_cli.app import app

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
