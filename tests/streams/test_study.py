from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("numba")

from tiphys_cli.app import app
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.documents import blocks, check, claim_row, mark_of, rewrite
from tiphys_models.lab.report import Result
from tiphys_models.streams.rules import PAPER, STATIC
from tiphys_models.streams.sim.scenario import DEFAULT_SCENARIO
from tiphys_models.streams.sim.topology import TOPOLOGIES
from tiphys_models.streams.sim.workloads import NAMES
from tiphys_models.streams.study.definition import StreamStudy
from tiphys_models.streams.study.facts import topology_facts
from tiphys_models.streams.study.figures import Table, claims, oracle_shares, summarise, with_blind
from tiphys_models.streams.study.pictures import draw, illustrate
from tiphys_models.streams.study.play import TRACED, Blind, Cell, play_cell
from tiphys_models.streams.study.tables import tables as every_table
from tiphys_models.streams.study.tables import titles

RATES = {"full-edge": (20.0, 40.0, 60.0, 80.0, 100.0), "co-dc-cloud": (60.0,), "dc-cloud": (60.0,)}


def row(policy: str, success: float, *, topology: str, rate: float, seed: int, **changed: Any) -> dict[str, Any]:
    return {
        "topology": topology, "scenario": "default", "arrivals": "poisson", "policy": policy, "training_seed": None, "application": "all",
        "lambda_per_min": rate, "seed": seed, "streams": 100, "success": success, "reject": 0.5 * (1 - success), "failure": 0.5 * (1 - success),
        **changed,
    }  # fmt: skip


def rows(gain: float = 0.03, fixed_gain: float = 0.02) -> list[dict[str, Any]]:
    """Static policies from 0.70 on, `relative-load` best with 0.80; two training seeds of `aset`, the second half a point worse."""
    made = []
    for topology, rates in RATES.items():
        for rate in rates:
            for seed in range(3):
                at: dict[str, Any] = {"topology": topology, "rate": rate, "seed": seed}
                static = {p: 0.70 + 0.01 * i for i, p in enumerate(STATIC)} | {"relative-load": 0.80}
                made += [row(p, s + 0.001 * seed, **at) for p, s in static.items()]
                extra = gain if topology != "dc-cloud" else 0.002
                for k in (0, 1):
                    made.append(row("aset", 0.80 + extra - 0.005 * k + 0.001 * seed, **at, training_seed=k))
                    made.append(row("aset-fixed", 0.80 + fixed_gain - 0.005 * k + 0.001 * seed, **at, training_seed=k))
                made += [row("blind-schedule", 0.79, **at), row("blind-table", 0.81, **at)]
                for application, best in (("gaming", "cheaper"), ("cars", "farthest")):
                    made += [row(p, 0.9 if p == best else 0.8, **at, application=application) for p in STATIC]
    return with_blind(made)


def claim(made: list[dict[str, Any]], name: str) -> tuple[Any, bool]:
    return next((c.value, c.holds) for c in claims(made) if c.id == name)


def test_claims_are_of_all_training_seeds_against_the_nearest_static_policy() -> None:
    made = rows()
    assert claim(made, "aset-over-every-static-points-full-edge-60") == (2.75, True)
    assert claim(rows(gain=0.02), "aset-over-every-static-points-full-edge-60") == (1.75, False)
    assert claim(made, "aset-over-every-static-points-full-edge-20") == (2.75, True)
    assert claim(made, "aset-rejects-over-best-static-points-full-edge-60") == (-1.38, True)
    assert claim(made, "aset-from-best-static-points-either-way-dc-cloud-60") == (0.05, True)
    assert claim(made, "aset-over-best-blind-points-full-edge-60") == (pytest.approx(1.85), True)  # over the table, the better one
    assert claim(made, "best-static-success-pct-full-edge-60-low") == (80.1, True)


