"""`tiphys train scaling`: scaling agents, from the fluid simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tiphys_models.domain.errors import InvalidInput


def train_scaling(name: str, seeds: Sequence[int], out: Path, rounds: int | None, errors: Console) -> None:
    """Train, judge by validation, write every seed's artifact and the best one's under the preset's name."""
    try:
        from tiphys_models.train.scaling.presets import PRESETS  # noqa: PLC0415
        from tiphys_models.train.scaling.trainer import train, write  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput(f"training needs more than is installed ({error.name}): pip install 'tiphys[train]'") from error
    if name not in PRESETS:
        raise InvalidInput(f"no preset is called {name!r}: there are {', '.join(PRESETS)}")
    if rounds is not None and rounds < 1:
        raise InvalidInput(f"--rounds wants a whole number from 1 on, it got {rounds}")
    preset = PRESETS[name] if rounds is None else replace(PRESETS[name], rounds=rounds)
    results = []
    for seed in seeds:
        errors.print(f"{name}, seed {seed}")
        results.append(train(preset, seed, errors.print))
        write(out, f"{name}-{seed}", results[-1])
    best = min(results, key=lambda r: r.score)
    card = write(out, name, best, training_seeds=[r.evidence for r in results])
    Console(highlight=False).print(f"seed {best.seed} is the best by validation: {card}")
