"""One active binder for each access site: whoever holds the site's Lease. The others stand by."""

from __future__ import annotations

import logging

from tiphys_extender.streams.binder import StreamBinder
from tiphys_models.clients.kube import KubeClient
from tiphys_models.clients.leases import Lease, LeaseLost, LeaseOptions
from tiphys_models.domain.clock import Clock

_log = logging.getLogger(__name__)
_DURATION_S, _RENEW_S, _RETRY_S = 4.0, 3.0, 1.0
"""Well below a stream's lease of 8 to 10 s: a successor must be there before the streams of a killed binder count nowhere."""


def lease_name(access_site: str) -> str:
    """Of the coordination.k8s.io Lease, in the namespace of the access site."""
    return f"tiphys-streams-{access_site}"


async def hold_site(client: KubeClient, streams: StreamBinder, identity: str, clock: Clock, pod_uid: str = "") -> None:
    """Stand by, bind, stand by, until cancelled. Who has no StreamPolicy yet leaves the Lease to who has."""
    options = LeaseOptions(streams.namespace, lease_name(streams.access_site), identity, _DURATION_S, _RENEW_S, _RETRY_S, pod_uid)
    lease = Lease(client, options, clock, note=lambda: _note(streams.promise()))
    bound_before = False
    while True:
        await streams.ready.wait()
        await lease.acquire()
        try:
            # a Lease that nobody had before: no token can be out. Who takes up its own again makes no transition, but has forgotten
            recover = bound_before or lease.transitions > 0
            streams.activate(lambda: lease.held, recover=recover, promised=_promised(lease.former.note))
            bound_before = True
            await lease.hold()
        except LeaseLost as error:
            _log.warning("access site lost", extra={"fields": {"access_site": streams.access_site, "why": str(error)}})
        finally:
            streams.stand_by()
            await lease.release()


def _note(promise: float | None) -> str:
    return "" if promise is None else f"{promise:g}"


def _promised(note: str) -> float | None:
    """What anybody may have written there; nonsense promises nothing."""
    try:
        share = float(note)
    except ValueError:
        return None
    return share if 0 < share <= 1 else None
