"""Deciders of packages that are not installed: a registry finds them for as long as a test needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, EntryPoint
from pathlib import Path
from typing import Any

from tiphys_models.seats.registry import Registry, installed


class Package(Distribution):
    """A distribution that is nowhere on disk."""

    def __init__(self, name: str = "acme", version: str = "1.0", record: str = "a.py,sha256=1,1") -> None:
        self._files = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "RECORD": record}

    def read_text(self, filename: str) -> str | None:
        return self._files.get(filename)

    def locate_file(self, path: Any) -> Any:
        return Path(path)


def point(name: str, value: str, package: Package | None = None, group: str = "tiphys.things") -> EntryPoint:
    """An entry point of a package; `value` is `module:attribute`."""
    made = EntryPoint(name, value, group)
    vars(made).update(dist=package or Package())
    return made


@contextmanager
def brought(registry: Registry[Any], **factories: str) -> Iterator[None]:
    """Within it, package `acme` is installed and brings these; underscores in names stand for dashes."""
    points = [point(name.replace("_", "-"), value, group=registry.group) for name, value in factories.items()]
    registry.discover_with(lambda group: points if group == registry.group else [])
    try:
        yield
    finally:
        registry.discover_with(installed)
