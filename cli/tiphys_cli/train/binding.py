"""`tiphys train binding`: the score and the agents that choose among binding policies, from simulation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tiphys_models.domain.errors import InvalidInput


def train_binding(name: str, seeds: Sequence[int], out: Path, errors: Console) -> None:
    """Train, judge by validation, write every seed's artifact under `seeds` and the best one's beside it."""
    try:
        from tiphys_models.artifacts.tensors import write_tensors  # noqa: PLC0415
        from tiphys_models.binding import agent, learned  # noqa: PLC0415
        from tiphys_models.train.binding.agents import train  # noqa: PLC0415
        from tiphys_models.train.binding.presets import PRESETS  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput(f"training needs more than is installed ({error.name}): pip install 'tiphys[train]'") from error
    if name not in PRESETS:
        raise InvalidInput(f"no preset is called {name!r}: there are {', '.join(PRESETS)}")
    results = []
    for seed in seeds:
        errors.print(f"{name}, seed {seed}")
        results.append(train(PRESETS[name], seed, errors.print))
        found = results[-1]
        write_tensors(out / "seeds", f"{name}-{seed}", name, agent.SCHEMA, found.arrays, **found.card, training=found.evidence)
    best = max(results, key=lambda r: r.validation)
    evidence = {"training": best.evidence, "training_seeds": [r.evidence for r in results]}
    write_tensors(out, name, name, agent.SCHEMA, best.arrays, **best.card, **evidence)
    if name == "aset-wide":  # what is learned over all rates serves as the fixed score too
        write_tensors(out, "score", "score", learned.SCHEMA, {"weights": best.arrays["weights"]}, **evidence)
    table = Table("seed", "best fixed action", "its success", "margin", "success", "seconds", title=f"{name}: validation")
    for r in results:
        e = r.evidence
        never = e["validation_success_by_margin"]["never"]
        margin = "never switches" if e["margin"] > 1e6 else f"{e['margin']:g}"
        table.add_row(str(r.seed), e["base"], f"{100 * never:.2f} %", margin, f"{100 * r.validation:.2f} %", f"{e['seconds']:.0f}")
    Console(highlight=False).print(table)
    Console(highlight=False).print(f"seed {best.seed} is the best by validation: {out / name}.json")
