"""Training of placement: presets, progress, checkpoints, the best student by validation.

Validation plays the best choices, never sampled ones: a network that looks fine while it is sampled can send everything to one
node once it takes the maximum.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import orjson
import torch
from safetensors.numpy import load_file, save_file

from tiphys_models.domain.errors import InvalidInput
from tiphys_models.features.arrays import FloatArray
from tiphys_models.features.outlook import WIDTH
from tiphys_models.features.schema import FEATURES
from tiphys_models.nets.score import PAPER_HIDDEN, layers_of, make_score_network, put_layers
from tiphys_models.policies.rules import Hashing
from tiphys_models.sim.episode import simulate
from tiphys_models.sim.metrics import fullest_share
from tiphys_models.sim.scenario import AGES, MIXED, SIZES
from tiphys_models.sim.workloads import MULTI
from tiphys_models.train.curriculum import VALIDATION_SEEDS, default_tasks, lessons_of
from tiphys_models.train.imitation import ImitationSettings, Teaching
from tiphys_models.train.ppo import Ppo, PpoSettings
from tiphys_models.train.rollouts import Roller, Student, Task, blind, input_scale, play_here, roll

HERD = 0.5
"""A student that sends more than this share of a workload to one of ten nodes herds; it is never the best."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A way to train. Exactly one of `ppo` and `imitation` is set."""

    name: str
    summary: str
    inputs: int
    steps: int
    """Updates of PPO, or iterations of the teacher."""
    validate_every: int
    patience: int
    """Validations without a better one before training stops."""
    hidden: tuple[int, int] = PAPER_HIDDEN
    ppo: PpoSettings | None = None
    imitation: ImitationSettings | None = None
    only: str | None = None
    """Single-workload training: the same arrivals of this workload in every episode (PPO), or only this workload (teacher)."""

    @property
    def episodes(self) -> int:
        """Workloads played for training, every rollout counted."""
        return self.steps * (self.ppo.rollouts if self.ppo else 40)


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "faasrank-paper",
            "The paper's: PPO with a critic, one episode an update, 26 inputs.",
            len(FEATURES),
            500,
            25,
            1_000,
            ppo=PpoSettings("critic", rollouts=1, learning_rate=2e-4),
        ),
        Preset(
            "faasrank-rollouts",
            "The same network and inputs with an input-dependent baseline over 8 rollouts of the same arrivals.",
            len(FEATURES),
            63,
            3,
            1_000,
            ppo=PpoSettings("rollouts", rollouts=8, learning_rate=1e-3, entropy=0.01, standardise=True),
        ),
        Preset(
            "faasrank",
            "The shipped one: 42 inputs, taught what every choice costs on workloads, ages, sizes and mixes of the training split.",
            WIDTH,
            20,
            1,
            12,
            imitation=ImitationSettings(inputs=WIDTH, hidden=PAPER_HIDDEN, iterations=20),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Progress:
    """One line of a learning curve."""

    step: int
    episodes: int
    seconds: float
    training: float
    """Mean completion of the training episodes in seconds (PPO), or the loss (teacher)."""
    validation_pct: float | None
    """% of hashing on the validation split, best choices; None where it was not measured."""
    fullest_share: float | None


@dataclass(frozen=True, slots=True)
class Trained:
    """The best student by validation, and how it came about."""

    preset: Preset
    seed: int
    student: Student
    best_pct: float
    best_step: int
    episodes: int
    seconds: float
    curve: Sequence[Progress]


class Validation:
    """Percent of hashing over fixed tasks of the validation split: the mean of the groups' means, the default scenario counting half."""

    def __init__(self, *, varied: bool, seeds: int = VALIDATION_SEEDS) -> None:
        scenarios = (AGES[0], AGES[3], MIXED, SIZES[0]) if varied else ()
        groups = [default_tasks("validation", range(seeds)), *(default_tasks("validation", [seeds], s) for s in scenarios)]
        self._weights = np.array([len(scenarios) or 1, *[1.0] * len(scenarios)])
        self._groups = [[(task, _hashing_s(task)) for task in group] for group in groups]

    def __call__(self, student: Student) -> tuple[float, float]:
        """(percent of hashing, largest share of a workload's calls on one node of the default scenario)."""
        percents, fullest = [], 0.0
        for index, group in enumerate(self._groups):
            ratios = []
            for task, hashing_s in group:
                records = roll(student, task, record=False).records
                ratios.append(records.completion_s.mean() / hashing_s)
                if index == 0:
                    fullest = max(fullest, fullest_share(records, task.scenario.nodes))
            percents.append(100 * float(np.mean(ratios)))
        return float(np.average(percents, weights=self._weights)), fullest


def _hashing_s(task: Task) -> float:
    return float(simulate(task.workload, Hashing(), task.scenario).completion_s.mean())


def train(
    preset: Preset,
    seed: int,
    tell: Callable[[Progress], None],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    rolls: Roller = play_here,
    validation: Validation | None = None,
) -> Trained:
    """Train one seed. With `checkpoint`, weights and curve are kept there after every validation; `resume` goes on from them."""
    torch.set_num_threads(1)  # the networks are too small for more
    torch.manual_seed(seed)
    check = validation or Validation(varied=preset.imitation is not None)
    course = _PpoCourse(preset, seed, rolls) if preset.ppo else _TeacherCourse(preset, seed, rolls)
    curve: list[Progress] = []
    best: tuple[float, int, Student] | None = None
    started = time.monotonic()
    if resume:
        if checkpoint is None:
            raise InvalidInput("to resume, name the directory that holds the checkpoint")
        step, best, curve, now = _read_checkpoint(checkpoint, preset, seed)
        course.resume(now, step)
        started -= curve[-1].seconds if curve else 0.0
    else:
        course.open()
    since_best = 0
    for step in range(course.done, preset.steps):
        figure = course.step()
        measure = (step + 1) % preset.validate_every == 0 or step + 1 == preset.steps
        percent, fullest = check(course.student) if measure else (None, None)
        episodes = round((step + 1) * preset.episodes / preset.steps)
        curve.append(Progress(step + 1, episodes, time.monotonic() - started, figure, percent, fullest))
        tell(curve[-1])
        if percent is None or fullest is None:
            continue
        since_best += 1
        if fullest <= HERD and (best is None or percent < best[0]):
            best, since_best = (percent, step + 1, course.student), 0
        if checkpoint is not None:
            _write_checkpoint(checkpoint, preset, seed, course.student, best, curve)
        if since_best >= preset.patience:
            break
    if best is None:  # every validated student herds: say so by its figure, and let the caller judge
        best = (float("inf"), len(curve), course.student)
    return Trained(preset, seed, best[2], best[0], best[1], curve[-1].episodes, time.monotonic() - started, curve)


class _PpoCourse:
    def __init__(self, preset: Preset, seed: int, rolls: Roller) -> None:
        assert preset.ppo is not None  # noqa: S101 - chosen by it
        actor = make_score_network(preset.inputs, preset.hidden, seed)
        critic = make_score_network(preset.inputs, preset.hidden, seed + 1_000_003) if preset.ppo.baseline == "critic" else None
        self._ppo = Ppo(actor, critic, preset.ppo)
        self._preset, self._seed, self._rolls = preset, seed, rolls
        self.done = 0
        self.student = blind(preset.inputs)

    def open(self) -> None:
        """Scale the inputs by what random choices meet on the ten workloads."""
        mean, scale = input_scale(self._rolls(blind(self._preset.inputs), self._look(0), seed=self._seed))
        self.student = Student(layers_of(self._ppo.actor), mean, scale)

    def resume(self, student: Student, step: int) -> None:
        """Weights go on; the optimiser's moments begin anew."""
        put_layers(self._ppo.actor, student.layers)
        self.student, self.done = student, step

    def step(self) -> float:
        """One update."""
        # the ten workloads in turn, each the same arrivals every time it comes, as the paper repeats each 50 times
        tasks = self._look(0)
        task = tasks[self.done % len(tasks)]
        self.student, report = self._ppo.update(self.student, task, self._seed * 1_000_003 + self.done, self._rolls)
        self.done += 1
        return report.mean_completion_s

    def _look(self, _iteration: int) -> Sequence[Task]:
        only = self._preset.only
        return lessons_of(0, self._seed, size=1 if only else len(MULTI), varied=False, only=only)


class _TeacherCourse:
    def __init__(self, preset: Preset, seed: int, rolls: Roller) -> None:
        assert preset.imitation is not None  # noqa: S101 - chosen by it
        settings = replace(preset.imitation, iterations=preset.steps)
        self._teaching = Teaching(lambda iteration: lessons_of(iteration, seed, only=preset.only), settings, seed, rolls)

    @property
    def done(self) -> int:
        return self._teaching.iteration

    @property
    def student(self) -> Student:
        return self._teaching.student

    def open(self) -> None:
        """The first lesson."""
        self._teaching.open()

    def resume(self, student: Student, step: int) -> None:
        """Weights go on, the last lessons are played again."""
        self._teaching.resume(student, step)

    def step(self) -> float:
        """One iteration; the loss."""
        return self._teaching.step()


# ---- checkpoints ---------------------------------------------------------------------------------------------------


def _write_checkpoint(
    directory: Path, preset: Preset, seed: int, now: Student, best: tuple[float, int, Student] | None, curve: Sequence[Progress]
) -> None:
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


def _read_checkpoint(directory: Path, preset: Preset, seed: int) -> tuple[int, tuple[float, int, Student] | None, list[Progress], Student]:
    path = directory / f"{preset.name}-{seed}.checkpoint.json"
    try:
        state = orjson.loads(path.read_bytes())
        tensors = load_file(path.with_suffix(".safetensors"))
        best = (state["best"][0], state["best"][1], _student("best", tensors)) if state["best"] else None
        return state["step"], best, [Progress(**p) for p in state["curve"]], _student("now", tensors)
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
