"""Ways to train placement, by name."""

from __future__ import annotations

from dataclasses import dataclass

from tiphys_models.placement.outlook import WIDTH
from tiphys_models.placement.schema import FEATURES
from tiphys_models.placement.train.imitation import ImitationSettings
from tiphys_models.placement.train.net import PAPER_HIDDEN
from tiphys_models.placement.train.ppo import PpoSettings


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
            32,
            1,
            12,
            imitation=ImitationSettings(inputs=WIDTH, hidden=PAPER_HIDDEN, iterations=32),
        ),
    )
}
