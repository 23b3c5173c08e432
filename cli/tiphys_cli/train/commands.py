"""`tiphys train`: progress on standard error, artifacts and learning curves in a directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import orjson
import typer
from rich.console import Console
from rich.table import Table

from tiphys_cli.bench.printing import parse_numbers
from tiphys_cli.model.commands import send
from tiphys_cli.model.publishing import NAMESPACE, publication
from tiphys_cli.train.binding import train_binding
from tiphys_cli.train.planners import planners
from tiphys_cli.train.scaling import ServedFrom, train_scaling
from tiphys_cli.train.selection import train_selection
from tiphys_models.clients.access import find_access
from tiphys_models.domain.errors import InvalidInput, TiphysError

if TYPE_CHECKING:
    from tiphys_models.train.checkpoints import Progress
    from tiphys_models.train.placement import Trained

train_app = typer.Typer(no_args_is_help=True, help="Train learned policies. Needs the extra `train` (torch, numba).")


train_app.command()(planners)


@train_app.callback()
def train_root() -> None:
    """Train learned policies. Needs the extra `train` (torch, numba)."""


@train_app.command()
def placement(
    preset: Annotated[str, typer.Option(help="faasrank, faasrank-rollouts or faasrank-paper")] = "faasrank",
    seeds: Annotated[str, typer.Option(help="comma-separated training seeds, one after another")] = "0",
    out: Annotated[Path, typer.Option(help="directory for artifacts, checkpoints and learning curves")] = Path("out/train/placement"),
    steps: Annotated[int | None, typer.Option(help="updates (PPO) or iterations (teacher) instead of the preset's")] = None,
    workload: Annotated[str | None, typer.Option(help="train on this workload alone, such as SC; default: all of the preset's")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on from the checkpoint in --out")] = False,
    publish: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="publish the best as this LearnedModel, stage candidate, in the cluster of $KUBECONFIG or the pod"
        ),
    ] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="where --publish writes: the namespace of the chart")] = NAMESPACE,
    ray: Annotated[
        bool, typer.Option("--ray", help="play workloads on a Ray cluster (RAY_ADDRESS, else a local one); extra `rollouts`")
    ] = False,
) -> None:
    """Train FaaSRank; of several seeds the best by validation becomes NAME.json beside NAME.safetensors."""
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    try:
        access = find_access() if publish else None  # hours of training must not end with a missing kubeconfig
        card = _train(preset, parse_numbers(seeds, "seeds", least=0), out, steps, workload, resume, ray, errors)
        if access is not None:
            made = publication(card, publish, namespace, "candidate")
            send(access, made)
            errors.print(f"published {namespace}/{publish} at stage candidate, sha256 {made.sha256}")
    except InvalidInput as error:
        errors.print(f"error: {error}")
        raise typer.Exit(2) from error
    except TiphysError as error:
        errors.print(f"error: {error}")
        raise typer.Exit(1) from error


@train_app.command()
def selection(
    preset: Annotated[
        str, typer.Option(help="metanet, metanet-paper, dqn; or a constant: ucb (its c), cost-at-sla (its price of a missed deadline)")
    ] = "metanet",
    seeds: Annotated[str, typer.Option(help="comma-separated training seeds, one after another")] = "0",
    out: Annotated[Path, typer.Option(help="directory for artifacts and labelled episodes")] = Path("out/train/selection"),
    episodes: Annotated[int | None, typer.Option(help="episodes a workload and round instead of the preset's")] = None,
    intervals: Annotated[int | None, typer.Option(help="intervals an episode instead of the preset's; validation is no longer")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the episodes in --out")] = False,
    resuming: Annotated[bool, typer.Option("--resuming", help="every fourth episode on hosts that take their time to resume")] = False,
) -> None:
    """Train selectors of interval planners; of several seeds the best by validation becomes NAME.json beside NAME.safetensors."""
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    try:
        train_selection(preset, parse_numbers(seeds, "seeds", least=0), out, episodes, intervals, resume, resuming, errors)
    except InvalidInput as error:
        errors.print(f"error: {error}")
        raise typer.Exit(2) from error
    except TiphysError as error:
        errors.print(f"error: {error}")
        raise typer.Exit(1) from error


@train_app.command()
def scaling(
    preset: Annotated[
        str, typer.Option(help="combined, dqn-vertical, dqn-vertical-published, dqn-horizontal, dqn-horizontal-3 or q-table")
    ] = "combined",
    seeds: Annotated[str, typer.Option(help="comma-separated training seeds, one after another")] = "0",
    out: Annotated[Path, typer.Option(help="directory for artifacts")] = Path("out/train/scaling"),
    rounds: Annotated[int | None, typer.Option(help="batches of episodes instead of the preset's")] = None,
    from_transitions: Annotated[
        str,
        typer.Option(metavar="URL|FILE", help="go on with what operators served: http(s)://HOST:PORT of status listeners, or a file"),
    ] = "",
    base: Annotated[Path | None, typer.Option(help="card to go on from; default: the one in --out, else the shipped one")] = None,
    token_file: Annotated[Path | None, typer.Option(help="token of the status listener")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="CA of the status listener's certificate; default: the system's")] = None,
    policy: Annotated[str, typer.Option(metavar="NAMESPACE/NAME", help="transitions of this ScalingPolicy only")] = "",
    publish: Annotated[str, typer.Option(metavar="NAME", help="publish the best as this LearnedModel, stage candidate")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="where --publish writes: the namespace of the chart")] = NAMESPACE,
) -> None:
    """Train scaling agents; of several seeds the best by validation becomes scaling-NAME.json beside scaling-NAME.safetensors."""
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    served = ServedFrom(from_transitions, token_file, ca_file, policy, base) if from_transitions else None
    try:
        if served is None and (base is not None or token_file is not None or ca_file is not None or policy):
            raise InvalidInput("--base, --token-file, --ca-file and --policy are for --from-transitions")
        access = find_access() if publish else None
        card = train_scaling(preset, parse_numbers(seeds, "seeds", least=0), out, rounds, errors, served)
        if access is not None:
            made = publication(card, publish, namespace, "candidate")
            send(access, made)
            errors.print(f"published {namespace}/{publish} at stage candidate, sha256 {made.sha256}")
    except InvalidInput as error:
        errors.print(f"error: {error}")
        raise typer.Exit(2) from error
    except TiphysError as error:
        errors.print(f"error: {error}")
        raise typer.Exit(1) from error


@train_app.command()
def binding(
    preset: Annotated[str, typer.Option(help="aset (which also writes score), aset-wide or aset-paper")] = "aset",
    seeds: Annotated[str, typer.Option(help="comma-separated training seeds, one after another")] = "0",
    out: Annotated[Path, typer.Option(help="directory for artifacts")] = Path("out/train/binding"),
    episodes: Annotated[int | None, typer.Option(min=1, help="aset-paper: instead of the preset's 300")] = None,
) -> None:
    """Train binding of streams; of several seeds the best by validation becomes NAME.json beside NAME.safetensors."""
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    try:
        train_binding(preset, parse_numbers(seeds, "seeds", least=0), out, episodes, errors)
    except InvalidInput as error:
        errors.print(f"error: {error}")
        raise typer.Exit(2) from error
    except TiphysError as error:
        errors.print(f"error: {error}")
        raise typer.Exit(1) from error


def _train(
    name: str, seeds: Sequence[int], out: Path, steps: int | None, workload: str | None, resume: bool, ray: bool, errors: Console
) -> Path:
    try:
        from dataclasses import replace  # noqa: PLC0415

        from tiphys_models.sim.workloads import KINDS  # noqa: PLC0415
        from tiphys_models.train.export import SCRAPE_WINDOWS_S, write_artifact  # noqa: PLC0415
        from tiphys_models.train.placement import train  # noqa: PLC0415
        from tiphys_models.train.presets import PRESETS  # noqa: PLC0415
        from tiphys_models.train.rolling import roller  # noqa: PLC0415
        from tiphys_models.train.validation import percent_on_test  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput(f"training needs more than is installed ({error.name}): pip install 'tiphys[train]'") from error
    chosen = PRESETS.get(name)
    if chosen is None:
        raise InvalidInput(f"no preset is called {name!r}: there are {', '.join(PRESETS)}")
    if steps is not None:
        if steps < 1:
            raise InvalidInput(f"--steps wants a whole number from 1 on, it got {steps}")
        chosen = replace(chosen, steps=steps)
    if workload is not None:
        if workload not in KINDS:
            raise InvalidInput(f"no workload is called {workload!r}: there are {', '.join(KINDS)}")
        chosen = replace(chosen, only=workload)
    results: list[Trained] = []
    with roller(ray=ray) as rolls:
        for seed in seeds:
            errors.print(f"{chosen.name}, seed {seed}: {chosen.episodes:,} episodes at most")
            result = train(chosen, seed, lambda p: _tell(errors, p), checkpoint=out, resume=resume, rolls=rolls)
            results.append(result)
            _write_curve(out, result)
            windows = SCRAPE_WINDOWS_S if chosen.imitation else [1]
            write_artifact(out, result.student, f"{chosen.name}-{seed}", windows, training=_evidence(result))
    best = min(results, key=lambda r: r.best_pct)
    if best.best_pct == float("inf"):
        raise TiphysError("every student herds on one node; nothing was exported under the preset's name")
    # the test split is looked at when the choice has been made
    tests = [percent_on_test(result.student) for result in results]
    evidence = [_evidence(result) | {"test_pct_of_hashing": round(test, 3)} for result, test in zip(results, tests, strict=True)]
    windows = SCRAPE_WINDOWS_S if chosen.imitation else [1]
    write_artifact(out, best.student, chosen.name, windows, training=evidence[results.index(best)], training_seeds=evidence)
    table = Table("seed", "validation, % of hashing", "test", "best step", "episodes", "seconds", title=chosen.name)
    for result, test in zip(results, tests, strict=True):
        figures = (f"{result.best_pct:.2f}", f"{test:.2f}", str(result.best_step), f"{result.episodes:,}", f"{result.seconds:.0f}")
        table.add_row(str(result.seed), *figures)
    Console(highlight=False).print(table)
    Console(highlight=False).print(f"seed {best.seed} is the best by validation: {out / chosen.name}.json")
    return out / f"{chosen.name}.json"


def _tell(errors: Console, p: Progress) -> None:
    if p.validation_pct is None:
        return
    errors.print(
        f"  step {p.step:>4}  {p.episodes:>6,} episodes  {p.seconds:6.0f} s  training {p.training:8.3f}  "
        f"validation {p.validation_pct:6.2f} % of hashing, fullest node {p.fullest_share:.2f}"
    )


def _evidence(result: Trained) -> dict[str, object]:
    return {
        "preset": result.preset.name,
        "seed": result.seed,
        "episodes": result.episodes,
        "best_step": result.best_step,
        "validation_pct_of_hashing": round(result.best_pct, 3),
        "seconds": round(result.seconds, 1),
        "azure_rows_seen": [],
    }


def _write_curve(out: Path, result: Trained) -> None:
    curve = {"preset": result.preset.name, "seed": result.seed, "points": [asdict(p) for p in result.curve]}
    (out / f"{result.preset.name}-{result.seed}.curve.json").write_bytes(orjson.dumps(curve, option=orjson.OPT_INDENT_2))
