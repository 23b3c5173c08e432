"""Certificates of a listener: read again when the files change, without a restart."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tiphys_models.base.errors import InvalidInput

_log = logging.getLogger(__name__)
_EXPIRY_FORMAT = "%b %d %H:%M:%S %Y GMT"
_EXPIRED = 10
"""X509_V_ERR_CERT_HAS_EXPIRED, the verify_code of a peer's certificate."""
HANDSHAKE_FAILURES = ("expired", "untrusted", "no-certificate", "not-tls", "other")


class ServerCertificates:
    """The TLS context of the next handshake.

    Every change makes a new context, because a live one can only learn to trust more: an authority that is in the bundle no longer
    would stay trusted. Open connections keep the context that they began with, and nobody resumes a session of an older one.
    """

    def __init__(
        self,
        cert_file: Path,
        key_file: Path,
        client_ca_file: Path | None,
        *,
        on_expiry: Callable[[float], object] = lambda expiry_s: None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._cert_file, self._key_file, self._client_ca_file = cert_file, key_file, client_ca_file
        self._on_expiry, self._now_s = on_expiry, now_s
        self._told_expired = False
        self._stamps = self._stamp()
        try:
            self.context = self._load()
        except (OSError, ssl.SSLError, ValueError) as error:
            raise InvalidInput(f"cannot use certificate {cert_file} with key {key_file} and client CA {client_ca_file}: {error}") from error

    def reload_if_changed(self) -> bool:
        """Whether other files were loaded; files that do not fit leave the last ones in use until they do."""
        self._tell_if_expired()
        stamps = self._stamp()
        if stamps == self._stamps:
            return False
        try:
            self.context = self._load()
        except (OSError, ssl.SSLError, ValueError) as error:
            _log.warning("certificate not reloaded, the last one stays", extra={"fields": {"why": str(error)}})
            return False
        self._stamps = stamps
        _log.info("certificate reloaded")
        self._tell_if_expired()
        return True

    def _load(self) -> ssl.SSLContext:
        # always a new context: a live one only learns to trust more, so an authority that was dropped would stay trusted (ADR 87)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # a resumed session is not verified again: whoever shows a certificate shows it at every handshake
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.load_cert_chain(self._cert_file, self._key_file)
        if self._client_ca_file is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self._client_ca_file)
        self.expiry_s = _expiry_s(self._cert_file)
        self._told_expired = False
        self._on_expiry(self.expiry_s)
        return context

    def _tell_if_expired(self) -> None:
        if not self._told_expired and self._now_s() >= self.expiry_s:
            self._told_expired = True
            ended = datetime.fromtimestamp(self.expiry_s, UTC).isoformat()
            _log.error("our certificate has expired: clients refuse it", extra={"fields": {"file": str(self._cert_file), "ended": ended}})

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


class HandshakeFailures:
    """Tells why strangers, and clients whose certificate has run out, are refused: counted each, logged once a minute a reason."""

    _EVERY_S = 60.0

    def __init__(self, count: Callable[[str], object], now_s: Callable[[], float] = time.monotonic) -> None:
        self._count, self._now_s = count, now_s
        self._told_s: dict[str, float] = {}

    def tell(self, error: BaseException, peer: str) -> None:
        """A handshake with this peer failed."""
        reason = why_refused(error)
        self._count(reason)
        now_s = self._now_s()
        if now_s - self._told_s.get(reason, -self._EVERY_S) >= self._EVERY_S:
            self._told_s[reason] = now_s
            _log.warning("TLS handshake failed", extra={"fields": {"peer": peer, "reason": reason, "error": str(error)[:200]}})


def why_refused(error: BaseException) -> str:
    """The word for a failed TLS handshake: one of HANDSHAKE_FAILURES."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "expired" if error.verify_code == _EXPIRED else "untrusted"
    match getattr(error, "reason", None):
        case "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return "no-certificate"
        case "CERTIFICATE_VERIFY_FAILED":
            return "expired" if "expired" in str(error) else "untrusted"
        case "HTTP_REQUEST" | "WRONG_VERSION_NUMBER" | "UNKNOWN_PROTOCOL":
            return "not-tls"
        case _:
            return "other"


def _expiry_s(cert_file: Path) -> float:
    # the decoder of the standard library's own tests: nothing public reads a certificate that is not a peer's
    decoded: dict[str, Any] = ssl._ssl._test_decode_cert(str(cert_file))  # type: ignore[attr-defined]
    return datetime.strptime(decoded["notAfter"], _EXPIRY_FORMAT).replace(tzinfo=UTC).timestamp()


class TrustedAuthority:
    """The CA trusted when a status listener is asked over TLS: our own, read again when its file changes, or those of the system."""

    def __init__(self, ca_file: Path | None) -> None:
        self._ca_file = ca_file
        self._stamp: tuple[int, int, int] | None = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | bool:
        """The TLS context in aiohttp's form; OSError (ssl.SSLError is one) if the file cannot be used and never could."""
        if self._ca_file is None:
            return True
        try:
            info = self._ca_file.stat()
            stamp = info.st_mtime_ns, info.st_size, info.st_ino
            if stamp != self._stamp:
                self._context = ssl.create_default_context(cafile=str(self._ca_file))
                self._stamp = stamp
        except OSError as error:
            if self._context is None:
                raise
            _log.warning("CA not reloaded, the last one stays", extra={"fields": {"file": str(self._ca_file), "why": str(error)}})
        if self._context is None:
            raise OSError(f"cannot use {self._ca_file}")
        return self._context
