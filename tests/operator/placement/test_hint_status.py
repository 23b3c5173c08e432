"""What a policy says of its hints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.builders import conditions, planned, seen
from tiphys_operator.placement.observation import HintRights

ASKED: dict[str, Any] = {"hints": {"doNotDisrupt": True}}
ON = HintRights()


@pytest.mark.parametrize(
    ("spec", "rights", "said"),
    [
        ({"mode": "Active"}, ON, None),
        ({"mode": "Active", "hints": {}}, None, None),
        ({"mode": "Active"} | ASKED, None, ("False", "HintsOff")),
        ({"mode": "Active"} | ASKED, ON, ("True", "Hinting")),
        ({"mode": "Canary", "canary": {"percent": 5}} | ASKED, ON, ("True", "Hinting")),
        ({"mode": "Shadow"} | ASKED, ON, ("False", "Disabled")),
        ({"mode": "Off"} | ASKED, ON, ("False", "Disabled")),
        ({"mode": "Active"} | ASKED, HintRights(frozenset({"shop"})), ("False", "HintsOff")),
        ({"mode": "Active"} | ASKED, HintRights(frozenset({"default"})), ("True", "Hinting")),
        ({"mode": "Active"} | ASKED, HintRights(denied=frozenset({""})), ("False", "HintsForbidden")),
        ({"mode": "Active"} | ASKED, HintRights(frozenset({"default", "shop"}), frozenset({"default"})), ("False", "HintsForbidden")),
        ({"mode": "Active"} | ASKED, HintRights(frozenset({"default", "shop"}), frozenset({"shop"})), ("True", "Hinting")),
    ],
)
def test_a_policy_that_asks_for_hints_says_whether_they_are_written(
    spec: dict[str, Any], rights: HintRights | None, said: tuple[str, str] | None
) -> None:
    found = conditions(planned(seen(**spec), hints=rights))
    assert found.get("Hinting") == said
    assert found["Ready"][1] in ("Accepted", "Disabled"), "hints are no matter of Ready"


def test_a_release_that_writes_none_is_a_warning_once() -> None:
    first = planned(seen(mode="Active", **ASKED))
    assert [event.reason for event in first.events if event.warning] == ["HintsOff"]
    (write,) = first.statuses
    again = planned(seen(mode="Active", status=write.status, **ASKED))
    assert not [event for event in again.events if event.reason == "HintsOff"]
