"""Weights that another distribution brings: found by name, never in the place of the package's own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tiphys_models.artifacts import files
from tiphys_models.artifacts.shipped import is_carried, is_unshipped, shipped
from tiphys_models.artifacts.shipping import home_of, ship
from tiphys_models.base.errors import InvalidInput
from tiphys_models.scaling.registry import REGISTRY, make_agent, unshipped_model

PAPERS = sorted(name for name in shipped() if not is_carried(name))


def test_the_weights_of_papers_and_seeds_come_from_the_test_bed_and_nothing_else_does() -> None:
    (bed,) = files.brought()
    assert {files.card_of(name) for name in PAPERS} == {bed / f"{name}.json" for name in PAPERS}
    assert all(files.card_of(name).parent == files.SHIPPED for name in shipped() if is_carried(name))


def test_without_the_test_bed_names_stay_and_their_weights_are_missing_where_the_package_would_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "brought", tuple)
    assert [name for name in sorted(shipped()) if is_unshipped(name)] == PAPERS
    assert files.card_of("faasrank-paper") == files.SHIPPED / "faasrank-paper.json"
    assert "q-table" in REGISTRY.names()
    assert (unshipped_model("q-table"), unshipped_model("combined"), unshipped_model("rule")) == ("scaling-q-table", "", "")
    with pytest.raises(InvalidInput, match="q-table"):
        make_agent("q-table")
    with pytest.raises(InvalidInput, match="pip install tiphys-testbed"):
        home_of("paper")


class Point:
    """An entry point of another package."""

    def __init__(self, value: str, found: Any) -> None:
        self.value, self.found = value, found

    def load(self) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def package(directory: Path) -> ModuleType:
    made = ModuleType("theirs")
    made.__path__ = [str(directory)]
    return made


def test_a_package_that_brings_weights_replaces_none_of_ours_and_a_broken_one_spoils_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("faasrank", "faasrank-paper"):
        (tmp_path / f"{name}.json").write_text("{}")
    points = [Point("torn", ImportError("their dependency")), Point("no package", sys), Point("theirs", package(tmp_path))]
    monkeypatch.setattr(files, "entry_points", lambda group: points if group == "tiphys.weights" else [])
    monkeypatch.setattr(files, "brought", files.brought.__wrapped__)
    assert files.card_of("faasrank").parent == files.SHIPPED
    assert files.card_of("faasrank-paper").parent == tmp_path
    assert "weights of another package cannot be used" in caplog.text, "left out, and said"


def test_what_is_shipped_again_by_its_path_goes_to_where_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    bed, names = files.card_of("scaling-q-table"), ("scaling-q-table", "seeds/aset-1", "gobi")
    before = {name: files.card_of(name).stat().st_mtime_ns for name in names}
    done = ship([files.card_of(name) for name in names])
    assert [(one.name, one.changed) for one in done] == [(name, ()) for name in names]
    assert {name: files.card_of(name).stat().st_mtime_ns for name in names} == before
    assert not (files.SHIPPED / bed.name).exists()
