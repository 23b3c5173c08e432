"""Custom resources as the API server sends them: what can be used of spec and status, whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tiphys_models.domain.errors import InvalidInput

Spec = TypeVar("Spec")
Status = TypeVar("Status", bound=BaseModel)


def spec_or_problem(obj: Mapping[str, Any], parse: Callable[[dict[str, Any]], Spec]) -> tuple[Spec | None, str]:
    """The spec, or why it cannot be used: a CRD of another version may have let it through."""
    try:
        return parse(dict(obj)), ""
    except InvalidInput as error:
        return None, str(error)


def status_or_empty(obj: Mapping[str, Any], model: type[Status]) -> Status:
    """The status; an empty one where it cannot be read, so that it is written anew."""
    try:
        return model.model_validate(obj.get("status") or {})
    except ValidationError:
        return model()
