"""What the answers to the scheduler want to know of pods that wait, or have waited, behind a scheduling gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Waited:
    """How a pod came past its gate."""

    seconds: float
    """How long the gate was on, as far as seen."""
    reason: str
    """Why it was taken off."""

    def as_json(self) -> dict[str, Any]:
        """The part of a record that says so."""
        return {"seconds": round(self.seconds, 3), "reason": self.reason}


class Gates(Protocol):
    """What the gates know of pods that are held, and of those that were."""

    def waited(self, uid: str) -> Waited | None:
        """How this pod came past its gate; None if it had none, or nobody remembers."""
        ...

    def is_awaited(self, uid: str) -> bool:
        """Whether a node was reserved for this pod when it was let go, and the scheduler had not asked about it until now."""
        ...

    def goes_warm(self, uid: str, function: str) -> None:
        """A pod goes to an idle instance of its function: whoever is held for one of those is told."""
        ...

    def story(self, uid: str, namespace: str, pod: str) -> dict[str, Any] | None:
        """What explain says of a pod that is held or was, by its uid or by its name."""
        ...
