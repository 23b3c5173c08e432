"""Requests a second over time, from (split, seed) alone, or from a file.

| shape | what | seeds vary |
|---|---|---|
| `constant` | 150 to 900 | level |
| `ramp` | 80..200, up to 700..950 in the first third, back in the last | levels |
| `diurnal` | a sine of 25 to 40 min, 120..220 at its lowest, 700..900 at its highest | period, phase, levels |
| `bursty` | 150..350, times 1.8 to 3.5 for 40 s on average, 14 times an hour, unannounced | all of it |
| `flash` | 120..220, jumps to 600..950 within 2 to 10 s for 1 to 4 min, 4 times an hour, unannounced | all of it |
| `recurring` | the same for 1 to 2 min, with a fixed period of 5 to 9 min and 2 s of jitter; period and phase untold | all of it |
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.random import stream

SHAPES = ("constant", "ramp", "diurnal", "bursty", "flash", "recurring")
SMOOTH = ("constant", "ramp", "diurnal")
HOUR_S = 3600
BURSTY_PER_HOUR, BURSTY_LENGTH_S = 14, 40.0
FLASH_PER_HOUR = 4
RECURRING_PERIOD_S = (300.0, 540.0)
MOST_SECONDS = 24 * HOUR_S
MOST_RPS = 5000.0


@dataclass(frozen=True, slots=True)
class LoadShape:
    """One value a second."""

    name: str
    split: str
    seed: int
    rps: FloatArray

    def rng(self, *words: object) -> np.random.Generator:
        """Randomness that belongs to this cell, whoever plays it."""
        return stream("scaling", self.split, self.name, self.seed, *words)


def make_shape(name: str, split: str, seed: int, seconds: int = HOUR_S) -> LoadShape:
    """A named one; InvalidInput if there is none."""
    rng = stream("scaling", split, name, seed, "shape")
    makers = {"constant": _constant, "ramp": _ramp, "diurnal": _diurnal, "bursty": _bursty, "flash": _flash, "recurring": _recurring}
    if name not in makers:
        raise InvalidInput(f"no shape is called {name!r}: there are {', '.join(SHAPES)}")
    return LoadShape(name, split, seed, makers[name](rng, seconds))


def _constant(rng: np.random.Generator, seconds: int) -> FloatArray:
    return np.full(seconds, rng.uniform(150, 900))


def _ramp(rng: np.random.Generator, seconds: int) -> FloatArray:
    low, high, last = rng.uniform(80, 200), rng.uniform(700, 950), rng.uniform(80, 200)
    return np.interp(np.arange(seconds) / seconds, [0.0, 0.05, 1 / 3, 2 / 3, 0.95, 1.0], [low, low, high, high, last, last])


def _diurnal(rng: np.random.Generator, seconds: int) -> FloatArray:
    low, high, period_s, phase = rng.uniform(120, 220), rng.uniform(700, 900), rng.uniform(25, 40) * 60, rng.uniform(0, 2 * np.pi)
    return np.asarray(low + (high - low) * (0.5 + 0.5 * np.sin(2 * np.pi * np.arange(seconds) / period_s + phase)))


def _bursty(rng: np.random.Generator, seconds: int) -> FloatArray:
    rps = np.full(seconds, rng.uniform(150, 350))
    at = rng.exponential(HOUR_S / BURSTY_PER_HOUR)
    while at < seconds:
        length = max(rng.exponential(BURSTY_LENGTH_S), 5.0)
        rps[int(at) : int(at + length)] *= rng.uniform(1.8, 3.5)
        at += length + rng.exponential(HOUR_S / BURSTY_PER_HOUR - BURSTY_LENGTH_S)
    return rps


def _flash(rng: np.random.Generator, seconds: int) -> FloatArray:
    rps = np.full(seconds, rng.uniform(120, 220))
    for begin in range(0, seconds, HOUR_S // FLASH_PER_HOUR):
        length = rng.uniform(60, 240)
        _jump(rps, begin + rng.uniform(0, HOUR_S / FLASH_PER_HOUR - length), length, rng.uniform(600, 950), rng)
    return rps


def _recurring(rng: np.random.Generator, seconds: int) -> FloatArray:
    rps = np.full(seconds, rng.uniform(120, 220))
    period_s, high, length = rng.uniform(*RECURRING_PERIOD_S), rng.uniform(600, 950), rng.uniform(60, 120)
    at = rng.uniform(0, period_s)
    while at < seconds:
        _jump(rps, at + rng.uniform(-2, 2), length, high * rng.uniform(0.95, 1.05), rng)
        at += period_s
    return rps


def _jump(rps: FloatArray, at_s: float, length_s: float, high: float, rng: np.random.Generator) -> None:
    """Up within 2 to 10 s, down as fast."""
    rise = rng.uniform(2, 10)
    times = np.arange(len(rps))
    rps[:] = np.maximum(rps, np.interp(times, [at_s, at_s + rise, at_s + length_s, at_s + length_s + rise], [0.0, high, high, 0.0]))


def rotated(shape: LoadShape, seed: int) -> LoadShape:
    """A file begins elsewhere for every seed: one cell is the whole file."""
    start = int(stream("scaling", "file", shape.name, seed).integers(len(shape.rps)))
    return LoadShape(shape.name, "file", seed, np.roll(shape.rps, -start))


def file_label(path: Path) -> str:
    """What a file is called in rows: its base name, told apart from a named shape."""
    return f"{path.stem}-file" if path.stem in SHAPES else path.stem


def read_shape(path: Path) -> tuple[LoadShape, str]:
    """(the values of a file as they are, its sha256): one number a line and second, or CSV with the columns `time,rps`."""
    try:
        raw = path.read_bytes()
        lines = raw.decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"--shape: cannot read {path.name}: {error}") from error
    rps = _columns(path.name, lines) if "," in lines[0] else _numbers(path.name, lines)
    if not 60 <= len(rps) <= MOST_SECONDS:
        raise InvalidInput(f"--shape: {path.name} has {len(rps)} seconds; 60 to {MOST_SECONDS} are wanted")
    if not np.isfinite(rps).all() or rps.min() < 0 or rps.max() > MOST_RPS:
        raise InvalidInput(f"--shape: {path.name} must hold rates from 0 to {MOST_RPS:g}")
    return LoadShape(file_label(path), "file", 0, rps), sha256(raw).hexdigest()


def _numbers(name: str, lines: list[str]) -> FloatArray:
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(float(line))
            except ValueError:
                raise InvalidInput(f"--shape: {name}, line {number}: {line.strip()[:20]!r} is not a number") from None
    return np.array(found, np.float64)


def _columns(name: str, lines: list[str]) -> FloatArray:
    """Seconds between two lines keep the earlier one's rate."""
    rows = list(csv.DictReader(lines))
    try:
        times = np.array([float(r["time"]) for r in rows])
        values = np.array([float(r["rps"]) for r in rows])
    except (KeyError, TypeError, ValueError):
        raise InvalidInput(f"--shape: {name} needs the columns time,rps with numbers") from None
    if len(times) < 2 or (np.diff(times) <= 0).any() or times[-1] - times[0] > MOST_SECONDS:
        raise InvalidInput(f"--shape: {name}: times must grow, within {MOST_SECONDS} s")
    seconds = np.arange(times[0], times[-1] + 1.0)
    return np.asarray(values[np.searchsorted(times, seconds, side="right") - 1])