def test_switching_counts_only_above_the_agent_s_own_fixed_action() -> None:
    name = "aset-switching-over-own-best-fixed-points-ci95-low-full-edge-60"
    assert claim(rows(), name)[1]
    assert not claim(rows(fixed_gain=0.03), name)[1]


def test_applications_are_compared_both_ways() -> None:
    name = "applications-differ-points-of-{}-gaming-cheaper-cars-farthest-{}"
    assert claim(rows(), name.format("seven", 60)) == (10.0, True)
    assert claim([r for r in rows() if r["lambda_per_min"] != 80.0], name.format("eight", 60)) == (10.0, True)
    ruled = [{**r, "success": 0.95} if r["policy"] == "relative-load" and r["application"] != "all" else r for r in rows()]
    assert claim(ruled, name.format("seven", 60)) == (10.0, True)
    assert not [c for c in claims(ruled) if "of-eight" in c.id]  # one policy is the best for both


def test_the_better_blind_comparator_is_named() -> None:
    assert {r["of"] for r in rows() if r["policy"] == "blind"} == {"blind-table"}


def test_shares_of_the_oracle_s_gain_are_over_the_best_of_the_seven() -> None:
    at: dict[str, Any] = {"topology": "full-edge", "rate": 60.0, "seed": 0}
    table: Table = {
        (p, None): [row(p, s, **at)]
        for p, s in {**dict.fromkeys(PAPER, 0.6), "farthest": 0.7, "relative-load": 0.9, "oracle": 0.74, "random": 0.66}.items()
    }
    table["aset-paper", 1] = [row("aset-paper", 0.71, **at)]
    assert oracle_shares(table) == {
        "oracle_gain_points": pytest.approx(4),
        "random": pytest.approx(-1),
        "aset-paper-1": pytest.approx(0.25),
    }
    assert oracle_shares({}) == {}
    assert oracle_shares({key: rows for key, rows in table.items() if key != ("farthest", None)}) == {}


def cell(**changed: Any) -> Cell:
    plain: dict[str, Any] = {"topology": "full-edge", "scenario": DEFAULT_SCENARIO, "lambda_per_min": 100.0, "seed": 0, "horizon_s": 10.0}
    blind = Blind(("closest", "farthest"), (2,) * len(NAMES))
    return Cell(**{**plain, "policies": (*STATIC, "random", "blind-schedule", "blind-table", "oracle"), "blind": blind, **changed})


def test_a_cell_has_a_row_for_every_policy_and_application_and_is_the_same_again() -> None:
    played = play_cell(cell(trace=True))
    assert len(played.rows) == (len(STATIC) + 4) * (len(NAMES) + 1)
    for found in played.rows:
        assert found["success"] + found["reject"] + found["failure"] == pytest.approx(1)
    assert play_cell(cell()).rows == played.rows
    assert set(played.over_time) == set(STATIC)
    everybody = {r["policy"]: r for r in played.rows if r["application"] == "all"}
    assert everybody["blind-table"]["success"] == everybody["farthest"]["success"]  # a table of one policy is that policy


def test_the_oracle_is_the_same_whichever_policies_are_shown_beside_it() -> None:
    among = [r for r in play_cell(cell(horizon_s=20.0)).rows if r["policy"] == "oracle"]
    assert play_cell(cell(horizon_s=20.0, policies=("relative-load", "oracle"))).rows[-len(among) :] == among
    everybody = {r["policy"]: r["success"] for r in play_cell(cell(horizon_s=20.0)).rows if r["application"] == "all"}
    assert max(PAPER, key=everybody.__getitem__) != "closest"  # the first, which a missing success must not make the best


def test_blind_comparators_are_tuned_only_where_they_are_played() -> None:
    study = StreamStudy(seeds=(0,), policies=("closest", "oracle"), quick=True, jobs=1, sensitivity=False)
    assert study.tuned(lambda _: None) == {}
    assert {cell.blind for cell in study.cells({})} == {None}


