"""`tiphys bench`: progress on standard error, tables or one JSON object on standard output."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from tiphys_cli.bench.studies import Wanted, play
from tiphys_models.lab.study import Study

bench_app = typer.Typer(no_args_is_help=True, help="Benchmarks: every figure in the documentation comes from one of these.")

Json = Annotated[bool, typer.Option("--json", help="print exactly one JSON object on standard output")]
Quick = Annotated[bool, typer.Option("--quick", help="a smaller run of the same code, for development")]
Out = Annotated[Path | None, typer.Option(help="directory for result.json and plots")]
Check = Annotated[bool, typer.Option("--check", help="exit status 1 if a claim does not hold")]
Seeds = Annotated[str, typer.Option(help="comma-separated seeds; each is measured by itself")]
TestSeeds = Annotated[str, typer.Option(help="comma-separated seeds of the test split; with --sealed, only how many")]
Sealed = Annotated[bool, typer.Option("--sealed", help="instead: seeds that follow from the weights' digests; the run goes into --ledger")]
LedgerPath = Annotated[Path, typer.Option(help="document in which --sealed writes down every run")]
Docs = Annotated[
    list[Path] | None,
    typer.Option(exists=True, dir_okay=False, help="document whose marked tables are rewritten; may be given several times"),
]
Jobs = Annotated[int, typer.Option(min=0, max=64, help="processes; 0: one a core")]
LEDGER = Path("docs/ledger.md")
_TWENTY, _THIRTY = (",".join(map(str, range(count))) for count in (20, 30))


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(text.split(","))


def _echo(found: object) -> None:
    typer.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())


@bench_app.command()
def placement(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: TestSeeds = _TWENTY,
    sealed: Sealed = False,
    ledger: LedgerPath = LEDGER,
    policies: Annotated[str | None, typer.Option(help="comma-separated policies; hashing is always played")] = None,
    trace_dir: Annotated[
        Path | None, typer.Option(help="directory with invocation_traces.csv: one row a function, one column a minute")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="card of the model to play as faasrank, instead of the shipped one")] = None,
    docs: Docs = None,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="only tune rule-6 for each world, on the train split")] = False,
) -> None:
    """Every placement policy on the same calls in the simulated FaaS cluster. Needs the extra `sim`."""
    if calibrate:
        from tiphys_models.placement.sim.kube.tuning import tuned_everywhere  # noqa: PLC0415 - numba, which few have

        _echo(tuned_everywhere(Console(stderr=True).print))
        return

    def make(seeds: tuple[int, ...]) -> Study[Any, Any]:
        from tiphys_models.placement.study.definition import MODELS, POLICIES, PlacementStudy  # noqa: PLC0415 - numba, which few have

        models = {**MODELS, "faasrank": model} if model is not None else MODELS
        return PlacementStudy(
            seeds=seeds, quick=quick, policies=_names(policies) or POLICIES, trace_dir=trace_dir, models=tuple(models.items())
        )

    play(make, Wanted(seeds, sealed, ledger, json, quick, out, check, docs))


@bench_app.command()
def selection(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: TestSeeds = "0,1,2,3,4",
    sealed: Sealed = False,
    ledger: LedgerPath = LEDGER,
    policies: Annotated[str | None, typer.Option(help="comma-separated planners, heuristics, selectors and bounds")] = None,
    workload: Annotated[
        Path | None, typer.Option(help="CSV of tasks, played beside the others: arrival_s, cpu_core_s, ram_mib, disk_mib, deadline_class")
    ] = None,
    jobs: Jobs = 0,
    docs: Docs = None,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="only measure the constants: scheduling times, divisors of J")] = False,
) -> None:
    """Planners, heuristics, selectors and bounds on the same tasks in the simulated cloud. Needs the extra `sim`."""
    if calibrate:
        from tiphys_models.selection.study.definition import constants  # noqa: PLC0415 - numba, which few have

        _echo(constants(_names(policies) or None))
        return

    def make(seeds: tuple[int, ...]) -> Study[Any, Any]:
        from tiphys_models.selection.study.definition import SelectionStudy  # noqa: PLC0415 - numba, which few have

        return SelectionStudy(seeds=seeds, quick=quick, jobs=jobs, policies=_names(policies), file=workload)

    play(make, Wanted(seeds, sealed, ledger, json, quick, out, check, docs))


@bench_app.command()
def scaling(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: TestSeeds = "0,1,2,3,4",
    sealed: Sealed = False,
    ledger: LedgerPath = LEDGER,
    agents: Annotated[str | None, typer.Option(help="comma-separated scaling agents, and clairvoyant")] = None,
    shape: Annotated[
        list[Path] | None,
        typer.Option(help="file with one rate a second per line, or CSV time,rps, played beside the named shapes; may be repeated"),
    ] = None,
    jobs: Jobs = 0,
    fluid: Annotated[bool, typer.Option("--fluid", help="the fast simulator instead of single requests")] = False,
    docs: Docs = None,
    scenarios: Annotated[
        str | None, typer.Option(help="comma-separated: what is wrong or late beside `default`; that alone plays none")
    ] = None,
    tune_hpa: Annotated[bool, typer.Option("--tune-hpa", help="also every pod size and stabilisation of HPA: a hundred settings")] = False,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="only search the rules' settings, on the train split")] = False,
) -> None:
    """Scaling agents, rules and a clairvoyant on the same arrivals of a simulated service. Needs the extra `sim`."""
    if calibrate:
        from tiphys_models.scaling.study.definition import constants  # noqa: PLC0415 - numba, which few have

        _echo(constants(Console(stderr=True).print))
        return

    def make(seeds: tuple[int, ...]) -> Study[Any, Any]:
        from tiphys_models.scaling.study.definition import ScalingStudy  # noqa: PLC0415 - numba, which few have

        return ScalingStudy(
            seeds=seeds, quick=quick, jobs=jobs, agents=_names(agents), files=tuple(shape or ()), fluid=fluid,
            scenarios=_names(scenarios), sweep=tune_hpa,
        )  # fmt: skip

    play(make, Wanted(seeds, sealed, ledger, json, quick, out, check, docs))


@bench_app.command()
def binding(
    json: Json = False,
    quick: Quick = False,
    out: Out = None,
    check: Check = False,
    seeds: TestSeeds = _THIRTY,
    sealed: Sealed = False,
    ledger: LedgerPath = LEDGER,
    policies: Annotated[str | None, typer.Option(help="comma-separated policies, agents and comparators")] = None,
    arrivals: Annotated[
        Path | None, typer.Option(help="arrival times, played beside Poisson: seconds, one a line, or a CSV with a column TIMESTAMP")
    ] = None,
    jobs: Jobs = 0,
    docs: Docs = None,
    sensitivity: Annotated[bool, typer.Option(help="change modelling choices one at a time, too: a third of the time")] = True,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="only fit the tick version of the queues to the event version")] = False,
) -> None:
    """Static and learned binding policies on the same streams, over edge and cloud. Needs the extra `sim`."""
    if calibrate:
        from tiphys_models.streams.sim.calibration import variability_errors  # noqa: PLC0415 - numba, which few have

        _echo({str(value): asdict(error) for value, error in variability_errors().items()})
        return

    def make(seeds: tuple[int, ...]) -> Study[Any, Any]:
        from tiphys_models.streams.study.definition import StreamStudy  # noqa: PLC0415 - numba, which few have
        from tiphys_models.streams.study.play import POLICIES  # noqa: PLC0415 - numba, too

        everybody = _names(policies) or POLICIES
        return StreamStudy(seeds=seeds, quick=quick, jobs=jobs, policies=everybody, file=arrivals, sensitivity=sensitivity)

    play(make, Wanted(seeds, sealed, ledger, json, quick, out, check, docs))
