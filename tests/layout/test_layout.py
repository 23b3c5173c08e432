"""The traps of this layout, each proved once by hand and held here."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("directory", ["operator", "extender", "models", "cli", "testbed"])
def test_top_level_directories_are_no_packages(directory: str) -> None:
    # operator/__init__.py would shadow the standard library's operator and break the interpreter
    assert not (ROOT / directory / "__init__.py").exists()


def test_no_lock_file_carries_an_index_address() -> None:
    assert not (ROOT / "uv.lock").exists()
    for path in (ROOT / "requirements").glob("*.txt"):
        text = path.read_text()
        assert "://" not in text, path.name
        assert "--hash=sha256:" in text, path.name


def test_services_and_demo_lock_no_torch() -> None:
    for name in ("run", "operator", "extender"):
        lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
        assert not [line for line in lines if line.startswith(("torch==", "nvidia-"))], name


def _wheel(source: Path, into: Path) -> list[str]:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=60)
    (wheel,) = into.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def _weights(names: list[str], under: str) -> set[str]:
    """Names of artifacts that are there whole."""
    found = [name.removeprefix(under) for name in names if name.startswith(under)]
    cards, weights = ({name.removesuffix(end) for name in found if name.endswith(end)} for end in (".json", ".safetensors"))
    assert cards == weights
    return cards


def test_the_wheel_holds_every_package_with_its_data_and_nothing_of_the_test_bed(tmp_path: Path) -> None:
    names = _wheel(ROOT, tmp_path)
    for package in ("tiphys_models", "tiphys_operator", "tiphys_extender", "tiphys_cli"):
        assert f"{package}/__init__.py" in names
        assert f"{package}/py.typed" in names
    assert "tiphys_models/placement/state.py" in names
    table = json.loads((ROOT / "models/tiphys_models/artifacts/shipped.json").read_text())
    carried = {name for name, line in table.items() if line["role"] == "default"}
    assert _weights(names, "tiphys_models/weights/") == carried, "no image holds the weights of a paper's own row, nor of a training seed"
    roots = {name.partition("/")[0] for name in names}
    assert roots == {"tiphys_models", "tiphys_operator", "tiphys_extender", "tiphys_cli", "tiphys-0.1.0.dist-info"}


def test_the_test_bed_is_a_wheel_of_its_own_with_its_data(tmp_path: Path) -> None:
    names = _wheel(ROOT / "testbed", tmp_path)
    assert {name.partition("/")[0] for name in names} == {"tiphys_testbed", "tiphys_testbed-0.1.0.dist-info"}
    table = json.loads((ROOT / "models/tiphys_models/artifacts/shipped.json").read_text())
    assert _weights(names, "tiphys_testbed/weights/") == {name for name, line in table.items() if line["role"] != "default"}
    for wanted in ("tiphys_testbed/py.typed", "tiphys_testbed/tools/kubernetes/go.sum", "tiphys_testbed/cluster/stages/"):
        assert any(name.startswith(wanted) for name in names), wanted


def test_no_image_is_built_from_the_test_bed() -> None:
    assert "testbed" not in (ROOT / "Dockerfile").read_text()
    assert "testbed" not in (ROOT / ".dockerignore").read_text()


def test_a_trainer_without_a_gpu_takes_everything_locked_but_the_cuda_libraries_of_torch() -> None:
    def made(*hashes: str) -> str:
        command = [sys.executable, str(ROOT / "requirements" / "cpu.py"), str(ROOT / "requirements" / "train.txt"), *hashes]
        return subprocess.run(command, check=True, capture_output=True, timeout=30, text=True).stdout

    def names(text: str) -> set[str]:
        return {line.partition("==")[0] for line in text.splitlines() if line[:1].isalnum()}

    locked = (ROOT / "requirements" / "train.txt").read_text()
    assert made() == locked
    changed = made("a" * 64)
    gone = names(locked) - names(changed)
    assert "triton" in gone
    assert all(name.startswith(("triton", "nvidia-", "cuda-")) for name in gone)
    (torch,) = [line for line in changed.splitlines() if line.startswith("torch==")]
    assert torch.endswith(f" --hash=sha256:{'a' * 64}")
    assert f"{torch.split()[0]} " in locked


def test_the_python_floor_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == ">=3.11"
    assert project["tool"]["mypy"]["python_version"] == "3.11"
    assert project["tool"]["ruff"]["target-version"] == "py311"
