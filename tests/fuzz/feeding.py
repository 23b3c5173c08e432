"""Feeds objects of the grammar to whoever must survive them, and says from which seed each was made.

`TIPHYS_FUZZ_OBJECTS` is how many objects all cases make together; `TIPHYS_FUZZ_SEED` is where they begin.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from tests.fuzz.grammar import GRAMMAR

SEED = int(os.environ.get("TIPHYS_FUZZ_SEED", "1"))
_CASES = 22
EACH = max(10, -(-int(os.environ.get("TIPHYS_FUZZ_OBJECTS", "60000")) // _CASES))
BATCH = 25
"""After so many hostile objects the healthy one comes; after every one of them where that is cheap."""


def objects(kind: str, count: int = EACH) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what to say when it fails, object)."""
    for number in range(count):
        seed = f"{SEED}/{kind}/{number}"
        yield f'GRAMMAR["{kind}"](Random("{seed}"))', GRAMMAR[kind](Random(seed))


def case(kind: str) -> Any:
    """The seed stands in the test's name."""
    return pytest.param(kind, id=f"{kind}-seed{SEED}")


def survives(what: str, step: Callable[[], object], *allowed: type[Exception]) -> bool:
    """Whether it went through; anything but what the step is allowed to raise fails with the object's seed."""
    try:
        step()
    except allowed:
        return False
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error
    return True
