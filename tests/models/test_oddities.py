"""What is odd about objects that are taken all the same."""

from __future__ import annotations

from typing import Any

import pytest

from tiphys_models.base.oddities import OddityBook, name_of, oddities


def pod(requests: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": requests or {"cpu": "100m", "memory": "64Mi"}}}
    return {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", **metadata},
        "spec": {"containers": [container]},
        "status": {"conditions": [{"type": "Ready", "lastTransitionTime": "2026-11-19T10:00:00Z"}]},
    }


def ours(kind: str = "ScalingPolicy", **parts: Any) -> dict[str, Any]:
    return {"apiVersion": "tiphys.io/v1alpha1", "kind": kind, "metadata": {"name": "p", "namespace": "n", "uid": "u"}, **parts}


def test_ordinary_objects_are_not_odd() -> None:
    managed = [{"manager": "kubectl", "operation": "Update"}]
    assert oddities(pod(managedFields=managed, ownerReferences=[{"kind": "ReplicaSet", "name": "r", "controller": True}])) == ()
    assert oddities(ours(status={"lastDecision": {"at": "2026-11-19T10:00:00Z", "number": 7}})) == ()
    assert oddities({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}}}) == ()


@pytest.mark.parametrize(
    ("obj", "word"),
    [
        (pod({"cpu": "1e400"}), "absurd-quantity"),
        (pod({"cpu": "-1"}), "absurd-quantity"),
        (pod({"memory": "9Ei"}), "absurd-quantity"),
        (pod({"cpu": "many"}), "absurd-quantity"),
        (pod(annotations={"a": "x" * 250_000}), "huge-annotations"),
        (pod(annotations={"tiphys.io/price-usd-per-hour": "1e400"}), "absurd-price"),
        (pod(annotations={"tiphys.io/price-usd-per-hour": "NaN"}), "absurd-price"),
        (pod(ownerReferences=[{"kind": "ReplicaSet", "controller": True}] * 2), "many-owners"),
        (pod(managedFields=[{"operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]), "no-manager"),
        ({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1e400"}}}, "absurd-quantity"),
        ({"metadata": {"name": "n"}, "status": {"images": [{"names": ["a"] * 600}] * 2}}, "many-images"),
        ({"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1e400"}}}, "absurd-quantity"),
        ({"metadata": {"name": "l"}, "spec": {"limits": [{"max": {"cpu": "1e400"}}]}}, "absurd-quantity"),
        (ours(status={"lastDecision": {"at": "0001-01-01T00:00:00Z"}}), "absurd-time"),
        (ours(status={"memory": {"blocked": [{"until": 1.7e308}]}}), "absurd-number"),
        (ours(status={"conditions": [{"lastTransitionTime": "9999-12-31T23:59:59Z"}]}), "absurd-time"),
        ({"metadata": {"name": "x"}, "spec": {"containers": 7}}, "strange-shape"),
        ({"metadata": 7}, "strange-shape"),
    ],
)
def test_each_oddity_has_its_word(obj: dict[str, Any], word: str) -> None:
    assert word in oddities(obj)


def test_an_odd_object_is_told_once_and_again_when_it_is_odd_in_another_way() -> None:
    book = OddityBook()
    assert book.news(pod({"cpu": "1e400"})) == ("absurd-quantity",)
    assert book.news(pod({"cpu": "1e400"})) == ()
    assert book.news(pod()) == ()
    assert book.news(pod({"cpu": "1e400"}, annotations={"a": "x" * 100_000})) == ("huge-annotations", "absurd-quantity")


def test_the_book_of_odd_objects_is_bounded() -> None:
    book = OddityBook(most=10)
    for number in range(1000):
        assert book.news(pod({"cpu": "1e400"}, uid=f"u{number}"))
    assert len(book) == 10


def test_an_object_is_named_with_its_namespace_where_it_has_one() -> None:
    assert (name_of(pod()), name_of({"metadata": {"name": "node"}}), name_of({})) == ("n/p", "node", "")
