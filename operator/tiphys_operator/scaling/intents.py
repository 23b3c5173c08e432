"""Signatures of intents in statuses, with a key that only operators read: whoever may write statuses may not scale.

A status is data. An intent without our signature for this very object, spec, sizes and time is decided anew, and so is one of a process
whose key is gone.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from tiphys_models.api.scaling_status import LastDecision
from tiphys_models.base.errors import InvalidInput
from tiphys_operator.scaling.metrics import IntentResult
from tiphys_operator.scaling.seen import ScalingSeen

log = logging.getLogger(__name__)

_SHORTEST_SECRET = 32
_PURPOSE = "tiphys-scaling-intent-1"
"""Part of what is signed: no other signature under the same key can pass for one of an intent."""
_WHAT = "the file of intent keys"


class _Key(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, StringConstraints(pattern=r"^[-A-Za-z0-9_.]{1,64}$")]
    secret: Annotated[str, StringConstraints(min_length=_SHORTEST_SECRET, max_length=1024)]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: list[_Key] = Field(min_length=1, max_length=4)


class IntentKeys:
    """Keys by id: the first signs, all are believed. From a file, read again when it changes; without one, a key of this process alone."""

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._seen = path, b""
        if path is None:
            self._take({"this-process": secrets.token_bytes(32)})
            log.info("no file of intent keys: what a former process intended is decided anew")
            return
        self._seen = _read(path)
        self._take(_parsed(self._seen, path))

    def sign(self, policy: ScalingSeen, decision: LastDecision) -> LastDecision:
        """The decision with its signature, as an intent of this spec of this object."""
        self._reload_if_changed()
        return decision.model_copy(update={"mac": f"{self._signing}:{_mac(self._keys[self._signing], policy, decision)}"})

    def doubt(self, policy: ScalingSeen, decision: LastDecision) -> IntentResult | None:
        """Why it is not to be believed; None for one of ours."""
        if not decision.mac:
            return IntentResult.UNSIGNED
        self._reload_if_changed()
        name, _, mac = decision.mac.partition(":")
        # an unknown id costs as much as a known one and never fits
        expected = _mac(self._keys.get(name) or secrets.token_bytes(32), policy, decision)
        return None if hmac.compare_digest(expected.encode(), mac.encode("utf-8", "replace")) else IntentResult.NOT_OURS

    def _take(self, keys: dict[str, bytes]) -> None:
        self._keys, self._signing = keys, next(iter(keys))

    def _reload_if_changed(self) -> None:
        """A file that cannot be used leaves the last good keys."""
        if self._path is None:
            return
        try:
            content = _read(self._path)
            if content == self._seen:
                return
            self._seen = content
            self._take(_parsed(content, self._path))
        except InvalidInput as error:
            log.warning("keys of intents not reloaded, the last ones stay", extra={"fields": {"why": str(error)}})
        else:
            log.info("keys of intents reloaded", extra={"fields": {"signing": self._signing, "keys": len(self._keys)}})


def _mac(secret: bytes, policy: ScalingSeen, decision: LastDecision) -> str:
    former, applied = decision.former, decision.applied
    said = [
        _PURPOSE, policy.uid, policy.generation, decision.number, decision.at,
        former.replicas, former.cpu_milli, applied.replicas, applied.cpu_milli,
    ]  # fmt: skip
    return hmac.digest(secret, json.dumps(said, separators=(",", ":")).encode(), "sha256").hex()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read {_WHAT} {path}: {error.strerror}") from error


def _parsed(content: bytes, path: Path) -> dict[str, bytes]:
    try:
        keys = _File.model_validate(json.loads(content)).keys
    except ValidationError as error:  # without what stands there
        problem = error.errors(include_url=False, include_input=False)[0]
        raise InvalidInput(f"{_WHAT} {path}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
    except (ValueError, RecursionError):
        raise InvalidInput(f"{_WHAT} {path} is not JSON") from None
    if len({key.id for key in keys}) < len(keys):
        raise InvalidInput(f"{_WHAT} {path} gives an id twice")
    return {key.id: key.secret.encode() for key in keys}
