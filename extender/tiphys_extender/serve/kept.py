"""What is remembered of tenants in bounded memory: whoever fills it forgets their own first."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


@dataclass(slots=True)
class _Own(Generic[_Value]):
    values: OrderedDict[str, tuple[int, _Value]] = field(default_factory=OrderedDict)
    size: int = 0


class Kept(Generic[_Value]):
    """The newest of each tenant. Above `most` the one that has most gives way, so a tenant within its equal share loses nothing."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._of: dict[str, _Own[_Value]] = {}

    def __len__(self) -> int:
        return sum(len(own.values) for own in self._of.values())

    def get(self, tenant: str, key: str) -> _Value | None:
        """What this tenant has there."""
        own = self._of.get(tenant)
        found = own.values.get(key) if own is not None else None
        return found[1] if found is not None else None

    def put(self, tenant: str, key: str, value: _Value, size: int = 1, most_own: int | None = None) -> None:
        """Remember it, at the price of what is older."""
        own = self._of.setdefault(tenant, _Own())
        self._drop(own, key)
        own.values[key] = size, value
        own.size += size
        self._size += size
        while own.values and most_own is not None and own.size > most_own:
            self._drop(own, next(iter(own.values)))
        while self._size > self._most:
            largest = max(self._of.values(), key=lambda each: each.size)
            self._drop(largest, next(iter(largest.values)))
        if not own.values:
            del self._of[tenant]

    def clear(self) -> None:
        """Forget everything of everybody."""
        self._of.clear()
        self._size = 0

    def _drop(self, own: _Own[_Value], key: str) -> None:
        gone = own.values.pop(key, None)
        if gone is not None:
            own.size -= gone[0]
            self._size -= gone[0]
