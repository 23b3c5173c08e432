"""What goes wrong with a cluster."""


class ClusterError(Exception):
    """The cluster, or a part of it, cannot do what was asked; the message says what to do."""


class ApiError(ClusterError):
    """The API server refused a request."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
