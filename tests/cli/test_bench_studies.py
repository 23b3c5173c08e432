"""Sealed runs from the command line; options of each study are tested beside the study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

pytest.importorskip("numba")

from tiphys_cli.app import app
from tiphys_models.lab.evidence import SEALED_FROM
from tiphys_models.lab.report import Claim, Result


@pytest.fixture
def seeds_played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The study is not played; its seeds are kept."""
    kept: list[tuple[int, ...]] = []

    def run(study: Any, _: Any) -> Result:
        kept.append(study.seeds)
        inputs = {"chosen": {}, "simulator": "requests", "evidence": {"sealed": study.sealed}}
        return Result(study.bench, False, study.seeds, 1.0, inputs, [], [], [Claim("bad", 3, 2, "<=")])

    monkeypatch.setattr("tiphys_cli.bench.studies.run", run)
    return kept


def test_a_sealed_run_is_in_the_ledger_with_its_claims_and_there_is_no_second_one(
    tmp_path: Path, seeds_played: list[tuple[int, ...]]
) -> None:
    ledger = tmp_path / "ledger.md"
    options = ["bench", "scaling", "--json", "--sealed", "--ledger", str(ledger)]
    first = CliRunner().invoke(app, [*options, "--seeds", "0,1,2"])
    assert first.exit_code == 0, first.stderr
    assert orjson.loads(first.stdout)["seeds"] == list(seeds_played[0])
    assert len(seeds_played[0]) == 3
    assert min(seeds_played[0]) >= SEALED_FROM
    assert "**does not hold**" in ledger.read_text()
    again = CliRunner().invoke(app, [*options, "--seeds", "0,1,2,3,4,5,6,7,8,9"])
    assert again.exit_code == 2
    assert "judged once" in again.stderr
    assert len(seeds_played) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sealed", "--quick"], "use up the one run"),
        (["--sealed", "--agents", "magic"], "'magic' is none of"),
        (["--seeds", f"0,{SEALED_FROM + 7}"], "may be a sealed seed"),
    ],
)
def test_what_is_refused_opens_no_seeds(options: list[str], message: str, tmp_path: Path, seeds_played: list[tuple[int, ...]]) -> None:
    ledger = tmp_path / "ledger.md"
    result = CliRunner().invoke(app, ["bench", "scaling", "--ledger", str(ledger), *options])
    assert result.exit_code == 2
    assert message in result.stderr
    assert not ledger.exists()
    assert not seeds_played
