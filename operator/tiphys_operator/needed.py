"""`python -m tiphys_operator.needed`: the chart's hook before an upgrade. It tells in its log, and never fails an upgrade."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence

from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.kube.access import ApiAccess, find_access
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.unshipped import Needs, needed
from tiphys_models.serving.logs import set_up

log = logging.getLogger("tiphys_operator.needed")

_DEADLINE_S = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """0, whatever was found and whether or not the API server answers."""
    parser = argparse.ArgumentParser(description="List the policies whose weights no image carries and nobody has published.")
    parser.add_argument("--namespace", required=True, help="of the release: models are read there only")
    options = parser.parse_args(arguments)
    set_up("info")
    try:
        _tell(asyncio.run(_needed(find_access(), options.namespace)))
    except (InvalidInput, Unavailable, TimeoutError) as error:
        log.warning("could not look: %s", str(error) or f"no answer within {_DEADLINE_S:.0f} s")
    return 0


async def _needed(access: ApiAccess, namespace: str) -> Needs:
    async with asyncio.timeout(_DEADLINE_S), KubeClient(access, user_agent="tiphys-needed") as client:
        return await needed(client, namespace)


def _tell(found: Needs) -> None:
    for need in found.needs:
        log.warning("%s", need)
    for problem in found.problems:
        log.warning("%s", problem)
    if not found.needs and not found.problems:
        log.info("every policy has its weights")


if __name__ == "__main__":
    sys.exit(main())
