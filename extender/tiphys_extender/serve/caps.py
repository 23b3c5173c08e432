"""What one tenant may have, so that no other goes without: defaults, and what the tenants file says instead."""

from __future__ import annotations

from dataclasses import dataclass, replace

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Caps:
    """Bounds of one tenant."""

    max_open: int = 1_000
    """Calls that may be open at once."""
    max_streams: int = 1_000
    """Streams that may be bound at once at this access site."""
    share: float | None = None
    """Most that one tenant gets of the pool's cores, of its memory and of every site's capacity; None: all, for a tenant that is alone."""
    requests_per_s: float = 200.0
    burst: int = 400
    """Requests that may come at once after a while without any."""
    replies_bytes: int = 8 * _MIB
    """Memory of answers kept for calls that are sent again."""
    max_functions: int = 500
    """Different functions within ten minutes."""


@dataclass(frozen=True, slots=True)
class CapDefaults:
    """Bounds of a tenant of whom the file says nothing else."""

    caps: Caps = Caps()
    share: float = 0.5
    """Share of every tenant as soon as there are two."""

    def of(
        self,
        *,
        alone: bool,
        max_open: int | None = None,
        max_streams: int | None = None,
        share_percent: int | None = None,
        requests_per_second: int | None = None,
        burst: int | None = None,
        max_replies_mib: int | None = None,
        max_functions: int | None = None,
    ) -> Caps:
        """Caps of one tenant; `alone`: there is no other."""
        caps, default_share = self.caps, None if alone else self.share
        return replace(
            caps,
            max_open=max_open or caps.max_open,
            max_streams=max_streams or caps.max_streams,
            share=default_share if share_percent is None else share_percent / 100,
            requests_per_s=requests_per_second or caps.requests_per_s,
            # who may ask faster than the default burst must be able to
            burst=burst or max(caps.burst, 2 * (requests_per_second or 0)),
            replies_bytes=max_replies_mib * _MIB if max_replies_mib else caps.replies_bytes,
            max_functions=max_functions or caps.max_functions,
        )
