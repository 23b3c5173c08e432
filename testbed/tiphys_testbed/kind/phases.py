"""What `make kind-e2e` spends its time on."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass(slots=True)
class Phases:
    """Seconds of each phase, in order."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase, whether it succeeds or not."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = time.monotonic() - started

    def show(self, console: Console) -> None:
        """One line a phase and the sum."""
        table = Table("phase", "seconds")
        for name, seconds in self.seconds.items():
            table.add_row(name, f"{seconds:.1f}")
        table.add_row("all", f"{sum(self.seconds.values()):.1f}")
        console.print(table)