@pytest.mark.parametrize("switches", [True, False])
def test_the_fixed_action_of_an_agent_that_never_switched_is_not_printed_again(*, switches: bool) -> None:
    made = rows()
    if not switches:
        made = [r for r in made if r["policy"] != "aset-fixed"] + [r | {"policy": "aset-fixed"} for r in made if r["policy"] == "aset"]
    shares = {"aset-0": 0.5, "aset-fixed-0": 0.5}
    inputs = {"topologies": {}, "workload": {"lambda_per_min": 60.0}, "shares_of_oracle_gain": shares}
    tables = dict(made_tables(Result("binding", True, (0, 1, 2), 1.0, inputs, made, summarise(made), [])))
    lines = [line["policy"] for line in tables["full-edge: success/reject/failure, % by lambda"]]
    assert ("aset-fixed (seed 0)" in lines) is switches
    assert "aset (seed 0)" in lines
    (told,) = tables["full-edge, lambda 60: shares of what the oracle gains"]
    assert ("aset-fixed-0" in told, "aset-0" in told) == (switches, True)


def finished(topologies: Sequence[str] = tuple(RATES)) -> Result:
    made = [r for r in rows() if r["topology"] in topologies]
    topology = {"offers": 74, "infeasible_when_empty": 0.0, "infeasible_by_application": {}}
    moved = [{"lambda_or_arrivals": "60", "points": 9.0}]
    noise = np.random.default_rng(0).uniform(0, 1, (len(TRACED), 120))
    inputs = {
        "over_time": {t: dict(zip(TRACED, noise.tolist(), strict=True)) for t in topologies}, "topologies": {"full-edge": topology},
        "workload": {"lambda_per_min": 60.0, "qps_an_antenna": 1000.0}, "if_streams_moved": moved,
    }  # fmt: skip
    return Result("binding", True, (0, 1, 2), 1.0, inputs, made, summarise(made), claims(made))


def made_tables(result: Result) -> list[tuple[str, Sequence[dict[str, Any]]]]:
    return [(title, block) for title, block in every_table(result) if not isinstance(block, str)]


def marks(study: StreamStudy) -> list[str]:
    return [*map(mark_of, study.titles()), "claims"]


def written(result: Result) -> Mapping[str, str]:
    return blocks(made_tables(result), [claim_row(c) for c in result.claims])


