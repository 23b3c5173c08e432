"""The one error tree.

TiphysError
├── InvalidInput        the caller can fix it: a file, an option, a request, a custom resource
├── ArtifactRefused     a model artifact failed a check; carries a fixed reason
└── Unavailable         something outside (API server, Prometheus, a binary) did not answer in time
"""

from __future__ import annotations


class TiphysError(Exception):
    """Base of every error that Tiphys raises on purpose."""


class InvalidInput(TiphysError):
    """Input that the caller can correct; the message says how."""


class ArtifactRefused(TiphysError):
    """A model artifact that must not serve; `reason` is one of the fixed words of `tiphys_models.artifacts`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class Unavailable(TiphysError):
    """A dependency that did not answer, or not in time."""
