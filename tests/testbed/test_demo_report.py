"""What people see of a demo: tables, report, plots."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from tests.testbed.demo_runs import demo_result, record, replayed
from tiphys_testbed.demo.decisions import LaneDecisions
from tiphys_testbed.demo.lanes import CONTROL
from tiphys_testbed.demo.plots import Line, bar_plot, line_plot, nice_ceiling
from tiphys_testbed.demo.report import render, write_report
from tiphys_testbed.demo.results import (
    summarize,
)
from tiphys_testbed.demo.tables import decisions_table, live_line, live_table, markdown, result_table, share, verdict


def shown(renderable: object) -> str:
    console = Console(width=120, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_the_tables_hold_every_lane() -> None:
    replays = [replayed(0, 2.0, 1.0)]
    summaries = summarize(replays, CONTROL)
    for text in (shown(result_table(summaries)), markdown(summaries)):
        assert CONTROL in text
        assert "warm-first" in text
        assert "50.0" in text
    assert "2/2" in shown(decisions_table(replays))
    lines = markdown(summaries).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert len(lines) == 4


def test_the_verdict_follows_the_figures() -> None:
    assert verdict(summarize([replayed(0, 2.0, 1.0)], CONTROL)).startswith("warm-first had the shortest mean completion time: 50 %")
    assert "One run of one seed" in verdict(summarize([replayed(0, 2.0, 1.0)], CONTROL))
    assert verdict(summarize([replayed(0, 1.0, 2.0)], CONTROL)).startswith("The plain kube-scheduler had the shortest")
    assert "Mean of 2 seeds" in verdict(summarize([replayed(0, 2.0, 1.0), replayed(1, 2.0, 1.0)], CONTROL))


def test_a_share_never_rounds_up_to_all() -> None:
    assert share(0.99999) == "99.9 %"
    assert share(1.0) == "100.0 %"
    assert share(None) == "–"


def test_the_live_view_counts_what_has_come() -> None:
    records = [record(due_s=0.0, took_s=2.0, cold=True), record(due_s=3.0, took_s=None), record(due_s=9.0, took_s=None)]
    assert "a 1/2 done, 1 in flight, mean 2.00 s" in live_line(5.0, ["a"], records)
    assert "waiting for the last calls" in shown(live_table(11.0, 10.0, ["a"], records))


class _References(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []
        self.unbalanced = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        self.unbalanced |= not self.open or self.open.pop() != tag


def test_the_report_opens_without_anything_from_elsewhere(tmp_path: Path) -> None:
    page = write_report(demo_result([replayed(0, 2.0, 1.0), replayed(1, 3.0, 1.0)]), tmp_path / "out").read_text(encoding="utf-8")
    parser = _References()
    parser.feed(page)
    assert parser.found == []
    assert not parser.unbalanced
    assert parser.open == []
    assert "<script" not in page
    assert not re.search(r"url\(|@import", page)
    assert set(re.findall(r"https?://[^\"'<> ]+", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert page.count("<svg viewBox") == 3


def test_the_figures_are_written_as_json_with_every_call(tmp_path: Path) -> None:
    write_report(demo_result([replayed(0, 2.0, 1.0)]), tmp_path)
    document = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert document["seeds"] == [0]
    assert [row["lane"] for row in document["rows"]] == [CONTROL, "warm-first"]
    assert len(document["calls"]) == 4
    assert document["summary"][1]["pct_of_control"]["mean"] == pytest.approx(50.0)
    assert document["problems"] == []


def test_problems_stand_in_the_report_and_names_are_escaped() -> None:
    result = demo_result([replayed(0, 2.0, 1.0, LaneDecisions(scored=0, neutral=2, reasons={"<b>": 2}))])
    page = render(result)
    assert "&lt;b&gt; 2" in page
    assert "<b>" not in page


def test_plots_stay_inside_their_frame() -> None:
    plot = line_plot("t", "x", "y", [Line("a", [0, 5, 30], [0, 2, 90], steps=True), Line("b", [], [])])
    numbers = [float(n) for n in re.findall(r"[MLHV ]([0-9.]+)", plot.split('d="')[1].split('"')[0])]
    assert numbers
    assert all(0 <= n <= 720 for n in numbers)
    assert bar_plot("t", "y", ["g"], {"a": [3.0], "b": [0.0]}).count("<rect") == 2


@pytest.mark.parametrize(
    ("value", "ceiling"), [(0.0, 1.0), (0.9, 1.0), (1.0, 1.0), (1.1, 1.5), (23, 25), (26, 30), (72, 80), (810, 1000), (math.nan, 1.0)]
)
def test_scales_end_at_round_numbers(value: float, ceiling: float) -> None:
    assert nice_ceiling(value) == pytest.approx(ceiling)
