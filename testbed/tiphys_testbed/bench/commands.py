"""`tiphys bench extender|scale|scheduler|binder|calls|live-placement|versions`: benchmarks that start processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tiphys_cli.bench.commands import Check, Docs, Json, Out, Quick, Seeds
from tiphys_cli.bench.plots import Bars
from tiphys_cli.bench.printing import finish, guarded, parse_numbers
from tiphys_models.artifacts.shipped import SHIPPED
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.documents import check as check_documents
from tiphys_models.lab.documents import markdown, rewrite
from tiphys_models.lab.report import Result
from tiphys_models.placement.registry import usable_rules
from tiphys_models.placement.sim.workloads import KINDS
from tiphys_testbed.bench import binder as binder_bench
from tiphys_testbed.bench import extender as extender_bench
from tiphys_testbed.bench import flood as flood_bench
from tiphys_testbed.bench import scale as scale_bench
from tiphys_testbed.bench import scheduler as scheduler_bench
from tiphys_testbed.bench import versions as versions_bench

COMPARABLE = ("extender", *versions_bench.NOT_COMPARED)

process_app = typer.Typer()
"""Found by `tiphys bench` through the entry points of this distribution."""


@process_app.command()
def extender(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: Seeds = "0",
    flood: Annotated[bool, typer.Option("--flood", help="instead: calls with a flood on the status port, beside calls without")] = False,
) -> None:
    """What one prioritize call costs with FaaSRank on, beside the floor of the same server."""

    def work(tell: Callable[[str], None]) -> Result:
        chosen = parse_numbers(seeds, "seeds", least=0)
        if flood:
            return flood_bench.run(flood_bench.FloodPlan.quickly(chosen) if quick else flood_bench.FloodPlan(seeds=chosen), tell)
        return extender_bench.run(extender_bench.ExtenderPlan.quickly(chosen) if quick else extender_bench.ExtenderPlan(seeds=chosen), tell)

    result = guarded(work)
    rows = result.rows
    if flood:
        finish(result, json=json, out=out, check=check, plots={})
        return
    bars = Bars(
        "One prioritize call: median, FaaSRank beside the floor",
        "ms",
        [f"{row['policy']}, {row['names']:,} names" for row in rows],
        [("real", [row["p50_ms"] for row in rows]), ("floor", [row["floor_p50_ms"] for row in rows])],
    )
    finish(result, json=json, out=out, check=check, plots={"extender.svg": bars})


@process_app.command()
def scale(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    part: Annotated[str, typer.Option(help=f"one of all, {', '.join(scale_bench.PARTS)}")] = "all",
) -> None:
    """Memory, loop time and answers of a service in a cluster of 5,000 nodes, lists and relists included."""

    def work(tell: Callable[[str], None]) -> Result:
        if part not in ("all", *scale_bench.PARTS):
            raise InvalidInput(f"--part {part}: choose all or one of {', '.join(scale_bench.PARTS)}")
        return scale_bench.run(part, quick, tell)

    finish(guarded(work), json=json, out=out, check=check, plots={})


@process_app.command()
def scheduler(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: Seeds = "0",
    nodes: Annotated[str, typer.Option(help="comma-separated numbers of nodes")] = "500,5000",
    pairs: Annotated[int, typer.Option(min=1, max=100, help="alternated pairs of runs a setting")] = 5,
    pods: Annotated[int, typer.Option(min=100, max=20_000, help="pods of the backlog")] = 1000,
    model: Annotated[str, typer.Option(help=f"one of {', '.join(SHIPPED)}")] = SHIPPED[0],
) -> None:
    """Pods a second through the real kube-scheduler, with Tiphys and without, in alternated pairs."""

    def work(tell: Callable[[str], None]) -> Result:
        sizes, chosen = parse_numbers(nodes, "nodes", least=2), parse_numbers(seeds, "seeds", least=0)
        if model not in SHIPPED:
            raise InvalidInput(f"--model {model}: choose one of {', '.join(SHIPPED)}")
        plan = scheduler_bench.SchedulerPlan(sizes, pairs, pods, chosen, model=model)
        if quick:
            plan = scheduler_bench.SchedulerPlan(sizes[:1], 1, min(pods, 300), chosen[:1], quick=True, model=model)
        return scheduler_bench.run(plan, tell)

    result = guarded(work)
    ratios = [row for row in result.summary if row["metric"] == "ratio"]
    bars = Bars(
        "Pods a second with Tiphys ÷ without, median of pairs",
        "ratio",
        [f"{row['nodes']:,} nodes, sampling {row['sampling']}" for row in ratios],
        [("median ratio", [row["median"] for row in ratios])],
    )
    finish(result, json=json, out=out, check=check, plots={"scheduler.svg": bars})


@process_app.command("live-placement")
def live_placement(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: Annotated[str, typer.Option(help="comma-separated seeds of the test split, one live run each")] = "0,1,2,3,4",
    workload: Annotated[str, typer.Option(help="which of the simulator's workloads: SC, SA, M1 to M10")] = "M10",
    reuse: Annotated[str, typer.Option(help="whether a container serves a second call: on, off or both")] = "both",
) -> None:
    """Placement policies on a live control plane, beside the simulator's figures for the same calls. Needs the extra `sim`."""

    def work(tell: Callable[[str], None]) -> Result:
        try:
            from tiphys_testbed.bench import live_placement as live_bench  # noqa: PLC0415 - numba, which few installations have
        except ImportError as error:
            raise InvalidInput(f"the simulator needs more than is installed ({error.name}): pip install 'tiphys[sim]'") from error
        settings = {"on": (True,), "off": (False,), "both": (True, False)}
        if workload not in KINDS or reuse not in settings:
            raise InvalidInput(f"--workload wants one of {', '.join(KINDS)} and --reuse one of {', '.join(settings)}")
        chosen = parse_numbers(seeds, "seeds", least=0)
        plan = live_bench.LivePlan(chosen[:2] if quick else chosen, workload, settings[reuse], quick=quick)
        return live_bench.run(plan, tell)

    result = guarded(work)
    from tiphys_testbed.bench.live_tables import tables  # noqa: PLC0415

    finish(result, json=json, out=out, check=check, plots={}, tables=tables(result))


