"""The root of the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tiphys_cli import app as root
from tiphys_cli.app import PARTS, Part, app


def test_every_part_can_be_imported_and_has_help() -> None:
    for name in PARTS:
        answer = CliRunner().invoke(app, [name, "--help"])
        assert answer.exit_code == 0, f"{name}: {answer.output}"
        assert "cannot be loaded" not in answer.output


def test_help_lists_every_part() -> None:
    answer = CliRunner().invoke(app, ["--help"])
    assert answer.exit_code == 0
    for name in PARTS:
        assert name in answer.output


def test_a_part_that_cannot_be_imported_says_so_and_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(root.PARTS, "broken", Part("tiphys_cli.nowhere", "x", "Broken."))
    answer = CliRunner().invoke(app, ["broken", "--whatever", "1"])
    assert answer.exit_code == 1
    assert "cannot be loaded" in answer.output + (answer.stderr or "")
    assert CliRunner().invoke(app, ["--help"]).exit_code == 0


def test_an_unknown_command_is_an_error() -> None:
    assert CliRunner().invoke(app, ["nonsense"]).exit_code == 2


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert CliRunner().invoke(app, ["--version"]).output.strip() == f"tiphys {version('tiphys')}"


def test_a_command_imports_only_its_own_part() -> None:
    code = "import sys; from typer.testing import CliRunner; from tiphys_cli.app import app; CliRunner().invoke(app, ['tools', '--help']); "
    code += "print(sorted(m for m in ('tiphys_testbed.demo.commands', 'cryptography', 'kubernetes', 'torch') if m in sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert answer.stdout.strip() == "[]"
