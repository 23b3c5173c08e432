"""`tiphys train selection`: selectors of interval planners, from simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tiphys_models.domain.errors import InvalidInput

if TYPE_CHECKING:
    from tiphys_models.train.selection.trainers import Trained

_SEEDS = (0, 1, 2)
_INTERVALS = 500
"""Played for a constant."""


def train_selection(
    name: str, seeds: Sequence[int], out: Path, episodes: int | None, intervals: int | None, resume: bool, resuming: bool, errors: Console
) -> None:
    """Train, judge by validation, write every seed's artifact and the best one's under the preset's name."""
    try:
        from tiphys_models.artifacts.tensors import write_tensors  # noqa: PLC0415
        from tiphys_models.train.selection.trainers import PRESETS, Trainer  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput(f"training needs more than is installed ({error.name}): pip install 'tiphys[train]'") from error
    if name in _CONSTANTS:
        _CONSTANTS[name](errors)
        return
    if name not in PRESETS:
        raise InvalidInput(f"no preset is called {name!r}: there are {', '.join((*PRESETS, *_CONSTANTS))}")
    chosen = PRESETS[name]
    for option, value in (("episodes", episodes), ("intervals", intervals)):
        if value is not None:
            if value < 1:
                raise InvalidInput(f"--{option} wants a whole number from 1 on, it got {value}")
            chosen = replace(chosen, **{option: value})  # type: ignore[arg-type]
    chosen = replace(chosen, resuming=resuming, validation_intervals=min(chosen.validation_intervals, chosen.intervals))
    kept = out / "episodes"
    if kept.exists() and not resume:
        raise InvalidInput(f"{out} holds the episodes of another run: pass --resume to go on with them, or another --out")
    trainer = Trainer(chosen, out, errors.print)
    results: list[Trained] = []
    for seed in seeds:
        errors.print(f"{name}, seed {seed}, candidates {', '.join(trainer.planners.names)}")
        results.append(trainer.train(seed))
        write_tensors(
            out, f"{name}-{seed}", name, results[-1].schema, results[-1].arrays, **results[-1].card, training=_evidence(results[-1])
        )
    best = min(results, key=lambda r: r.mean)
    evidence = {"training": _evidence(best), "training_seeds": [_evidence(r) for r in results]}
    write_tensors(out, name, name, best.schema, best.arrays, **best.card, **evidence)
    table = Table("seed", *best.validation, "mean", title=f"{name}: J over that of the best fixed candidate, validation")
    for result in results:
        table.add_row(str(result.seed), *(f"{v:.3f}" for v in result.validation.values()), f"{result.mean:.3f}")
    Console(highlight=False).print(table)
    Console(highlight=False).print(f"seed {best.seed} is the best by validation: {out / name}.json")


def _evidence(result: Trained) -> dict[str, object]:
    judged = {key: round(value, 4) for key, value in result.validation.items()}
    return {"preset": result.preset, "seed": result.seed, "validation_j_over_best_fixed": judged, "mean": round(result.mean, 4)}


def _tune(errors: Console) -> None:
    from tiphys_models.planners.registry import candidates, make_planners  # noqa: PLC0415
    from tiphys_models.sim.cloud.episode import Planners  # noqa: PLC0415
    from tiphys_models.train.selection.playing import tune_ucb  # noqa: PLC0415

    errors.print("UCB plays the calibration split")
    found = tune_ucb(Planners(make_planners(candidates())), _SEEDS, _INTERVALS)
    table = Table("c", "J over best fixed", title="ucb, calibration split, default weights")
    for c, value in found.items():
        table.add_row(f"{c:.3g}", f"{value:.4f}")
    Console(highlight=False).print(table)
    Console(highlight=False).print(f"the best is c = {min(found, key=found.__getitem__):.3g}; selectors/ucb.py keeps it as TUNED_C")


def _price(errors: Console) -> None:
    from tiphys_models.planners.registry import candidates, make_planners  # noqa: PLC0415
    from tiphys_models.selectors.metanet import make  # noqa: PLC0415
    from tiphys_models.sim.cloud.episode import Planners  # noqa: PLC0415
    from tiphys_models.train.selection.playing import MOST_VIOLATIONS, Court, price_violations  # noqa: PLC0415

    errors.print("the shipped metanet plays the validation split")
    court = Court(Planners(make_planners(candidates())), "validation", _SEEDS, _INTERVALS)
    found = price_violations(court, lambda w, d: make(candidates(), w, d, 0))
    workloads = next(iter(found.values()))
    head = [column for w in workloads for column in (f"{w}, USD", f"{w}, violations of the worst seed")]
    table = Table("price of a missed deadline, USD", *head, title="metanet, validation split")
    for price, bills in found.items():
        table.add_row(f"{price:.2g}", *(text for usd, late in bills.values() for text in (f"{usd:.4f}", f"{late:.3f}")))
    Console(highlight=False).print(table)
    kept = [price for price, bills in found.items() if max(late for _, late in bills.values()) <= MOST_VIOLATIONS]
    verdict = f"{min(kept):.2g} is the least that keeps" if kept else "none keeps"
    Console(highlight=False).print(f"{verdict} violations at {MOST_VIOLATIONS:.0%} on every seed; cloud/score.py has it as MISSED_USD")


_CONSTANTS: Mapping[str, Callable[[Console], None]] = {"ucb": _tune, "cost-at-sla": _price}
