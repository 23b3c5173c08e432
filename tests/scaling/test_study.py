from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

pytest.importorskip("numba")

from tiphys_cli.app import app
from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.base.network import Network
from tiphys_models.lab.documents import blocks, claim_row, mark_of, rewrite
from tiphys_models.lab.report import Result, Trivial
from tiphys_models.lab.study import run
from tiphys_models.scaling.learned import moves_of
from tiphys_models.scaling.registry import make_agent
from tiphys_models.scaling.sim.noise import NOISY
from tiphys_models.scaling.sim.shapes import SHAPES
from tiphys_models.scaling.study.definition import ScalingStudy
from tiphys_models.scaling.study.figures import claims, over_bar, summarise
from tiphys_models.scaling.study.pictures import draw
from tiphys_models.scaling.study.play import Cell, joint, play_cell, settling, traces
from tiphys_models.scaling.study.promises import frontiers
from tiphys_models.scaling.study.settings import settings_of
from tiphys_models.scaling.study.tables import tables, titles

KEYS = {
    "shape", "scenario", "agent", "setting", "seed", "windows", "slo_attained", "requests_attained", "never_served", "cost", "cpu_hours",
    "replica_hours", "p90_ms", "switches",
}  # fmt: skip
CHOSEN = {"rule": "r", "rule+": "k", "rule-horizontal": "h", "hpa": "80", "combined": "p2", "dqn-vertical": "p"}


def row(agent: str, setting: str, shape: str, seed: int, attained: float, cost: float, **more: Any) -> dict[str, Any]:
    plain = {"requests_attained": attained, "never_served": 0.0, "cpu_hours": cost, "replica_hours": 1.0, "p90_ms": 4.0, "switches": 10}
    return {
        "shape": shape,
        "scenario": "default",
        "agent": agent,
        "setting": setting,
        "seed": seed,
        "windows": 240,
        "slo_attained": attained,
        "cost": cost,
        **plain,
        **more,
    }


def rows(recurring: float = 0.93) -> list[dict[str, Any]]:
    """`combined` has three settings; it is as dear as the rule at what the rule attains, and cheaper where jumps recur."""
    made = []
    for shape in (*SHAPES, "mine"):
        for seed in (0, 1, 2):
            level = 1 + 0.1 * seed
            better = recurring if shape == "recurring" else 1.0
            made += [
                row("rule", "r", shape, seed, 0.96, level),
                row("rule-horizontal", "h", shape, seed, 0.96, 1.25 * level),
                row("hpa", "80", shape, seed, 0.90, 2.0 * level),
                row("naive", "only", shape, seed, 0.9, 2.0 * level, switches=200),
                row("combined", "p1", shape, seed, 0.94, 0.9 * level * better),
                row("combined", "p2", shape, seed, 0.98, 1.1 * level * better),
                row("combined", "p3", shape, seed, 0.97, 1.5 * level * better),
            ]
    for rps, start_m, settled_m in ((200.0, 60.0, 360.0), (200.0, 600.0, 380.0), (40.0, 60.0, 96.0)):
        sizes = {"start_m": start_m, "settled_m": settled_m, "smallest_m": 340.0 if rps > 100 else 80.0, "kept_at_last": 0.98}
        made.append(row("dqn-vertical", "p", f"constant-{rps:g}", 0, 0.98, 1.0, **sizes))
    return made


