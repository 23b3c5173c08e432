"""Bearer tokens of the status listeners: one purpose each, several while they rotate, and an end where one is given.

A file holds one token a line, with `notAfter=2027-01-31T00:00:00Z` behind it where it expires; what begins with # is a comment. All are
accepted; the first that has not expired is sent. To rotate: put the new token behind the old one everywhere, then before it, then
drop the old one.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path

_log = logging.getLogger(__name__)
_FILE_MAX_BYTES = 65_536
_HEADER_MAX = 4_096
_NOT_AFTER = "notAfter="


@dataclass(frozen=True, slots=True)
class Token:
    """One line of a file."""

    text: str
    not_after_s: float | None = None

    @classmethod
    def of_line(cls, line: str) -> Token | None:
        """None where the line holds no token, or an end that cannot be read: such a token is not believed."""
        text, _, rest = line.strip().partition(" ")
        if not text or text.startswith("#"):
            return None
        rest = rest.strip()
        if not rest:
            return cls(text)
        if not rest.startswith(_NOT_AFTER):
            return None
        end_s = end_of(rest.removeprefix(_NOT_AFTER))
        return None if end_s is None else cls(text, end_s)

    def expired(self, now_s: float) -> bool:
        """Whether it is over."""
        return self.not_after_s is not None and now_s >= self.not_after_s


def end_of(text: str) -> float | None:
    """Seconds since the epoch of an RFC 3339 time with its offset; None: it is no such time."""
    try:
        at = datetime.fromisoformat(text)
        return at.timestamp() if at.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


class TokenFile:
    """One file, read again at every use: secrets are rotated in place."""

    def __init__(self, path: Path, now_s: Callable[[], float] = time.time) -> None:
        self.path, self._now_s = path, now_s
        self._told = ""

    def valid(self) -> list[str]:
        """All that count now, in the order of the file; OSError if it cannot be read."""
        with self.path.open("rb") as file:
            content = file.read(_FILE_MAX_BYTES)
        lines = [line for line in content.decode("utf-8", "replace").splitlines() if line.strip() and not line.lstrip().startswith("#")]
        tokens = [Token.of_line(line) for line in lines]
        unreadable = tokens.count(None)
        now_s = self._now_s()
        expired = sum(token is not None and token.expired(now_s) for token in tokens)
        self._tell(unreadable, expired)
        return [token.text for token in tokens if token is not None and not token.expired(now_s)]

    def to_send(self) -> str:
        """The one that a client shows: the first that counts, or nothing."""
        return next(iter(self.valid()), "")

    def _tell(self, unreadable: int, expired: int) -> None:
        said = f"{unreadable} {expired}" if unreadable or expired else ""
        if said and said != self._told:
            _log.warning(
                "tokens that do not count", extra={"fields": {"file": str(self.path), "unreadable": unreadable, "expired": expired}}
            )
        self._told = said


class BearerTokens:
    """What one purpose accepts: its own tokens, and those for all purposes."""

    def __init__(self, variable: str, *files: Path | None, now_s: Callable[[], float] = time.time) -> None:
        self._variable = variable
        self._files = [TokenFile(path, now_s) for path in files if path is not None]

    def refusal(self, authorization: str) -> tuple[int, str] | None:
        """Status and reason; None: whoever sends this header may read on."""
        if not self._files:
            return 403, f"no token is configured: set {self._variable}"
        accepted: list[str] = []
        unread = 0
        for file in self._files:
            try:
                accepted += file.valid()
            except OSError:
                unread += 1
        if unread == len(self._files):
            return 403, "the token file cannot be read"
        scheme, _, given = authorization[:_HEADER_MAX].partition(" ")
        digest = _digest(given.strip())
        fits = False
        for token in accepted:  # all of them, so that the time says nothing of which one was near
            fits |= hmac.compare_digest(_digest(token), digest)
        return None if fits and scheme == "Bearer" else (401, "send the token as Authorization: Bearer")

    def to_send(self) -> str:
        """What a client of this purpose shows; OSError if no file can be read."""
        error: OSError | None = None
        for file in self._files:
            try:
                if token := file.to_send():
                    return token
            except OSError as problem:
                error = error or problem
        if error is not None:
            raise error
        return ""


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "replace")).digest()
