"""One active binder for each access site: whoever holds the site's Lease. The others stand by."""

from __future__ import annotations

import logging

from tiphys_extender.streams.binder import StreamBinder
from tiphys_models.base.clock import Clock
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.leases import Lease, LeaseLost, LeaseOptions

_log = logging.getLogger(__name__)
_LATEST_S = 1e11
"""Later than any token will be."""
_DURATION_S, _RENEW_S, _RETRY_S = 4.0, 3.0, 1.0
"""Well below a stream's lease of 8 to 10 s: a successor must be there before the streams of a killed binder count nowhere."""


def lease_name(access_site: str) -> str:
    """Name of the coordination.k8s.io Lease, which is in the namespace of the access site."""
    return f"tiphys-streams-{access_site}"


async def hold_site(client: KubeClient, streams: StreamBinder, identity: str, clock: Clock, pod_uid: str = "") -> None:
    """Stand by, bind, stand by, until cancelled. Who has no StreamPolicy yet leaves the Lease to who has."""
    options = LeaseOptions(streams.namespace, lease_name(streams.access_site), identity, _DURATION_S, _RENEW_S, _RETRY_S, pod_uid)
    lease = Lease(client, options, clock, note=lambda: _note(streams.promise(), streams.now_s()))
    bound_before = False
    while True:
        await streams.ready.wait()
        await lease.acquire()
        try:
            # a Lease that nobody had before: no token can be out. Who takes up its own again makes no transition, but has forgotten
            recover = bound_before or lease.transitions > 0
            promised, told_s = _told(lease.former.note)
            streams.keep_time(told_s, lease.former_age_s)
            streams.activate(lambda: lease.held, recover=recover, promised=promised)
            bound_before = True
            await lease.hold()
        except LeaseLost as error:
            _log.warning("access site lost", extra={"fields": {"access_site": streams.access_site, "why": str(error)}})
        finally:
            streams.stand_by()
            await lease.release()


def _note(promise: float | None, now_s: float) -> str:
    """Note for the next holder: what was kept free, and how late it is by the clock of our tokens."""
    return f"{'' if promise is None else f'{promise:g}'}@{now_s:.3f}"


def _told(note: str) -> tuple[float | None, float | None]:
    """The promise and the time in it. Anybody may have written there: nonsense promises nothing and tells no time."""
    promise, _, time = note.partition("@")
    share, at_s = _number(promise), _number(time)
    return share if share is not None and 0 < share <= 1 else None, at_s if at_s is not None and 0 < at_s < _LATEST_S else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
