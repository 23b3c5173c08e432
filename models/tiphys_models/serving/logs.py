"""Log lines as JSON objects: what came from outside is escaped and cut, so nobody can forge a line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

import orjson

_CLIP = 500


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, and the fields given as `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        """The log line of a record: a JSON object."""
        entry: dict[str, object] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _clipped(record.getMessage()),
        }
        for key, value in (getattr(record, "fields", None) or {}).items():
            entry[key] = _clipped(value) if isinstance(value, str) else value
        if record.exc_info:
            entry["trace"] = self.formatException(record.exc_info)[-4000:]
        return orjson.dumps(entry, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _clipped(text: str) -> str:
    # a lone surrogate is not UTF-8 and would make the line itself fail
    return text[:_CLIP].encode("utf-8", "replace").decode()


def set_up(level: str, quiet: Mapping[str, int] | None = None) -> None:
    """Everything to standard error; loggers named in `quiet` speak only from that level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name, at_least in (quiet or {}).items():
        logging.getLogger(name).setLevel(max(at_least, logging.getLevelName(level.upper())))