def plus(made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`rule+` keeps two points more than the rule for the same, and costs a tenth more where work grows by a tenth."""
    rule = [r for r in made if r["agent"] == "rule"]
    better = [{**r, "agent": "rule+", "setting": "k", "slo_attained": 0.98, "slo_attained_after_first_hour": 0.97} for r in rule]
    lazy = [{**r, "setting": "k2", "slo_attained": 0.9, "cost": 0.8 * r["cost"]} for r in better]
    hurt = [{**r, "scenario": "release", "cost": 1.1 * r["cost"], "slo_attained": r["slo_attained"] - 0.01} for r in (*rule, *better)]
    wrong = [{**r, "scenario": "all-wrong", "slo_attained": r["slo_attained"] - 0.1} for r in (*rule, *better)]
    return [*better, *lazy, *hurt, *wrong, *({**r, "scenario": "resizes-late"} for r in (*rule, *better))]


def test_rule_plus_is_held_to_windows_requests_costs_and_wrong_numbers() -> None:
    made = rows()
    made += [{**r, "shape": "mine-noisy-35"} for r in made if r["shape"] == "ramp"]
    made += plus(made)
    found = {c.id: c for c in claims(made, {"chosen": CHOSEN})}
    kept = found["rule+-windows-kept-mine"]
    assert (kept.value, kept.limit, kept.trivial) == (0.98, 0.98, Trivial("rule", 0.96))
    assert not kept.void
    assert found["rule+-windows-kept-mine-noisy-35"].value == 0.97
    assert found["rule+-requests-kept-flash"].limit == 0.92
    assert found["rule+-cost-over-rule-ramp"].value is not None
    lost = found["rule+-points-lost-release"]
    assert lost.value == pytest.approx(1.0)
    assert lost.holds
    assert found["rule+-cost-times-release"].value == pytest.approx(1.1)
    assert not found["rule+-points-lost-all-wrong-flash"].holds
    assert found["combined-cost-over-rule+-flash"].limit == 1.01
    assert "rule+-cost-over-hpa-tuned-flash" not in found  # the grid was not played
    assert not [c for c in claims(rows(), {"chosen": CHOSEN}) if "rule+" in c.id]


def test_hpa_is_tuned_for_each_shape_where_its_grid_was_played() -> None:
    made = [*rows(), *plus(rows())]
    grid = [row("hpa", f"cpu-{i}", shape, seed, 0.9 + i / 1000, 2.0) for i in range(100) for shape in SHAPES for seed in (0, 1, 2)]
    found = {c.id: c for c in claims([*made, *grid], {"chosen": CHOSEN})}
    assert found["rule+-cost-over-hpa-tuned-flash"].value is not None
    one = [row("hpa", "cpu-50-300m-300s", "flash", seed, 0.95, 2.0) for seed in (0, 1, 2)]
    assert {c.id: c.value for c in claims([*made, *one], {"chosen": CHOSEN})}["rule+-cost-over-one-hpa-flash"] == pytest.approx(0.55)


def test_frontiers_say_where_only_one_of_them_attains() -> None:
    made = [row("a", "1", "flash", 0, 0.99, 1.0), row("b", "1", "flash", 0, 0.8, 1.0)]
    both, turned = frontiers(made, "a", "b", "flash"), frontiers(made, "b", "a", "flash")
    assert both is not None
    assert turned is not None
    assert (both.ratio(), turned.ratio()) == (0.0, np.inf)
    assert frontiers(made, "a", "c", "flash") is None


def test_a_noisy_cell_tells_what_is_kept_after_the_first_hour() -> None:
    cell = Cell("noisy-35", 1, ("rule", "rule+", "dqn-vertical"), 4500, fluid=True, points="chosen")
    made = {r["agent"]: r for r in play_cell(replace(cell, agents=("rule", "rule+")))}
    assert {r["setting"] for r in made.values()} == {"headroom-1.08", "keep-98.5"}
    assert all("slo_attained_after_first_hour" in r for r in made.values())
    assert made["rule+"]["slo_attained"] > made["rule"]["slo_attained"] + 0.2


def test_scenarios_are_played_by_the_agents_that_they_concern() -> None:
    study = ScalingStudy(seeds=(0, 1), agents=("naive", "hpa", "rule", "combined", "clairvoyant"), scenarios=("resizes-3s", "release"))
    cells = study.cells({})
    assert {cell.scenario_name for cell in cells} == {"default", "resizes-3s", "release"}
    late = [cell for cell in cells if cell.scenario_name == "resizes-3s"]
    assert {cell.label for cell in late} == {*SHAPES, *NOISY}
    assert {cell.agents for cell in late} == {("rule",)}
    released = [cell for cell in cells if cell.scenario_name == "release"]
    assert {(cell.agents, cell.points) for cell in released} == {(("hpa", "rule", "combined"), "chosen")}
    assert {cell.label for cell in released} == set(SHAPES)
    assert not any(cell.scenario_name != "default" for cell in replace(study, scenarios=("default",)).cells({}))


def test_a_cell_with_wrong_numbers_is_played_under_its_scenario() -> None:
    cell = Cell("diurnal", 1, ("rule+",), 900, fluid=True, points="chosen")
    (right,), (wrong,) = play_cell(cell), play_cell(replace(cell, scenario_name="all-wrong"))
    assert (right["scenario"], wrong["scenario"]) == ("default", "all-wrong")
    assert wrong["slo_attained"] < right["slo_attained"]


def claim(made: list[dict[str, Any]], name: str) -> tuple[Any, bool]:
    return next((c.value, c.holds) for c in claims(made, {"chosen": CHOSEN}) if c.id == name)


def test_costs_are_compared_where_the_bar_attains_the_same() -> None:
    assert over_bar(rows(), "rule", "r", "flash").ratio() == pytest.approx(1.0)
    assert claim(rows(), "combined-cost-over-rule-flash") == (1.0, True)
    assert claim(rows(), "combined-cost-over-rule-horizontal-flash") == (0.8, True)
    assert claim(rows(), "shapes-below-rule-horizontal") == (6.0, True)
    assert claim(rows(), "combined-cost-over-hpa-flash") == (0.45, True)


def test_a_win_on_recurring_jumps_needs_its_interval() -> None:
    assert claim(rows(), "combined-cost-over-rule-ci95-high-recurring") == (0.93, True)
    assert not claim(rows(recurring=1.0), "combined-cost-over-rule-ci95-high-recurring")[1]


def test_an_attainment_that_is_never_reached_is_no_comparison() -> None:
    made = [r for r in rows() if r["setting"] not in {"p2", "p3"}]
    value, holds = next(
        (c.value, c.holds) for c in claims(made, {"chosen": {**CHOSEN, "combined": "p1"}}) if c.id == "combined-cost-over-rule-ramp"
    )
    assert value is None
    assert not holds


def test_attainment_is_that_of_the_one_chosen_setting() -> None:
    assert claim(rows(), "combined-windows-kept-bursty") == (0.98, True)
    assert claim(rows(), "combined-windows-kept-mine") == (0.98, True)
    assert claim(rows(), "combined-requests-kept-flash") == (0.98, True)


def test_settling_and_naive_s_unrest_are_measured() -> None:
    assert claim(rows(), "dqn-vertical-settled-over-smallest-from-100-rps") == (pytest.approx(380 / 340, abs=1e-3), True)
    assert claim(rows(), "dqn-vertical-settled-over-smallest-40-to-100-rps") == (1.2, True)
    assert claim(rows(), "naive-changes-a-window-constant") == (pytest.approx(200 / 240, abs=1e-3), True)


def test_the_frontier_with_the_fewest_settings_is_counted() -> None:
    assert claim(rows(), "settings-of-an-agent-with-price-or-margin") == (1.0, False)
    made = [row("rule", f"r{i}", "flash", 0, 0.9, 1.0) for i in range(9)]
    assert claim(made, "settings-of-an-agent-with-price-or-margin") == (9.0, True)


def test_without_the_learned_agent_its_claims_are_not_made() -> None:
    made = [r for r in rows() if r["agent"] != "combined"]
    assert not [c.id for c in claims(made, {"chosen": CHOSEN}) if "combined" in c.id]


def test_a_cell_has_a_row_for_every_agent_and_setting_and_is_repeatable() -> None:
    cell = Cell("flash", 3, ("naive", "hpa", "rule", "clairvoyant"), 300)
    first = play_cell(cell)
    assert [(r["agent"], r["setting"]) for r in first if r["agent"] == "rule"] == [("rule", name) for name, _ in settings_of("rule")]
    assert len(settings_of("rule")) >= 9
    assert len(settings_of("rule-horizontal")) >= 9
    assert all(set(r) == KEYS for r in first)
    assert first == play_cell(cell)
    by = {(r["agent"], r["setting"]): r for r in first}
    assert by["clairvoyant", "relaxed-95"]["cost"] < by["clairvoyant", "all"]["cost"] < by["rule", "headroom-1.08"]["cost"]


def test_a_run_has_rows_summary_claims_pictures_and_tables(tmp_path: Path) -> None:
    shape = tmp_path / "mine.txt"
    shape.write_text("\n".join(["200"] * 60 + ["500"] * 60))
    said: list[str] = []
    study = ScalingStudy(seeds=(4,), agents=("naive", "rule"), files=(shape,), quick=True, jobs=1, scenarios=("default",))
    result = run(study, said.append)
    noisy = {*NOISY, "mine-noisy-20", "mine-noisy-35", "mine-noisy-50"}
    assert {r["shape"] for r in result.rows} == {*SHAPES, *noisy, "mine"}
    assert result.inputs["chosen"]["rule"] == "headroom-1.08"
    assert len(result.inputs["shape_files"]["mine"]["sha256"]) == 64
    assert "naive-changes-a-window-constant" in {c.id for c in result.claims}
    mine = next(cell for cell in study.cells({}) if cell.label == "mine" and cell.points == "all")
    draw(replace(result, rows=[r for r in result.rows if r["shape"] == "mine"]), {"mine": traces(mine)}, tmp_path)
    assert {p.name for p in tmp_path.glob("*.svg")} == {"frontier-mine.svg", "over-time-mine.svg"}
    found = blocks(tables(result), [])
    assert {line.split(" | ")[0] for line in found["cost-of-the-chosen-settings"].splitlines()[2:]} == {"| naive", "| rule"}
    assert len(said) == 13
    assert orjson.loads(orjson.dumps(result.as_json()))["rows"] == result.rows


def test_with_a_queue_for_every_pod_the_same_arrivals_are_rows_of_their_own() -> None:
    agents = ("hpa", "rule", "clairvoyant")
    central = {(r["agent"], r["setting"]): r for r in play_cell(Cell("bursty", 3, agents, 600))}
    own = play_cell(Cell("bursty", 3, agents, 600, per_pod=True))
    assert [(r["agent"], r["setting"]) for r in own] == [("hpa", "cpu-80"), ("rule", "headroom-1.08")]
    assert {r["shape"] for r in own} == {"bursty-per-pod-queues"}
    assert all(r["requests_attained"] != central[r["agent"], r["setting"]]["requests_attained"] for r in own)
    study = ScalingStudy(seeds=(0, 1), agents=agents, scenarios=("default",))
    assert sum(cell.per_pod for cell in study.cells({})) == 2 * len(SHAPES)
    assert not any(cell.per_pod for cell in replace(study, fluid=True).cells({}))


def test_the_document_has_the_tables_of_a_run(tmp_path: Path) -> None:
    made = rows(recurring=0.9)
    made += [{**r, "shape": f"{r['shape']}-per-pod-queues"} for r in made if r["shape"] in SHAPES]
    made += [{**r, "shape": "three-services"} for r in made if r["shape"] == "ramp"]
    made += [{**r, "shape": "noisy-20", "slo_attained_after_first_hour": 0.98} for r in made if r["shape"] == "ramp"]
    made += plus(made)
    inputs = {"chosen": CHOSEN, "simulator": "requests"}
    result = Result("scaling", False, (0, 1, 2), 60.0, inputs, made, summarise(made), claims(made, inputs))
    document = tmp_path / "scaling.md"
    document.write_bytes((Path(__file__).parents[2] / "docs" / "scaling.md").read_bytes())
    written = blocks(tables(result), [claim_row(c) for c in result.claims])
    assert set(written) == {*map(mark_of, titles(("combined", "rule", "rule+", "dqn-horizontal", "dqn-vertical"), requests=True)), "claims"}
    rewrite(document, written)
    text = document.read_text()
    assert "| recurring | 0.720 (0.720 to 0.720) | 0.900 (0.900 to 0.900) | 0.405 (0.405 to 0.405) |" in text
    assert "| dqn-vertical | constant-200 | 340 | 1.06 (98.0) | 1.12 (98.0) |" in text
    assert "| combined-windows-kept-bursty | 0.98 | >= 0.9 |  | holds |" in text


def test_a_ratio_is_of_the_seeds_that_every_setting_has() -> None:
    made = [r for r in rows() if (r["setting"], r["seed"]) != ("p2", 2)]
    assert over_bar(rows(), "rule", "r", "flash").interval().n == 3
    assert over_bar(made, "rule", "r", "flash").interval().n == 2


def test_a_ratio_that_hangs_on_one_seed_has_no_interval() -> None:
    steep = [r | {"slo_attained": 0.90 if r["seed"] < 2 else 1.10} if r["agent"] == "combined" else r for r in rows()]
    found = over_bar(steep, "rule", "r", "flash").interval()
    assert found.mean < 2
    assert (found.ci95_low, found.ci95_high) == (-np.inf, np.inf)
    result = Result("scaling", False, (0, 1, 2), 60.0, {"chosen": CHOSEN, "simulator": "requests"}, steep, summarise(steep), [])
    (line,) = (r for r in dict(tables(result))["combined over the rules' cost at what they attain"] if r["shape"] == "flash")  # type: ignore[index]
    assert "not attained without one of the seeds" in line["over `rule`, r"]  # type: ignore[index]


def test_a_trace_names_what_the_learned_agent_did() -> None:
    made = traces(Cell("flash", 1, ("rule", "combined"), 300, fluid=True))
    assert made["rule"]["taken"] == []
    assert len(made["combined"]["taken"]) == len(made["combined"]["rps"]) == 20
    assert set(made["combined"]["taken"]) <= {*make_agent("combined").actions, "kept rule"}


def test_three_services_are_judged_together(tmp_path: Path) -> None:
    moves = moves_of("dqn-horizontal-3")
    arrays = Network([(np.zeros((15, 27)), np.eye(27)[moves.stay])]).arrays()
    write_tensors(tmp_path, "still", "dqn-horizontal-3", moves.schema, arrays, hidden=(), dueling=False)
    cell = Cell("three-services", 2, ("hpa", "rule", "dqn-horizontal"), 300, fluid=True)
    by = {r["agent"]: r for r in joint(cell, tmp_path / "still.json")}
    assert set(by) == {"dqn-horizontal", "hpa", "rule"}
    assert all(r["shape"] == "three-services" and set(r) == KEYS for r in by.values())
    assert by["dqn-horizontal"]["switches"] == 0
    assert by["rule"]["slo_attained"] <= by["rule"]["requests_attained"]  # one service's lost window is lost for all
    assert by["rule"]["replica_hours"] >= 3 * 300 / 3600


def test_the_vertical_agent_is_shown_beside_the_published_reward() -> None:
    found = settling(0)
    assert {(r["shape"], r["start_m"]) for r in found} >= {("constant-40", 60.0), ("constant-250", 600.0)}
    assert {r["agent"] for r in found} == {"dqn-vertical", "dqn-vertical-published"}
    assert orjson.loads(orjson.dumps(found)) == found


def test_a_summary_says_mean_and_interval() -> None:
    found = next(s for s in summarise(rows()) if (s["shape"], s["agent"], s["metric"]) == ("flash", "rule", "cost"))
    assert found["mean"] == pytest.approx(1.1)
    assert found["ci95_low"] < 1.1 < found["ci95_high"]
    assert found["n"] == 3
    assert Result("scaling", True, (0,), 1.0, {}, rows(), [found], claims(rows(), {"chosen": CHOSEN})).as_json()["claims"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--agents", "magic"], "'magic' is none of"),
        (["--shape", "nowhere.txt"], "nowhere.txt"),
        (["--seeds", "x"], "whole numbers"),
        (["--scenarios", "monday"], "'monday' is none of"),
        (["--docs", "nowhere.md"], "nowhere.md"),
        (["--shape", "a/mine.txt", "--shape", "b/mine.txt"], "two files of one name"),
    ],
)
def test_bad_inputs_end_with_one_clear_line(options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", "scaling", *options])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
