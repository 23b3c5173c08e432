from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("numba")

from tiphys_cli.app import app
from tiphys_models.lab.documents import blocks, claim_row, mark_of, markdown, rewrite
from tiphys_models.lab.pool import play_all
from tiphys_models.lab.report import Result
from tiphys_models.selection.cloud.score import DEFAULT, Weights
from tiphys_models.selection.sim.scenario import DEFAULT_SCENARIO
from tiphys_models.selection.study.definition import SelectionStudy, sweep
from tiphys_models.selection.study.figures import best_columns, claims, pick, summarise, with_best_fixed
from tiphys_models.selection.study.pictures import draw
from tiphys_models.selection.study.play import Cell, play
from tiphys_models.selection.study.tables import tables, titles

# cost, energy, response, violations, J
FIGURES = {
    "gobi": (0.20, 0.40, 7.0, 0.08, 0.90),
    "gosh": (0.15, 0.45, 7.5, 0.20, 0.95),
    "one-per-host": (0.17, 0.36, 5.5, 0.02, 0.80),
    "metanet": (0.13, 0.30, 5.8, 0.03, 0.78),
    "ucb": (0.17, 0.36, 5.6, 0.02, 0.81),
    "twin": (0.16, 0.33, 5.7, 0.02, 0.76),
    "oracle": (0.16, 0.32, 5.6, 0.02, 0.74),
}


def rows(**changed: tuple[float, float, float, float, float]) -> list[dict[str, Any]]:
    """Two seeds of both workloads under both weights, the second a little worse."""
    made = []
    for workload in ("stationary", "regime"):
        for weights in ("default", "cost-at-sla"):
            for policy, figures in {**FIGURES, **changed}.items():
                for seed in (0, 1):
                    cost, energy, response, late, j = (f * (1 + 0.01 * seed) for f in figures)
                    key = {
                        "policy": policy,
                        "workload": workload,
                        "scenario": "default",
                        "weights": weights,
                        "seed": seed,
                        "intervals": 1000,
                    }
                    made.append({**key, "cost_usd": cost, "energy_kwh": energy, "response_s": response, "sla_violation": late, "j": j,
                                 "cpu_pct": 50.0, "scheduling_s": 0.01, "switches": 3})  # fmt: skip
    return with_best_fixed(made)


def claim(made: list[dict[str, Any]], name: str) -> tuple[Any, bool]:
    return next((c.value, c.holds) for c in claims(made, {}) if c.id == name)


def test_the_best_fixed_policy_is_found_in_hindsight() -> None:
    best = pick(rows(), policy="best-fixed", workload="regime", weights="default")
    assert [r["of"] for r in best] == ["one-per-host"] * 2
    assert [r["j"] for r in best] == [pytest.approx(0.80), pytest.approx(0.808)]


def test_claims_are_computed_from_rows() -> None:
    made = rows()
    assert claim(made, "metanet-j-over-best-fixed-pct-regime") == (pytest.approx(-2.5), True)
    assert claim(made, "metanet-j-over-best-fixed-pct-ci95-high-regime")[1]
    assert claim(made, "metanet-j-over-twin-pct-regime") == (pytest.approx(2.632, abs=0.01), True)
    assert claim(made, "metanet-j-over-ucb-pct-ci95-high-stationary")[1]
    assert claim(made, "metanet-cost_usd-gain-pct-stationary") == (pytest.approx(13.33), True)
    assert claim(made, "metanet-response_s-gain-pct-stationary") == (pytest.approx(-5.45), False)
    assert claim(made, "rows-that-dominate-metanet-regime") == (0.0, True)


def test_cost_at_sla_counts_only_rows_that_keep_it() -> None:
    made = rows()
    assert claim(made, "metanet-cost-at-sla-over-cheapest-planner-pct-stationary") == (-35.0, True)  # gosh is cheaper but misses 20 %
    assert claim(made, "metanet-cost-at-sla-over-cheapest-heuristic-pct-regime")[1]
    assert not claim(rows(metanet=(0.13, 0.3, 5.8, 0.12, 0.78)), "metanet-cost-at-sla-violation-regime")[1]


def test_a_worse_selector_holds_no_claim() -> None:
    made = rows(metanet=(0.21, 0.41, 7.5, 0.09, 0.95))
    assert not claim(made, "metanet-j-over-best-fixed-pct-stationary")[1]
    assert claim(made, "rows-that-dominate-metanet-regime") == (3.0, False)


