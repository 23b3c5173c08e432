"""Where a course stands: weights and learning curve on disk, so that it can be stopped and taken up again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import orjson
from safetensors.numpy import load_file, save_file

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement.train.presets import Preset
from tiphys_models.placement.train.rollouts import Student

Best = tuple[float, int, Student]
"""% of hashing on validation, after which step, with which weights."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One line of a learning curve."""

    step: int
    episodes: int
    seconds: float
    training: float
    """Mean completion of the training episodes in seconds (PPO), or the loss (teacher)."""
    validation_pct: float | None
    """% of hashing on the validation split, best choices; None where it was not measured."""
    fullest_share: float | None


def write_checkpoint(directory: Path, preset: Preset, seed: int, now: Student, best: Best | None, curve: Sequence[CurvePoint]) -> None:
    """Replace what is there."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = _tensors("now", now) | (_tensors("best", best[2]) if best else {})
    weights = directory / f"{preset.name}-{seed}.checkpoint.safetensors"
    partial = weights.with_suffix(".partial")
    save_file(tensors, partial)
    partial.replace(weights)
    state = {
        "preset": preset.name,
        "seed": seed,
        "step": curve[-1].step,
        "best": [best[0], best[1]] if best else None,
        "curve": [asdict(p) for p in curve],
    }
    (directory / f"{preset.name}-{seed}.checkpoint.json").write_bytes(orjson.dumps(state, option=orjson.OPT_INDENT_2))


def read_checkpoint(directory: Path, preset: Preset, seed: int) -> tuple[int, Best | None, list[CurvePoint], Student]:
    """(step, best, curve, present weights); InvalidInput says what is missing or broken."""
    path = directory / f"{preset.name}-{seed}.checkpoint.json"
    try:
        state = orjson.loads(path.read_bytes())
        tensors = load_file(path.with_suffix(".safetensors"))
        best = (state["best"][0], state["best"][1], _student("best", tensors)) if state["best"] else None
        return state["step"], best, [CurvePoint(**p) for p in state["curve"]], _student("now", tensors)
    except OSError as error:
        raise InvalidInput(
            f"no checkpoint of {preset.name}, seed {seed}, in {directory}: {error.strerror}; train without --resume"
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"the checkpoint {path} cannot be read ({error!r}): remove it and train without --resume") from error


def _tensors(prefix: str, student: Student) -> dict[str, FloatArray]:
    tensors = {f"{prefix}.mean": student.mean, f"{prefix}.scale": student.scale}
    for index, (weight, bias) in enumerate(student.layers):
        tensors[f"{prefix}.{index}.weight"], tensors[f"{prefix}.{index}.bias"] = np.ascontiguousarray(weight), bias
    return tensors


def _student(prefix: str, tensors: dict[str, FloatArray]) -> Student:
    layers = tuple((tensors[f"{prefix}.{i}.weight"], tensors[f"{prefix}.{i}.bias"]) for i in range(3))
    return Student(layers, tensors[f"{prefix}.mean"], tensors[f"{prefix}.scale"])
