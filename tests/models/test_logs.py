from __future__ import annotations

import json
import logging

import pytest

from tiphys_models.serving.logs import JsonFormatter


@pytest.mark.parametrize("hostile", ['a\n{"level": "forged"}', "\x1b[31mred", "\ud800", "x" * 300_000, "\u2028"])
def test_what_comes_from_outside_is_escaped_and_cut_to_one_line(hostile: str) -> None:
    record = logging.LogRecord("tiphys", logging.WARNING, "", 0, "policy %s", (hostile,), None)
    record.fields = {"policy": hostile, "count": 3}
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < 8_000
    assert json.loads(line)["count"] == 3
