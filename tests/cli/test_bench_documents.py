from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiphys_cli.app import app
from tiphys_models.base.errors import InvalidInput

QUOTED = "<!-- bench:run -->\nfigures\n<!-- /bench -->\n"


DOCS = {
    "placement": ("README.md", "docs/simulation.md", "docs/model-cards/faasrank.md", "docs/model-cards/faasrank-paper.md"),
    "selection": ("docs/selection.md", *(f"docs/model-cards/{name}.md" for name in ("metanet", "metanet-paper", "dqn"))),
    "scaling": ("docs/scaling.md",),
    "binding": ("docs/binding.md",),
    "binder": ("docs/streams.md",),
}
FILES = {"binding": ("--arrivals", "AzureLLMInferenceTrace_code.csv")}


@pytest.fixture
def nothing_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")

    def run(*_: object) -> None:
        raise InvalidInput("this would be played")

    for module in ("tiphys_cli.bench.studies", "tiphys_testbed.bench.binder"):
        monkeypatch.setattr(f"{module}.run", run)


@pytest.mark.usefixtures("nothing_is_played")
@pytest.mark.parametrize("name", DOCS)
def test_documents_are_checked_before_anything_is_played(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "AzureLLMInferenceTrace_code.csv").write_text("\n".join(map(str, range(100))))
    root = Path(__file__).parents[2]
    published = [part for path in DOCS[name] for part in ("--docs", str(root / path))]
    result = CliRunner().invoke(app, ["bench", name, *FILES.get(name, ()), *published])
    assert "this would be played" in result.stderr
    document = tmp_path / "page.md"
    document.write_text("<!-- bench:magic -->\n<!-- /bench -->\n")
    result = CliRunner().invoke(app, ["bench", name, *FILES.get(name, ()), *published, "--docs", str(document)])
    assert result.exit_code == 2
    assert "'magic', which is none of" in result.stderr


@pytest.mark.parametrize("name", ["placement", "selection", "scaling", "binding", "binder"])
def test_a_quick_run_writes_into_no_document(name: str, tmp_path: Path) -> None:
    document = tmp_path / "quoted.md"
    document.write_text(QUOTED)
    result = CliRunner().invoke(app, ["bench", name, "--quick", "--docs", str(document)])
    assert result.exit_code == 2
    assert "--quick is not for quoting" in result.stderr
    assert document.read_text() == QUOTED
