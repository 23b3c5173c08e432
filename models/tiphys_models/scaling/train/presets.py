"""How each scaling agent is trained."""

from __future__ import annotations

from dataclasses import dataclass, field

from tiphys_models.scaling.sim.scenario import ServiceScenario
from tiphys_models.scaling.sim.shapes import SHAPES


@dataclass(frozen=True, slots=True)
class Preset:
    """`reward`: `price` (cost of a window, and a graded violation at the price), or the published ones."""

    name: str
    reward: str = "price"
    hidden: tuple[int, ...] = (128, 128)
    dueling: bool = True
    rounds: int = 24
    """Lock-step batches of `groups` episodes."""
    groups: int = 64
    windows: int = 240
    shapes: tuple[str, ...] = SHAPES
    scale: tuple[float, float] = (1.0, 1.0)
    """Rates are multiplied by a factor drawn from here."""
    prices: tuple[float, float] = (0.3, 100.0)
    """Drawn uniformly in the logarithm, one an episode."""
    scenarios: tuple[ServiceScenario, ...] = (ServiceScenario(),)
    """Scenarios of which one is drawn each round."""
    any_start: bool = False
    """Begin with any sizes, not only with enough."""
    pods: tuple[int, int] | None = None
    """Replicas that never change, drawn from here; rates are in proportion."""
    gamma: float = 0.9
    n_step: int = 3
    batch: int = 256
    updates: int = 2
    rate: tuple[float, float] = (5e-4, 8e-5)
    explore: tuple[float, float] = (0.6, 0.03)
    judged: tuple[float, ...] = field(default=())
    """Prices of the frontier that validation measures: the settings of the benchmark."""


_VARIED = (
    ServiceScenario(), ServiceScenario(), ServiceScenario(),
    ServiceScenario("slow-starts", start_s=(10.0, 30.0)), ServiceScenario("lag", lag_windows=1),
    ServiceScenario("tight", target_s=0.2), ServiceScenario("loose", target_s=1.0),
)  # fmt: skip
_FEW_PODS = ServiceScenario("few-pods", max_replicas=3)
FRONTIER = (0.3, 0.8, 1.5, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0)
"""The encoder ends at 55: 100 stands for all that is dearer."""
_PUBLISHED = {"prices": (1.0, 1.0), "dueling": False, "n_step": 1, "gamma": 0.99}

PRESETS = {
    p.name: p
    for p in (
        Preset("combined", rounds=72, scenarios=_VARIED, prices=(0.2, 250.0), judged=FRONTIER),
        Preset(
            "dqn-vertical", shapes=("constant", "constant", "constant", *SHAPES), scale=(0.05, 0.4), scenarios=(_FEW_PODS,), pods=(1, 3),
            any_start=True, windows=120, prices=(1.0, 30.0), judged=(1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0, 15.0, 25.0),
        ),
        Preset(
            "dqn-vertical-published", reward="published-vertical", hidden=(64, 64), shapes=("constant",), scale=(0.05, 0.28),
            scenarios=(_FEW_PODS,), pods=(1, 1), any_start=True, windows=60, rounds=12, **_PUBLISHED,  # type: ignore[arg-type]
        ),
        Preset("dqn-horizontal", reward="published", windows=120, rounds=12, any_start=True, **_PUBLISHED),  # type: ignore[arg-type]
        Preset("dqn-horizontal-3", reward="published", groups=24, windows=120, rounds=24, any_start=True, **_PUBLISHED),  # type: ignore[arg-type]
        Preset("q-table", hidden=(), dueling=False, n_step=1, prices=(4.0, 4.0), windows=120, rounds=8, rate=(2e-2, 2e-3)),
    )
}  # fmt: skip