def test_an_oracle_that_loses_is_told() -> None:
    assert claim(rows(), "oracle-over-best-other-regime")[1]
    assert not claim(rows(oracle=(0.2, 0.4, 6.0, 0.1, 0.9)), "oracle-over-best-other-regime")[1]


def test_without_the_learned_selector_its_claims_are_not_made() -> None:
    made = [r for r in rows() if r["policy"] != "metanet"]
    assert not [c.id for c in claims(made, {}) if "metanet" in c.id]


def test_best_columns_name_their_rows() -> None:
    best = best_columns(rows(), "stationary")
    assert best["cost_usd"]["policy"] == "gosh"
    assert best["response_s"]["policy"] == "one-per-host"


def test_the_max_min_search_is_reported_beside_the_paper_s_gains() -> None:
    points = [{"gains_pct": {"cost_usd": c, "energy_kwh": 1.0, "response_s": 2.0, "sla_violation": -3.0}} for c in (-9.0, 4.0)]
    found = {c.id: c.value for c in claims(rows(), {"regime": points})}
    assert found["max-min-oracle-cost_usd-gain-pct-regime"] == 4.0
    assert found["max-min-oracle-sla_violation-gain-pct-regime"] == -3.0


@pytest.fixture(scope="module", autouse=True)
def compiled_cloud() -> None:
    play(cell(intervals=3))


def cell(**changed: Any) -> Cell:
    plain = {
        "workload": "regime",
        "scenario": DEFAULT_SCENARIO,
        "seed": 3,
        "intervals": 70,
        "weights": {"default": DEFAULT, "cost-at-sla": Weights(0.8, 0.0, 0.0, 0.2)},
    }
    both = dict.fromkeys(("default", "cost-at-sla"), ("ucb", "random", "twin", "oracle"))
    return Cell(**{**plain, "fixed": ("cost-lean", "one-per-host"), "choosers": both, **changed})


def test_a_cell_has_a_row_for_every_policy_and_weighting() -> None:
    played = play(cell())
    assert {(r["policy"], r["weights"]) for r in played.rows} == {
        (p, w) for p in ("cost-lean", "one-per-host", "ucb", "random", "twin", "oracle") for w in ("default", "cost-at-sla")
    }
    by = {(r["policy"], r["weights"]): r for r in played.rows}
    assert by["oracle", "default"]["j"] <= min(by[p, "default"]["j"] for p in ("cost-lean", "one-per-host"))
    assert by["cost-lean", "default"]["cost_usd"] == by["cost-lean", "cost-at-sla"]["cost_usd"]
    assert by["ucb", "default"]["scheduling_s"] > 0


def test_a_sweep_plays_few_policies_under_many_weights() -> None:
    swept = dict.fromkeys(sweep(), ("twin",))
    played = play(cell(intervals=30, weights={"default": DEFAULT, **sweep()}, choosers={"default": ("ucb", "twin"), **swept}))
    assert {r["weights"] for r in played.rows if r["policy"] == "twin"} == {"default", *sweep()}
    assert {r["weights"] for r in played.rows if r["policy"] == "ucb"} == {"default"}


def test_the_same_cell_gives_the_same_rows() -> None:
    assert play(cell(intervals=40)).rows == play(cell(intervals=40)).rows


def test_pictures_and_tables_are_made_from_the_result(tmp_path: Path) -> None:
    said: list[str] = []
    played = play_all([cell(trace=True, intervals=30)], play, lambda c: c.label, said.append, jobs=1)
    made = with_best_fixed(played[0].rows)
    best = {workload: best_columns(made, workload) for workload in ("stationary", "regime")}
    inputs = {
        "candidates": ["cost-lean", "one-per-host"], "over_time": {"regime": played[0].trace}, "cost_at_sla": {"missed_usd": 3e-4},
        "best_columns": best, "weights": {}, "training": {}, "models": {},
    }  # fmt: skip
    result = Result("selection", True, (3,), 1.0, inputs, made, summarise(made), [])
    draw(result, tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"over-time-regime.svg", "pareto-regime.svg"}
    found = dict(tables(result))
    assert "| `twin` |" in markdown(found["table-regime"])
    assert "| `best-fixed` (" in markdown(found["table-regime"])
    assert said[0].startswith("1/1 regime: ")


