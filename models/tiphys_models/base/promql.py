"""Selectors of series, with labels that somebody set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

ANY_LABELS: Mapping[str, str] = {}
"""No label is asked for."""


def quoted(value: str) -> str:
    """A string of PromQL, whatever it holds."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def matchers(labels: Mapping[str, str]) -> list[str]:
    """Labels that series must have, exactly."""
    return [f"{label}={quoted(value)}" for label, value in sorted(labels.items())]


def held_to(selector: str, labels: Mapping[str, str]) -> str:
    """One of our own selectors, narrowed to series that have these labels too."""
    return narrowed(selector, matchers(labels))


def narrowed(selector: str, more: Sequence[str]) -> str:
    """A selector of one metric with more matchers."""
    if not more:
        return selector
    metric, _, rest = selector.partition("{")
    parts = ",".join([*more, *filter(None, [rest.removesuffix("}")])])
    return f"{metric}{{{parts}}}"
