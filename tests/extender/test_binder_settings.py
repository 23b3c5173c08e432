"""The pool's setting as a selector."""

import pytest

from tiphys_extender.binder_settings import BinderSettings


@pytest.mark.parametrize(
    ("pool", "inside", "outside"),
    [
        ("tiphys.io/door=calls", {"tiphys.io/door": "calls", "b": "c"}, {"tiphys.io/door": "pods"}),
        ("a,b=c", {"a": "whatever", "b": "c"}, {"b": "c"}),
        ("a=", {"a": ""}, {"a": "b"}),
    ],
)
def test_keys_and_values_select_nodes(pool: str, inside: dict[str, str], outside: dict[str, str]) -> None:
    selector = BinderSettings(pool=pool).pool_selector
    assert selector.matches(inside)
    assert not selector.matches(outside)


def test_an_empty_pool_is_every_node() -> None:
    assert BinderSettings(pool="").pool_selector.matches({})
