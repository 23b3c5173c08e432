"""What a waiting user sees: a live line on a terminal, plain lines with elapsed seconds elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.status import Status

PLAIN_INTERVAL_S = 10.0


@dataclass(slots=True)
class Step:
    """One piece of work under way; `detail` replaces the text behind its title."""

    title: str
    console: Console
    status: Status | None
    started_s: float = field(default_factory=time.monotonic)
    said_s: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.started_s

    def detail(self, text: str = "") -> None:
        """Show how far the work is; without a terminal at most one line in ten seconds."""
        line = f"{self.title} · {self.elapsed_s:.0f} s" + (f" · {text}" if text else "")
        if self.status is not None:
            self.status.update(line)
        elif time.monotonic() - self.said_s >= PLAIN_INTERVAL_S:
            self.said_s = time.monotonic()
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Progress:
    """Reports steps on one console (standard error, so that a command's output stays clean)."""

    console: Console = field(default_factory=lambda: Console(stderr=True))

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Announce a piece of work, and say afterwards how long it took."""
        status: Status | None = None
        if self.console.is_terminal:
            status = self.console.status(title)
            status.start()
        else:
            self.console.print(f"{title} …", markup=False, highlight=False, soft_wrap=True)
        step = Step(title, self.console, status)
        try:
            yield step
        except BaseException:
            if status is not None:
                status.stop()
            self.console.print(f"{title}: failed after {step.elapsed_s:.1f} s", markup=False, highlight=False, soft_wrap=True)
            raise
        if status is not None:
            status.stop()
        self.console.print(f"{title}: {step.elapsed_s:.1f} s", markup=False, highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """One line, at once."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