@process_app.command()
def calls(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: Annotated[str, typer.Option(help="comma-separated seeds of the test split: one pair of runs each, a minute long")] = "0,1,2,3,4",
    worlds: Annotated[str, typer.Option(help="comma-separated: standard, readings-15s, dear-starts")] = "standard",
    lanes: Annotated[str, typer.Option(help="comma-separated policies, played at the same time")] = "",
    docs: Docs = None,
) -> None:
    """Calls placed by running binders, live: policies side by side on the same calls. Needs the extra `sim`."""

    def work(tell: Callable[[str], None]) -> Result:
        from tiphys_testbed.bench import calls as calls_bench  # noqa: PLC0415 - aiohttp, and nodes of the simulator

        wanted, players = tuple(worlds.split(",")), tuple(lanes.split(",")) if lanes else calls_bench.LANES
        if unknown := [name for name in wanted if name not in calls_bench.WORLDS]:
            raise InvalidInput(f"--worlds: {unknown[0]!r} is none of {', '.join(calls_bench.WORLDS)}")
        if unknown := [name for name in players if name not in (*usable_rules(), calls_bench.AGAIN)]:
            raise InvalidInput(f"--lanes: {unknown[0]!r} is no policy that places calls without a model")
        chosen = parse_numbers(seeds, "seeds", least=0)
        check_documents(docs or (), ("calls",))
        plan = calls_bench.CallsPlan(chosen[:1] if quick else chosen, wanted, players, quick=quick)
        result = calls_bench.run(plan, tell)
        for path in docs or ():
            rewrite(path, {"calls": markdown(calls_bench.table(result.rows))})
        return result

    finish(guarded(work, docs if quick else None), json=json, out=out, check=check, plots={})


@process_app.command()
def binder(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: Seeds = "0",
    docs: Docs = None,
) -> None:
    """What binding a stream costs over HTTP: 50 sites with 10 variants each, 500 streams a second, a binder on one core."""

    def work(tell: Callable[[str], None]) -> Result:
        chosen = parse_numbers(seeds, "seeds", least=0)
        check_documents(docs or (), ("binder",))
        result = binder_bench.run(binder_bench.BinderPlan.quickly(chosen) if quick else binder_bench.BinderPlan(seeds=chosen), tell)
        for path in docs or ():
            rewrite(path, {"binder": markdown(result.rows)})
        return result

    finish(guarded(work, docs if quick else None), json=json, out=out, check=check, plots={})


@process_app.command()
def versions(
    old: Annotated[str, typer.Argument(help="the commit to compare with")],
    new: Annotated[str, typer.Argument(help="the commit that is judged; uncommitted changes are not seen")] = "HEAD",
    bench: Annotated[
        str, typer.Option(help=f"one of {', '.join(COMPARABLE)}: the first compares speed, the others compare rows")
    ] = "extender",
    rounds: Annotated[int, typer.Option(min=2, max=100, help="how often both commits are played, in turns, where speed is compared")] = 5,
    seeds: Annotated[str, typer.Option(help="handed on to the benchmark; empty: its own")] = "",
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
) -> None:
    """Play one benchmark on two commits: new over old as ratios to the floor, or the rows that are not equal to the last digit."""

    def work(tell: Callable[[str], None]) -> Result:
        if bench not in COMPARABLE:
            raise typer.BadParameter(f"choose one of {', '.join(COMPARABLE)}", param_hint="--bench")
        arguments = ("--seeds", seeds) if seeds else ()
        return versions_bench.run(versions_bench.VersionsPlan(old, new, bench, rounds, arguments, Path.cwd(), quick), tell)

    finish(guarded(work), json=json, out=out, check=check, plots={})
