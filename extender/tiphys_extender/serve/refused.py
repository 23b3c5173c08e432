"""Requests that get no answer but a reason: every word that may stand in `error`, and its status."""

from __future__ import annotations

from tiphys_models.serving.bounds import REFUSALS

STATUS = {
    "not-json": 400,
    "not-an-object": 400,
    "unauthorised": 401,
    "namespace-forbidden": 403,
    "lease-invalid": 403,
    "unknown-placement": 404,
    "unknown-binding": 404,
    "not-found": 404,
    "method": 405,
    "finished": 409,
    "released": 409,
    "other-access-site": 409,
    "lease-expired": 410,
    "body-too-large": 413,
    "content-encoding": 415,
    "invalid": 422,
    "key-reused": 422,
    "larger-than-node": 422,
    "infeasible": 422,
    "too-many-open": 429,
    "too-many-streams": 429,
    "too-many-requests": 429,
    "too-many-cores": 429,
    "too-much-memory": 429,
    "too-many-functions": 429,
    "too-much-load": 429,
    "no-capacity": 429,
    "internal-error": 500,
    "not-ready": 503,
    "offers-down": 503,
    "standby": 503,
    "switched-off": 503,
}
CODES = tuple(sorted({"200", "201", *map(str, STATUS.values()), *map(str, REFUSALS)}))
TENANT_CAPS = (
    "too-many-open",
    "too-many-streams",
    "too-many-requests",
    "too-many-cores",
    "too-much-memory",
    "too-many-functions",
    "too-much-load",
)
"""A tenant has reached a limit of its own (`too-many-open`: or all together have)."""
REASONS = tuple(dict.fromkeys((*STATUS, *REFUSALS.values(), "not-http", "disconnected")))


class Refused(Exception):
    """A request that cannot be served; the caller reads both the fixed word and the message, and may ask for the explanation of `about`."""

    def __init__(self, reason: str, message: str = "", *, about: str = "", retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.reason, self.about, self.retry_after_s = reason, about, retry_after_s
        self.status = STATUS[reason]
