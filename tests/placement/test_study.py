from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("numba")

from tiphys_cli.app import app
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.documents import Block, blocks, mark_of, rewrite
from tiphys_models.lab.report import Result
from tiphys_models.placement.sim.workloads import MULTI
from tiphys_models.placement.study.definition import Cell, PlacementStudy
from tiphys_models.placement.study.figures import FIVE, claims, summarise, training_claims
from tiphys_models.placement.study.speed import speed_claims
from tiphys_models.placement.study.tables import claim_rows, tables, titles

TIMES = {"hashing": 6.0, "round-robin": 5.4, "least-connections": 5.0, "greedy": 6.6, "static-rank": 4.2, "clairvoyant": 2.7}


def rows(**mean_s: float) -> list[dict[str, Any]]:
    """Two seeds of all ten workloads, the second one a little slower."""
    made = []
    for policy, seconds in {**TIMES, **mean_s}.items():
        for name in MULTI:
            for seed in (0, 1):
                figures = {"mean_s": seconds + 0.1 * seed, "p95_s": 9.0, "p99_s": 9.9, "cold_starts": 3}
                shares = {"inflight_lower_share": 0.5, "jain_fairness": 0.9}
                made.append({"workload": name, "scenario": "default", "policy": policy, "seed": seed, **figures, **shares})
    return made


def rows_of(block: Block) -> Sequence[dict[str, Any]]:
    assert not isinstance(block, str)
    return block


def claim(made: list[dict[str, Any]], name: str) -> tuple[float | None, bool]:
    return next((c.value, c.holds) for c in claims(made) if c.id == name)


def test_claims_are_computed_from_rows() -> None:
    made = rows(faasrank=3.0, **{"warm-first": 3.3})
    value, holds = claim(made, "faasrank-mean-pct-of-hashing")
    assert value == pytest.approx(50.4, abs=0.05)
    assert holds
    assert claim(made, "faasrank-best-of-five-workloads") == (10.0, True)
    assert claim(made, "faasrank-gap-closed")[0] == pytest.approx(0.8, abs=0.01)
    assert claim(made, "faasrank-over-warm-first")[1]


def test_a_worse_model_holds_no_claim_against_its_rule() -> None:
    made = rows(faasrank=4.3, **{"warm-first": 3.3})
    assert not claim(made, "faasrank-over-warm-first-ci95-high")[1]
    assert not claim(made, "faasrank-over-static-rank")[1]
    assert claim(made, "faasrank-best-of-five-workloads") == (0.0, False)
    assert not claim(made, "never-behind-static-rank-default")[1]  # 2.4 % behind


def test_the_summary_has_intervals_over_seeds() -> None:
    line = next(s for s in summarise(rows(faasrank=3.0)) if s["policy"] == "static-rank" and s["workload"] == "M1-M10")
    assert line["metric"] == "pct_of_hashing"
    assert line["n"] == 2
    assert line["ci95_low"] <= line["mean"] <= line["ci95_high"]


def test_the_plan_plays_every_policy_on_every_workload_of_the_default_scenario() -> None:
    cells = [c for c in PlacementStudy(seeds=(0, 1)).cells({}) if isinstance(c, Cell) and c.scenario.name == "default"]
    assert list(dict.fromkeys(c.workload for c in cells)) == ["SC", "SA", *MULTI, "burst"]
    assert {c.seed for c in cells} == {0, 1}
    assert all(set(FIVE) <= set(c.policies) for c in cells)
    assert [(c.workload, c.seed) for c in cells if c.traced] == [("M5", 0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "fifo"], "'fifo' is none of"),
        (["--trace-dir", "nowhere"], "invocation_traces.csv"),
        (["--seeds", "a"], "whole numbers"),
    ],
)
def test_bad_inputs_end_with_one_clear_line(options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["bench", "placement", *options])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_tables_for_people_are_short_and_sorted() -> None:
    made = rows(faasrank=3.0, **{"warm-first": 3.3})
    result = Result("placement", False, (0, 1), 1.0, {"models": {}}, made, summarise(made), claims(made))
    found = dict(tables(result))
    policies, workloads, scenarios = (rows_of(found[title]) for title in ("policies", "workloads", "scenarios"))
    assert not found["speed"]
    assert [line["policy"] for line in policies][:2] == ["`greedy`", "`hashing`"]
    assert policies[-1]["policy"] == "`clairvoyant`"
    assert len(workloads) == 11  # ten, and their mean
    assert scenarios[0]["`faasrank`"] == policies[-2]["M1–M10, % of hashing"].split(" ")[0]
    assert scenarios[0]["`faasrank` ÷ `warm-first`"].startswith("0.91")


def test_claims_about_training_are_read_off_the_card() -> None:
    seeds = [{"seed": s, "validation_pct_of_hashing": 50.0 + s, "episodes": 1000, "seconds": 100.0 + s} for s in range(5)]
    good = {c.id: (c.value, c.holds) for c in training_claims({"faasrank": seeds})}
    assert good == {
        "faasrank-training-seeds": (5.0, True),
        "faasrank-500-training-episodes-s": (52.0, True),
        "faasrank-shipped-over-best-on-validation": (1.0, True),
    }
    other = {c.id: c.holds for c in training_claims({"faasrank": seeds[1:]})}
    assert not other["faasrank-training-seeds"]
    worse = {c.id: c.holds for c in training_claims({"faasrank": seeds[::-1]})}
    assert not worse["faasrank-shipped-over-best-on-validation"]
    assert not any(c.holds for c in training_claims({"faasrank": []}))


def test_speed_is_held_to_the_bar_of_its_policy() -> None:
    made = [{"policy": policy, "median": 50_000, "fastest": 900_000} for policy in ("round-robin", "faasrank")]
    assert [(c.value, c.holds) for c in speed_claims(made)] == [(50_000, False), (50_000, True)]


def finished() -> Result:
    made = rows(faasrank=3.0, **{"warm-first": 3.3})
    seeds = [{"seed": 4, "validation_pct_of_hashing": 50.0, "test_pct_of_hashing": 48.0, "best_step": 9, "episodes": 800, "seconds": 60.0}]
    inputs = {"training": {"faasrank": seeds}, "models": {"faasrank": "ab12"}}
    return Result("placement", False, (0, 1), 1.0, inputs, made, summarise(made), claims(made))


def written() -> Mapping[str, str]:
    return blocks(tables(finished()), claim_rows(finished().claims))


def test_marked_tables_of_a_document_are_rewritten_and_the_rest_is_left(tmp_path: Path) -> None:
    document = tmp_path / "card.md"
    names = [*map(mark_of, titles(("hashing", "faasrank"))), "claims"]
    document.write_text("before\n" + "".join(f"<!-- bench:{name} -->\nstale\n<!-- /bench -->\n" for name in names) + "after\n")
    assert set(names) == set(written())
    rewrite(document, written())
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "stale" not in text
    assert "| `static-rank` | 70.2 (" in text
    assert "| faasrank-best-of-five-workloads | 10 | >= 10 |  | holds |" in text
    assert "| 4 (shipped) | 50.00 | 48.00 | 9 | 800 | 60 |" in text
    rewrite(document, written())
    assert document.read_text() == text


def test_a_mark_that_nothing_belongs_to_is_refused(tmp_path: Path) -> None:
    document = tmp_path / "card.md"
    document.write_text("<!-- bench:ages -->\n<!-- /bench -->\n")
    with pytest.raises(InvalidInput, match="'ages'"):
        rewrite(document, written())
    with pytest.raises(InvalidInput, match="cannot read"):
        rewrite(tmp_path / "none.md", written())
