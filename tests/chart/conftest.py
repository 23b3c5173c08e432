"""Helm and promtool, built before the first test: a cold build takes minutes and must not count as a test's time."""

from pathlib import Path
from typing import Any

import pytest

from tiphys_testbed.tools.programs import ToolError
from tiphys_testbed.tools.toolbox import Toolbox

PROGRAMS = ("helm", "promtool")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what is missing; without network and Go the tests skip and say so."""
    mine = [item for item in session.items if Path(__file__).parent in item.path.parents]
    if session.config.option.collectonly or not mine:
        return
    capture: Any = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            Toolbox().ensure(PROGRAMS)
        except (ToolError, TimeoutError) as error:
            for item in mine:
                item.add_marker(pytest.mark.skip(reason=f"cannot build {' and '.join(PROGRAMS)}: {error}"))
