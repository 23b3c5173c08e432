"""Files that hold secrets: read whole, checked, never quoted."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from tiphys_models.base.errors import InvalidInput

Model = TypeVar("Model", bound=BaseModel)


def read_secret(path: Path, what: str) -> bytes:
    """Content of a secret file; InvalidInput names it by `what` and path."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read {what} {path}: {error.strerror}") from error


def parse_secret(model: type[Model], content: bytes, path: Path, what: str) -> Model:
    """What it says; InvalidInput tells where it is wrong, and nothing that stands there."""
    try:
        return model.model_validate(orjson.loads(content))
    except orjson.JSONDecodeError:
        raise InvalidInput(f"{what} {path} is not JSON") from None
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise InvalidInput(f"{what} {path}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
