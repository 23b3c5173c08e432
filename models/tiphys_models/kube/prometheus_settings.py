"""What the environment says of a Prometheus, for the operator and the extender alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import orjson
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TEXT = re.compile(r"[^\x00-\x1f\x7f]*")


def _json(value: object) -> object:
    # here and not by the settings themselves: their error names no variable
    try:
        return orjson.loads(value or "{}") if isinstance(value, str) else value
    except orjson.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error}") from error


def _labels(found: Mapping[str, str]) -> Mapping[str, str]:
    if bad := [name for name in found if not _LABEL.fullmatch(name) or name == "__name__"]:
        raise ValueError(f"{bad[0]!r} is no name of a label")
    return found


def _headers(found: Mapping[str, str]) -> Mapping[str, str]:
    if bad := [name for name, value in found.items() if not _HEADER.fullmatch(name) or not _TEXT.fullmatch(value)]:
        raise ValueError(f"{bad[0]!r} is no header")
    return found


def _of_namespace(template: str) -> str:
    if re.search(r"[{}]", template.replace("{namespace}", "")) or not _TEXT.fullmatch(template):
        raise ValueError("only {namespace} may stand in braces")
    return template


Labels = Annotated[Mapping[str, str], NoDecode, BeforeValidator(_json), AfterValidator(_labels)]
Headers = Annotated[Mapping[str, str], NoDecode, BeforeValidator(_json), AfterValidator(_headers)]
OfNamespace = Annotated[str, AfterValidator(_of_namespace)]
HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]*$")]
