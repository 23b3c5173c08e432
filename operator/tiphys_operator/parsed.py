"""Custom resources as the API server sends them: what can be used of spec and status, whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from tiphys_models.domain.errors import InvalidInput
from tiphys_operator.guard import attempted

Spec = TypeVar("Spec")
Status = TypeVar("Status", bound=BaseModel)


def spec_or_problem(obj: Mapping[str, Any], parse: Callable[[dict[str, Any]], Spec]) -> tuple[Spec | None, str]:
    """The spec, or why it cannot be used: a CRD of another version may have let it through."""
    spec, trip = attempted(lambda: parse(dict(obj)))
    if trip.error is None:
        return spec, ""
    return None, str(trip.error) if isinstance(trip.error, InvalidInput) else trip.message


def status_or_empty(obj: Mapping[str, Any], model: type[Status]) -> Status:
    """The status; an empty one where it cannot be read, so that it is written anew."""
    status, _ = attempted(lambda: model.model_validate(obj.get("status") or {}))
    return status if status is not None else model()


def generation_of(metadata: Mapping[str, Any]) -> int:
    """The object's generation; 0 where it has none that can be one."""
    value = metadata.get("generation")
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0
