"""`tiphys train planners`: the weights of learned planners, from generated workloads of the train split."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tiphys_models.domain.errors import InvalidInput, TiphysError


def planners(
    only: Annotated[str | None, typer.Option(help="comma-separated planners; default: all that have weights")] = None,
    seed: Annotated[int, typer.Option(min=0, help="of networks, minibatches and workloads")] = 0,
    out: Annotated[Path, typer.Option(help="directory for weights and cards")] = Path("out/train/planners"),
) -> None:
    """Train the learned interval planners: NAME.safetensors and NAME.json for each, minutes on one core."""
    errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    try:
        _train(only.split(",") if only is not None else None, seed, out, errors)
    except InvalidInput as error:
        errors.print(f"error: {error}")
        raise typer.Exit(2) from error
    except TiphysError as error:
        errors.print(f"error: {error}")
        raise typer.Exit(1) from error


def _train(only: list[str] | None, seed: int, out: Path, errors: Console) -> None:
    from tiphys_models.train.planners import TRAINERS, train_planner  # noqa: PLC0415

    for name in only or TRAINERS:
        errors.print(f"{name}, seed {seed}")
        try:
            card = train_planner(name, out, seed, lambda line: errors.print(f"  {line}"))
        except ImportError as error:
            raise InvalidInput(f"training needs more than is installed ({error.name}): pip install 'tiphys[train]'") from error
        Console(highlight=False).print(f"{name}: {card}")
