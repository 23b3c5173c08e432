"""`tiphys train`: progress on standard error, artifacts and learning curves in a directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tiphys_cli.bench.printing import parse_numbers
from tiphys_cli.model.publishing import NAMESPACE
from tiphys_cli.train.running import Publishing, installed, printed, reported, train
from tiphys_cli.train.transitions import ServedFrom, transitions
from tiphys_models.base.errors import InvalidInput

if TYPE_CHECKING:
    from tiphys_models.lab.trainer import Training

train_app = typer.Typer(no_args_is_help=True, help="Train learned policies. Needs the extra `train` (torch, numba).")

Seeds = Annotated[str, typer.Option(help="comma-separated training seeds, one after another")]
Publish = Annotated[
    str,
    typer.Option(metavar="NAME", help="publish the best as this LearnedModel, stage candidate, in the cluster of $KUBECONFIG or the pod"),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="where --publish writes: the namespace of the chart")]


@train_app.callback()
def train_root() -> None:
    """Train learned policies. Needs the extra `train` (torch, numba)."""


@train_app.command()
def planners(
    only: Annotated[str | None, typer.Option(help="comma-separated planners; default: all that have weights")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of networks, minibatches and workloads")] = 0,
    out: Annotated[Path, typer.Option(help="directory for weights and cards")] = Path("out/train/planners"),
) -> None:
    """Train the learned interval planners: NAME.safetensors and NAME.json for each, minutes on one core."""
    with reported() as errors, installed():
        from tiphys_models.selection.train.planners import TRAINERS, train_planner  # noqa: PLC0415

        for name in only.split(",") if only is not None else TRAINERS:
            errors.print(f"{name}, seed {seed}")
            card = train_planner(name, out, seed, lambda line: errors.print(f"  {line}"))
            Console(highlight=False).print(f"{name}: {card}")


@train_app.command()
def placement(
    preset: Annotated[str, typer.Option(help="faasrank, faasrank-rollouts, faasrank-paper or estimator-network")] = "faasrank",
    seeds: Seeds = "0",
    out: Annotated[Path, typer.Option(help="directory for artifacts, checkpoints and learning curves")] = Path("out/train/placement"),
    steps: Annotated[int | None, typer.Option(help="updates (PPO) or iterations (teacher) instead of the preset's")] = None,
    workload: Annotated[str | None, typer.Option(help="train on this workload alone, such as SC; default: all of the preset's")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on from the checkpoint in --out")] = False,
    publish: Publish = "",
    namespace: Namespace = NAMESPACE,
    ray: Annotated[
        bool, typer.Option("--ray", help="play workloads on a Ray cluster (RAY_ADDRESS, else a local one); extra `rollouts`")
    ] = False,
) -> None:
    """Train FaaSRank or the network over the estimator; the best seed by validation becomes NAME.json beside NAME.safetensors."""

    def make(_: Callable[[str], None]) -> Training[Any]:
        if preset == "estimator-network":
            from tiphys_models.placement.train.evolving import EvolutionTraining  # noqa: PLC0415

            return EvolutionTraining(steps=steps)
        from tiphys_models.placement.train.training import PlacementTraining  # noqa: PLC0415

        return PlacementTraining(preset, out, steps=steps, workload=workload, resume=resume, ray=ray)

    train(make, seeds, out, Publishing(publish, namespace))


@train_app.command()
def selection(
    preset: Annotated[
        str, typer.Option(help="metanet, metanet-paper, dqn; or a constant: ucb (its c), cost-at-sla (its price of a missed deadline)")
    ] = "metanet",
    seeds: Seeds = "0",
    out: Annotated[Path, typer.Option(help="directory for artifacts and labelled episodes")] = Path("out/train/selection"),
    episodes: Annotated[int | None, typer.Option(help="episodes a workload and round instead of the preset's")] = None,
    intervals: Annotated[int | None, typer.Option(help="intervals an episode instead of the preset's; validation is no longer")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the episodes in --out")] = False,
    resuming: Annotated[bool, typer.Option("--resuming", help="every fourth episode on hosts that take their time to resume")] = False,
) -> None:
    """Train selectors of interval planners; of several seeds the best by validation becomes NAME.json beside NAME.safetensors."""
    with reported() as errors:
        parse_numbers(seeds, "seeds", least=0)
        with installed():
            from tiphys_models.selection.train.training import CONSTANTS, SelectionTraining  # noqa: PLC0415

        if preset in CONSTANTS:
            title, lines, verdict = CONSTANTS[preset](errors.print)
            printed(title, lines)
            Console(highlight=False).print(verdict)
            return

    def make(tell: Callable[[str], None]) -> Training[Any]:
        return SelectionTraining(preset, out, tell, episodes=episodes, intervals=intervals, resume=resume, resuming=resuming)

    train(make, seeds, out)


@train_app.command()
def scaling(
    preset: Annotated[
        str, typer.Option(help="combined, dqn-vertical, dqn-vertical-published, dqn-horizontal, dqn-horizontal-3 or q-table")
    ] = "combined",
    seeds: Seeds = "0",
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
    publish: Publish = "",
    namespace: Namespace = NAMESPACE,
) -> None:
    """Train scaling agents; of several seeds the best by validation becomes scaling-NAME.json beside scaling-NAME.safetensors."""

    def make(tell: Callable[[str], None]) -> Training[Any]:
        from tiphys_models.scaling.train.presets import PRESETS  # noqa: PLC0415
        from tiphys_models.scaling.train.served import served_for  # noqa: PLC0415
        from tiphys_models.scaling.train.training import ContinuedTraining, ScalingTraining, base_of  # noqa: PLC0415

        if not from_transitions:
            if base is not None or token_file is not None or ca_file is not None or policy:
                raise InvalidInput("--base, --token-file, --ca-file and --policy are for --from-transitions")
            return ScalingTraining(preset, rounds)
        ScalingTraining(preset, rounds)  # its options are checked before anything is fetched
        card = base_of(preset, base, out)
        served = transitions(ServedFrom(from_transitions, token_file, ca_file, policy), out, tell)
        return ContinuedTraining(preset, rounds, card, served_for(served, card, PRESETS[preset]), tell)

    train(make, seeds, out, Publishing(publish, namespace))


@train_app.command()
def binding(
    preset: Annotated[str, typer.Option(help="aset (which also writes score), aset-wide or aset-paper")] = "aset",
    seeds: Seeds = "0",
    out: Annotated[Path, typer.Option(help="directory for artifacts")] = Path("out/train/binding"),
    episodes: Annotated[int | None, typer.Option(min=1, help="aset-paper: instead of the preset's 300")] = None,
) -> None:
    """Train binding of streams; of several seeds the best by validation becomes NAME.json beside NAME.safetensors."""

    def make(_: Callable[[str], None]) -> Training[Any]:
        from tiphys_models.streams.train.training import training_of  # noqa: PLC0415

        return training_of(preset, episodes)

    train(make, seeds, out)
