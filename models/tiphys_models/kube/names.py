"""Names become addresses in threads of their own, so many for each owner: the system's resolver cannot be given up, and whoever asks for
a name that nobody answers for must hold up neither others nor what runs in the threads of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

AddressInfo = tuple[Any, Any, int, str, Any]
"""One element of what `socket.getaddrinfo` answers."""


@dataclass(slots=True)
class _Share:
    """The lookups of one owner."""

    places: asyncio.Semaphore
    users: int = 0


class Names:
    """A lookup ends when the system ends it; its place is taken until then, whether or not somebody still waits for it."""

    def __init__(self, of_one: int = 8, in_all: int = 128) -> None:
        self._of_one, self._all = of_one, asyncio.Semaphore(in_all)
        self._shares: dict[str, _Share] = {}

    @property
    def owners(self) -> int:
        """How many have lookups under way."""
        return len(self._shares)

    async def look_up(self, host: str, port: int, owner: str = "") -> list[AddressInfo]:
        """All addresses of a host, of either family; OSError if it has none. The caller has the deadline."""
        with contextlib.suppress(OSError, UnicodeError):  # an address needs nobody's answer
            return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
        share = self._shares.setdefault(owner, _Share(asyncio.Semaphore(self._of_one)))
        share.users += 1
        begun = False
        try:
            await share.places.acquire()
            try:
                await self._all.acquire()
            except asyncio.CancelledError:
                share.places.release()
                raise
            begun = True
            answer = self._begin(host, port, owner)
        finally:
            if not begun:
                self._leave(owner)
        return await answer

    def _begin(self, host: str, port: int, owner: str) -> asyncio.Future[list[AddressInfo]]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[AddressInfo]] = loop.create_future()

        def tell(found: list[AddressInfo], error: Exception | None) -> None:
            self._shares[owner].places.release()
            self._all.release()
            self._leave(owner)
            if answer.done():  # nobody waits any more
                return
            if error is None:
                answer.set_result(found)
            else:
                answer.set_exception(error)

        def work() -> None:
            found, error = _found(host, port)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(tell, found, error)

        try:
            threading.Thread(target=work, name="name", daemon=True).start()
        except RuntimeError as error:  # no further thread: of the process or of the system
            tell([], OSError(f"cannot look up {host[:64]}: {error}"))
        return answer

    def _leave(self, owner: str) -> None:
        share = self._shares[owner]
        share.users -= 1
        if not share.users:
            del self._shares[owner]


class NamesResolver(AbstractResolver):
    """Lookups for the HTTP library."""

    def __init__(self, names: Names | None = None, owner_of: Callable[[str], str] = str) -> None:
        self._names, self._owner_of = names or Names(of_one=1), owner_of

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET) -> list[ResolveResult]:
        """Addresses of either family: connecting takes the first that works."""
        return [
            ResolveResult(hostname=host, host=str(address[0]), port=port, family=kind, proto=protocol, flags=socket.AI_NUMERICHOST)
            for kind, _, protocol, _, address in await self._names.look_up(host, port, self._owner_of(host))
        ]

    async def close(self) -> None:
        """Does nothing: a resolver keeps nothing open."""


def _found(host: str, port: int) -> tuple[list[AddressInfo], Exception | None]:
    try:
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)), None
    except UnicodeError:  # a label is empty, too long, or of letters that no name has
        return [], OSError(f"{host[:64]} is not a name")
    except OSError as error:
        return [], error
    except Exception as error:  # noqa: BLE001 - who waits is told, and the place is free again
        return [], OSError(f"cannot look up {host[:64]}: {type(error).__name__}")
