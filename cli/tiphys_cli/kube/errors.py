"""What goes wrong with a cluster."""

from tiphys_models.base.errors import TiphysError


class ClusterError(TiphysError):
    """The cluster, or a part of it, cannot do what was asked; the message says what to do."""


class RequestRefused(ClusterError):
    """The API server refused a request."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
