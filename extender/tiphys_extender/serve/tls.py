"""Certificates of the extender's and the binder's listeners, with their metrics."""

from __future__ import annotations

from pathlib import Path

from tiphys_extender.serve.metrics import Metrics
from tiphys_models.serving.certificates import HandshakeFailures, ServerCertificates


class ServerTls(ServerCertificates):
    """Certificates of the listener that decides: mutual TLS where a client CA is set."""

    def __init__(self, cert_file: Path, key_file: Path, client_ca_file: Path | None, metrics: Metrics) -> None:
        super().__init__(cert_file, key_file, client_ca_file, on_expiry=metrics.certificate_expiry.set)


class StatusTls(ServerCertificates):
    """Certificates of the status listener, whose clients are known by their tokens."""

    def __init__(self, cert_file: Path, key_file: Path, metrics: Metrics) -> None:
        super().__init__(cert_file, key_file, None, on_expiry=metrics.status_certificate_expiry.set)


def handshake_failures(metrics: Metrics) -> HandshakeFailures:
    """What every listener with TLS tells its failures."""
    return HandshakeFailures(lambda reason: metrics.handshake_failures[reason].inc())
