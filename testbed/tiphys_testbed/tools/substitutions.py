"""What a program is built with other than upstream wrote it: single pieces of its source, told one by one."""

from dataclasses import dataclass

MODEL_TIME = 15
"""Seconds of model time that a second of the wall clock stands for, where the built program's own timers are divided."""


@dataclass(frozen=True, slots=True)
class Substitution:
    """One piece of one source file, and what stands there instead."""

    file: str
    """Relative to the module."""
    former: str
    now: str


def karpenter_timers(factor: int) -> tuple[Substitution, ...]:
    """Karpenter's timers that no option reaches, divided: it reads the real clock, and undivided they would weigh minutes of model time."""
    controllers = "pkg/controllers"
    return (
        _divided(f"{controllers}/disruption/consolidation.go", "const commandValidationDelay = {}", 15, factor),
        _divided(f"{controllers}/disruption/controller.go", "const pollingPeriod = {}", 10, factor),
        _divided(f"{controllers}/nodeclaim/podevents/controller.go", "const dedupeTimeout = {}", 10, factor),
        _divided(f"{controllers}/node/termination/controller.go", "MinDrainTime  = {}", 5, factor),
        Substitution(
            f"{controllers}/state/statenode.go",
            "max(2*options.FromContext(ctx).BatchMaxDuration, 10*time.Second)",
            f"max(2*options.FromContext(ctx).BatchMaxDuration, {_milliseconds(10, factor)}*time.Millisecond)",
        ),
    )


def _divided(file: str, piece: str, seconds: int, factor: int) -> Substitution:
    divided = f"{_milliseconds(seconds, factor)} * time.Millisecond"
    return Substitution(file, piece.format(f"{seconds} * time.Second"), piece.format(divided))


def _milliseconds(seconds: int, factor: int) -> int:
    return round(seconds * 1000 / factor)
