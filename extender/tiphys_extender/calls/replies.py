"""Answers kept by idempotency key: a call that is sent again must not be placed again."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from tiphys_extender.calls.requests import PlaceCall
from tiphys_extender.serve.kept import Kept
from tiphys_extender.serve.refused import Refused

_OVERHEAD_BYTES = 500  # key, digest and the dictionary's own


@dataclass(frozen=True, slots=True)
class _Reply:
    digest: bytes
    answer: bytes


class Replies:
    """The newest of each tenant, in bounded memory."""

    def __init__(self, max_bytes: int) -> None:
        self._kept: Kept[_Reply] = Kept(max_bytes)

    def find(self, tenant: str, call: PlaceCall) -> bytes | None:
        """The answer this very call got before; Refused if another call had its key."""
        if call.idempotency_key is None or (reply := self._kept.get(tenant, call.idempotency_key)) is None:
            return None
        if reply.digest != _digest(call):
            raise Refused("key-reused", "this idempotencyKey belongs to another call: use a new one for every call")
        return reply.answer

    def keep(self, tenant: str, call: PlaceCall, answer: bytes, most_bytes: int | None = None) -> None:
        """Keep an answer for a repetition of the call; this tenant's answers take no more than `most_bytes`."""
        if call.idempotency_key is not None:
            reply = _Reply(_digest(call), answer)
            self._kept.put(tenant, call.idempotency_key, reply, len(answer) + _OVERHEAD_BYTES, most_bytes)


def _digest(call: PlaceCall) -> bytes:
    return sha256(call.model_dump_json().encode()).digest()
