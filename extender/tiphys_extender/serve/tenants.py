"""Tenants, who may place calls: a file of bearer tokens, read again when it changes."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from tiphys_extender.serve.caller_metrics import CallerMetrics
from tiphys_extender.serve.caps import CapDefaults, Caps
from tiphys_extender.serve.secret_file import parse_secret, read_secret
from tiphys_models.base.errors import InvalidInput

_log = logging.getLogger(__name__)
ANY = "*"
_SHORTEST_TOKEN = 16
_MOST_TOKENS = 8
"""Most tokens of one tenant: all tokens of all tenants are compared at every request."""
_WHAT = "the tenants file"


class _Strict(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


_TokenText = Annotated[str, StringConstraints(pattern=r"^[!-~]+$", min_length=_SHORTEST_TOKEN, max_length=1024)]


class _Token(_Strict):
    token: _TokenText
    not_after: AwareDatetime | None = None


class _Entry(_Strict):
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", max_length=63)]
    token: _TokenText | None = None
    tokens: list[_Token] = Field(default=[], max_length=_MOST_TOKENS)
    namespaces: list[str] = Field(min_length=1, max_length=1_000)
    max_open: int | None = Field(default=None, ge=1)
    max_streams: int | None = Field(default=None, ge=1)
    share_percent: int | None = Field(default=None, ge=1, le=100)
    requests_per_second: int | None = Field(default=None, ge=1, le=100_000)
    burst: int | None = Field(default=None, ge=1, le=1_000_000)
    max_replies_mib: int | None = Field(default=None, ge=1, le=1_024)
    max_functions: int | None = Field(default=None, ge=1, le=100_000)

    def caps(self, defaults: CapDefaults, *, alone: bool) -> Caps:
        """Bounds of the tenant: its own settings, and defaults where it has none."""
        return defaults.of(
            alone=alone,
            max_open=self.max_open,
            max_streams=self.max_streams,
            share_percent=self.share_percent,
            requests_per_second=self.requests_per_second,
            burst=self.burst,
            max_replies_mib=self.max_replies_mib,
            max_functions=self.max_functions,
        )

    @property
    def credentials(self) -> tuple[Credential, ...]:
        """Credentials of `token` and `tokens` together."""
        alone = () if self.token is None else (Credential.of(self.token, None),)
        return alone + tuple(Credential.of(entry.token, entry.not_after) for entry in self.tokens)


class _File(_Strict):
    tenants: list[_Entry] = Field(min_length=1, max_length=1_000)


@dataclass(frozen=True, slots=True)
class Credential:
    """One token, as little as is needed to recognise it."""

    digest: bytes
    not_after_s: float | None
    """Seconds since the epoch; None: it does not expire."""

    @classmethod
    def of(cls, token: str, not_after: datetime | None) -> Credential:
        """The credential of a token and its expiry as the file gives them."""
        return cls(sha256(token.encode()).digest(), None if not_after is None else not_after.timestamp())

    def expired(self, now_s: float) -> bool:
        """Whether it is over."""
        return self.not_after_s is not None and now_s >= self.not_after_s


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody who may place calls of some namespaces, and bind streams there.

    Its name is its identity: leases and streams live on while its tokens change.
    """

    name: str
    credentials: tuple[Credential, ...]
    namespaces: frozenset[str]
    caps: Caps = field(default_factory=Caps)

    def may(self, namespace: str) -> bool:
        """Whether it may place calls and bind streams of this namespace."""
        return ANY in self.namespaces or namespace in self.namespaces


class Tenants:
    """All of them. A file that cannot be used leaves the last good one."""

    def __init__(
        self, path: Path, metrics: CallerMetrics, defaults: CapDefaults | None = None, now_s: Callable[[], float] = time.time
    ) -> None:
        self._path, self._metrics, self._defaults, self._now_s = path, metrics, defaults or CapDefaults(), now_s
        self._expired: frozenset[str] = frozenset()
        self._seen = read_secret(path, _WHAT)
        self._all = _parse(self._seen, path, self._defaults)
        metrics.tenants.set(len(self._all))

    def of(self, authorization: str) -> Tenant | None:
        """Whose token this header carries. Every token is compared, in constant time, whichever fits."""
        scheme, _, token = authorization.partition(" ")
        digest = sha256(token.strip().encode("utf-8", "replace")).digest()
        now_s = self._now_s()
        found: Tenant | None = None
        for tenant in self._all:
            for credential in tenant.credentials:
                if hmac.compare_digest(credential.digest, digest) and not credential.expired(now_s):
                    found = tenant
        return found if scheme.lower() == "bearer" else None

    def reload_if_changed(self) -> bool:
        """Whether other tenants count from now on."""
        self._tell_expired()
        try:
            content = read_secret(self._path, _WHAT)
            if content == self._seen:
                return False
            self._seen = content
            self._all = _parse(content, self._path, self._defaults)
        except InvalidInput as error:
            self._metrics.tenants_refused.inc()
            _log.warning("tenants not reloaded, the last ones stay", extra={"fields": {"why": str(error)}})
            return False
        self._metrics.tenants.set(len(self._all))
        _log.info("tenants reloaded", extra={"fields": {"tenants": len(self._all)}})
        return True

    def _tell_expired(self) -> None:
        now_s = self._now_s()
        expired = frozenset(t.name for t in self._all if all(credential.expired(now_s) for credential in t.credentials))
        for name in sorted(expired - self._expired):
            _log.warning("all tokens of a tenant have expired", extra={"fields": {"tenant": name}})
        self._expired = expired
        self._metrics.tenants_expired.set(len(expired))


def _parse(content: bytes, path: Path, defaults: CapDefaults) -> tuple[Tenant, ...]:
    entries = parse_secret(_File, content, path, _WHAT).tenants
    if len({entry.name for entry in entries}) < len(entries):
        raise InvalidInput(f"{_WHAT} {path} gives a name twice")
    digests = [credential.digest for entry in entries for credential in entry.credentials]
    if len(set(digests)) < len(digests):
        raise InvalidInput(f"{_WHAT} {path} gives a token twice")
    if bare := [entry.name for entry in entries if not entry.credentials]:
        raise InvalidInput(f"{_WHAT} {path} gives {bare[0]} no token: set token, or tokens")
    alone = len(entries) == 1
    return tuple(Tenant(e.name, e.credentials, frozenset(e.namespaces), e.caps(defaults, alone=alone)) for e in entries)
