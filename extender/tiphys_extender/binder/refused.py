"""Requests that get no answer but a reason: every word that may stand in `error`, and its status."""

from __future__ import annotations

STATUS = {
    "not-json": 400,
    "not-an-object": 400,
    "unauthorised": 401,
    "namespace-forbidden": 403,
    "unknown-placement": 404,
    "not-found": 404,
    "method": 405,
    "finished": 409,
    "body-too-large": 413,
    "content-encoding": 415,
    "invalid": 422,
    "key-reused": 422,
    "too-many-open": 429,
    "internal-error": 500,
}
CODES = ("200", "408", *sorted({str(status) for status in STATUS.values()}))
REASONS = (*STATUS, "too-slow", "disconnected")


class Refused(Exception):
    """A request that cannot be served; the caller reads both the fixed word and the message."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.status = STATUS[reason]
