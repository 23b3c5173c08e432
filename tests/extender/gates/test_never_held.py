"""Pods that are never held, or no longer: their gate is taken off at once, and the reason is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.builders import policy_object
from tests.extender.gates.house import House, at_work, gated, node_json
from tiphys_extender.gates import room
from tiphys_models.api.reasons import OpenReason
from tiphys_models.base.errors import TiphysError
from tiphys_models.placement.gate import GATE
from tiphys_models.placement.patient import Estimator
from tiphys_models.seats.shares import in_share

DAEMON = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}]}


def switched_off(house: House) -> None:
    house.world.enabled = False


def not_synced(house: House) -> None:
    house.world.synced = False


def in_doubt(house: House) -> None:
    house.doubt = "watches fail: pods"


def without_nodes(house: House) -> None:
    for index in range(4):
        house.nodes.drop(node_json(f"n{index}"))


@pytest.mark.parametrize(
    ("reason", "pod"),
    [
        (OpenReason.PRIORITY, {"spec": {"priorityClassName": "high"}}),
        (OpenReason.PRIORITY, {"spec": {"priority": 7}}),
        (OpenReason.DAEMON_SET, {"metadata": DAEMON}),
        (OpenReason.OTHER_SCHEDULER, {"spec": {"schedulerName": "default-scheduler"}}),
        (OpenReason.NOT_UNDERSTOOD, {"spec": {"resourceClaims": [{"name": "x"}]}}),
        (OpenReason.NOT_UNDERSTOOD, {"function": ""}),
        (OpenReason.NO_POLICY, {"namespace": "elsewhere"}),
        (OpenReason.FITS_NOWHERE, {"spec": {"nodeSelector": {"no-such": "label"}}}),
        (OpenReason.IN_DOUBT, {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "no quantity"}}}]}}),
    ],
)
async def test_what_a_pod_is_keeps_it_from_being_held(reason: OpenReason, pod: dict[str, Any]) -> None:
    async with at_work(House()) as house:
        house.comes("u", **pod)
        await house.until(lambda: house.opened(reason=str(reason)) == 1)
        assert house.server.gates("u") == []
        assert house.counted("held_pods_total") == house.state.reservations == 0


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        (OpenReason.DISABLED, switched_off),
        (OpenReason.NOT_SYNCED, not_synced),
        (OpenReason.IN_DOUBT, in_doubt),
        (OpenReason.FITS_NOWHERE, without_nodes),
    ],
)
@pytest.mark.parametrize("when", ["before", "while it waits"])
async def test_what_the_cluster_is_like_lets_every_pod_go(reason: OpenReason, change: Callable[[House], None], when: str) -> None:
    async with at_work(House()) as house:
        if when == "before":
            change(house)
        house.comes("u")
        if when != "before":
            await house.until(lambda: house.counted("held_pods_total") == 1)
            change(house)
            house.time.advance(0.3)
        await house.until(lambda: house.opened(reason=str(reason)) == 1)
        assert house.counted("held_ended_total", how="cold") == (when != "before")


@pytest.mark.parametrize(("mode", "spec"), [("Off", {}), ("Shadow", {}), ("Canary", {"canary": {"percent": 1}})])
async def test_a_policy_that_is_not_obeyed_holds_nobody(mode: str, spec: dict[str, Any]) -> None:
    async with at_work(House(mode=mode, **spec)) as house:
        house.comes(next(uid for uid in map(str, range(1000)) if not in_share(uid, 1)))
        await house.until(lambda: house.opened(reason="not-obeyed") == 1)


@pytest.mark.parametrize("policy", ["warm-first", "warm-first-books", "least-connections"])
async def test_a_policy_that_never_waits_holds_nobody(policy: str) -> None:
    async with at_work(House(policy)) as house:
        house.comes("u")
        await house.until(lambda: house.opened(reason="not-patient") == 1)


async def test_a_policy_that_fails_lets_the_pod_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Estimator, "not_yet", fails)
    async with at_work(House()) as house:
        house.comes("u")
        await house.until(lambda: house.opened(reason="in-doubt") == 1)


async def test_a_policy_that_is_changed_while_a_pod_waits_lets_it_go() -> None:
    async with at_work(House()) as house:
        house.comes("u")
        await house.until(lambda: house.counted("held_pods_total") == 1)
        changed = policy_object("p", mode="Active", policy="warm-first")
        changed["metadata"]["resourceVersion"] = "2"
        house.policies.put(changed)
        house.time.advance(0.3)
        await house.until(lambda: house.opened(reason="not-patient") == 1)


async def test_a_pod_with_other_gates_keeps_those_and_loses_ours() -> None:
    async with at_work(House()) as house:
        house.comes("u", spec={"schedulingGates": [{"name": "example.com/other"}, {"name": GATE}]})
        await house.until(lambda: house.opened(reason="not-understood") == 1)
        assert house.server.gates("u") == ["example.com/other"]


async def test_no_more_pods_are_held_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_OF_A_NAMESPACE", 2)
    async with at_work(House()) as house:
        for number, function in enumerate("fgfg"):
            house.pods.put({**bound_json(f"busy-{number}", function), "status": {"phase": "Running"}})
        house.time.advance(5.0)
        for number, function in enumerate("fgfg"):
            house.comes(f"u{number}", function)
        await house.until(lambda: house.opened(reason="too-many") == 2)
        assert house.counted("held_pods_total") == house.counted("gated_pods") == 2


def bound_json(uid: str, function: str) -> dict[str, Any]:
    pod = gated(uid, function, spec={"schedulingGates": [], "nodeName": "n1"})
    del pod["spec"]["schedulingGates"]
    return pod


async def test_a_pod_whose_label_is_taken_off_is_let_go() -> None:
    async with at_work(House()) as house:
        house.comes("u")
        await house.until(lambda: house.counted("held_pods_total") == 1)
        house.keeper.drop(gated("u"))  # the watch shows the last state that it selected
        await house.until(lambda: house.opened(reason="opted-out") == 1)
        assert house.server.gates("u") == []


async def test_a_pod_that_a_new_list_does_not_show_is_let_go_or_gone() -> None:
    async with at_work(House()) as house:
        house.comes("unlabelled")
        house.comes("deleted")
        await house.until(lambda: house.counted("gate_looks_total") >= 2)
        house.server.pods.pop(next(path for path in house.server.pods if path.endswith("deleted")))
        house.keeper.listed(set())
        await house.until(lambda: house.counted("gated_pods") == 0)
        assert house.server.gates("unlabelled") == []


def test_a_pod_of_which_nothing_can_be_read_is_none_of_ours_to_hold() -> None:
    house = House()
    hostile = gated("u") | {"spec": {"schedulingGates": [{"name": GATE}], "containers": 7}}
    house.keeper.put(hostile)
    assert len(house.keeper) == 1
    assert not issubclass(TypeError, TiphysError)
    assert house.keeper.story("u", "", "")["reason"] == "in-doubt"  # type: ignore[index]
