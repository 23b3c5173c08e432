"""A planner: `assign(state, tasks, seed)` gives a host for every task. A selector: `choose(...)` names who decides an interval."""

from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.cloud.score import Divisors, Outcome, Weights
from tiphys_models.selection.cloud.state import UNPLACED, CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.selectors.protocol import Choice, Scored

__all__ = ["UNPLACED", "Choice", "CloudState", "Divisors", "FloatArray", "Outcome", "Plan", "Scored", "Tasks", "Weights"]
