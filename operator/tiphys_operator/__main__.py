"""`python -m tiphys_operator`: runs until it is told to stop; the exit code says why it ended otherwise."""

from __future__ import annotations

import asyncio
import logging
import sys

import prometheus_client

from tiphys_models.clients.access import find_access
from tiphys_models.domain.clock import SystemClock
from tiphys_models.domain.errors import InvalidInput
from tiphys_operator import logs
from tiphys_operator.app import Operator
from tiphys_operator.settings import read_settings

EXIT_USAGE = 64


def main() -> int:
    """Settings, logs, access, and the event loop."""
    logs.set_up("info")
    try:
        settings = read_settings()
        access = find_access()
    except InvalidInput as error:
        logging.getLogger("tiphys_operator").error("cannot start: %s", error)  # noqa: TRY400 - the message is all a user needs
        return EXIT_USAGE
    logs.set_up(settings.log_level)
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, which nobody reads
    return asyncio.run(Operator(settings, access, SystemClock()).run())


if __name__ == "__main__":
    sys.exit(main())
