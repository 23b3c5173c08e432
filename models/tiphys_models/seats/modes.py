"""Modes of a seat: whether the learned decider is asked, and whether it is obeyed."""

from __future__ import annotations

from typing import Final, Literal, get_args

Mode = Literal["Off", "Shadow", "Canary", "Active"]
"""Off: the learned decider is not asked. Shadow: asked, never obeyed. Canary: obeyed by a random share. Active: obeyed."""
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
RECOMMEND = "Recommend"
"""The older word of ScalingPolicy for Shadow; it stays accepted."""


def mode_of(word: str) -> Mode:
    """The mode that a public word means; ValueError for any other word."""
    if word == RECOMMEND:
        return "Shadow"
    for mode in MODES:
        if word == mode:
            return mode
    raise ValueError(f"{word!r} is no mode: it must be one of {', '.join(MODES)}")
