"""The second opener at work: it watches held pods and lets go whom nobody else has let go in time.

It asks for no Lease, no policy and no switch. Whoever opens a gate that is open already has done nothing, so any number of replicas may
try; and a pod must not stay because the feature, or the product, was switched off after it was held.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random

from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import Unavailable
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.backoff import retry_after_s
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.held_pods import MAY_WAIT_UNBOUND, PODS, key_of, open_gate
from tiphys_models.placement.gate import OPENER_GRACE_S
from tiphys_operator.gates.ledger import Held, HeldPods
from tiphys_operator.gates.metrics import GateMetrics
from tiphys_operator.metrics import ErrorReason, OperatorMetrics
from tiphys_operator.runtime.permissions import OPEN_GATES, PermissionCheck
from tiphys_operator.runtime.watches import Watch, Watches

log = logging.getLogger(__name__)

LOOP = "gates"
LATE_S = 10.0
"""Without a round in which it could open, for so long, the operator is not ready, and nobody more is held."""
_ROUND_S = 0.5
_TROUBLE_S = 60.0
"""So long after a try that failed, with none since that went well, more pods behind gates are the last thing that is wanted."""
_AT_ONCE = 16
_AGAIN_S, _AGAIN_MAX_S = 0.5, 10.0
_FORBIDDEN = 403


class SecondOpener:
    """That of one process."""

    def __init__(
        self,
        client: KubeClient,
        metrics: OperatorMetrics,
        clock: Clock,
        beats: Heartbeats,
        longest_wait_s: float,
        permissions: PermissionCheck,
    ) -> None:
        self._client, self._metrics, self._clock, self._beats, self._permissions = client, metrics, clock, beats, permissions
        self._told = metrics.part(GateMetrics)
        self._told.bound.set(longest_wait_s)
        self._held = HeldPods(clock, longest_wait_s + OPENER_GRACE_S)
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._failed_s = -math.inf
        """When a try failed last, unless one has gone well since."""
        self._freed = asyncio.Event()
        """Patches have ended: the next round need not wait."""
        self._rng = random.Random()  # noqa: S311 - not to be in step with others

    async def keep_running(self) -> None:
        """The opener works until cancelled; what ended it is said, it misses its beats, and it begins anew."""
        while True:
            with self._metrics.objects.over("Loop", LOOP, ""):
                await self.run()
            await asyncio.sleep(_ROUND_S)

    async def run(self) -> None:
        """The opener's rounds, until cancelled or until its watch is broken."""
        self._beats.expect(LOOP, LATE_S)
        watches = Watches(LOOP, self._client, self._clock, self._metrics, self._beats, self._unseen, lambda: None)
        watch = watches.start("Pod", PODS, self._held, MAY_WAIT_UNBOUND)
        try:
            while True:
                watches.check()
                self._round()
                if self._could_open(watch):
                    self._beats.beat(LOOP)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ROUND_S):
                        await self._freed.wait()
                self._freed.clear()
        finally:
            await watches.close()
            opening = list(self._opening.values())
            for task in opening:
                task.cancel()
            await asyncio.gather(*opening, return_exceptions=True)

    def _could_open(self, watch: Watch) -> bool:
        """Whether a pod that is held now would be seen and let go, as far as anybody can know.

        A right alone does not tell: where somebody's webhook changes pods at every update, the fence refuses what was ours to do.
        """
        now_s = self._clock.monotonic_s()
        return watch.tells(now_s) and self._permissions.allows(OPEN_GATES) and now_s - self._failed_s > _TROUBLE_S

    def _round(self) -> None:
        """Begin to let go whom it is time for, as many at once as an API server in trouble can bear."""
        for held in self._held.due(self._opening)[: max(0, _AT_ONCE - len(self._opening))]:
            self._opening[held.uid] = asyncio.create_task(self._let_go(held), name=f"open-{held.uid}")
        self._told.held.set(len(self._held))
        self._told.oldest.set(self._held.oldest_s())

    async def _let_go(self, held: Held) -> None:
        name = key_of(held.pod)
        opened = False
        try:
            with self._metrics.objects.over("Pod", name, held.uid) as trip:
                opened = await open_gate(self._client, held.pod)
        except Unavailable as error:
            self._not_opened(held, error)
        else:
            if trip.error is not None:  # by the pod's own doing; the guard has said what it tripped over
                self._not_opened(held, None)
                return
            self._held.opened(held.uid)
            self._failed_s = -math.inf
            if opened:
                self._told.opened.inc()
                self._metrics.writes.labels("gate").inc()
                fields = {"pod": name, "held": round(self._clock.monotonic_s() - held.seen_s, 1)}
                log.info("a pod was held longer than anybody may wait, and is let go", extra={"fields": fields})
        finally:
            self._opening.pop(held.uid, None)
            if len(self._opening) <= _AT_ONCE // 2:  # a round looks at everybody who is held: not for each patch that ends
                self._freed.set()

    def _not_opened(self, held: Held, error: Unavailable | None) -> None:
        """Twice the pause with every failure of this pod, and never less than the API server asks for."""
        pause_s = min(_AGAIN_S * 2.0 ** min(held.failures, 8), _AGAIN_MAX_S) * self._rng.uniform(0.75, 1.0)
        self._held.failed(held.uid, max(pause_s, retry_after_s(error) or 0.0))
        self._failed_s = self._clock.monotonic_s()
        self._told.failed.inc()
        if error is not None:
            denied = isinstance(error, ApiError) and error.status == _FORBIDDEN
            self._metrics.error(ErrorReason.FORBIDDEN if denied else ErrorReason.API)
        if held.failures == 0:  # once a pod: the metric counts the others
            log.warning("a pod could not be let go", extra={"fields": {"pod": key_of(held.pod), "error": str(error)}})

    def _unseen(self, path: str, error: Unavailable) -> None:
        self._metrics.error(ErrorReason.API)
        log.warning("held pods cannot be watched", extra={"fields": {"path": path, "error": str(error)}})
