"""Streams from (split, seed, rate) alone, or with the arrival times of a file. Nine application classes, one generator an antenna.

Classes are those of an earlier version of the ASET paper, changed where they cannot be met or cannot be measured: required mAP is 5
lower throughout, and 29 for classes that cannot wait for YOLO (30 ms and more); remote driving, which needs YOLO within 20 ms, is
left out; streams of 5 to 30 minutes last 2 to 5, because an episode lasts ten. Classes are equally frequent; `assembly` stands for
three of the published applications. At lambda 60 an antenna is then asked 1,000 to 1,100 queries a second in the episode's mean.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.random import stream as random_stream
from tiphys_models.streams.sim.kernel import Streams, empty_feasible
from tiphys_models.streams.sim.scenario import HORIZON_S, LAMBDA
from tiphys_models.streams.sim.topology import ANTENNAS, PROFILED_KB, make_topology

BIT_RATE_MBPS = 100.0
ACCESS_MS = (0.5, 1.0)
SIZES = (0.8, 1.2)
"""Smallest and largest size of queries, in the profiled size."""
BURST_S, _HOUR_S = 20.0, 3600.0
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class StreamClass:
    """What streams of one class want; ranges are drawn from uniformly."""

    name: str
    delay_ms: Range
    rate_qps: Range
    lasts_s: Range
    accuracy: float
    share: float = 1.0
    """Relative frequency of the class."""


APPLICATIONS: tuple[StreamClass, ...] = (
    StreamClass("pool", (95, 95), (5, 5), (5, 10), 5),
    StreamClass("workout", (300, 300), (2, 2), (90, 90), 10),
    StreamClass("ping-pong", (150, 150), (15, 20), (20, 40), 10),
    StreamClass("face", (370, 370), (5, 5), (1, 5), 25),
    StreamClass("assembly", (600, 600), (10, 15), (60, 60), 20, 3),
    StreamClass("gaming", (20, 30), (25, 25), (120, 300), 29),
    StreamClass("cars", (150, 150), (10, 15), (120, 300), 35),
    StreamClass("robots", (25, 35), (10, 10), (120, 300), 29),
    StreamClass("ar-vr", (30, 50), (25, 25), (30, 60), 29),
)
NAMES = tuple(a.name for a in APPLICATIONS)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Times of a file, from 0 on."""

    name: str
    sha256: str
    times_s: FloatArray

    @property
    def rate_per_s(self) -> float:
        """Mean rate of arrivals, per second."""
        return len(self.times_s) / float(self.times_s[-1])


def make_streams(split: str, seed: int, lambda_per_min: float, arrivals: Arrivals | None = None, horizon_s: float = HORIZON_S) -> Streams:
    """Poisson arrivals at every antenna; or a stretch of a file, sped up to the same mean rate, each arrival at a random antenna.

    Streams that an empty full-edge system could not serve (a few of the gaming ones) are left out, in every topology alike.
    """
    rng = random_stream("binding", split, seed, lambda_per_min, arrivals.name if arrivals else "poisson")
    rate = ANTENNAS * lambda_per_min / 60
    start: FloatArray
    if arrivals is None:
        start = np.sort(rng.uniform(0, horizon_s, int(rng.poisson(rate * horizon_s))))
    else:
        start = _stretch(arrivals, rate, horizon_s, rng)
    n = len(start)
    share = np.array([a.share for a in APPLICATIONS])
    application = rng.choice(len(APPLICATIONS), n, p=share / share.sum())

    def drawn(field: str) -> FloatArray:
        low, high = np.array([getattr(a, field) for a in APPLICATIONS], np.float64)[application].T
        return np.asarray(rng.uniform(low, high))

    delay, frames, lasts = drawn("delay_ms"), drawn("rate_qps"), drawn("lasts_s")
    size = rng.uniform(*SIZES, n) * PROFILED_KB
    end = start + lasts
    made = Streams(
        start_s=start,
        end_s=end,
        by_end=np.argsort(end, kind="stable"),
        access=rng.integers(0, ANTENNAS, n),
        application=application.astype(np.int64),
        rate_qps=frames,
        size_kb=size,
        max_delay_ms=delay,
        slack_ms=delay - 2 * rng.uniform(*ACCESS_MS, n) - size * 8 / BIT_RATE_MBPS,
        min_accuracy=np.array([a.accuracy for a in APPLICATIONS], np.float64)[application],
        draw=rng.integers(0, 2**64, n, dtype=np.uint64),
        phase=rng.uniform(0, 1, n),
    )
    possible = empty_feasible(make_topology("full-edge").world, made)
    kept = Streams._make(column[possible] for column in made)
    return kept._replace(by_end=np.argsort(kept.end_s, kind="stable"))


def bursty_arrivals(split: str, seed: int) -> Arrivals:
    """An hour whose rate changes every BURST_S on average, each time to the mean times an exponential number: bursts to train on."""
    rng = random_stream("binding", split, seed, "bursty")
    lasts = rng.exponential(BURST_S, int(_HOUR_S / BURST_S))
    ends = np.cumsum(lasts)
    counts = rng.poisson(ANTENNAS * LAMBDA / 60 * rng.exponential(1.0, len(lasts)) * lasts)
    times = np.sort(np.repeat(ends - lasts, counts) + rng.uniform(0, 1, int(counts.sum())) * np.repeat(lasts, counts))
    return Arrivals("bursty", "", times - times[0])


def _stretch(arrivals: Arrivals, rate: float, horizon_s: float, rng: np.random.Generator) -> FloatArray:
    """Sped up (or slowed down) so that the whole file's mean is `rate`; from a random moment on, going round at its end."""
    times = arrivals.times_s * (arrivals.rate_per_s / rate)
    length = float(times[-1])
    begin = rng.uniform(0, length)
    rounds = int(np.ceil((begin + horizon_s) / length)) + 1
    all_times = np.concatenate([times + i * length for i in range(rounds)]) - begin
    return np.asarray(np.sort(all_times[(all_times >= 0) & (all_times < horizon_s)]))


def read_arrivals(path: Path) -> Arrivals:
    """One time in seconds a line, or a CSV file with a column TIMESTAMP (seconds, or dates as in the Azure LLM traces)."""
    try:
        raw = path.read_bytes()
        lines = raw.decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"--arrivals: cannot read {path.name}: {error}") from error
    lines = [line.strip() for line in lines if line.strip()]
    if lines and "TIMESTAMP" in (names := next(csv.reader(lines[:1]))):
        column = names.index("TIMESTAMP")
        lines = [(row[column] if len(row) > column else "") for row in csv.reader(lines[1:])]
    times = np.sort(np.array([_seconds(path.name, number, text) for number, text in enumerate(lines, start=1)], np.float64))
    if len(times) < 2 or times[-1] <= times[0]:
        raise InvalidInput(f"--arrivals: {path.name} needs at least two different times")
    return Arrivals(path.stem, sha256(raw).hexdigest(), times - times[0])


def _seconds(name: str, number: int, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        try:
            found = datetime.fromisoformat(text[:26]).timestamp()  # Azure prints seven digits of a second
        except ValueError:
            raise InvalidInput(f"--arrivals: {name}, time {number}: {text[:40]!r} is neither seconds nor a date") from None
    if not np.isfinite(found):
        raise InvalidInput(f"--arrivals: {name}, time {number}: not finite")
    return found
