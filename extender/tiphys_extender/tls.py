"""Certificates of the scheduler's listener: mutual TLS, read again when the files change, without a restart."""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tiphys_extender.metrics import Metrics
from tiphys_models.domain.errors import InvalidInput

_log = logging.getLogger(__name__)
_EXPIRY_FORMAT = "%b %d %H:%M:%S %Y GMT"


class ServerTls:
    """One live SSL context. New connections use what was loaded last; a bundle of old and new CA covers a change of CA."""

    def __init__(self, cert_file: Path, key_file: Path, client_ca_file: Path | None, metrics: Metrics) -> None:
        self._cert_file, self._key_file, self._client_ca_file = cert_file, key_file, client_ca_file
        self._metrics = metrics
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        if client_ca_file is not None:
            self.context.verify_mode = ssl.CERT_REQUIRED
        try:
            self._load()
        except (OSError, ssl.SSLError, ValueError) as error:
            raise InvalidInput(f"cannot use certificate {cert_file} with key {key_file} and client CA {client_ca_file}: {error}") from error
        self._stamps = self._stamp()

    def reload_if_changed(self) -> bool:
        """Whether other files were loaded; files that do not fit leave the last pair in use until they do."""
        stamps = self._stamp()
        if stamps == self._stamps:
            return False
        try:
            # a pair that does not match would leave the live context without a usable key: try it on another first
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self._cert_file, self._key_file)
            self._load()
        except (OSError, ssl.SSLError, ValueError) as error:
            _log.warning("certificate not reloaded, the last one stays", extra={"fields": {"why": str(error)}})
            return False
        self._stamps = stamps
        _log.info("certificate reloaded")
        return True

    def _load(self) -> None:
        self.context.load_cert_chain(self._cert_file, self._key_file)
        if self._client_ca_file is not None:
            self.context.load_verify_locations(self._client_ca_file)
        self._metrics.certificate_expiry.set(_expiry_s(self._cert_file))

    def _stamp(self) -> tuple[Any, ...]:
        stamps = []
        for path in (self._cert_file, self._key_file, self._client_ca_file):
            if path is None:
                continue
            try:
                info = path.stat()
                stamps.append((info.st_mtime_ns, info.st_size, info.st_ino))
            except OSError:
                stamps.append((0, 0, 0))
        return tuple(stamps)


def _expiry_s(cert_file: Path) -> float:
    # the decoder of the standard library's own tests: nothing public reads a certificate that is not a peer's
    decoded: dict[str, Any] = ssl._ssl._test_decode_cert(str(cert_file))  # type: ignore[attr-defined]
    return datetime.strptime(decoded["notAfter"], _EXPIRY_FORMAT).replace(tzinfo=UTC).timestamp()
