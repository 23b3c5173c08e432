"""Constants that were calibrated: each has its provenance, and the value in use is the value in the file, to the last digit."""

from __future__ import annotations

import re
from dataclasses import asdict, astuple, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tiphys_models
from tiphys_models.base.constants import constants

SOURCES = Path(tiphys_models.__file__).parent
PUBLISHED = {
    "scaling.rule": {"headroom": 1.08, "last": 1, "rise": 0.75, "spread": 0.0, "keep": 4, "pod_m": 600.0, "spare_m": 5.0},
    "scaling.rule-horizontal": {"headroom": 1.0, "last": 1, "rise": 1.0, "spread": 0.0, "keep": 2, "pod_m": 400.0},
    "selection.missed-usd": 2e-4,
    "selection.ucb-c": 0.2,
    "streams.variability": 0.175,
}
"""What the published tables were played with: other values need other tables."""


def plain(value: Any, like: Any) -> Any:
    """A value in use as the file would write it."""
    if is_dataclass(value) and not isinstance(value, type):
        found = asdict(value)
        return {key: found[key] for key in like} if isinstance(like, dict) else list(astuple(value))
    return {key: plain(each, like[key]) for key, each in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("name", constants())
def test_a_constant_is_used_with_the_value_and_the_type_that_its_run_found(name: str) -> None:
    kept = constants()[name]
    module, _, attribute = kept.used_by.partition(":")
    used = plain(getattr(import_module(module), attribute), kept.value)
    assert repr(used) == repr(kept.value)
    if name in PUBLISHED:
        assert repr(kept.value) == repr(PUBLISHED[name])


@pytest.mark.parametrize("name", constants())
def test_a_constant_names_the_run_that_found_it(name: str) -> None:
    kept = constants()[name]
    assert kept.command.startswith(("tiphys bench ", "tiphys train "))
    assert re.fullmatch(r"[0-9a-f]{7,40}", kept.commit)
    assert kept.seeds
    assert kept.split in ("train", "validation", "calibration"), "what is judged on a split is never chosen on it"


def test_every_constant_that_code_asks_for_is_in_the_file_and_the_other_way_round() -> None:
    asked = {
        name
        for path in SOURCES.rglob("*.py")
        if path.name != "constants.py"
        for name in re.findall(r"\b(?:constant|number)\(\"([^\"]+)\"\)", path.read_text())
    }
    assert asked == set(constants())


def test_compiled_code_keeps_a_constant_to_the_last_bit() -> None:
    numba = pytest.importorskip("numba")
    from tiphys_models.streams import kernels

    assert numba.njit(lambda: kernels.VARIABILITY)() == 0.175
