"""What a client wants of a stream of queries. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stream:
    """One request to be bound: it will send `rate_qps` queries of `size_kb` each until it ends, all to the offer that it gets."""

    task: str
    max_delay_ms: float
    """Longest time between the client's sending a query and its having the answer."""
    min_accuracy: float
    rate_qps: float
    size_kb: float
    """Size of one query on the wire."""
    bit_rate_mbps: float
    access_delay_ms: float
    """One way, between client and access site."""
    application: str = ""
    """Application of the stream, which only tables by application read."""
    draw: int = 0
    """64 bits that belong to this stream: what policies that choose at random use. Equal in every replica, equal when asked again."""

    @property
    def transmission_ms(self) -> float:
        """Size over bit rate (kilobits over kilobits a millisecond); the paper multiplies, which is no time."""
        return self.size_kb * 8 / self.bit_rate_mbps

    @property
    def slack_ms(self) -> float:
        """What is left for the way from access site to offer and back, and for processing."""
        return self.max_delay_ms - 2 * self.access_delay_ms - self.transmission_ms
