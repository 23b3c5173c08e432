"""Reading a request's body, as far as it may go."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from starlette.types import Message, Receive

from tiphys_extender.serve.wire import BadRequest
from tiphys_models.serving.bounds import LENGTH_DIGITS


async def read_body(scope: MutableMapping[str, Any], receive: Receive, max_bytes: int) -> bytes:
    """The whole body of a request; BadRequest if it is larger, encoded or never complete."""
    for name, value in scope["headers"]:
        if name == b"content-length" and (not value.isdigit() or len(value) > LENGTH_DIGITS or int(value) > max_bytes):
            raise BadRequest("body-too-large", 413)
        if name == b"content-encoding" and value.lower() != b"identity":
            raise BadRequest("content-encoding")
    message: Message = await receive()
    parts: list[bytes] = []
    size = 0
    while True:
        if message["type"] != "http.request":
            raise BadRequest("disconnected")
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise BadRequest("body-too-large", 413)
        if not message.get("more_body"):
            return b"".join((*parts, part)) if parts else part
        parts.append(part)
        message = await receive()
