"""Objects of binding as the watches show them."""

from __future__ import annotations

from tests.operator.streams.small import policy
from tiphys_operator.streams.cluster import BindingCluster


def test_a_policy_that_has_gone_governs_no_more_although_a_write_of_its_status_is_answered_late() -> None:
    cluster = BindingCluster(lambda: None)
    gone, successor = policy("old"), policy("new")
    gone["metadata"] |= {"uid": "first", "resourceVersion": "5", "creationTimestamp": "2020-01-01T00:00:00Z"}
    successor["metadata"] |= {"uid": "second", "resourceVersion": "7", "creationTimestamp": "2025-01-01T00:00:00Z"}
    cluster.policies.put(gone)
    cluster.policies.put(successor)
    cluster.policies.written(gone | {"metadata": {**gone["metadata"], "resourceVersion": "6"}})
    assert [found.name for found in cluster.governors().values()] == ["old"]
    cluster.policies.drop(gone)
    cluster.policies.written(gone | {"metadata": {**gone["metadata"], "resourceVersion": "6"}})
    assert [found.name for found in cluster.governors().values()] == ["new"]
