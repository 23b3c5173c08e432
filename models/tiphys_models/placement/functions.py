"""Functions that are known: their unfinished pods, and the row that open calls and profiles know them by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.profiles import ProfileGap, Profiles

MOST_FUNCTIONS = 2_000


@dataclass(slots=True)
class KnownFunction:
    """A known function: its profile's row and its unfinished pods."""

    index: int
    """Row of its profile."""
    unfinished: dict[str, int] = field(default_factory=dict)  # node -> pods bound or reserved


class Functions:
    """Known functions by name. One with an unfinished pod stays; of those at rest a bounded number is kept, the one at rest longest goes.

    Nothing points at the row of a function at rest: open calls are unfinished pods, and a view is used within its decision only.
    """

    def __init__(self, most: int, gone: Callable[[str, int], None]) -> None:
        """`gone` is called with the name and the row of every function that is evicted."""
        self.most, self._gone = most, gone
        self._known: dict[str, KnownFunction] = {}
        self._at_rest: dict[str, None] = {}
        self._free_rows: list[int] = []
        self.profiles = Profiles()
        """Profiles that runtimes report, a row a function."""
        self.evicted = 0
        """How many were let go because there were too many."""

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def get(self, name: str) -> KnownFunction | None:
        """The known function of that name; None if it has had no pod, or was evicted."""
        return self._known.get(name)

    def rows(self) -> Iterator[tuple[str, int]]:
        """Names of all known functions with their rows."""
        return ((name, known.index) for name, known in self._known.items())

    def working(self, name: str) -> KnownFunction:
        """Note that the function has an unfinished pod from now on."""
        found = self._introduced(name)
        self._at_rest.pop(name, None)
        return found

    def rest(self, name: str) -> None:
        """Note that the function's last pod has finished: it may be evicted."""
        self._at_rest.pop(name, None)
        self._at_rest[name] = None
        self._let_go()

    def remembered(self, name: str) -> int:
        """The row of a function of which something is known from before its first pod."""
        index = self._introduced(name).index
        self._let_go()
        return index

    def report(self, profiles: Mapping[str, FunctionProfile]) -> None:
        """What their calls are like, as runtimes reported it."""
        self.profiles.report(profiles, self.most)
        for name, profile in self.profiles.reported.items():
            self.profiles.put(self._introduced(name).index, profile)
        self._let_go()

    def publish(self, profiles: Mapping[str, FloatArray]) -> None:
        """Profiles that were learned elsewhere, by function, instead of those published before."""
        self.profiles.published = profiles
        for name, known in self._known.items():
            self.profiles.put_published(known.index, name)

    def profile_gap(self, name: str, *, contradicted: bool) -> ProfileGap | None:
        """Why calls of a function cannot be judged by its profile; None if they can."""
        known = self._known.get(name)
        return self.profiles.gap(None if known is None else known.index, contradicted=contradicted)

    def profile(self, name: str) -> FunctionProfile | None:
        """What was reported of it; None if nothing was."""
        known = self._known.get(name)
        return None if known is None else self.profiles.of(known.index)

    def filled_profiles(self) -> FloatArray:
        """All rows, gaps filled with what is usual."""
        return self.profiles.filled()

    def _introduced(self, name: str) -> KnownFunction:
        found = self._known.get(name)
        if found is None:
            index = self._free_rows.pop() if self._free_rows else len(self._known)
            found = self._known[name] = KnownFunction(index)
            self.profiles.make_room(index)
            self.profiles.put_published(index, name)
            if (profile := self.profiles.reported.get(name)) is not None:  # it comes back: runtimes report only what changes
                self.profiles.put(index, profile)
            self._at_rest[name] = None
        return found

    def _let_go(self) -> None:
        while len(self._at_rest) > self.most:
            name = next(iter(self._at_rest))
            del self._at_rest[name]
            row = self._known.pop(name).index
            self._free_rows.append(row)
            self.profiles.clear(row)
            self._gone(name, row)
            self.evicted += 1
