"""What every custom resource of the group is made of: strictness like the API server's, and rules over more than one field."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from tiphys_models.base.errors import InvalidInput


def whole_number(value: Any) -> Any:
    """What the API server takes for an integer: 5 and 5.0, but neither "5" nor true (pydantic would take all four)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic reports ValueErrors
    return value


def any_number(value: Any) -> Any:
    """What the API server takes for a number: neither "0.9" nor true."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic reports ValueErrors
    return value


def without_nulls(data: Any) -> Any:
    """A null is a missing field: the API server prunes it before it fills in defaults."""
    return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


Integer = Annotated[int, BeforeValidator(whole_number)]
Number = Annotated[float, BeforeValidator(any_number)]
ObjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=253)]


class Api(BaseModel):
    """Base of everything in a custom resource."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _nulls_are_missing(cls, data: Any) -> Any:
        return without_nulls(data)


class CelRule:
    """A rule over more than one field: CEL for the API server, the same in Python for everybody else."""

    def __init__(self, cel: str, message: str, holds: Any) -> None:
        self.cel, self.message, self.holds = cel, message, holds


GROUP = "tiphys.io"


VERSION = "v1alpha1"


API_VERSION = f"{GROUP}/{VERSION}"


ModelName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)]


class Condition(Api):
    """A Kubernetes condition."""

    type: str = Field(max_length=63, description="What it speaks about.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(max_length=63, description="Fixed word, documented for every type.")
    message: str = Field(max_length=1024, description="The same for people, with what to do.")
    observed_generation: int = Field(default=0, ge=0, description="Generation of the spec it judges.")
    last_transition_time: str = Field(max_length=64, json_schema_extra={"format": "date-time"}, description="When status last changed.")


Spec = TypeVar("Spec", bound=Api)


def parse(model: type[Spec], obj: dict[str, Any], missing: str) -> Spec:
    """The spec of any object of the group; InvalidInput says which field is wrong, or `missing`."""
    if obj.get("spec") is None:
        raise InvalidInput(f"spec: {missing}")
    try:
        return model.model_validate(obj["spec"])
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(["spec", *map(str, problem["loc"])])
        raise InvalidInput(f"{where}: {problem['msg'].removeprefix('Value error, ')}") from error
