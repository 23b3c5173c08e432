"""Bars as SVG, drawn by hand: they open anywhere and need no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_COLOURS = ("#2f6f9f", "#c0c7cf", "#d9822b", "#5b8c5a")
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 720, 360, 64, 48, 56


@dataclass(frozen=True, slots=True)
class Bars:
    """Groups of bars: one value a series and group; None draws nothing."""

    title: str
    unit: str
    groups: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]


def svg(bars: Bars) -> str:
    """The chart as an SVG document."""
    top = _nice(max((value for _, values in bars.series for value in values if value is not None), default=1.0))
    plot_height = _HEIGHT - _TOP - _BOTTOM
    slot = (_WIDTH - _LEFT - 16) / max(len(bars.groups), 1)
    bar = slot * 0.8 / max(len(bars.series), 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(bars.title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="15">{escape(bars.title)}</text>',
    ]
    for step in range(5):
        tick = top * step / 4
        y = _TOP + plot_height * (1 - step / 4)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 16}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e6e9"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    parts.append(f'<text x="12" y="{_TOP - 10}">{escape(bars.unit)}</text>')
    for index, (label, values) in enumerate(bars.series):
        colour = _COLOURS[index % len(_COLOURS)]
        key = _LEFT + 150 * index
        parts.append(f'<rect x="{key}" y="{_HEIGHT - 22}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{key + 18}" y="{_HEIGHT - 12}">{escape(label)}</text>')
        for place, value in enumerate(values):
            if value is None or not math.isfinite(value):
                continue
            height = plot_height * min(value / top, 1.0)
            left = _LEFT + slot * place + slot * 0.1 + bar * index
            parts.append(
                f'<rect x="{left:.1f}" y="{_TOP + plot_height - height:.1f}" width="{bar:.1f}" height="{height:.1f}" fill="{colour}">'
                f"<title>{escape(bars.groups[place])}, {escape(label)}: {value:g} {escape(bars.unit)}</title></rect>"
            )
    for place, group in enumerate(bars.groups):
        x = _LEFT + slot * (place + 0.5)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{escape(group)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _nice(value: float) -> float:
    """The next of 1, 2, 4, 5 or 10 times a power of ten."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 10) if step * power >= value * (1 - 1e-9))
