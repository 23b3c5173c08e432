"""Whose weights choose and plan for a policy with `select`: published ones first, then mounted ones, then those that ship."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiphys_models.api.selection import SelectSpec
from tiphys_models.artifacts.loaders import Loaded
from tiphys_models.seats.modes import MODES, Mode
from tiphys_models.selection.cloud.score import Divisors, Weights
from tiphys_models.selection.planners.per_pod import make_candidate
from tiphys_models.selection.planners.protocol import Planner
from tiphys_models.selection.selectors.protocol import Selector
from tiphys_models.selection.selectors.registry import make_selector
from tiphys_operator.served_models import ServedModels


@dataclass(frozen=True, slots=True)
class SelectWeights:
    """What is not shipped, as it was found at the beginning of an interval."""

    selector: Loaded | None = None
    planners: Mapping[str, Loaded] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What an online state that was learned beside these weights is good for; empty for the shipped ones."""
        return f"|{self.selector.digest}" if self.selector is not None else ""

    def make_selector(self, by: str, among: tuple[str, ...], weights: Weights, divisors: Divisors) -> Selector:
        """The selector of a policy with no online state yet."""
        if self.selector is None:
            return make_selector(by, among, weights, divisors, 0)
        made: Selector = self.selector.value(among, weights, divisors, 0)
        return made

    def planner(self, name: str, kept: dict[str, Planner]) -> Planner:
        """The planner of that name; shipped ones are loaded when first needed, and kept."""
        if (loaded := self.planners.get(name)) is not None:
            planner: Planner = loaded.value
            return planner
        if name not in kept:
            kept[name] = make_candidate(name)
        return kept[name]


SHIPPED_ONLY = SelectWeights()


def names_in(select: SelectSpec) -> tuple[str, ...]:
    """The models that a policy with `select` may decide with."""
    return (*((select.model_name,) if select.model_name is not None else ()), *select.among)


def weights_for(models: ServedModels | None, select: SelectSpec, mode: Mode) -> SelectWeights:
    """What serves the policy's mode now; for the selector the weaker one of that and its own."""
    if models is None:
        return SHIPPED_ONLY
    asked = min(mode, select.mode, key=MODES.index)
    by = models.find(str(select.by), select.model_name, asked) if select.model_name is not None else None
    planners = {name: found.loaded for name in select.among if (found := models.find(name, name, mode)) is not None}
    return SelectWeights(by.loaded if by is not None else None, planners)
