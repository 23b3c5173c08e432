"""Deciders by name: ours, and those that other packages bring through an entry point.

Listing names reads the packages' metadata only; a package is imported when one of its deciders is asked for. A package that cannot be
used is a `Fault` of its own and spoils nobody else's. Our names always win.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from tiphys_models.base.errors import InvalidInput, TiphysError

MOST_FOREIGN = 64
"""Deciders of other packages that one kind takes."""
NAME_MAX = 63
NAME_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
"""Names are what a custom resource can hold: a DNS label."""

_log = logging.getLogger(__name__)
_MESSAGE_MAX = 300

Factory = TypeVar("Factory", bound=Callable[..., object])
Discover = Callable[[str], Iterable[EntryPoint]]
"""(entry point group) -> the entry points that installed packages have in it."""


class FaultReason(StrEnum):
    """Why a decider of another package cannot be used."""

    BAD_NAME = "bad-name"
    """No DNS label of at most 63 characters."""
    NAME_TAKEN = "name-taken"
    """The name is ours."""
    TWICE = "twice"
    """Two packages bring one name; the package that comes first by its own name is used."""
    TOO_MANY = "too-many"
    IMPORT_FAILED = "import-failed"
    NO_FACTORY = "no-factory"
    """The entry point names something that cannot be called."""
    MAKE_FAILED = "make-failed"
    """The factory raised an error, or made something that is no decider of this kind."""


class UnknownDecider(InvalidInput):
    """Nobody has a decider of that name; the message says which there are."""


class BrokenDecider(InvalidInput):
    """A package brings that name and cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A decider by its name: where it lives and whose it is."""

    name: str
    target: str
    """`module:attribute` of its factory."""
    learned: bool = False
    model: str = ""
    """Name of the weights that it cannot do without; empty: none, or its package carries them."""
    summary: str = ""
    """One line; empty: the first line of what the factory's docstring says."""
    live_only: bool = False
    """Affordable in a cluster, too dear for tables that play everything."""
    package: str = ""
    """Distribution that brings it; empty for ours."""
    version: str = ""
    digest: str = ""
    """Digest of another package's files as they were installed: decisions are recorded with it."""

    @property
    def origin(self) -> str:
        """`tiphys`, or package and version."""
        return f"{self.package} {self.version}".strip() or "tiphys"


@dataclass(frozen=True, slots=True)
class Fault:
    """A decider of another package that cannot be used."""

    name: str
    package: str
    reason: FaultReason
    message: str


def installed(group: str) -> Iterable[EntryPoint]:
    """Entry points of the packages in this environment."""
    return entry_points(group=group)


def nothing_reserved() -> Collection[str]:
    """No names but our own are taken."""
    return ()


