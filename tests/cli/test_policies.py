from __future__ import annotations

import orjson
from typer.testing import CliRunner

from tiphys_cli.app import app
from tiphys_cli.support.policies import rows


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
