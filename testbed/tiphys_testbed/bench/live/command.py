"""What was asked for on the command line, made into a plan; tables of the journal, written into documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.documents import check as check_documents
from tiphys_models.lab.documents import markdown, rewrite
from tiphys_models.lab.report import Result
from tiphys_testbed.bench.live.figures import fault_table, table
from tiphys_testbed.bench.live.journal import default_path
from tiphys_testbed.bench.live.lanes import CHOSEN, GROUPS, group_of
from tiphys_testbed.bench.live.plan import FAULT_WORLD, FAULTS, LivePlan
from tiphys_testbed.bench.live.run import run
from tiphys_testbed.bench.live.worlds import WORLDS

MARKS = ("live-placement", "live-placement-faults")
"""Of tables in documents: of runs, and of runs in which something was killed."""
_OWN = "own"
"""The name of a group that was made on the command line."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Options as they were given."""

    seeds: tuple[int, ...]
    worlds: str = "standard"
    groups: str = ""
    lanes: str = ""
    fault: str = ""
    quick: bool = False
    fresh: bool = False

    def plan(self) -> LivePlan:
        """What is to be played; InvalidInput names what there is not."""
        return LivePlan(
            seeds=self.seeds[:1] if self.quick or self.fault else self.seeds,
            worlds=self._worlds(),
            groups=self._groups(),
            faults=self._faults(),
            quick=self.quick,
            journal=None if self.quick else default_path(),
            fresh=self.fresh,
        )

    def _worlds(self) -> tuple[str, ...]:
        if self.fault:
            return (FAULT_WORLD,)
        if self.worlds == "all":
            return tuple(WORLDS)
        return tuple(_known("worlds", name, tuple(WORLDS)) for name in self.worlds.split(","))

    def _faults(self) -> tuple[str, ...]:
        if self.fault == "all":
            return FAULTS
        return tuple(_known("fault", name, FAULTS) for name in self.fault.split(",")) if self.fault else ("",)

    def _groups(self) -> dict[str, tuple[str, ...]]:
        if self.lanes:
            return {_OWN: group_of(self.lanes.split(","))}
        names = self.groups.split(",") if self.groups else CHOSEN[:1] if self.fault or self.quick else CHOSEN
        return {name: GROUPS[_known("groups", name, tuple(GROUPS))] for name in names}


def run_asked(asked: Asked, docs: Sequence[Path], tell: Callable[[str], None]) -> Result:
    """Play what is missing, and write the tables of these documents."""
    plan = asked.plan()
    mark = MARKS[bool(asked.fault)]
    check_documents(docs, (mark,))
    result = run(plan, tell)
    for path in docs:
        rewrite(path, {mark: markdown(fault_table(result.rows) if asked.fault else table(result.rows))})
    return result


def _known(option: str, name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise InvalidInput(f"--{option}: {name!r} is none of {', '.join(known)}")
    return name
