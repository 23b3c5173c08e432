"""The scheduling gate of pods that may wait."""

from __future__ import annotations

from typing import Any

import pytest

from tiphys_models.placement.gate import GATE, gate_place, is_held, opening_patch


def _pod(*gates: str, **metadata: str) -> dict[str, Any]:
    return {"metadata": {"uid": "u-1", **metadata}, "spec": {"schedulingGates": [{"name": gate} for gate in gates]}}


def test_a_pod_with_the_gate_is_held_until_somebody_asks_it_to_go() -> None:
    assert is_held(_pod(GATE))
    assert not is_held(_pod("other.io/gate"))
    assert not is_held({"metadata": {"uid": "u-1"}})
    assert not is_held(_pod(GATE, deletionTimestamp="2026-01-01T00:00:00Z"))


def test_the_patch_takes_off_our_gate_only_and_names_the_pod_it_is_for() -> None:
    patch = opening_patch(_pod("other.io/gate", GATE))
    assert gate_place(_pod("other.io/gate", GATE)) == 1
    assert [op["op"] for op in patch] == ["test", "test", "remove"]
    assert patch[0]["value"] == "u-1"
    assert (patch[1]["path"], patch[1]["value"]) == ("/spec/schedulingGates/1/name", GATE)
    assert patch[2]["path"] == "/spec/schedulingGates/1"


def test_a_pod_without_the_gate_has_no_patch() -> None:
    with pytest.raises(ValueError, match="no gate"):
        opening_patch(_pod("other.io/gate"))
