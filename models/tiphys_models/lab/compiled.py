"""Compilation of simulator code, with a cache on disk that knows when any of its sources has changed.

numba's own cache looks at the file of one function only; a change in a function that it calls would go unnoticed. So the
cache directory is named after the contents of every source that may be compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba

from tiphys_models.base import constants

F = TypeVar("F", bound=Callable[..., Any])

_ROOT = Path(__file__).resolve().parents[1]
_SOURCES = ("base", "artifacts", "placement", "selection", "scaling", "streams", "lab")


def inlined(function: F) -> F:
    """A compiled function inlined into its callers: passing many arrays costs more than what a small function does with them."""
    return _compile(function, forceinline=True)


def _compile(function: F, **options: bool) -> F:
    if not os.environ.get("NUMBA_CACHE_DIR"):
        numba.config.CACHE_DIR = str(_cache_directory())  # type: ignore[attr-defined, unused-ignore]
    njit: Any = numba.njit  # its own types cannot say that a compiled function keeps its signature
    return cast("F", njit(cache=True, error_model="numpy", **options)(function))


@lru_cache(maxsize=1)
def _cache_directory() -> Path:
    digest = sha256(numba.__version__.encode())
    for package in _SOURCES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(constants.FILE.read_bytes())  # compiled code holds their values
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tiphys" / "compiled" / digest.hexdigest()[:16]


def compiled(function: F, **uses: Callable[..., Any]) -> F:
    """The same function as machine code; floating-point errors as in numpy, no Python object inside.

    `uses` names compiled versions of functions that it calls: a module that must not import numba cannot compile them itself.
    """
    if uses:
        bound = FunctionType(function.__code__, {**function.__globals__, **uses}, function.__name__)
        bound.__doc__, bound.__module__, bound.__qualname__ = function.__doc__, function.__module__, function.__qualname__
        return compiled(cast("F", bound))
    return _compile(function)
