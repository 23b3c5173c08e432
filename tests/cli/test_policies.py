from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from tests.foreign import brought
from tiphys_cli.app import app
from tiphys_cli.support.policies import rows
from tiphys_models.placement import registry as placement


def test_policies_planners_selectors_scaling_agents_and_binding_policies_are_listed_with_their_kind() -> None:
    result = CliRunner().invoke(app, ["policies", "--json"])
    assert result.exit_code == 0
    listed = {row["name"]: row for row in orjson.loads(result.stdout)}
    assert (listed["warm-first"]["kind"], listed["warm-first"]["learned"]) == ("placement", False)
    assert (listed["one-per-host"]["kind"], listed["one-per-host"]["learned"]) == ("heuristic", False)
    assert (listed["farthest"]["kind"], listed["farthest"]["learned"]) == ("binding", False)
    assert (listed["ucb"]["kind"], listed["ucb"]["learned"]) == ("selector", False)
    assert (listed["rule"]["kind"], listed["rule"]["learned"]) == ("scaling agent", False)
    assert (listed["combined"]["kind"], listed["combined"]["learned"]) == ("scaling agent", True)


def test_every_line_says_what_it_does_and_names_are_unique() -> None:
    listed = rows()
    assert len({row["name"] for row in listed}) == len(listed)
    assert all(row["summary"] for row in listed)


def test_a_row_says_whose_it_is_and_which_weights_it_needs() -> None:
    listed = {row["name"]: row for row in rows()}
    assert (listed["faasrank"]["origin"], listed["faasrank"]["model"], listed["faasrank"]["decider"]) == (
        "tiphys",
        "faasrank",
        "placement-policy",
    )
    assert (listed["combined"]["model"], listed["warm-first"]["model"]) == ("scaling-combined", "")


class Roomiest:
    """Prefers free memory."""

    learned = True

    def score(self, view: Any, memory: Any) -> Any:
        return view.available_memory_bytes / 2**30


class Rude:
    """Answers with the order of the names."""

    def score(self, view: Any, memory: Any) -> Any:
        return np.arange(float(len(view.rows)))


def test_deciders_of_other_packages_are_listed_and_a_broken_one_says_why() -> None:
    with brought(placement.REGISTRY, acme_roomiest=f"{__name__}:Roomiest", acme_gone="acme.nowhere:Thing", warm_first=f"{__name__}:Rude"):
        result = CliRunner().invoke(app, ["policies", "--json"])
        assert result.exit_code == 0
        listed = orjson.loads(result.stdout)
        table = CliRunner().invoke(app, ["policies"]).stdout
    mine = next(row for row in listed if row["name"] == "acme-roomiest")
    assert (mine["origin"], mine["kind"], mine["learned"], mine["summary"]) == ("acme 1.0", "placement", True, "Prefers free memory.")
    broken = next(row for row in listed if row["name"] == "acme-gone")
    assert "ModuleNotFoundError" in broken["problem"]
    taken = [row for row in listed if row["name"] == "warm-first"]
    assert [row["origin"] for row in taken] == ["tiphys", "acme"]
    assert "is one of ours" in taken[1]["problem"]
    assert "cannot be used" in table


def test_the_suite_runs_over_a_decider_by_its_name() -> None:
    with brought(placement.REGISTRY, acme_roomiest=f"{__name__}:Roomiest", acme_rude=f"{__name__}:Rude"):
        good = CliRunner().invoke(app, ["policies", "--check", "acme-roomiest", "--json"])
        bad = CliRunner().invoke(app, ["policies", "--check", "acme-rude"])
    assert (good.exit_code, orjson.loads(good.stdout)["holds"]) == (0, True)
    assert bad.exit_code == 1
    assert "another order of the candidates" in bad.stdout


@pytest.mark.parametrize("name", ["faasrank", "warm-first", "one-per-host", "ucb", "rule", "relative-load", "score"])
def test_our_own_can_be_checked_too(name: str) -> None:
    assert CliRunner().invoke(app, ["policies", "--check", name]).exit_code == 0


@pytest.mark.parametrize(
    ("given", "words"), [(["oracle"], "nobody brings"), (["ucb", "--kind", "planner"], "nobody brings"), (["aset"], "names one of")]
)
def test_a_name_that_cannot_be_checked_ends_with_status_2(given: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["policies", "--check", *given])
    assert result.exit_code == 2
    assert words in result.output
