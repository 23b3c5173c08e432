"""All benchmarks, and the command that runs one of them on two commits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tiphys_cli.bench import versions as versions_bench
from tiphys_cli.bench.commands import Check, Json, Out, Quick, bench_app
from tiphys_cli.bench.printing import finish, guarded
from tiphys_cli.bench.report import Result

COMPARABLE = ("extender", *versions_bench.NOT_COMPARED)

__all__ = ["bench_app"]


@bench_app.command()
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
        return versions_bench.run(versions_bench.Plan(old, new, bench, rounds, arguments, Path.cwd(), quick), tell)

    finish(guarded(work), json=json, out=out, check=check, plots={})
