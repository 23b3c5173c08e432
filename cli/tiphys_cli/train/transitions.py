"""Scaling transitions from operators' status listeners, kept in a file so that what the operators forget is not lost."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import orjson
from pydantic import ValidationError

from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.scaling.transition import TRANSITIONS_PATH, Transition, TransitionPage
from tiphys_models.serving.bearer import TokenFile

_TIMEOUT_S = 20.0
_PAGE = 1000
_BODY_MAX_BYTES = 64 * 1024 * 1024
_KEPT, _CURSORS = "transitions.jsonl", "transitions.cursors.json"
KEPT_MAX = 100_000
"""Seventeen days of one policy at 15 s, or as much of several: a kilobyte each, all of it read for every training."""
_CURSORS_MAX = 256
"""Each operator process has a log of its own; one whose cursor is forgotten is read anew, and what is read twice counts once."""
_PORTS = {"http": 80, "https": 443}
"""Operators are asked at their addresses in the cluster: a proxy could not reach them, and would see the token."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """Everything that is known now."""

    transitions: Sequence[Transition]
    new: int
    lost: int
    """Dropped by an operator after it was last read, before it was read again."""
    before: int
    """Dropped before it was read for the first time."""
    forgotten: int = 0
    """The oldest in the file, dropped now because it is full."""


@dataclass(frozen=True, slots=True)
class ServedFrom:
    """Where transitions come from."""

    source: str
    """A file, or http://HOST:PORT of operators."""
    token_file: Path | None = None
    ca_file: Path | None = None
    """The authority that has signed the certificate of an https source; None: one of the system's."""
    policy: str = ""


def transitions(served: ServedFrom, out: Path, tell: Callable[[str], None]) -> Sequence[Transition]:
    """Everything that is known of a source; what is pulled is kept in `out`."""
    if "://" not in served.source:
        found = read_file(Path(served.source))
        return [t for t in found if not served.policy or t.policy == served.policy]
    pulled = pull(served.source, served.token_file, served.policy, out, ca_file=served.ca_file)
    tell(
        f"{pulled.new} new transitions, {len(pulled.transitions)} in all; "
        f"{pulled.lost} were dropped since the last time, {pulled.before} before the first"
        + (f"; the oldest {pulled.forgotten} are forgotten now" if pulled.forgotten else "")
    )
    return pulled.transitions


def read_file(path: Path) -> list[Transition]:
    """One JSON object a line; InvalidInput names the line that is none."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(Transition.model_validate_json(line))
        except ValidationError as error:
            raise InvalidInput(f"{path}, line {number}: {error.errors(include_url=False)[0]['msg']}") from error
    return found


def pull(url: str, token_file: Path | None, policy: str, directory: Path, keep: int = KEPT_MAX, ca_file: Path | None = None) -> Pulled:
    """Read on from every address behind a URL; new rows are appended to the file in the directory before its cursors move.

    The file keeps the newest `keep` rows.
    """
    kept, cursors = directory / _KEPT, directory / _CURSORS
    known: dict[str, int] = orjson.loads(cursors.read_bytes()) if cursors.exists() else {}
    old: list[Transition] = []
    if kept.exists():
        _cut(kept)
        old = read_file(kept)
    new: list[Transition] = []
    lost = before = 0
    for address in _addresses(url):
        ask = _Address(url, address, token_file, policy, ca_file)
        page = ask.page(0, 1)
        epoch, cursor = page.epoch, f"{page.epoch}/{policy}"
        after = known.get(cursor, 0)
        page = ask.page(after, _PAGE)
        if cursor in known:
            lost += page.lost
        else:
            before += page.lost
        while page.epoch == epoch:
            new += [entry.transition for entry in page.items]
            after = max(after, page.next)
            known.pop(cursor, None)  # read last, forgotten last
            known[cursor] = after
            if after >= page.last:
                break
            page = ask.page(after, _PAGE)
    directory.mkdir(parents=True, exist_ok=True)
    every = [*old, *new]
    if (forgotten := max(len(every) - keep, 0)) == 0:
        with kept.open("ab") as file:
            file.writelines(map(_line, new))
    else:
        every = every[forgotten:]
        _written(kept, b"".join(map(_line, every)))
    _written(cursors, orjson.dumps(dict(list(known.items())[-_CURSORS_MAX:])))
    return Pulled(every, len(new), lost, before, forgotten)


def _line(transition: Transition) -> bytes:
    return transition.model_dump_json(by_alias=True).encode() + b"\n"


def _written(path: Path, data: bytes) -> None:
    """Whole or not at all: half a file would end every later run."""
    partial = path.with_suffix(".part")
    partial.write_bytes(data)
    partial.replace(path)


def _cut(path: Path) -> None:
    """A last line without an end was being written when the process or the disk ended: its cursor has not moved, so it is read again."""
    with path.open("r+b") as file:
        data = file.read()
        file.truncate(data.rfind(b"\n") + 1)


@dataclass(frozen=True, slots=True)
class _Address:
    """One operator's listener: each has a log of its own."""

    url: str
    ip: str
    token_file: Path | None
    policy: str
    ca_file: Path | None = None

    def page(self, after: int, limit: int) -> TransitionPage:
        parts = urlsplit(self.url)
        query = urlencode({"after": after, "limit": limit} | ({"policy": self.policy} if self.policy else {}))
        headers = {"Host": parts.netloc}
        if self.token_file is not None:
            headers["Authorization"] = f"Bearer {_token(self.token_file)}"
        where = f"{parts.scheme}://{f'[{self.ip}]' if ':' in self.ip else self.ip}:{self._port}{TRANSITIONS_PATH}"
        # no proxy and no redirect: either would be handed the token
        connection = HTTPConnection(self.ip, self._port, timeout=_TIMEOUT_S)
        try:
            connection.sock = self._connected()
            connection.request("GET", f"{TRANSITIONS_PATH}?{query}", headers=headers)
            with connection.getresponse() as answer:
                body = answer.read(_BODY_MAX_BYTES)
        except (OSError, HTTPException) as error:
            raise Unavailable(f"{where}: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise Unavailable(f"{where} answered {answer.status}: {body[:200].decode('utf-8', 'replace').strip()}")
        try:
            return TransitionPage.model_validate_json(body)
        except ValidationError as error:
            raise Unavailable(f"{where} sent something that is no page of transitions") from error

    @property
    def _port(self) -> int:
        parts = urlsplit(self.url)
        return parts.port or _PORTS[parts.scheme]

    def _connected(self) -> socket.socket:
        """A connection to this one address; with TLS, the certificate is checked for the name in the URL."""
        parts = urlsplit(self.url)
        plain = socket.create_connection((self.ip, self._port), _TIMEOUT_S)
        if parts.scheme == "http":
            return plain
        try:
            context = ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file is not None else None)
            return context.wrap_socket(plain, server_hostname=parts.hostname)
        except OSError:
            plain.close()
            raise


def _addresses(url: str) -> list[str]:
    said = f"--from-transitions: {url!r} is neither a file nor http://HOST:PORT of an operator's status listener"
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise InvalidInput(said) from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise InvalidInput(said)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Unavailable(f"cannot resolve {parts.hostname}: {error}") from error
    return sorted({str(address[4][0]) for address in found})


def _token(path: Path) -> str:
    try:
        token = TokenFile(path).to_send()
    except OSError as error:
        raise InvalidInput(f"--token-file {path}: {error.strerror}") from error
    if not token:
        raise InvalidInput(f"--token-file {path} holds no token that still counts")
    return token
