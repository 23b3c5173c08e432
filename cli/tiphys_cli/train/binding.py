"""`tiphys train binding`: the score and the agents that choose among binding policies, from simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.table import Table

from tiphys_models.domain.errors import InvalidInput

PAPER = "aset-paper"


def train_binding(name: str, seeds: Sequence[int], out: Path, episodes: int | None, errors: Console) -> None:
    """Train, judge by validation, write every seed's artifact under `seeds` and the best one's beside it."""
    try:
        from tiphys_models.train.binding.presets import PRESETS  # noqa: PLC0415

        if name == PAPER:
            _train_paper(seeds, out, episodes, errors)
            return
        if name not in PRESETS:
            raise InvalidInput(f"no preset is called {name!r}: there are {', '.join(PRESETS)} and {PAPER}")
        if episodes is not None:
            raise InvalidInput(f"--episodes is for {PAPER} only")
        _train_agents(name, seeds, out, errors)
    except ImportError as error:
        raise InvalidInput(f"training needs more than is installed ({error.name}): pip install 'tiphys[train]'") from error


def _train_agents(name: str, seeds: Sequence[int], out: Path, errors: Console) -> None:
    from tiphys_models.artifacts.tensors import write_tensors  # noqa: PLC0415
    from tiphys_models.binding import agent, learned  # noqa: PLC0415
    from tiphys_models.train.binding.agents import train  # noqa: PLC0415
    from tiphys_models.train.binding.presets import PRESETS  # noqa: PLC0415

    results = []
    for seed in seeds:
        errors.print(f"{name}, seed {seed}")
        results.append(train(PRESETS[name], seed, errors.print))
        found = results[-1]
        write_tensors(out / "seeds", f"{name}-{seed}", name, agent.SCHEMA, found.arrays, **found.card, training=found.evidence)
    best = max(results, key=lambda r: r.validation)
    evidence = {"training": best.evidence, "training_seeds": [r.evidence for r in results]}
    write_tensors(out, name, name, agent.SCHEMA, best.arrays, **best.card, **evidence)
    if name == "aset":  # its score serves by itself, too
        write_tensors(out, "score", "score", learned.SCHEMA, {"weights": best.arrays["weights"]}, **evidence)
    table = Table("seed", "best fixed action", "its success", "margin", "success", "seconds", title=f"{name}: validation")
    for r in results:
        e = r.evidence
        never = e["validation_success_by_margin"]["never"]
        margin = "never switches" if e["margin"] > 1e6 else f"{e['margin']:g}"
        table.add_row(str(r.seed), e["base"], f"{100 * never:.2f} %", margin, f"{100 * r.validation:.2f} %", f"{e['seconds']:.0f}")
    Console(highlight=False).print(table)
    Console(highlight=False).print(f"seed {best.seed} is the best by validation: {out / name}.json")


def _train_paper(seeds: Sequence[int], out: Path, episodes: int | None, errors: Console) -> None:
    """No seed is chosen: the paper's agent is a comparator, and all of them are judged."""
    from tiphys_models.artifacts.tensors import write_tensors  # noqa: PLC0415
    from tiphys_models.binding.paper import SCHEMA  # noqa: PLC0415
    from tiphys_models.train.binding.dqn import PaperPreset, train_paper  # noqa: PLC0415

    preset = PaperPreset() if episodes is None else replace(PaperPreset(), episodes=episodes)
    for seed in seeds:
        errors.print(f"{PAPER}, seed {seed}, {preset.episodes} episodes")
        started = monotonic()
        arrays = train_paper(preset, seed, errors.print)
        evidence = {"seed": seed, "episodes": preset.episodes, "seconds": round(monotonic() - started, 1)}
        write_tensors(out / "seeds", f"{PAPER}-{seed}", PAPER, SCHEMA, arrays, training=evidence)
