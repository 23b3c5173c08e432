"""`python -m tiphys_operator`: runs until it is told to stop; the exit code says why it ended otherwise."""

from __future__ import annotations

import asyncio
import logging
import sys

import prometheus_client

from tiphys_models.base.clock import SystemClock
from tiphys_models.base.errors import InvalidInput
from tiphys_models.kube.access import find_access
from tiphys_models.serving.logs import set_up
from tiphys_operator.app import Operator
from tiphys_operator.settings import read_settings

_QUIET = {
    **dict.fromkeys(("kopf", "asyncio", "aiohttp.access"), logging.WARNING),
    # its only warning is that it leaves the signals to us, which is meant
    "kopf._core.reactor.running": logging.ERROR,
}

EXIT_USAGE = 64


def main() -> int:
    """Settings, logs, access, and the event loop."""
    set_up("info", _QUIET)
    try:
        settings = read_settings()
        access = find_access()
    except InvalidInput as error:
        logging.getLogger("tiphys_operator").error("cannot start: %s", error)  # noqa: TRY400 - the message is all a user needs
        return EXIT_USAGE
    set_up(settings.log_level, _QUIET)
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, which nobody reads
    try:
        operator = Operator(settings, access, SystemClock())
    except InvalidInput as error:
        logging.getLogger("tiphys_operator").error("cannot start: %s", error)  # noqa: TRY400 - the message is all a user needs
        return EXIT_USAGE
    return asyncio.run(operator.run())


if __name__ == "__main__":
    sys.exit(main())
