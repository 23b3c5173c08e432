"""`python -m tiphys_operator.unroute`: the chart's pre-delete hook. It never fails an uninstall; what is left to do is in its log."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.kube.access import ApiAccess, find_access
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.unroute import ROUTING_NAME, WAITING_NAME, UnrouteReport, unroute
from tiphys_models.serving.logs import set_up

log = logging.getLogger("tiphys_operator.unroute")

_DEADLINE_S = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if both policies are gone and nobody is held, whoever still names the scheduler; 1 if that is not certain."""
    parser = argparse.ArgumentParser(
        description="Remove the policies that route pods to Tiphys and hold them, let go who is held, list who still names its scheduler."
    )
    parser.add_argument("--routing-name", default=ROUTING_NAME, help="name of the MutatingAdmissionPolicy and of its binding")
    parser.add_argument("--waiting-name", default=WAITING_NAME, help="the same of the one that holds pods which may wait")
    parser.add_argument("--scheduler-name", default="tiphys", help="schedulerName that is about to go")
    options = parser.parse_args(arguments)
    set_up("info")
    try:
        report = asyncio.run(_unroute(find_access(), options))
    except (InvalidInput, Unavailable, TimeoutError) as error:
        log.error("could not unroute: %s", error or f"no answer within {_DEADLINE_S:.0f} s")  # noqa: TRY400
        return 1
    _tell(report)
    return 1 if any("could not be removed" in problem or "held" in problem for problem in report.problems) else 0


async def _unroute(access: ApiAccess, options: argparse.Namespace) -> UnrouteReport:
    async with asyncio.timeout(_DEADLINE_S), KubeClient(access, user_agent="tiphys-unroute") as client:
        return await unroute(client, options.routing_name, options.scheduler_name, options.waiting_name)


def _tell(report: UnrouteReport) -> None:
    for removed in report.removed:
        log.info("removed %s", removed)
    for pod in report.opened:
        log.info("let go %s, which was held", pod)
    for workload in report.workloads:
        log.warning("%s still names the scheduler: remove schedulerName from its template", workload)
    for stranded in report.pending_pods:
        log.warning("%s waits for the scheduler for ever: delete it, its owner makes a new one", stranded)
    for problem in report.problems:
        log.warning("%s", problem)
    if report.clean:
        log.info("nobody names the scheduler any more")


if __name__ == "__main__":
    sys.exit(main())
