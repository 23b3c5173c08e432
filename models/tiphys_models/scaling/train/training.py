"""How `tiphys train scaling` goes: from the fluid simulator, or on from a published agent with what operators served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.base.errors import InvalidInput, TiphysError
from tiphys_models.lab.trainer import Line, Tell, Training, preset_of
from tiphys_models.scaling.learned import load_agent
from tiphys_models.scaling.train.presets import PRESETS
from tiphys_models.scaling.train.served import Served
from tiphys_models.scaling.train.trainer import CONTINUED_ROUNDS, Trained, continued, train, write


class ScalingTraining(Training[Trained]):
    """Training of scaling agents: of several seeds, the best by validation becomes scaling-NAME.json beside scaling-NAME.safetensors."""

    def __init__(self, name: str, rounds: int | None = None) -> None:
        self.name, self._preset = name, preset_of(PRESETS, name, rounds=rounds)

    def train(self, seed: int, tell: Tell) -> Trained:
        """Trains one seed; implements `Training.train`."""
        return train(self._preset, seed, tell)

    def seed_of(self, trained: Trained) -> int:
        """Seed of a result; implements `Training.seed_of`."""
        return trained.seed

    def order(self, trained: Trained) -> tuple[float, float]:
        """What validation says, the lowest is the best; implements `Training.order`."""
        return trained.order

    def evidence(self, trained: Trained) -> Line:
        """What the card says of one seed; implements `Training.evidence`."""
        return trained.evidence

    def write(self, trained: Trained, artifact: str, out: Path, **evidence: Any) -> Path:
        """Writes arrays and card; implements `Training.write`."""
        return write(out, artifact, trained, **evidence)

    def line(self, trained: Trained, evidence: Line) -> Line:
        """A row of the table of seeds; implements `Training.line`."""
        return {"seed": trained.seed, "promised windows missing": f"{trained.order[0]:.4f}", "cost over the rule's": f"{trained.score:.4f}"}


class ContinuedTraining(ScalingTraining):
    """Goes on from a card with what was served. Only the best is written."""

    def __init__(self, name: str, rounds: int | None, base: Path, served: Served, tell: Tell) -> None:
        super().__init__(name, rounds)
        self._rounds, self._base, self._served, self._digest = rounds or CONTINUED_ROUNDS, base, served, load_agent(base).digest
        left_out = (
            f"{served.foreign} for other inputs, {served.unlike} unlike any action, {served.short} whose following windows are missing"
        )
        tell(f"{len(served)} steps to learn from; left out: {left_out}")
        if not len(served):
            raise TiphysError("no step to learn from; policies with spec.agent.learning: Collect serve theirs")

    def announced(self, seed: int) -> str:
        """Message before a seed is trained; implements `Training.announced`."""
        return f"{self.name} from {self._base.name}, sha256 {self._digest[:12]}, seed {seed}"

    def train(self, seed: int, tell: Tell) -> Trained:
        """Trains one seed; implements `Training.train`."""
        return continued(PRESETS[self.name], seed, self._base, self._served, tell, self._rounds)

    def keep(self, trained: Trained, out: Path) -> None:
        """Writes nothing: only the best may stand beside the agent it goes on from."""

    def check(self, best: Trained, out: Path) -> None:
        """One that is clearly worse than its base is kept under another name."""
        if not best.sound:
            refused = write(out, f"{self.name}-refused", best, training=best.evidence)
            before = best.evidence["base_mean_cost_over_rule"]
            raise TiphysError(
                f"it costs {best.score:.4f} of the rule on validation, its base {before}: kept as {refused} and not published"
            )


def base_of(name: str, base: Path | None, out: Path) -> Path:
    """The card that training goes on from: `base`, else what the last run left in `out`, else the shipped one."""
    if name != "combined":
        raise InvalidInput(f"--from-transitions goes on with combined, not with {name}")
    left = out / f"scaling-{name}.json"
    found = base or (left if left.exists() else WEIGHTS / left.name)
    if (agent := load_agent(found)).name != name:
        raise InvalidInput(f"--base {found.name} holds {agent.name}, not {name}")
    return found
