"""`tiphys bench`: progress on standard error, tables or one JSON object on standard output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console

from tiphys_cli.bench import binder as binder_bench
from tiphys_cli.bench import extender as extender_bench
from tiphys_cli.bench import flood as flood_bench
from tiphys_cli.bench import scheduler as scheduler_bench
from tiphys_cli.bench.documents import check as check_documents
from tiphys_cli.bench.documents import markdown, printed, rewrite
from tiphys_cli.bench.plots import Bars
from tiphys_cli.bench.printing import finish, guarded, parse_numbers
from tiphys_cli.bench.report import Result
from tiphys_models.artifacts.shipped import SHIPPED
from tiphys_models.domain.errors import InvalidInput
from tiphys_models.sim.workloads import KINDS

bench_app = typer.Typer(no_args_is_help=True, help="Benchmarks: every figure in the documentation comes from one of these.")

Json = Annotated[bool, typer.Option("--json", help="print exactly one JSON object on standard output")]
Quick = Annotated[bool, typer.Option("--quick", help="a smaller run of the same code, for development")]
Out = Annotated[Path | None, typer.Option(help="directory for result.json and plots")]
Check = Annotated[bool, typer.Option("--check", help="exit status 1 if a claim does not hold")]
Seeds = Annotated[str, typer.Option(help="comma-separated seeds; each is measured by itself")]
Docs = Annotated[
    list[Path] | None,
    typer.Option(exists=True, dir_okay=False, help="document whose marked tables are rewritten; may be given several times"),
]


@bench_app.command()
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
            return flood_bench.run(flood_bench.Plan.quickly(chosen) if quick else flood_bench.Plan(seeds=chosen), tell)
        return extender_bench.run(extender_bench.Plan.quickly(chosen) if quick else extender_bench.Plan(seeds=chosen), tell)

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


@bench_app.command()
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
        plan = scheduler_bench.Plan(sizes, pairs, pods, chosen, model=model)
        if quick:
            plan = scheduler_bench.Plan(sizes[:1], 1, min(pods, 300), chosen[:1], quick=True, model=model)
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


@bench_app.command()
def placement(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: Annotated[str, typer.Option(help="comma-separated seeds of the test split")] = ",".join(map(str, range(20))),
    policies: Annotated[str | None, typer.Option(help="comma-separated policies; hashing is always played")] = None,
    trace_dir: Annotated[
        Path | None, typer.Option(help="directory with invocation_traces.csv: one row a function, one column a minute")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="card of the model to play as faasrank, instead of the shipped one")] = None,
    docs: Docs = None,
) -> None:
    """Every placement policy on the same calls in the simulated FaaS cluster. Needs the extra `sim`."""

    def work(tell: Callable[[str], None]) -> Result:
        try:
            from tiphys_cli.bench import placement as placement_bench  # noqa: PLC0415 - numba, which few installations have
            from tiphys_cli.bench.placement_docs import blocks, marks  # noqa: PLC0415
        except ImportError as error:
            raise InvalidInput(f"the simulator needs more than is installed ({error.name}): pip install 'tiphys[sim]'") from error
        plan = placement_bench.Plan(parse_numbers(seeds, "seeds", least=0), trace_dir=trace_dir, quick=quick)
        if quick:
            plan = replace(plan, seeds=plan.seeds[:2])
        if policies is not None:
            plan = replace(plan, policies=tuple(policies.split(",")))
        if model is not None:
            plan = replace(plan, models={**plan.models, "faasrank": model})
        check_documents(docs or (), marks(plan.policies))
        result = placement_bench.run(plan, tell)
        for path in docs or ():
            rewrite(path, blocks(result))
        return result

    result = guarded(work, docs if quick else None)
    from tiphys_cli.bench.placement_tables import tables  # noqa: PLC0415

    if out is not None:
        from tiphys_cli.bench.placement_plots import draw  # noqa: PLC0415

        out.mkdir(parents=True, exist_ok=True)
        draw(result, out)
    finish(result, json=json, out=out, check=check, plots={}, tables=tables(result))


@bench_app.command("live-placement")
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
            from tiphys_cli.bench import live_placement as live_bench  # noqa: PLC0415 - numba, which few installations have
        except ImportError as error:
            raise InvalidInput(f"the simulator needs more than is installed ({error.name}): pip install 'tiphys[sim]'") from error
        settings = {"on": (True,), "off": (False,), "both": (True, False)}
        if workload not in KINDS or reuse not in settings:
            raise InvalidInput(f"--workload wants one of {', '.join(KINDS)} and --reuse one of {', '.join(settings)}")
        chosen = parse_numbers(seeds, "seeds", least=0)
        plan = live_bench.Plan(chosen[:2] if quick else chosen, workload, settings[reuse], quick=quick)
        return live_bench.run(plan, tell)

    result = guarded(work)
    from tiphys_cli.bench.live_tables import tables  # noqa: PLC0415

    finish(result, json=json, out=out, check=check, plots={}, tables=tables(result))


@bench_app.command()
def selection(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: Annotated[str, typer.Option(help="comma-separated seeds of the test split")] = "0,1,2,3,4",
    policies: Annotated[str | None, typer.Option(help="comma-separated planners, heuristics, selectors and bounds")] = None,
    workload: Annotated[
        Path | None, typer.Option(help="CSV of tasks, played beside the others: arrival_s, cpu_core_s, ram_mib, disk_mib, deadline_class")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, max=64, help="processes; 0: one a core")] = 0,
    docs: Docs = None,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="only measure the constants: scheduling times, divisors of J")] = False,
) -> None:
    """Planners, heuristics, selectors and bounds on the same tasks in the simulated cloud. Needs the extra `sim`."""
    if calibrate:
        from tiphys_cli.bench.selection_constants import constants  # noqa: PLC0415

        typer.echo(orjson.dumps(constants(policies.split(",") if policies else None), option=orjson.OPT_INDENT_2).decode())
        return

    def work(tell: Callable[[str], None]) -> Result:
        try:
            from tiphys_cli.bench import selection as selection_bench  # noqa: PLC0415 - numba, which few installations have
            from tiphys_cli.bench.selection_docs import blocks, marks  # noqa: PLC0415
        except ImportError as error:
            raise InvalidInput(f"the simulator needs more than is installed ({error.name}): pip install 'tiphys[sim]'") from error
        names = selection_bench.policies() if policies is None else tuple(policies.split(","))
        plan = selection_bench.Plan(parse_numbers(seeds, "seeds", least=0), names, workload, quick, jobs)
        check_documents(docs or (), marks(names))
        result = selection_bench.run(replace(plan, seeds=plan.seeds[:2]) if quick else plan, tell)
        for path in docs or ():
            rewrite(path, blocks(result))
        return result

    result = guarded(work, docs if quick else None)
    from tiphys_cli.bench.selection_tables import tables  # noqa: PLC0415

    if out is not None:
        from tiphys_cli.bench.selection_plots import draw  # noqa: PLC0415

        out.mkdir(parents=True, exist_ok=True)
        draw(result, out)
    finish(result, json=json, out=out, check=check, plots={}, tables=tables(result))


@bench_app.command()
def scaling(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: Annotated[str, typer.Option(help="comma-separated seeds of the test split")] = "0,1,2,3,4",
    agents: Annotated[str | None, typer.Option(help="comma-separated scaling agents, and clairvoyant")] = None,
    shape: Annotated[
        list[Path] | None,
        typer.Option(help="file with one rate a second per line, or CSV time,rps, played beside the named shapes; may be repeated"),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, max=64, help="processes; 0: one a core")] = 0,
    fluid: Annotated[bool, typer.Option("--fluid", help="the fast simulator instead of single requests")] = False,
    docs: Docs = None,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="only search the rules' settings, on the train split")] = False,
) -> None:
    """Scaling agents, rules and a clairvoyant on the same arrivals of a simulated service. Needs the extra `sim`."""
    if calibrate:
        from tiphys_cli.bench.scaling_constants import constants  # noqa: PLC0415

        typer.echo(orjson.dumps(constants(Console(stderr=True).print), option=orjson.OPT_INDENT_2).decode())
        return

    def work(tell: Callable[[str], None]) -> Result:
        try:
            from tiphys_cli.bench import scaling as scaling_bench  # noqa: PLC0415 - numba, which few installations have
            from tiphys_cli.bench.scaling_play import playable  # noqa: PLC0415
            from tiphys_cli.bench.scaling_tables import marks, tables  # noqa: PLC0415
        except ImportError as error:
            raise InvalidInput(f"the simulator needs more than is installed ({error.name}): pip install 'tiphys[sim]'") from error
        names = playable() if agents is None else tuple(agents.split(","))
        plan = scaling_bench.Plan(parse_numbers(seeds, "seeds", least=0), names, tuple(shape or ()), quick, jobs, fluid)
        if quick:
            plan = replace(plan, seeds=plan.seeds[:2])
        check_documents(docs or (), marks(names, requests=not (fluid or quick)))
        result = scaling_bench.run(plan, tell)
        if out is not None:
            from tiphys_cli.bench.scaling_plots import draw  # noqa: PLC0415

            out.mkdir(parents=True, exist_ok=True)
            draw(result, scaling_bench.over_time(plan), out)
        for path in docs or ():
            rewrite(path, printed(result, tables(result)))
        return result

    result = guarded(work, docs if quick else None)
    from tiphys_cli.bench.scaling_tables import tables  # noqa: PLC0415

    finish(result, json=json, out=out, check=check, plots={}, tables=tables(result))


@bench_app.command()
def binding(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: Annotated[str, typer.Option(help="comma-separated seeds of the test split")] = ",".join(map(str, range(30))),
    policies: Annotated[str | None, typer.Option(help="comma-separated policies, agents and comparators")] = None,
    arrivals: Annotated[
        Path | None, typer.Option(help="arrival times, played beside Poisson: seconds, one a line, or a CSV with a column TIMESTAMP")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, max=64, help="processes; 0: one a core")] = 0,
    docs: Docs = None,
    sensitivity: Annotated[bool, typer.Option(help="change modelling choices one at a time, too: a third of the time")] = True,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="only fit the tick version of the queues to the event version")] = False,
) -> None:
    """Static and learned binding policies on the same streams, over edge and cloud. Needs the extra `sim`."""
    if calibrate:
        from tiphys_models.sim.binding.calibration import variability_errors  # noqa: PLC0415

        errors = {str(value): asdict(error) for value, error in variability_errors().items()}
        typer.echo(orjson.dumps(errors, option=orjson.OPT_INDENT_2).decode())
        return

    def work(tell: Callable[[str], None]) -> Result:
        try:
            from tiphys_cli.bench import binding as binding_bench  # noqa: PLC0415 - numba, which few installations have
            from tiphys_cli.bench import binding_docs  # noqa: PLC0415
        except ImportError as error:
            raise InvalidInput(f"the simulator needs more than is installed ({error.name}): pip install 'tiphys[sim]'") from error
        plan = binding_bench.Plan(parse_numbers(seeds, "seeds", least=0), file=arrivals, quick=quick, jobs=jobs, sensitivity=sensitivity)
        if policies is not None:
            plan = replace(plan, policies=tuple(policies.split(",")))
        binding_docs.check_documents(docs or (), plan.policies, arrivals)
        result = binding_bench.run(replace(plan, seeds=plan.seeds[:2]) if quick else plan, tell)
        for path in docs or ():
            binding_docs.write(result, path)
        return result

    result = guarded(work, docs if quick else None)
    from tiphys_cli.bench.binding_tables import made_tables  # noqa: PLC0415

    if out is not None:
        from tiphys_cli.bench.binding_plots import draw  # noqa: PLC0415

        out.mkdir(parents=True, exist_ok=True)
        draw(result, out)
    finish(result, json=json, out=out, check=check, plots={}, tables=made_tables(result))


@bench_app.command()
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
        result = binder_bench.run(binder_bench.Plan.quickly(chosen) if quick else binder_bench.Plan(seeds=chosen), tell)
        for path in docs or ():
            rewrite(path, {"binder": markdown(result.rows)})
        return result

    finish(guarded(work, docs if quick else None), json=json, out=out, check=check, plots={})
