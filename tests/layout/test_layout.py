"""The traps of this layout, each proved once by hand and held here."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("directory", ["operator", "extender", "models", "cli"])
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


def test_the_wheel_holds_every_package_with_its_data(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for package in ("tiphys_models", "tiphys_operator", "tiphys_extender", "tiphys_cli"):
        assert f"{package}/__init__.py" in names
        assert f"{package}/py.typed" in names
    for wanted in ("tiphys_cli/tools/kubernetes/go.sum", "tiphys_cli/cluster/stages/", "tiphys_models/placement/state.py"):
        assert any(name.startswith(wanted) for name in names), wanted
    assert not [name for name in names if name.startswith(("tests/", "e2e/", "models/"))]


def test_the_python_floor_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == ">=3.11"
    assert project["tool"]["mypy"]["python_version"] == "3.11"
    assert project["tool"]["ruff"]["target-version"] == "py311"
