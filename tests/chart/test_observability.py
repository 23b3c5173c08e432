"""Alerts fire when they should and only then; the dashboard asks for metrics that exist; generated files are current."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest

from tests.chart.alert_case import Case, Series
from tests.chart.extender_alert_cases import EXTENDER_CASES
from tests.chart.operator_alert_cases import OPERATOR_CASES
from tests.chart.rendering import ROOT
from tiphys_cli.observability.__main__ import main
from tiphys_cli.observability.dashboards import DASHBOARDS, render
from tiphys_cli.observability.generate import files, stale
from tiphys_cli.observability.rules import alerts, rule_file
from tiphys_cli.observability.runbooks import runbook
from tiphys_extender.binder.metrics import BinderMetrics
from tiphys_extender.gates.metrics import ExtenderMetrics
from tiphys_models.seats.record import System
from tiphys_operator.all_metrics import all_metrics
from tiphys_testbed.tools.toolbox import Toolbox

PROMTOOL_DEADLINE_S = 30.0
CASES: dict[str, Case] = EXTENDER_CASES | OPERATOR_CASES
# Metrics of others, each with where it is documented to come from.
FOREIGN = {
    "scheduler_framework_extension_point_duration_seconds_count": "kube-scheduler, STABLE",
    "scheduler_schedule_attempts_total": "kube-scheduler, STABLE",
    "kube_pod_scheduler": "kube-state-metrics",
    "kube_pod_info": "kube-state-metrics",
    "kube_pod_status_phase": "kube-state-metrics",
}


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = str(Toolbox().path("promtool"))
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=PROMTOOL_DEADLINE_S, check=False)


def test_generated_files_are_what_the_code_says() -> None:
    assert stale(ROOT) == [], "run `python -m tiphys_cli.observability`"


def test_the_generator_writes_what_differs_and_check_only_tells(tmp_path: Path) -> None:
    crds = tmp_path / "manifests" / "crds"
    crds.mkdir(parents=True)
    (crds / "one.yaml").write_text("kind: CustomResourceDefinition\n", encoding="utf-8")
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert not (tmp_path / "helm").exists()
    assert main(["--root", str(tmp_path)]) == 0
    assert all((tmp_path / path).read_text(encoding="utf-8") == text for path, text in files(tmp_path).items())
    assert main(["--check", "--root", str(tmp_path)]) == 0


def test_the_generator_outside_a_source_tree_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(tmp_path)]) == 2
    assert "python -m tiphys_models.api.crd" in capsys.readouterr().err


def test_rules_are_valid() -> None:
    answer = promtool("check", "rules", "--lint=all", "--lint-fatal", str(ROOT / "helm" / "tiphys" / "alerts" / "tiphys.yaml"))
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_every_alert_has_a_case_and_a_runbook() -> None:
    names = {alert.name for alert in alerts()}
    assert names == CASES.keys()
    page = runbook()
    for alert in alerts():
        assert alert.name.startswith("Tiphys")
        assert f"## {alert.name}\n" in page
        assert alert.rule()["annotations"]["runbook_url"].endswith(f"#{alert.name.lower()}")
    assert all(alert.meaning and alert.impact and alert.diagnosis and alert.mitigation for alert in alerts())
    assert page.count("**Meaning.**") == page.count("**Impact.**") == page.count("**Mitigation.**") == len(names)


def unit_test(folder: Path, series: Series, at: str, name: str, expected: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    rules = folder / "rules.yaml"
    rules.write_text(yaml.safe_dump(rule_file()), encoding="utf-8")
    body = {
        "rule_files": [str(rules)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": selector, "values": values} for selector, values in series.items()],
                "alert_rule_test": [{"eval_time": at, "alertname": name, "exp_alerts": expected}],
            }
        ],
    }
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump(body), encoding="utf-8")
    return promtool("test", "rules", str(file))


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_and_says_what_it_should(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    (alert,) = [alert for alert in alerts() if alert.name == name]
    annotations = {**alert.rule()["annotations"], "description": case.description}
    expected = {"exp_labels": {"severity": alert.severity, **case.labels}, "exp_annotations": annotations}
    answer = unit_test(tmp_path, case.fires, case.at, name, [expected])
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("name", CASES)
def test_an_alert_is_silent_when_all_is_well(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    answer = unit_test(tmp_path, case.quiet, case.at, name, [])
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_no_coverage_at_all_is_low_coverage(tmp_path: Path) -> None:
    # An extender that never ran has no series: the ratio must be 0, not nothing.
    selector = 'scheduler_framework_extension_point_duration_seconds_count{extension_point="Score",profile="tiphys"}'
    (alert,) = [alert for alert in alerts() if alert.name == "TiphysExtenderCoverageLow"]
    text = "Only 0% of the scheduler's Score calls got an answer; the default plugins alone decide for the rest."
    expected = {"exp_labels": {"severity": "warning"}, "exp_annotations": {**alert.rule()["annotations"], "description": text}}
    answer = unit_test(tmp_path, {selector: "0+60x60"}, "20m", alert.name, [expected])
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_a_stranded_pod_is_not_one_that_has_a_node_or_another_scheduler(tmp_path: Path) -> None:
    series = {
        'kube_pod_scheduler{namespace="a",pod="p",name="tiphys"}': "1x60",
        'kube_pod_info{namespace="a",pod="p",node="n1"}': "1x60",
        'kube_pod_status_phase{namespace="a",pod="p",phase="Pending"}': "1x60",
    }
    answer = unit_test(tmp_path, series, "20m", "TiphysPodsStranded", [])
    assert answer.returncode == 0, answer.stdout + answer.stderr


def expressions() -> Iterator[tuple[str, str]]:
    for group in rule_file()["groups"]:
        for rule in group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def panels() -> list[dict[str, Any]]:
    return [
        panel
        for dashboard in (render("placement"), render("scaling"), render("streams"))
        for panel in dashboard["panels"]
        if panel["type"] != "row"
    ]


def test_every_query_asks_for_metrics_that_exist() -> None:
    exported = generate_latest(ExtenderMetrics().registry) + generate_latest(BinderMetrics().registry) + all_metrics().render()
    known = set(re.findall(r"^(\w+)[{ ]", exported.decode(), re.MULTILINE)) | FOREIGN.keys()
    # No model is loaded and no site known: metrics with labels of their own have no sample yet.
    known |= set(re.findall(r"^# TYPE (\w+) (?:gauge|counter)$", exported.decode(), re.MULTILINE))
    known |= {rule["record"] for rule in rule_file()["groups"][0]["rules"]}
    for where, expr in expressions():
        asked = set(re.findall(r"\b(?:tiphys|scheduler|kube)[_:][\w:]+", re.sub(r'"[^"]*"', "", expr)))
        assert asked, where
        assert asked <= known, where


def test_label_values_in_queries_are_ones_that_exist() -> None:
    exported = (generate_latest(ExtenderMetrics().registry) + all_metrics().render()).decode()
    for where, expr in expressions():
        for metric, label, values in re.findall(
            r'(tiphys_(?:extender|operator)_\w+)\{[^}]*?(reason|outcome|kind|code|le)(?:=|=~|!~)"([^"]+)"', expr
        ):
            for value in values.split("|"):
                assert re.search(rf'^{metric}\{{[^}}]*{label}="{re.escape(value)}"', exported, re.MULTILINE), f"{where}: {label}={value}"


def test_panels_are_valid_promql(tmp_path: Path) -> None:
    rules = [
        {
            "record": f"panel:{number}",
            "expr": target["expr"]
            .replace("$__rate_interval", "5m")
            .replace("$operator_job", ".*")
            .replace("$binder_job", ".*")
            .replace("$job", ".*"),
        }
        for number, target in enumerate(target for panel in panels() for target in panel["targets"])
    ]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    answer = promtool("check", "rules", "--lint=none", str(file))
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_panels_are_described_have_units_and_choose_their_source() -> None:
    dashboard = render("placement")
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == ["datasource", "job", "operator_job"]
    assert [variable["name"] for variable in render("scaling")["templating"]["list"]] == ["datasource", "operator_job"]
    assert [variable["name"] for variable in render("streams")["templating"]["list"]] == ["datasource", "binder_job", "operator_job"]
    assert len(panels()) >= 30
    for each in (dashboard, render("scaling"), render("streams")):
        assert len({panel["id"] for panel in each["panels"]}) == len(each["panels"])
    assert len({panel["title"] for panel in panels()}) == len(panels())
    for panel in panels():
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            if panel["type"] == "timeseries":
                assert not re.search(r"rate\([^)]*\[\d", target["expr"]), panel["title"]


@pytest.mark.parametrize(
    ("system", "dashboard"), [("placement", "placement"), ("selection", "placement"), ("scaling", "scaling"), ("streams", "streams")]
)
def test_every_system_shows_who_answered_why_and_what_the_other_one_would_have_said(system: System, dashboard: str) -> None:
    row = [
        panel["title"].partition(": ")[2] for panel in render(dashboard)["panels"] if panel["title"].startswith(f"{system.capitalize()}: ")
    ]
    compared = [] if system == "placement" else ["groups compared"]
    wanted = ["answers by turn", "fallbacks by reason", "share of fallbacks", "rule against learned decider", *compared, "age of weights"]
    assert row == wanted


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_panels_do_not_overlap(dashboard: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in render(dashboard)["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dashboards_in_the_chart_are_plain_json() -> None:
    for name, dashboard in (("placement", render("placement")), ("scaling", render("scaling")), ("binding", render("streams"))):
        assert json.loads((ROOT / "helm" / "tiphys" / "dashboards" / f"{name}.json").read_text(encoding="utf-8")) == dashboard
