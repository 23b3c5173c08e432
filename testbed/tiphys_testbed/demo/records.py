"""What is written down of every call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CallRecord:
    """One call in one lane. Times are seconds after the start of the replay; None: has not happened."""

    lane: str
    pod: str
    function: str
    due_s: float
    noise: float = 1.0
    """Its work in multiples of its function's mean: nobody who places it knows."""
    created_s: float | None = None
    """When the API server had accepted the pod."""
    opened_s: float | None = None
    """When our watch showed it without a gate, if it ever showed it with one."""
    gated: bool = False
    """Whether our watch showed it with a gate."""
    bound_s: float | None = None
    """When our watch showed its node."""
    node: str = ""
    taken_s: float | None = None
    """When its kubelet had it."""
    begun_s: float | None = None
    """When it got its container, by the node's clock."""
    ready_s: float | None = None
    """When its container computed, by the node's clock."""
    finished_s: float | None = None
    """When its work was done, by the node's clock."""
    done_s: float | None = None
    """When the API server had accepted its end: from here on its user knows."""
    cold: bool | None = None
    problem: str = ""
    """Why it will never be done."""

    @property
    def completion_s(self) -> float | None:
        """Seconds from when the call was due until it was done: all that a user waits; None if it is not done."""
        return None if self.done_s is None else self.done_s - self.due_s

    @property
    def held_s(self) -> float:
        """Seconds from when the pod was accepted until its gate was seen to be open; zero for one that was never seen with a gate."""
        if not self.gated or self.created_s is None or self.opened_s is None:
            return 0.0
        return max(self.opened_s - self.created_s, 0.0)

    @property
    def scheduling_s(self) -> float | None:
        """Seconds from when the pod was accepted to when it was bound to its node; None if it was not."""
        return None if self.bound_s is None or self.created_s is None else max(self.bound_s - self.created_s, 0.0)

    @property
    def settled(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.done_s is not None or bool(self.problem)
