"""Every field of a spec is read by somebody: one that nobody reads would be a promise that nobody keeps."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tests.layout.test_rooms import sources
from tiphys_models.api.resources import RESOURCES, Resource

RULES = ("base.py", "structural.py", "crd.py", "resources.py", "pod_selector.py", "selection.py")
"""Beside the module of a kind itself: what only declares fields, and holds rules over more than one of them, does not obey them."""


@lru_cache(maxsize=1)
def read_names() -> frozenset[str]:
    """Attributes that source reads anywhere but in the rules of a kind, and the fields that a printed column shows."""
    declaring = {resource.source for resource in RESOURCES} | set(RULES)
    shown = (part for resource in RESOURCES for column in resource.columns for part in column[2].split("."))
    read = (name for path in sources().values() for name in _reads(path, declares=path.parent.name == "api" and path.name in declaring))
    return frozenset(read) | frozenset(shown)


def _reads(path: Path, *, declares: bool) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if not declares or owner == "self":
                yield node.attr


def leaves(model: type[BaseModel], path: str = "spec") -> Iterator[tuple[str, str, FieldInfo]]:
    """Path, name in Python and definition of every field below a model."""
    for name, field in model.model_fields.items():
        here = f"{path}.{field.alias or name}"
        yield here, name, field
        for inner in _models(field.annotation):
            yield from leaves(inner, here)


def excused(field: FieldInfo) -> bool:
    """Whether nobody has to read it: it says that it is deprecated, or the API server takes one value only."""
    patterns = (getattr(constraint, "pattern", None) or "" for constraint in field.metadata)
    return "Deprecated:" in (field.description or "") or any(re.fullmatch(r"\^[\w/]+\$", pattern) for pattern in patterns)


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_every_field_of_a_spec_is_read_or_says_that_it_is_deprecated(resource: Resource) -> None:
    fields = list(leaves(resource.spec))
    assert fields
    unread = [path for path, name, field in fields if not excused(field) and not {name, path.rsplit(".", 1)[-1]} & read_names()]
    assert not unread, "obey it, show it, or write `Deprecated:` into its description"


def test_a_field_that_nobody_reads_is_noticed() -> None:
    assert "cost_that_nobody_reads" not in read_names()
    assert {"cost", "hardware", "canary", "percent"} <= read_names()
