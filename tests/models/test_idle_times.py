"""When idle instances were counted, as Prometheus computes it: promtool evaluates the queries that extender and binder ask."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tiphys_models.placement.schema import idle_instances_query, idle_times_query
from tiphys_testbed.tools.toolbox import Toolbox

PROMTOOL = Toolbox().find("promtool")
pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="build it: tiphys tools build promtool")
HELD = {"job": "runtimes"}
IDLE, AGE = "tiphys_runtime_idle_instances", "tiphys_runtime_idle_age_seconds"


def evaluated(folder: Path, series: dict[str, str], query: str, expected: Mapping[str, float]) -> None:
    """Series have a sample every ten seconds; the query is evaluated at 65 s, when the last is five seconds old."""
    samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
    test: dict[str, Any] = {
        "interval": "10s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": "65s", "exp_samples": samples}],
    }
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "10s", "tests": [test]}), encoding="utf-8")
    answer = subprocess.run([str(PROMTOOL), "test", "rules", str(file)], capture_output=True, text=True, timeout=30, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_a_runtime_that_counts_when_it_is_scraped_is_as_old_as_the_scrape(tmp_path: Path) -> None:
    series = {f'{IDLE}{{node="n0",function="a/f",job="runtimes"}}': "1x6", f'{IDLE}{{node="n0",function="a/g",job="runtimes"}}': "0x6"}
    evaluated(tmp_path, series, idle_times_query("node", HELD), {'{node="n0"}': 60})
    counts = {'{node="n0", function="a/f"}': 1, '{node="n0", function="a/g"}': 0}
    evaluated(tmp_path, series, idle_instances_query("node", HELD), counts)


def test_counts_that_were_old_at_the_scrape_are_as_old_as_their_runtime_says(tmp_path: Path) -> None:
    series = {
        f'{IDLE}{{node="n0",function="a/f",job="runtimes"}}': "1x6",
        f'{IDLE}{{node="n0",function="a/g",job="runtimes"}}': "1x6",
        f'{AGE}{{node="n0",job="runtimes"}}': "1 1 1 1 1 1 3.5",
        f'{IDLE}{{node="n1",function="a/f",job="runtimes"}}': "1x6",
    }
    evaluated(tmp_path, series, idle_times_query("node", HELD), {'{node="n0"}': 56.5, '{node="n1"}': 60})


def test_nobody_makes_counts_younger_than_their_scrape_nor_speaks_for_a_runtime_without_its_labels(tmp_path: Path) -> None:
    series = {
        f'{IDLE}{{node="n0",function="a/f",job="runtimes"}}': "1x6",
        f'{AGE}{{node="n0",job="runtimes"}}': "-500x6",
        f'{IDLE}{{node="n1",function="a/f",job="runtimes"}}': "1x6",
        f'{AGE}{{node="n1",job="somebody"}}': "500x6",
    }
    evaluated(tmp_path, series, idle_times_query("node", HELD), {'{node="n0"}': 60, '{node="n1"}': 60})


def test_of_two_runtimes_on_a_node_the_older_report_counts(tmp_path: Path) -> None:
    series = {
        f'{IDLE}{{node="n0",function="a/f",job="runtimes",pod="x"}}': "1x6",
        f'{IDLE}{{node="n0",function="a/f",job="runtimes",pod="y"}}': "2x6",
        f'{AGE}{{node="n0",job="runtimes",pod="y"}}': "7x6",
    }
    evaluated(tmp_path, series, idle_times_query("node", HELD), {'{node="n0"}': 53})
    evaluated(tmp_path, series, idle_instances_query("node", HELD), {'{node="n0", function="a/f"}': 3})
