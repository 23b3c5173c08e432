"""What Knative's queue-proxy says of its instance: the statistics that Knative's own autoscaler scales by.

They are a protobuf message (`Stat` of knative.dev/serving, pkg/autoscaler/metrics/stat.proto), not an exposition of Prometheus. What the
queue-proxy tells Prometheus cannot say who is idle: its gauge of requests is set when one begins and not when one ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tiphys_models.base.errors import InvalidInput

STATS_PORT, STATS_PATH = 9090, "/metrics"
PERIOD_S = 1.0
"""The queue-proxy takes its statistics once in so long, and says what it took last."""
LARGEST_BYTES = 1024
"""A pod's name, which has at most 253 characters, and five numbers."""
_POD, _CONCURRENCY, _UPTIME = 1, 2, 6
_VARINT, _DOUBLE, _TEXT, _FLOAT = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class InstanceStats:
    """One second of an instance."""

    pod: str
    concurrency: float
    """Requests in progress, as the mean over that second."""
    uptime_s: float
    """Zero while the first second has not passed: then nothing else in it means anything either."""

    @property
    def idle(self) -> bool:
        """Whether no request was in progress at any time of that second. A number that is none is not idle."""
        return self.uptime_s > 0 and self.concurrency == 0


def stats_of(body: bytes) -> InstanceStats:
    """The statistics in an answer; InvalidInput for bytes that are none. What is zero is not sent, and unknown fields are skipped."""
    pod, numbers = "", {_CONCURRENCY: 0.0, _UPTIME: 0.0}
    for field, value in _fields(body):
        if field == _POD and isinstance(value, bytes):
            pod = value.decode("utf-8", "replace")
        elif field in numbers and isinstance(value, float):
            numbers[field] = value
    if not pod:
        raise InvalidInput("statistics of a queue-proxy name its pod")
    return InstanceStats(pod, numbers[_CONCURRENCY], numbers[_UPTIME])


def _fields(body: bytes) -> Iterator[tuple[int, bytes | float | None]]:
    """Fields of a protobuf message by number; None for those of kinds that statistics have no use for."""
    at = 0
    while at < len(body):
        key, at = _varint(body, at)
        kind, value = key & 7, None
        if kind == _VARINT:
            _, end = _varint(body, at)
        elif kind == _TEXT:
            length, at = _varint(body, at)
            end = at + length
            value = body[at:end]
        elif kind in (_DOUBLE, _FLOAT):
            end = at + (8 if kind == _DOUBLE else 4)
        else:
            raise InvalidInput(f"statistics of a queue-proxy have no fields of kind {kind}")
        if end > len(body):
            raise InvalidInput("statistics of a queue-proxy end within a field")
        yield key >> 3, struct.unpack_from("<d", body, at)[0] if kind == _DOUBLE else value
        at = end


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A number of up to ten bytes, seven bits in each, and where it ends."""
    number = 0
    for shift, byte in enumerate(body[at : at + 10]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number, at + shift + 1
    raise InvalidInput("statistics of a queue-proxy end within a number")
