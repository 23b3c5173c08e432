"""Leases as signed tokens: what a binder needs to book a stream again after it has lost its memory, kept by the stream itself.

A token is a JSON array in base64url, a dot, and its HMAC-SHA256. Nothing in it is secret; nothing in it can be changed.
"""

from __future__ import annotations

import binascii
import hmac
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tiphys_extender.serve.secret_file import parse_secret, read_secret
from tiphys_models.base.errors import InvalidInput

_log = logging.getLogger(__name__)
_SHORTEST_SECRET = 32
_WHAT = "the file of lease keys"
_LONGEST_TOKEN = 2048


class Counts(NamedTuple):
    """Queries of a stream since it was bound, as its client counts them."""

    served: int = 0
    """Queries answered in time."""
    late: int = 0
    refused: int = 0
    """Not answered at all."""

    @property
    def total(self) -> int:
        """All that is known of."""
        return self.served + self.late + self.refused

    def at_most(self, most: float) -> Counts:
        """So many in all, in the same proportions: nobody can have served more."""
        if self.total <= most:
            return self
        return Counts(*(int(count * most / self.total) for count in self))

    def plus(self, more: Counts) -> Counts:
        """The sum of both counts."""
        return Counts(*(a + b for a, b in zip(self, more, strict=True)))

    def since(self, before: Counts) -> Counts:
        """What came on top; a count that went back counts nothing."""
        return Counts(*(max(now - then, 0) for now, then in zip(self, before, strict=True)))


class Grant(NamedTuple):
    """What a token says, in this order."""

    id: str
    access_site: str
    tenant: str
    offer: str
    added_qps: float
    """Load on the offer, in queries of the profiled size."""
    rate_qps: float
    max_delay_ms: float
    expected_ms: float
    policy: str
    asked: str
    """Digest of what was asked for: an idempotency key belongs to one request."""
    issued_s: float
    """Time of the first lease, when the stream was bound. Both times are in seconds since the epoch."""
    expires_s: float
    counts: Counts = Counts()
    """Counts as last reported: after a restart only what came since counts."""


class TokenRefused(Exception):
    """Not a token of ours."""


class _Key(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, StringConstraints(pattern=r"^[-A-Za-z0-9_.]{1,64}$")]
    secret: Annotated[str, StringConstraints(min_length=_SHORTEST_SECRET, max_length=1024)]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: list[_Key] = Field(min_length=1, max_length=4)


@dataclass(frozen=True, slots=True)
class Keys:
    """The first signs, all are believed: a new one is put first, the old one goes when its last token has expired."""

    signing: str
    secrets: dict[str, bytes]

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]]) -> Keys:
        """Keys made of pairs (id, secret)."""
        return cls(pairs[0][0], {name: secret.encode() for name, secret in pairs})

    def sign(self, grant: Grant) -> str:
        """The grant as a signed token: text without spaces."""
        body = urlsafe_b64encode(orjson.dumps([self.signing, *grant[:-1], list(grant.counts)]))
        return (body + b"." + _mac(self.secrets[self.signing], body)).decode()

    def read(self, token: str) -> Grant:
        """TokenRefused says why it is none. Its time is the caller's to judge."""
        body, _, mac = token.encode("ascii", "replace").partition(b".")
        try:
            if len(token) > _LONGEST_TOKEN:
                raise ValueError
            key, *fields = orjson.loads(urlsafe_b64decode(body))
            secret = self.secrets.get(key)
        except (binascii.Error, ValueError, TypeError):
            raise TokenRefused("this is not a lease of a binder") from None
        if secret is None:
            raise TokenRefused("the lease was signed with a key that this binder does not have")
        if not hmac.compare_digest(_mac(secret, body), mac):
            raise TokenRefused("the signature of the lease is wrong")
        *rest, counts = fields  # ours by its signature, so it has the right form
        return Grant._make([*rest, Counts._make(counts)])


def _mac(secret: bytes, body: bytes) -> bytes:
    return urlsafe_b64encode(hmac.digest(secret, body, "sha256"))


class KeyFile:
    """Keys from a file, read again when it changes; one that cannot be used leaves the last good ones."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = read_secret(path, _WHAT)
        self.keys = _parse(self._seen, path)

    def reload_if_changed(self) -> bool:
        """Whether other keys count from now on."""
        try:
            content = read_secret(self._path, _WHAT)
            if content == self._seen:
                return False
            self._seen = content
            self.keys = _parse(content, self._path)
        except InvalidInput as error:
            _log.warning("keys of leases not reloaded, the last ones stay", extra={"fields": {"why": str(error)}})
            return False
        _log.info("keys of leases reloaded", extra={"fields": {"signing": self.keys.signing, "keys": len(self.keys.secrets)}})
        return True


def _parse(content: bytes, path: Path) -> Keys:
    keys = parse_secret(_File, content, path, _WHAT).keys
    if len({key.id for key in keys}) < len(keys):
        raise InvalidInput(f"{_WHAT} {path} gives an id twice")
    return Keys.of([(key.id, key.secret) for key in keys])
