"""Objects of binding as the watches show them."""

from __future__ import annotations

from tests.operator.streams.small import policy
from tiphys_operator.streams.cluster import BindingCluster


def test_a_policy_that_has_gone_governs_no_more_although_a_write_of_its_status_is_answered_late() -> None:
    cluster = BindingCluster(lambda: None)
    gone, successor = policy("old"), policy("new")
    gone["metadata"] |= {"uid": "first", "resourceVersion": "5", "creationTimestamp": "2020-01-01T00:00:00Z"}
    successor["metadata"] |= {"uid": "second", "resourceVersion": "7", "creationTimestamp": "2025-01-01T00:00:00Z"}
    cluster.policy_store.put(gone)
    cluster.policy_store.put(successor)
    cluster.policy_store.written(gone | {"metadata": {**gone["metadata"], "resourceVersion": "6"}})
    assert [found.name for found in cluster.governors().values()] == ["old"]
    cluster.policy_store.drop(gone)
    cluster.policy_store.written(gone | {"metadata": {**gone["metadata"], "resourceVersion": "6"}})
    assert [found.name for found in cluster.governors().values()] == ["new"]


def test_what_is_listed_after_a_restore_is_taken_although_its_versions_are_lower() -> None:
    cluster = BindingCluster(lambda: None)
    now, restored = policy("streams", mode="Active"), policy("streams", mode="Off")
    now["metadata"] |= {"uid": "one", "resourceVersion": "500", "generation": 7}
    restored["metadata"] |= {"uid": "one", "resourceVersion": "300", "generation": 3}
    cluster.policy_store.put(now)
    cluster.policy_store.put(restored)
    assert [found.generation for found in cluster.policies()] == [7], "in a watch it is old news"
    cluster.policy_store.listing()
    cluster.policy_store.put(restored)
    cluster.policy_store.listed({"one"})
    assert [found.generation for found in cluster.policies()] == [3]


def test_our_own_statuses_come_back_and_wake_nobody() -> None:
    woken: list[int] = []
    cluster = BindingCluster(lambda: woken.append(1))
    obj = policy("streams")
    for version, generation in (("1", 1), ("2", 1), ("3", 2)):
        cluster.policy_store.put(
            obj | {"metadata": {**obj["metadata"], "uid": "one", "resourceVersion": version, "generation": generation}}
        )
    assert len(woken) == 2


def test_what_is_being_deleted_is_neither_served_nor_forgotten() -> None:
    cluster = BindingCluster(lambda: None)
    obj = policy("streams")
    obj["metadata"] |= {"uid": "one", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster.policy_store.put(obj)
    assert (cluster.policies(), cluster.governors(), cluster.uids()) == ((), {}, {"one"})
