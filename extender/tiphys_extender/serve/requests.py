"""Bodies of requests: how any of them is read, and how one that means nothing is refused."""

from __future__ import annotations

from typing import TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from tiphys_extender.serve.refused import Refused


class Request(BaseModel):
    """A body; a field that means nothing is refused."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


_Model = TypeVar("_Model", bound=Request)


def parse(model: type[_Model], body: bytes) -> _Model:
    """The parsed body; Refused says which field is wrong, and never quotes what was sent."""
    try:
        content = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError:
        raise Refused("not-json", "the body is not JSON") from None
    if not isinstance(content, dict):
        raise Refused("not-an-object", "the body is not a JSON object")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        raise Refused("invalid", f"{where}: {message}" if where else message) from None
