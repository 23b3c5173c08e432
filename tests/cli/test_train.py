from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.scaling.test_simulator_continuing import step
from tiphys_cli.app import app
from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.scaling.learned import AgentCard, load_agent

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
    [
        (["--base", "mine.json"], "are for --from-transitions"),
        (["--from-transitions", "nothing.jsonl"], "No such file"),
        (["--from-transitions", "empty.jsonl", "--preset", "q-table"], "goes on with combined"),
        (["--from-transitions", "empty.jsonl", "--base", "nowhere.json"], "Missing"),
        (["--from-transitions", "empty.jsonl"], "no step to learn from"),
        (["--from-transitions", "https://operator:8080"], "neither a file nor http"),
    ],
)
def test_what_cannot_be_gone_on_with_ends_with_one_clear_line(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    result = CliRunner().invoke(app, ["train", "scaling", "--out", "out", *options])
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_agent_goes_on_from_the_shipped_one_and_then_from_itself(tmp_path: Path) -> None:
    file, out = tmp_path / "served.jsonl", tmp_path / "out"
    file.write_text("".join(step(n, reward=-1.0).model_dump_json(by_alias=True) + "\n" for n in range(1, 200)))
    base = WEIGHTS / "scaling-combined.json"
    for seed in ("0", "1"):
        options = ["--from-transitions", str(file), "--rounds", "1", "--seeds", seed]
        result = CliRunner().invoke(app, ["train", "scaling", "--out", str(out), *options])
        assert result.exit_code == 0, result.stderr
        assert "197 steps to learn from" in result.stderr
        card = AgentCard.model_validate_json((out / "scaling-combined.json").read_bytes())
        training = (card.model_extra or {})["training"]
        assert (training["served"], training["base_sha256"]) == (197, AgentCard.model_validate_json(base.read_bytes()).sha256)
        assert load_agent(out / "scaling-combined.json").digest != training["base_sha256"]
        base = tmp_path / "base.json"
        base.write_bytes((out / "scaling-combined.json").read_bytes())


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
