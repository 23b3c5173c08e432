"""Plots as inline SVG: no script, no font and no picture from elsewhere, so that a report opens anywhere and for ever."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; dashes help in print.
COLOURS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
_DASHES = ("6 3", "", "", "", "2 2", "8 2 2 2", "1 2", "4 4")
_WIDTH, _HEIGHT = 720.0, 320.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 16.0, 16.0, 44.0


@dataclass(frozen=True, slots=True)
class Line:
    """One named curve of a plot."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    steps: bool = False
    """Whether the value stays until the next point (counts and shares do)."""


@dataclass(frozen=True, slots=True)
class _Axes:
    x_max: float
    y_max: float

    def x(self, value: float) -> float:
        return _LEFT + value / self.x_max * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - value / self.y_max * (_HEIGHT - _TOP - _BOTTOM)


def colour_of(index: int) -> str:
    """Colour of the n-th series of every plot of a report."""
    return COLOURS[index % len(COLOURS)]


def line_plot(
    title: str, x_label: str, y_label: str, lines: Sequence[Line], *, x_max: float | None = None, y_max: float | None = None
) -> str:
    """Curves over one pair of axes that start at zero."""
    axes = _Axes(
        x_max or nice_ceiling(max((max(line.x, default=0.0) for line in lines), default=0.0)),
        y_max or nice_ceiling(max((max(line.y, default=0.0) for line in lines), default=0.0)),
    )
    body = [_grid(axes, x_label, y_label)]
    for index, line in enumerate(lines):
        dash = f' stroke-dasharray="{_DASHES[index % len(_DASHES)]}"' if _DASHES[index % len(_DASHES)] else ""
        body.append(
            f'<path d="{_path(line, axes)}" fill="none" stroke="{colour_of(index)}" stroke-width="1.8"{dash}>'
            f"<title>{escape(line.name)}</title></path>"
        )
    return _svg(title, body)


def bar_plot(title: str, y_label: str, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """One group of bars a name, one bar a series in each group."""
    y_max = nice_ceiling(max((max(values, default=0.0) for values in series.values()), default=0.0))
    axes = _Axes(max(float(len(groups)), 1.0), y_max)
    width = 0.8 / max(len(series), 1)
    body = [_grid(axes, "", y_label, x_ticks=False)]
    for index, (name, values) in enumerate(series.items()):
        for position, value in enumerate(values):
            left, right = axes.x(position + 0.1 + index * width), axes.x(position + 0.1 + (index + 1) * width)
            top = axes.y(value)
            body.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(right - left - 0.5, 0.5):.1f}" height="{axes.y(0) - top:.1f}" '
                f'fill="{colour_of(index)}"><title>{escape(name)}, {escape(groups[position])}: {value:g}</title></rect>'
            )
    for position, group in enumerate(groups):
        body.append(f'<text x="{axes.x(position + 0.5):.1f}" y="{_HEIGHT - _BOTTOM + 18:.0f}" text-anchor="middle">{escape(group)}</text>')
    return _svg(title, body)


def legend(names: Sequence[str]) -> str:
    """Which colour is who."""
    entries = "".join(
        f'<span class="key"><svg width="26" height="10" aria-hidden="true"><line x1="0" y1="5" x2="26" y2="5" '
        f'stroke="{colour_of(index)}" stroke-width="3" stroke-dasharray="{_DASHES[index % len(_DASHES)]}"/></svg> {escape(name)}</span>'
        for index, name in enumerate(names)
    )
    return f'<p class="legend">{entries}</p>'


def nice_ceiling(value: float) -> float:
    """The next round number: a scale that people can read, and that is mostly used."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    for step in (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0):
        if value <= step * power * (1 + 1e-12):
            return step * power
    return 10.0 * power


def _grid(axes: _Axes, x_label: str, y_label: str, *, x_ticks: bool = True) -> str:
    parts = []
    for step in range(6):
        y_value = axes.y_max * step / 5
        y = axes.y(y_value)
        parts.append(f'<line x1="{_LEFT:.0f}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT:.0f}" y2="{y:.1f}" class="grid"/>')
        parts.append(f'<text x="{_LEFT - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{y_value:g}</text>')
        if x_ticks:
            x_value = axes.x_max * step / 5
            parts.append(f'<text x="{axes.x(x_value):.1f}" y="{_HEIGHT - _BOTTOM + 18:.0f}" text-anchor="middle">{x_value:g}</text>')
    parts.append(f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 6:.0f}" text-anchor="middle">{escape(x_label)}</text>')
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(f'<text x="14" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 14 {middle:.0f})">{escape(y_label)}</text>')
    return "".join(parts)


def _path(line: Line, axes: _Axes) -> str:
    points = [(axes.x(min(x, axes.x_max)), axes.y(min(y, axes.y_max))) for x, y in zip(line.x, line.y, strict=True)]
    if not points:
        return ""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for x, y in points[1:]:
        parts.append(f"H{x:.1f}V{y:.1f}" if line.steps else f"L{x:.1f} {y:.1f}")
    return "".join(parts)


def _svg(title: str, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="{escape(title, quote=True)}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>{"".join(body)}</svg>'
    )
