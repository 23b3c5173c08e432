"""One active binder for the calls of a pool: whoever holds the pool's Lease. The others stand by and say so.

Two that answered at once, as the old and the new pod of a node that is cut off, would each give the same room away.
"""

from __future__ import annotations

import logging

from tiphys_extender.calls.placer import Placer
from tiphys_models.base.clock import Clock
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.leases import Lease, LeaseLost, LeaseOptions

_log = logging.getLogger(__name__)
_DURATION_S, _RENEW_S, _RETRY_S = 4.0, 3.0, 1.0
"""Times of the pool's Lease, the same as of an access site's: callers are told to come back in a second."""


async def hold_calls(client: KubeClient, placer: Placer, namespace: str, name: str, identity: str, clock: Clock, pod_uid: str = "") -> None:
    """Stand by, place, stand by, until cancelled."""
    lease = Lease(client, LeaseOptions(namespace, name, identity, _DURATION_S, _RENEW_S, _RETRY_S, pod_uid), clock)
    while True:
        await lease.acquire()
        try:
            _log.info("placing calls", extra={"fields": {"lease": name}})
            placer.owned = lambda: lease.held
            await lease.hold()
        except LeaseLost as error:
            _log.warning("the calls of the pool are another's", extra={"fields": {"lease": name, "why": str(error)}})
        finally:
            placer.stand_by()
            await lease.release()