def test_a_document_gets_tables_and_the_pictures_that_it_shows(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    block = "<!-- bench:full-edge-success-over-the-best-static-policy-points-by-lambda -->\n<!-- /bench -->\n"
    document.write_text(f"before\n{block}![by rate](images/binding-rates-full-edge.svg)\n![other](images/sketch.svg)\n")
    study = StreamStudy(seeds=(0,), policies=("closest", "aset"))
    check([document], marks(study))
    study.check_pictures(document)
    rewrite(document, written(finished()))
    study.illustrate(finished(), document)
    assert "| aset (seed 0) | +3.0 (+3.0..+3.0) |" in document.read_text()
    assert "| aset (all seeds) | +2.8 (-0.4..+5.9) |" in document.read_text()
    assert [p.name for p in (tmp_path / "images").iterdir()] == ["binding-rates-full-edge.svg"]


@pytest.mark.parametrize(
    ("text", "message"), [("<!-- bench:magic -->\n<!-- /bench -->", "'magic'"), ("![](images/binding-magic.svg)", "magic")]
)
def test_what_no_run_writes_is_named_before_anything_is_played(tmp_path: Path, text: str, message: str) -> None:
    document = tmp_path / "page.md"
    document.write_text(text)
    study = StreamStudy(seeds=(0,))
    refused = []
    try:
        check([document], marks(study))
        study.check_pictures(document)
    except InvalidInput as error:
        refused.append(str(error))
    assert len(refused) == 1
    assert message in refused[0]


def test_marks_are_known_before_a_run_has_tables() -> None:
    played = dict.fromkeys(r["policy"] for r in rows() if r["policy"] != "blind")
    assert set(written(finished())) == {*map(mark_of, titles(tuple(played), None)), "claims"}
    alone = [mark_of(title) for title in titles(("aset", "score"), "bursts")]
    assert "arrivals-of-bursts" in alone
    assert not [mark for mark in alone if "over-the-best-static" in mark or "oracle" in mark]  # nothing to compare with


def test_pictures_are_small_and_the_same_for_the_same_result(tmp_path: Path) -> None:
    draw(finished(["full-edge"]), tmp_path)
    found = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert set(found) == {"applications.svg", "over-time-full-edge.svg", "rates-full-edge.svg"}
    assert max(map(len, found.values())) < 60_000
    illustrate(finished(["full-edge"]), tmp_path, {"rates-full-edge": "again.svg"})
    assert (tmp_path / "again.svg").read_bytes() == found["rates-full-edge.svg"]
    assert all(f">{figure}, % of queries<" in found["rates-full-edge.svg"].decode() for figure in ("success", "reject", "failure"))


def test_applications_are_told_for_the_best_static_policy_and_the_agent_of_every_scenario() -> None:
    at: dict[str, Any] = {"topology": "full-edge", "rate": 60.0}
    made = [
        row(policy, success - 0.1 * (application == "cars"), **at, seed=seed, scenario=scenario, application=application, training_seed=k)
        for scenario, best in (("default", "closest"), ("fluid", "farthest"))
        for application in ("all", "gaming", "cars")
        for seed in (0, 1)
        for policy, k, success in ((best, None, 0.8), ("cheaper", None, 0.7), ("aset", 0, 0.9), ("aset", 1, 0.8))
    ]
    inputs: dict[str, Any] = {"topologies": {}, "workload": {}}
    tables = dict(made_tables(Result("binding", True, (0, 1), 1.0, inputs, made, summarise(made), [])))
    assert [list(line.values()) for line in tables["full-edge, lambda 60: success by scenario and application, %"]] == [
        ["default", "closest", "80.0", "80.0", "70.0"],
        ["default", "aset", "85.0", "85.0", "75.0"],
        ["fluid", "farthest", "80.0", "80.0", "70.0"],
        ["fluid", "aset", "85.0", "85.0", "75.0"],
    ]


def test_what_no_policy_could_bind_is_told_for_every_topology() -> None:
    found = topology_facts("dc-cloud", 0)
    assert found["infeasible_when_empty"] > 0.2
    assert found["infeasible_by_application"]["gaming"] > 0.5
    assert found["infeasible_by_application"]["assembly"] == 0
    assert topology_facts("full-edge", 0)["infeasible_when_empty"] == 0


def test_every_topology_is_traced_once_at_the_calibrated_rate() -> None:
    traced = [(cell.topology, cell.lambda_per_min, cell.seed) for cell in StreamStudy(seeds=(3, 4)).cells({}) if cell.trace]
    assert traced == [(topology, 60.0, 3) for topology in TOPOLOGIES]


def test_unknown_policies_and_unreadable_arrivals_are_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "binding", "--policies", "magic"])
    assert (result.exit_code, "'magic' is none of" in result.stderr) == (2, True)
    result = CliRunner().invoke(app, ["bench", "binding", "--arrivals", str(tmp_path / "none.csv")])
    assert (result.exit_code, "cannot read none.csv" in result.stderr) == (2, True)


def test_modelling_choices_can_be_left_as_they_are() -> None:
    blind = {topology: Blind(("closest", "farthest"), (2,) * len(NAMES)) for topology in RATES}
    every, fewer = (StreamStudy(seeds=(0,), sensitivity=changed) for changed in (True, False))
    assert {job.scenario.name for job in fewer.cells({"blind": blind})} == {"default"}
    kept = [job for job in every.cells({"blind": blind}) if job.scenario.name == "default"]
    assert kept == fewer.cells({"blind": blind})
