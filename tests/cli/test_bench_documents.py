from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiphys_cli.app import app

QUOTED = "<!-- bench:run -->\nfigures\n<!-- /bench -->\n"


@pytest.mark.parametrize("name", ["placement", "selection", "scaling", "binding", "binder"])
def test_a_quick_run_writes_into_no_document(name: str, tmp_path: Path) -> None:
    document = tmp_path / "quoted.md"
    document.write_text(QUOTED)
    result = CliRunner().invoke(app, ["bench", name, "--quick", "--docs", str(document)])
    assert result.exit_code == 2
    assert "--quick is not for quoting" in result.stderr
    assert document.read_text() == QUOTED