def finished() -> Result:
    made = rows()
    best = {workload: best_columns(made, workload) for workload in ("stationary", "regime")}
    points = [{"gains_pct": dict.fromkeys(("cost_usd", "energy_kwh", "response_s", "sla_violation"), -12.0)}]
    checked = claims(made, {"regime": points})
    judged = {"regime/default": 0.95, "regime/cost-at-sla": 0.9}
    training = {"metanet": [{"seed": s, "validation_j_over_best_fixed": judged, "mean": 0.925} for s in (1, 0)]}
    inputs = {
        "weights": {"default": {}},
        "cost_at_sla": {"missed_usd": 3e-4},
        "best_columns": best,
        "training": training,
        "models": {"metanet": "ab12"},
    }
    return Result("selection", False, (0, 1), 1200.0, inputs, made, summarise(made), checked)


def test_documents_are_rewritten_from_the_result(tmp_path: Path) -> None:
    found = blocks(tables(finished()), [claim_row(c) for c in finished().claims])
    assert set(found) == {*map(mark_of, titles(("metanet",))), "claims"}
    document = tmp_path / "a.md"
    document.write_text("".join(f"<!-- bench:{name} -->\nold\n<!-- /bench -->\n" for name in found))
    rewrite(document, found)
    text = document.read_text()
    assert "\nold\n" not in text
    assert "Seeds 0, 1 of the test split, 1,000 intervals, 20 minutes" in text
    assert "a missed deadline costs 0.0003 USD" in text
    assert "| `best-fixed` (`one-per-host`) | 0.1709 | 0.3618 | 5.53 | 2.0 |" in found["table-regime"]
    # the bound is best, and every row is told against the best single policy
    assert [line.split(" | ")[0] for line in found["table-stationary"].splitlines()[2:5]] == ["| `oracle`", "| `twin`", "| `metanet`"]
    assert "| `metanet` | 0.1306 | 0.3015 | 5.83 | 3.0 | 0.7839 | 50.0 | 10.0 | 3 | -2.5 (-2.5 to -2.5) |" in found["table-stationary"]
    assert [line.split(" | ")[0] for line in found["cost-at-sla-regime"].splitlines()[2:4]] == ["| `metanet`", "| `gosh`"]
    assert "| regime | USD | 0.1507 (`gosh`) | 8 | +13 | -12 |" in found["gains"]
    assert "| regime | `one-per-host` | -5.0 (-5.0 to -5.0) | -2.5 (-2.5 to -2.5) | switching pays |" in found["enough"]
    assert "| stationary | cost-at-sla | -2.5 (-2.5 to -2.5) | +2.6 (+2.6 to +2.6) | 0.1306 | 3.0 |" in found["metanet"]
    assert "| 1 (shipped) | 0.950 | 0.900 | 0.925 |" in found["seeds-metanet"]
    assert found["digest-metanet"] == "sha256 of the weights: `ab12`"


def test_the_plan_covers_both_workloads_sweep_and_sensitivity() -> None:
    cells = SelectionStudy(seeds=(0, 1, 2, 3, 4)).cells({})
    default = [c for c in cells if c.scenario.name == "default" and "default" in c.weights]
    assert {(c.workload, c.seed) for c in default} == {(w, s) for w in ("stationary", "regime") for s in range(5)}
    assert {c.scenario.name for c in cells} >= {"resume-5s", "resume-30s-linger-3", "mix-heavy", "mix-light", "arrivals-uniform"}
    assert [set(c.weights) for c in cells[:3]] == [{"default", "cost-at-sla", *sweep()}] * 2 + [{"default", "cost-at-sla"}]
    assert [c.workload for c in cells if c.search] == ["stationary", "regime"]
    table = [c for c in default if not c.search]
    assert {(p, key) for c in table for key, names in c.choosers.items() for p in names} >= {
        (p, key) for p in ("metanet", "metanet-paper", "dqn", "ucb", "random") for key in ("default", "cost-at-sla")
    }
    assert all({"oracle", "twin"} <= set(c.choosers["default"]) for c in table)


def test_the_max_min_search_adds_points_and_no_rows() -> None:
    found = play(cell(intervals=30, weights={"default": DEFAULT}, choosers={"default": ("ucb",)}, search=True))
    assert len(found.max_min or []) > 3
    assert found.rows == []
    # nobody gains more in every column than the best row of each has
    assert all(min(point["gains_pct"].values()) < 5 for point in found.max_min or [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "fifo"], "'fifo' is none of"),
        (["--workload", "nowhere.csv"], "nowhere.csv"),
        (["--workload", "regime.csv"], "would be confused"),
        (["--seeds", "x"], "whole numbers"),
    ],
)
def test_bad_inputs_end_with_one_clear_line(options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["bench", "selection", *options])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
