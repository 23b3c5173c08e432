from __future__ import annotations

import sys
import threading
import time
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from tests import foreign
from tests.foreign import Package
from tiphys_models.seats.registry import MOST_FOREIGN, BrokenDecider, Entry, FaultReason, Registry, UnknownDecider

HERE = __name__


class Plain:
    """Does something plain.

    And more.
    """


def explodes() -> None:
    """Explodes."""
    raise RuntimeError("no network here")


def leaves() -> None:
    """Ends the process."""
    sys.exit(3)


def point(name: str, value: str = f"{HERE}:Plain", package: Package | None = None) -> EntryPoint:
    return foreign.point(name, value, package)


def registry(*points: EntryPoint, **given: Any) -> Registry[Any]:
    made: Registry[Any] = Registry("thing", "tiphys.things", [Entry("ours", f"{HERE}:Plain"), Entry("sore", f"{HERE}:explodes")], **given)
    made.discover_with(lambda group: points if group == "tiphys.things" else ())
    return made


def reasons(found: Registry[Any]) -> list[tuple[str, str]]:
    return [(fault.name, str(fault.reason)) for fault in found.faults()]


def test_names_are_listed_ours_first_and_nothing_is_imported_for_it() -> None:
    found = registry(point("zeta", "not.installed.anywhere:Thing"), point("alpha"))
    assert found.names() == ("ours", "sore", "alpha", "zeta")
    assert found.faults() == ()


def test_an_entry_tells_whose_it_is_and_which_files_it_came_with() -> None:
    first, other = (
        registry(point("a", package=Package("acme", "2.1", record))).foreign["a"] for record in ("x,sha256=1,1", "x,sha256=2,1")
    )
    assert first.origin == "acme 2.1"
    assert len(first.digest) == 64
    assert first.digest != other.digest
    assert registry().ours["ours"].origin == "tiphys"


def test_a_decider_of_another_package_is_made_by_its_name() -> None:
    assert isinstance(registry(point("theirs")).make("theirs"), Plain)
    assert registry(point("theirs")).summary(Entry("theirs", f"{HERE}:Plain")) == "Does something plain."


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownDecider, match="no thing is called 'magic': there are ours, sore, theirs"):
        registry(point("theirs")).make("magic")


@pytest.mark.parametrize(
    ("value", "reason", "words"),
    [
        ("not.installed.anywhere:Thing", FaultReason.IMPORT_FAILED, "ModuleNotFoundError"),
        (f"{HERE}:Missing", FaultReason.IMPORT_FAILED, "AttributeError"),
        (f"{HERE}:HERE", FaultReason.NO_FACTORY, "cannot be called"),
        (f"{HERE}:explodes", FaultReason.MAKE_FAILED, "no network here"),
        (f"{HERE}:leaves", FaultReason.MAKE_FAILED, "SystemExit"),
    ],
)
def test_a_broken_package_spoils_its_own_name_only(value: str, reason: FaultReason, words: str) -> None:
    found = registry(point("broken", value), point("sound"))
    for _ in range(2):  # the second time it is known already
        with pytest.raises(BrokenDecider, match=words):
            found.make("broken")
    assert reasons(found) == [("broken", str(reason))]
    assert isinstance(found.make("sound"), Plain)
    assert "acme" in found.faults()[0].message


def test_an_error_of_ours_is_passed_on_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="no network here"):
        registry().make("sore")


def test_our_names_and_reserved_ones_cannot_be_taken() -> None:
    found = registry(point("ours", f"{HERE}:explodes"), point("kept"), reserved=lambda: ("kept",))
    assert found.names() == ("ours", "sore")
    assert reasons(found) == [("kept", "name-taken"), ("ours", "name-taken")]
    assert isinstance(found.make("ours"), Plain)


def test_of_two_packages_with_one_name_the_first_by_its_own_name_is_used() -> None:
    found = registry(point("same", f"{HERE}:explodes", Package("zebra")), point("same", package=Package("acme")))
    assert found.foreign["same"].package == "acme"
    assert reasons(found) == [("same", "twice")]
    assert found.faults()[0].package == "zebra"


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a" * 64, "with space", "a\nb", "", "a.b"])
def test_names_that_no_custom_resource_could_hold_are_refused(name: str) -> None:
    found = registry(point(name))
    assert not found.foreign
    assert [reason for _, reason in reasons(found)] == ["bad-name"]


def test_a_kind_takes_so_many_of_other_packages_and_no_more() -> None:
    found = registry(*(point(f"n{i:04d}") for i in range(3 * MOST_FOREIGN)))
    assert len(found.foreign) == MOST_FOREIGN
    assert {reason for _, reason in reasons(found)} == {"too-many"}
    assert len(found.faults()) <= 2 * MOST_FOREIGN


def test_metadata_that_cannot_be_read_leaves_ours() -> None:
    def unreadable(group: str) -> Any:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    found = registry()
    found.discover_with(unreadable)
    assert found.names() == ("ours", "sore")
    assert [reason for _, reason in reasons(found)] == ["import-failed"]


def test_what_lacks_a_method_is_no_decider_of_the_kind() -> None:
    found = registry(point("theirs"))
    with pytest.raises(BrokenDecider, match="it has no method score"):
        found.needs(found.foreign["theirs"], Plain(), "score")
    assert reasons(found) == [("theirs", "make-failed")]


class Unreadable(Package):
    """What an interrupted `pip uninstall` leaves: a directory without METADATA, or a RECORD that is no text."""

    def __init__(self, *, metadata: bool) -> None:
        super().__init__("torn")
        self._metadata = metadata

    def read_text(self, filename: str) -> str | None:
        if filename == "RECORD":
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return super().read_text(filename) if self._metadata else None


@pytest.mark.parametrize("metadata", [True, False])
def test_a_package_whose_metadata_cannot_be_read_spoils_its_own_names_only(*, metadata: bool) -> None:
    found = registry(point("torn", package=Unreadable(metadata=metadata)), point("sound"))
    assert isinstance(found.make("sound"), Plain)
    assert "torn" not in found.names()
    assert reasons(found) == [("torn", "import-failed")]


def picky(given: float) -> Plain:
    """Takes small numbers only."""
    if given > 1:
        raise ValueError("too much")
    return Plain()


def test_what_one_policy_gives_a_factory_to_trip_over_is_no_fault_of_the_next_one() -> None:
    found = registry(point("picky", f"{HERE}:picky"))
    with pytest.raises(BrokenDecider, match="too much"):
        found.make("picky", 2.0)
    assert isinstance(found.make("picky", 0.5), Plain)
    assert reasons(found) == [("picky", "make-failed")]


def test_a_thread_that_comes_while_packages_are_looked_for_finds_all_of_them() -> None:
    def slowly(group: str) -> list[EntryPoint]:
        looking.set()
        time.sleep(0.05)
        return [point("alpha"), point("beta")]

    found, looking = registry(), threading.Event()
    found.discover_with(slowly)
    first = threading.Thread(target=found.names)
    first.start()
    looking.wait()
    assert "beta" in found.names()
    first.join()
