"""What calls of each function are like alone on a node, as runtimes report it; a row a function."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from itertools import islice

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.calls import PROFILE_QUANTITIES, FunctionProfile, filled
from tiphys_models.placement.table import grown


class ProfileGap(StrEnum):
    """Why a policy that reads profiles cannot judge the calls of a function. Values are reasons of `api.reasons.FallbackReason`."""

    NO_PROFILES = "profiles-missing"
    FUNCTION_WITHOUT = "function-without-profile"
    CONTRADICTED = "profile-contradicted"


class Profiles:
    """NaN where nothing was reported."""

    def __init__(self) -> None:
        self._rows = np.full((16, len(PROFILE_QUANTITIES)), np.nan)
        self._filled: FloatArray | None = None
        self.published_rows: FloatArray = np.full((16, 4), np.nan)
        """What was learned elsewhere of the functions, in the order of `learned_profiles`: look, do not keep."""
        self.published: Mapping[str, FloatArray] = {}
        """The same by function, also of functions that have no row now."""
        self.version = 0
        """Changes with what any row says."""
        self.reported: dict[str, FunctionProfile] = {}
        """Reported profiles by function, also of functions that have no row now: a row may come back."""

    def make_room(self, row: int) -> None:
        """Grow the table until it has this row."""
        if row >= len(self._rows):
            self._rows = grown(self._rows, 2 * row, math.nan)
            self.published_rows = grown(self.published_rows, 2 * row, math.nan)
            self._filled = None

    def report(self, profiles: Mapping[str, FunctionProfile], most: int) -> None:
        """What was reported now, beside what was reported before; of too many the least recently reported go."""
        for name, profile in profiles.items():
            self.reported.pop(name, None)
            self.reported[name] = profile
        # all at once: to look for the first of a dictionary whose beginning was deleted costs as much as what was deleted
        for name in list(islice(self.reported, max(len(self.reported) - most, 0))):
            del self.reported[name]

    def clear(self, row: int) -> None:
        """The row is nobody's."""
        self.version += not (math.isnan(self._rows[row, 0]) and math.isnan(self.published_rows[row, 0]))
        self._rows[row] = self.published_rows[row] = math.nan
        self._filled = None

    def put_published(self, row: int, name: str) -> None:
        """Give the row what was learned elsewhere of its function, if anything."""
        found = self.published.get(name)
        if found is not None or not math.isnan(self.published_rows[row, 0]):
            self.published_rows[row] = math.nan if found is None else found
            self.version += 1

    def put(self, row: int, profile: FunctionProfile) -> None:
        """Store the reported profile of the function of that row."""
        said = profile.as_row()
        self.version += tuple(self._rows[row].tolist()) != said
        self._rows[row] = said
        self._filled = None

    def gap(self, row: int | None, *, contradicted: bool) -> ProfileGap | None:
        """Why calls of the function of that row cannot be judged; None if they can. A function nobody has heard of has no row."""
        if not self.reported:
            return ProfileGap.NO_PROFILES
        if row is None or math.isnan(self._rows[row, 0]):  # profiles are reported whole
            # taken for the mean of the others, such a function made the model up to 44 % slower than the rule (ADR 94)
            return ProfileGap.FUNCTION_WITHOUT
        return ProfileGap.CONTRADICTED if contradicted else None

    def of(self, row: int) -> FunctionProfile | None:
        """None if nothing was reported."""
        found = self._rows[row]
        return None if np.isnan(found).any() else FunctionProfile(*found.tolist())

    @property
    def rows(self) -> FloatArray:
        """All rows, NaN where nothing was reported: look, do not keep."""
        return self._rows

    def filled(self) -> FloatArray:
        """All rows, gaps filled with what is usual."""
        if self._filled is None:
            self._filled = filled(self._rows)
        return self._filled
