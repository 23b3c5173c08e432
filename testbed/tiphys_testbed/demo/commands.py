"""The command `tiphys demo`."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.live import Live

from tiphys_cli.kube.errors import ClusterError
from tiphys_models.base.errors import TiphysError
from tiphys_models.placement.registry import PolicyName
from tiphys_models.placement.sim.workloads import KINDS
from tiphys_testbed.cluster.options import LocalOptions
from tiphys_testbed.cluster.runs import Run
from tiphys_testbed.demo.lanes import DEFAULT_POLICIES, NODES_PER_LANE, make_lanes
from tiphys_testbed.demo.records import CallRecord
from tiphys_testbed.demo.report import DemoResult, write_report
from tiphys_testbed.demo.session import RUN_NAME, WORKLOAD, DemoOptions, play
from tiphys_testbed.demo.stage import Stage, staged
from tiphys_testbed.demo.tables import decisions_table, live_line, live_table, markdown, result_table, verdict
from tiphys_testbed.tools.programs import ToolError
from tiphys_testbed.tools.progress import Progress
from tiphys_testbed.tools.toolbox import Toolbox

_PLAIN_INTERVAL_S = 10.0
_PLAIN_WIDTH = 140
_LIVE_INTERVAL_S = 0.25
_STOP_DEADLINE_S = 60.0
_QUICK_SPAN_S = 15.0
Outcome = TypeVar("Outcome")


def demo(
    policies: Annotated[str, typer.Option(help="policies to compare with the plain scheduler, by commas")] = ",".join(DEFAULT_POLICIES),
    shadow: Annotated[str, typer.Option(help="a policy that is only asked what it would do with the calls of one more lane")] = "",
    seeds: Annotated[str, typer.Option(help="one replay each, by commas; several give intervals")] = "20",
    nodes: Annotated[int, typer.Option(min=3, max=200, help="simulated nodes of each lane")] = NODES_PER_LANE,
    workload: Annotated[str, typer.Option(help="which of the simulator's workloads: SC, SA, M1 to M10")] = WORKLOAD,
    no_reuse: Annotated[bool, typer.Option("--no-reuse", help="no container serves a second call: every call starts cold")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="go on after the replay, to play with; Ctrl-C or --stop ends it")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="end a demo that was kept, from another terminal")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="print the result as a Markdown table")] = False,
    out: Annotated[Path, typer.Option(help="where report.html and result.json go")] = Path("out/demo"),
    chart: Annotated[Path | None, typer.Option(help="the Helm chart; default: that of the clone")] = None,
    name: Annotated[str, typer.Option(help="name of the local cluster; two names can run side by side")] = RUN_NAME,
    quick: Annotated[bool, typer.Option("--quick", help="15 seconds and few calls: for trying the demo itself; no figure counts")] = False,
) -> None:
    """Replay a 60-second function workload through Tiphys and a plain kube-scheduler on a local control plane, side by side."""
    terminal = Console().is_terminal
    console = Console(highlight=False, soft_wrap=not terminal, width=None if terminal else _PLAIN_WIDTH)
    progress = Progress()
    if stop:
        _attempt(lambda: _stop(console, name))
        return
    begin_s = time.monotonic()
    if workload not in KINDS:
        raise typer.BadParameter(f"{workload!r} is none of {', '.join(KINDS)}", param_hint="--workload")
    options = DemoOptions(
        _policies(policies),
        _seeds(seeds),
        nodes,
        workload,
        _QUICK_SPAN_S if quick else math.inf,
        not no_reuse,
        _policies(shadow)[0] if shadow else None,
        chart,
        name,
        keep,
    )
    # A second program that wants us to end gets what Ctrl-C gets: an orderly end.
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits it ignored
    signal.signal(signal.SIGTERM, _interrupt)
    result = _attempt(lambda: _perform(options, console, progress, out, as_markdown, begin_s))
    if result is None:
        progress.note("interrupted; everything that was started has ended")
        raise typer.Exit(130)
    if result.problems:
        raise typer.Exit(1)


def _perform(options: DemoOptions, console: Console, progress: Progress, out: Path, as_markdown: bool, begin_s: float) -> DemoResult | None:
    audience: _Audience | None = None
    try:
        with staged(options.scene, Toolbox(progress=progress)) as stage:
            audience = _Audience(stage, options, console, progress, out, as_markdown, begin_s)
            try:
                return asyncio.run(play(stage, options, audience))
            finally:
                audience.close()
                progress.note("ending all processes")
    except KeyboardInterrupt:
        return audience.result if audience is not None else None


@dataclass(slots=True)
class _Audience:
    """The terminal: a live table where there is one, a line every ten seconds elsewhere."""

    stage: Stage
    options: DemoOptions
    console: Console
    progress_console: Progress
    out: Path
    as_markdown: bool
    begin_s: float
    result: DemoResult | None = None
    _live: Live | None = None
    _said_s: float = field(default=0.0)

    def started(self, seed: int) -> None:
        """The replay of this seed begins, and a live table on a terminal with it."""
        lanes = len(self.stage.lanes)
        span = f"{self.options.span_s:g} s of calls, seed {seed}, through {lanes} lanes"
        self.progress_console.note(
            f"{span} ({self.options.nodes_per_lane} nodes each) after {time.monotonic() - self.begin_s:.0f} s of set-up"
        )
        self._said_s = 0.0
        if self.progress_console.console.is_terminal:
            self._live = Live(console=self.progress_console.console, auto_refresh=False, transient=True)
            self._live.start()

    def progress(self, elapsed_s: float, records: Sequence[CallRecord]) -> None:
        """A few times a second during a replay."""
        now_s = time.monotonic()
        lanes = [lane.name for lane in self.stage.lanes]
        if self._live is not None:
            if now_s - self._said_s >= _LIVE_INTERVAL_S:
                self._said_s = now_s
                self._live.update(live_table(elapsed_s, self.options.span_s, lanes, records), refresh=True)
        elif now_s - self._said_s >= _PLAIN_INTERVAL_S:
            self._said_s = now_s
            self.progress_console.note(live_line(elapsed_s, lanes, records))

    def finished(self, result: DemoResult) -> None:
        """All replays are over: show them, and say what to do next."""
        self.close()
        self.result = result
        report = write_report(result, self.out)
        if self.as_markdown:
            self.console.print(markdown(result.summaries), markup=False)
        else:
            self.console.print(result_table(result.summaries))
            self.console.print(decisions_table(result.replays))
        self.console.print(verdict(result.summaries), markup=False)
        for problem in result.problems:
            self.console.print(f"FAILED: {problem}", markup=False)
        took_s = time.monotonic() - self.begin_s
        self.console.print(f"report: {report}   figures: {report.with_name('result.json')}   after {took_s:.0f} s", markup=False)
        for line in self._next_steps(result):
            self.console.print(line, markup=False)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _next_steps(self, result: DemoResult) -> list[str]:
        lane = next(lane for lane in self.stage.lanes if lane.policy is not None)
        if not self.options.keep:
            return [
                "Next: make demo KEEP=1 leaves all of this running, to ask `tiphys explain pod/NAME` why a pod is where it is;",
                "      tiphys demo --seeds 20,21,22 tells how far the figures move; tiphys bench --help measures cost and latency.",
            ]
        pod = next((record.pod for record in result.replays[-1].records if record.lane == lane.name and record.cold is False), "")
        named = "" if self.options.name == RUN_NAME else f" --name {self.options.name}"
        pod = pod or result.replays[-1].records_of(lane.name)[0].pod
        return [
            "It goes on running; pods with the label tiphys.io/function of one of the ten functions run as calls. In another terminal:",
            f"  export KUBECONFIG={self.stage.cluster.kubeconfig}",
            f"  tiphys explain pod/{pod} -n {lane.namespace} --extender-url {self.stage.services.explain_url}",
            "  kubectl get schedulingpolicies -A   # kubectl: " + str(self.stage.cluster.toolbox.path("kubectl")),
            f"  curl -s {self.stage.services.status_url}/metrics | grep tiphys_extender_answers_total",
            f"Ctrl-C here, or `tiphys demo --stop{named}` there, ends it.",
        ]


def _stop(console: Console, name: str) -> None:
    run = Run(LocalOptions(name=name).run_dir)
    if not run.path.exists():
        raise ClusterError(f"no demo {name!r} is running")
    owner = run.owner_pid()
    if owner is not None:
        os.kill(owner, signal.SIGINT)
        end_s = time.monotonic() + _STOP_DEADLINE_S
        while run.path.exists() and run.owner_pid() is not None:
            if time.monotonic() > end_s:
                raise ClusterError(f"the demo (pid {owner}) did not end within {_STOP_DEADLINE_S:.0f} s")
            time.sleep(0.1)
    if run.path.exists():
        run.remove()  # its owner crashed
    console.print("the demo has ended")


def _policies(text: str) -> tuple[PolicyName, ...]:
    try:
        chosen = tuple(PolicyName(name.strip()) for name in text.split(",") if name.strip())
        make_lanes(chosen)
    except ValueError as error:
        known = ", ".join(PolicyName)
        raise typer.BadParameter(f"{error} (policies: {known})", param_hint="--policies") from error
    return chosen


def _seeds(text: str) -> tuple[int, ...]:
    try:
        seeds = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        seeds = ()
    if not seeds or min(seeds) < 0 or len(set(seeds)) != len(seeds):
        raise typer.BadParameter(f"{text!r} is not a list of different whole numbers from 0 on, such as 0,1,2", param_hint="--seeds")
    return seeds


def _attempt(work: Callable[[], Outcome]) -> Outcome:
    try:
        return work()
    except (ClusterError, ToolError, TiphysError, TimeoutError) as error:
        Console(stderr=True, highlight=False, markup=False, soft_wrap=True).print(f"error: {error}")
        raise typer.Exit(1) from error


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    signal.raise_signal(signal.SIGINT)
