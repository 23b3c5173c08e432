"""`tiphys bench extender|scale|scheduler|binder|bill|calls|live-placement|versions`: benchmarks that start processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tiphys_cli.bench.commands import Check, Docs, Json, Out, Quick, Seeds
from tiphys_cli.bench.plots import Bars
from tiphys_cli.bench.printing import finish, guarded, parse_numbers
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.documents import check as check_documents
from tiphys_models.lab.documents import markdown, rewrite
from tiphys_models.lab.report import Result
from tiphys_models.placement.registry import usable_rules
from tiphys_testbed.bench import bill as bill_bench
from tiphys_testbed.bench import bill_results, bill_worlds
from tiphys_testbed.bench import binder as binder_bench
from tiphys_testbed.bench import extender as extender_bench
from tiphys_testbed.bench import flood as flood_bench
from tiphys_testbed.bench import learning as learning_bench
from tiphys_testbed.bench import scale as scale_bench
from tiphys_testbed.bench import scheduler as scheduler_bench
from tiphys_testbed.bench import versions as versions_bench
from tiphys_testbed.bench.bill_journal import Journal, default_journal

EXTENDER_POLICIES = tuple(dict.fromkeys(lane.label for lane in extender_bench.LANES))
SCHEDULER_POLICIES = (extender_bench.FAASRANK, extender_bench.ESTIMATOR)
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
    learning: Annotated[bool, typer.Option("--learning", help="instead: what learning online takes of a core")] = False,
    policies: Annotated[str, typer.Option(help=f"comma-separated: {', '.join(EXTENDER_POLICIES)}")] = ",".join(EXTENDER_POLICIES),
) -> None:
    """What one prioritize call costs with the shipped models and the estimator, beside the floor of the same server."""

    def work(tell: Callable[[str], None]) -> Result:
        chosen = parse_numbers(seeds, "seeds", least=0)
        if flood:
            return flood_bench.run(flood_bench.FloodPlan.quickly(chosen) if quick else flood_bench.FloodPlan(seeds=chosen), tell)
        if learning:
            plan = learning_bench.LearningPlan
            return learning_bench.run(plan.quickly(chosen[0]) if quick else plan(seed=chosen[0]), tell)
        if unknown := [name for name in policies.split(",") if name not in EXTENDER_POLICIES]:
            raise InvalidInput(f"--policies: {unknown[0]!r} is none of {', '.join(EXTENDER_POLICIES)}")
        lanes = tuple(lane for lane in extender_bench.LANES if lane.label in policies.split(","))
        asked = extender_bench.ExtenderPlan
        return extender_bench.run(asked.quickly(chosen, lanes) if quick else asked(lanes=lanes, seeds=chosen), tell)

    result = guarded(work)
    rows = result.rows
    if flood or learning:
        finish(result, json=json, out=out, check=check, plots={})
        return
    bars = Bars(
        "One prioritize call: median beside the floor",
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
    model: Annotated[str, typer.Option(help=f"faasrank's: one of {', '.join(extender_bench.MODELS)}")] = extender_bench.MODELS[0],
    policy: Annotated[str, typer.Option(help=f"one of {', '.join(SCHEDULER_POLICIES)}")] = extender_bench.FAASRANK,
) -> None:
    """Pods a second through the real kube-scheduler, with Tiphys and without, in alternated pairs."""

    def work(tell: Callable[[str], None]) -> Result:
        sizes, chosen = parse_numbers(nodes, "nodes", least=2), parse_numbers(seeds, "seeds", least=0)
        if model not in extender_bench.MODELS:
            raise InvalidInput(f"--model {model}: choose one of {', '.join(extender_bench.MODELS)}")
        if policy not in SCHEDULER_POLICIES:
            raise InvalidInput(f"--policy {policy}: choose one of {', '.join(SCHEDULER_POLICIES)}")
        plan = scheduler_bench.SchedulerPlan(sizes, pairs, pods, chosen, model=model, policy=policy)
        if quick:
            plan = replace(plan, nodes=sizes[:1], pairs=1, pods=min(pods, 300), seeds=chosen[:1], quick=True)
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
    seeds: Annotated[str, typer.Option(help="comma-separated seeds of the test split: one pair of runs each, a minute long")] = "0,1,2,3,4",
    pairs: Annotated[int, typer.Option(min=0, max=100, help="so many pairs, of the seeds from 0 on, instead of --seeds")] = 0,
    worlds: Annotated[str, typer.Option(help="comma-separated, or all")] = "standard",
    groups: Annotated[str, typer.Option(help="comma-separated groups of lanes: waiting, packing, books")] = "",
    lanes: Annotated[str, typer.Option(help="instead of groups: up to three lanes, played beside warm-first")] = "",
    fault: Annotated[str, typer.Option(help="kill processes half way, a run each: extender, operator, prometheus, opener, or all")] = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="measure anew what the journal of former runs has")] = False,
    workload: Annotated[str, typer.Option(help="with --reuse, one of the simulator's workloads: SC, SA, M1 to M10")] = "M10",
    reuse: Annotated[
        str, typer.Option(help="instead: faasrank's comparison, with containers that serve a second call: on, off or both")
    ] = "",
    docs: Docs = None,
) -> None:
    """Stock schedulers and policies on a live control plane, and the same calls simulated. Needs the extra `sim`."""

    def work(tell: Callable[[str], None]) -> Result:
        try:
            from tiphys_testbed.bench import live_placement as reuse_bench  # noqa: PLC0415 - numba, which few installations have
            from tiphys_testbed.bench.live import command as live_bench  # noqa: PLC0415
        except ImportError as error:
            raise InvalidInput(f"the simulator needs more than is installed ({error.name}): pip install 'tiphys[sim]'") from error
        chosen = tuple(range(pairs)) if pairs else parse_numbers(seeds, "seeds", least=0)
        if reuse:
            return reuse_bench.run(reuse_bench.LivePlan.asked(chosen, workload, reuse, quick=quick), tell)
        asked = live_bench.Asked(chosen, worlds, groups, lanes, fault, quick=quick, fresh=fresh)
        return live_bench.run_asked(asked, docs or (), tell)

    result = guarded(work, docs if quick else None)
    if reuse:
        from tiphys_testbed.bench.live_tables import tables  # noqa: PLC0415
    else:
        from tiphys_testbed.bench.live.figures import tables  # noqa: PLC0415
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
def bill(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: Annotated[str, typer.Option(help="comma-separated seeds: a trace each, which every lane plays")] = "0,1,2,3,4,5,6,7,8,9",
    world: Annotated[str, typer.Option(help=f"comma-separated: {', '.join(bill_worlds.WORLDS)}")] = ",".join(bill_worlds.REGULAR_WORLDS),
    lanes: Annotated[str, typer.Option(help="comma-separated; without: all")] = "",
    planes: Annotated[int, typer.Option(min=1, max=8, help="runs at a time")] = 2,
    journal: Annotated[Path | None, typer.Option(help="file of finished runs, which are not played again; without: in the cache")] = None,
    docs: Docs = None,
) -> None:
    """What nodes cost that a real Karpenter opens and closes, for each way of placing pods. Three minutes a run; can be gone on with."""

    def work(tell: Callable[[str], None]) -> Result:
        wanted = tuple(world.split(","))
        players = tuple(lanes.split(",")) if lanes else tuple(bill_worlds.LANES)
        for names, known, option in ((wanted, bill_worlds.WORLDS, "world"), (players, bill_worlds.LANES, "lanes")):
            if (name := bill_bench.unknown(names, tuple(known))) is not None:
                raise InvalidInput(f"--{option}: {name!r} is none of {', '.join(known)}")
        chosen = parse_numbers(seeds, "seeds", least=0)
        check_documents(docs or (), ("bill", "bill-noise"))
        plan = bill_bench.BillPlan(chosen[:1] if quick else chosen, wanted, players, planes, quick=quick)
        result = bill_bench.run(plan, Journal(journal or default_journal()), tell)
        for path in docs or ():
            tables = bill_results.table(result.rows), bill_results.noise_table(result.rows)
            rewrite(path, {"bill": markdown(tables[0]), "bill-noise": markdown(tables[1])})
        return result

    result = guarded(work, docs if quick else None)
    tables = (("lanes", bill_results.table(result.rows)), ("noise", bill_results.noise_table(result.rows)), ("summary", result.summary))
    finish(result, json=json, out=out, check=check, plots={}, tables=tables)


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