class Registry(Generic[Factory]):
    """All deciders of one kind, which is a word of `seats.checks.KINDS`. Not for several threads at once, but for reading."""

    def __init__(self, kind: str, group: str, ours: Iterable[Entry], *, reserved: Callable[[], Collection[str]] = nothing_reserved) -> None:
        self.kind, self.group, self._word = kind, group, kind.replace("-", " ")
        self.ours: Mapping[str, Entry] = {entry.name: entry for entry in ours}
        self._reserved = reserved
        self._discover: Discover = installed
        self._foreign: dict[str, Entry] | None = None
        self._faults: dict[tuple[str, str], Fault] = {}

    def discover_with(self, discover: Discover) -> None:
        """Look for other packages anew, and in this way."""
        self._discover, self._foreign, self._faults = discover, None, {}

    @property
    def foreign(self) -> Mapping[str, Entry]:
        """Deciders of other packages. Found once a process: packages do not come and go under a running one."""
        if self._foreign is None:
            found: dict[str, Entry] = {}
            for point, package in sorted(self._readable(), key=lambda one: (one[0].name, one[1][0])):
                self._admit(found, point, *package)
            self._foreign = found  # only when whole: another thread may look meanwhile
        return self._foreign

    def entries(self) -> tuple[Entry, ...]:
        """Ours in their order, then those of other packages by name."""
        return (*self.ours.values(), *self.foreign.values())

    def names(self) -> tuple[str, ...]:
        """Names of all entries."""
        return tuple(entry.name for entry in self.entries())

    def entry(self, name: str) -> Entry | None:
        """What is known of a name; None if nobody has it."""
        return self.ours.get(name) or self.foreign.get(name)

    def faults(self) -> tuple[Fault, ...]:
        """Whatever was found wrong with other packages up to now."""
        return tuple(self._faults.values()) if self.foreign is not None else ()

    def unknown(self, name: str, known: Iterable[str] | None = None) -> UnknownDecider:
        """The error for a name that nobody has."""
        return UnknownDecider(f"no {self._word} is called {name!r}: there are {', '.join(self.names() if known is None else known)}")

    def factory(self, name: str) -> Factory:
        """The factory of that name, imported now; UnknownDecider or BrokenDecider."""
        entry = self.entry(name)
        if entry is None:
            raise self.unknown(name)
        fault = self._faults.get((entry.package, name))
        if fault is not None and fault.reason is not FaultReason.MAKE_FAILED:  # an import that failed is not tried twice
            raise BrokenDecider(fault.message)
        module, _, attribute = entry.target.partition(":")
        try:
            found = import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (Exception, SystemExit) as error:
            if not entry.package:
                raise
            raise self._broken(entry, FaultReason.IMPORT_FAILED, f"cannot be imported: {_told(error)}") from error
        if not callable(found):
            raise self._broken(entry, FaultReason.NO_FACTORY, f"names {entry.target}, which cannot be called")
        return found  # type: ignore[return-value]

    def make(self, name: str, *given: object) -> object:
        """What the factory of that name makes. Of ours, errors are passed on; of another package, they become BrokenDecider."""
        factory, entry = self.factory(name), self.entry(name)
        if entry is None or not entry.package:
            return factory(*given)
        if not given and (fault := self._faults.get((entry.package, name))) is not None:
            raise BrokenDecider(fault.message)  # with nothing given it would fail again; what one policy gave is no fault of the next one
        try:
            return factory(*given)
        except (Exception, SystemExit) as error:
            raise self._broken(entry, FaultReason.MAKE_FAILED, f"cannot be made: {_told(error)}") from error

    def needs(self, entry: Entry, made: object, *methods: str) -> None:
        """BrokenDecider unless what was made has these methods."""
        missing = [method for method in methods if not callable(getattr(made, method, None))]
        if missing:
            raise self._broken(entry, FaultReason.MAKE_FAILED, f"is no {self._word}: it has no method {' and no '.join(missing)}")

    def summary(self, entry: Entry) -> str:
        """One line of what it does; imports its module. A package that cannot be imported says so instead."""
        if entry.summary:
            return entry.summary
        try:
            made = self.factory(entry.name)
            # a bare `make` says how it is made; what is made stands at the head of its module
            source = sys.modules[made.__module__] if entry.target.endswith(":make") else made
            text = source.__doc__ or ""
        except BrokenDecider as error:
            return str(error)
        return text.strip().split("\n", 1)[0][:_MESSAGE_MAX]

    def _readable(self) -> Iterator[tuple[EntryPoint, tuple[str, str, str]]]:
        """Entry points with name, version and digest of their packages. Metadata may hold anything, or be half removed."""
        try:
            points = tuple(self._discover(self.group))
        except Exception as error:  # noqa: BLE001
            self._blame("", "", FaultReason.IMPORT_FAILED, f"entry points of {self.group} cannot be read: {_told(error)}")
            points = ()
        for point in points:
            try:
                package = _package(point)
            except Exception as error:  # noqa: BLE001
                self._blame(point.name[:NAME_MAX], "", FaultReason.IMPORT_FAILED, f"has metadata that cannot be read: {_told(error)}")
            else:
                yield point, package

    def _admit(self, foreign: dict[str, Entry], point: EntryPoint, package: str, version: str, digest: str) -> None:
        if len(point.name) > NAME_MAX or re.match(NAME_PATTERN, point.name) is None:
            self._blame(
                point.name[:NAME_MAX], package, FaultReason.BAD_NAME, "is no name: lower-case letters, digits and dashes, at most 63"
            )
        elif point.name in self.ours or point.name in self._reserved():
            self._blame(point.name, package, FaultReason.NAME_TAKEN, "is one of ours, which cannot be replaced")
        elif point.name in foreign:
            first = foreign[point.name].package
            if first != package:
                self._blame(point.name, package, FaultReason.TWICE, f"is brought by {first} too, which is used")
        elif len(foreign) >= MOST_FOREIGN:
            self._blame(point.name, package, FaultReason.TOO_MANY, f"is one too many: a kind takes {MOST_FOREIGN} of other packages")
        else:
            foreign[point.name] = Entry(point.name, point.value.split(" ")[0], package=package, version=version, digest=digest)

    def _broken(self, entry: Entry, reason: FaultReason, message: str) -> BrokenDecider:
        if not entry.package:  # what the conformance suite is given, which stands in no registry
            return BrokenDecider(f"{self._word} {entry.name!r} {message}")
        return BrokenDecider(self._blame(entry.name, entry.package, reason, message))

    def _blame(self, name: str, package: str, reason: FaultReason, message: str) -> str:
        text = f"{self._word} {name!r} of package {package or 'unknown'} {message}"[:_MESSAGE_MAX]
        if (package, name) not in self._faults and len(self._faults) < 2 * MOST_FOREIGN:
            self._faults[package, name] = Fault(name, package, reason, text)
            _log.warning("decider of another package is not used", extra={"fields": {"reason": str(reason), "why": text}})
        return text


def _package(point: EntryPoint) -> tuple[str, str, str]:
    """Name, version and digest of the package that an entry point belongs to."""
    found = point.dist
    if found is None:
        return "unknown", "", ""
    record = found.read_text("RECORD") or ""  # names every file with its own sha256
    if not isinstance(found.name, str):
        raise InvalidInput("it has no name")
    return found.name, found.version, sha256(f"{found.name} {found.version}\n{record}".encode()).hexdigest()


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, TiphysError) else f"{type(error).__name__}: {error}"
