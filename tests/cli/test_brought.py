"""Commands of other distributions: found where they are installed, named where they are not, harmless where they are broken."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from tiphys_cli import app as app_module
from tiphys_cli.app import app
from tiphys_cli.brought import COMMANDS


def _installed(found: dict[str, EntryPoint]) -> Callable[[str], dict[str, EntryPoint]]:
    return lambda group: found if group == COMMANDS else {}


def test_without_the_test_bed_its_commands_say_in_one_line_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "entries", _installed({}))
    result = CliRunner().invoke(app, ["demo", "--seeds", "1"])
    assert result.exit_code == 1
    assert result.stderr.strip() == (
        "error: `tiphys demo` is part of the test bed, which is not installed: pip install tiphys-testbed (from a clone: make setup)"
    )


def test_a_broken_package_spoils_only_its_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("theirs", "tests.cli.no_such_module:app", COMMANDS)
    monkeypatch.setattr(app_module, "entries", _installed({"theirs": broken}))
    assert "doctor" in CliRunner().invoke(app, ["--help"]).stdout
    result = CliRunner().invoke(app, ["theirs"])
    assert result.exit_code == 1
    assert "cannot be loaded" in result.stderr


def test_nobody_can_take_the_name_of_one_of_our_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "entries", _installed({"explain": EntryPoint("explain", "tests.cli.no_such_module:app", COMMANDS)}))
    assert CliRunner().invoke(app, ["explain", "--help"]).exit_code == 0
