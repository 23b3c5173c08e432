"""What nodes cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.operator.selection.small import node
from tiphys_models.base.errors import InvalidInput
from tiphys_models.selection.cloud.hosts import B2S, B8MS
from tiphys_operator.selection.prices import PriceTable, read_prices


def test_a_type_has_its_price_and_its_cores_as_capacity_for_requests() -> None:
    kinds = PriceTable().host_types([node("a", "B8ms"), node("b", "B2s")])
    assert list(kinds) == ["B2s", "B8ms"]
    assert (kinds["B8ms"].usd_per_hour, kinds["B8ms"].disk_mib) == (B8MS.usd_per_hour, 8000)


def test_cordoned_nodes_are_paid_but_do_not_say_how_large_their_type_is() -> None:
    small = replace(node("small", "m7", usable=False), cores=1.0)
    table = PriceTable()
    assert table.host_types([small])["m7"].cores == 1.0
    assert table.host_types([small, node("large", "m7")])["m7"].cores == 4.0
    assert table.host_types([node("large", "m7"), replace(small, usable=True)])["m7"].cores == 1.0


def test_an_unknown_type_costs_what_its_cores_would_at_the_dearest() -> None:
    table = PriceTable()
    assert not table.knows("m7")
    kind = table.host_types([node("a", "m7")])["m7"]
    assert kind.usd_per_hour == pytest.approx(4 * max(B2S.usd_per_hour / 2, 0.166 / 4, B8MS.usd_per_hour / 8))
    assert len(kind.power_w) == 11


def test_a_price_file_adds_and_overrides(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("B2s: {usdPerHour: 0.5}\nm7: {usdPerHour: 0.25, powerWatts: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}\n")
    table = read_prices(path)
    kinds = table.host_types([node("a", "m7"), node("b", "B2s")])
    assert (kinds["m7"].usd_per_hour, kinds["m7"].power_w[10], kinds["B2s"].usd_per_hour) == (0.25, 11.0, 0.5)
    path.write_text("")
    assert read_prices(path).knows("B8ms")


@pytest.mark.parametrize(
    "text",
    [
        "m7: 3",
        "m7: {usdPerHour: -1}",
        "m7: {usdPerHour: 1, powerWatts: [1, 2]}",
        "m7: {usdPerHour: .inf}",
        "m7: {usdPerHour: .nan}",
        "m7: {usdPerHour: 1, powerWatts: [.nan, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}",
        "[a]",
        "a: {",
    ],
)
def test_a_price_file_that_is_wrong_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"prices\.yaml"):
        read_prices(path)
