"""Answers kept by idempotency key: a call that is sent again must not be placed again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import sha256

from tiphys_extender.binder.refused import Refused
from tiphys_extender.binder.requests import PlaceCall

_OVERHEAD_BYTES = 500  # key, digest and the dictionary's own


@dataclass(frozen=True, slots=True)
class _Reply:
    digest: bytes
    answer: bytes


class Replies:
    """The newest, in bounded memory."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[str, str], _Reply] = OrderedDict()

    def find(self, tenant: str, call: PlaceCall) -> bytes | None:
        """The answer this very call got before; Refused if another call had its key."""
        if call.idempotency_key is None or (reply := self._kept.get((tenant, call.idempotency_key))) is None:
            return None
        if reply.digest != _digest(call):
            raise Refused("key-reused", "this idempotencyKey belongs to another call: use a new one for every call")
        return reply.answer

    def keep(self, tenant: str, call: PlaceCall, answer: bytes) -> None:
        """For the next time."""
        if call.idempotency_key is None:
            return
        self._kept[tenant, call.idempotency_key] = _Reply(_digest(call), answer)
        self._bytes += len(answer) + _OVERHEAD_BYTES
        while self._bytes > self._max_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= len(oldest.answer) + _OVERHEAD_BYTES


def _digest(call: PlaceCall) -> bytes:
    return sha256(call.model_dump_json().encode()).digest()
