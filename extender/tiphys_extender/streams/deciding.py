"""One answer of an access site's seat, within what the tenant may have, recorded and compared."""

from __future__ import annotations

from tiphys_extender.serve.tenants import Tenant
from tiphys_extender.streams.chooser import Chooser, Obeyed
from tiphys_extender.streams.compared import Compared
from tiphys_extender.streams.decisions import Decided, StreamRecord, recorded_stream
from tiphys_extender.streams.system import System
from tiphys_models.api.stream_policy import KIND
from tiphys_models.seats.metrics import SeatMetrics
from tiphys_models.seats.record import RecordLog
from tiphys_models.streams.protocol import Binding, BindReason, View, candidates_of, question_of
from tiphys_models.streams.stream import Stream

KEPT_DECISIONS = 2_000
"""Each holds the loads it was made with: 4 kB for 500 offers."""


class StreamSeat:
    """Asks the chooser's seat, and keeps its answers."""

    def __init__(self, chooser: Chooser, system: System, metrics: SeatMetrics, now_s: float) -> None:
        self._chooser, self._system, self._metrics = chooser, system, metrics
        self.records: RecordLog[StreamRecord] = RecordLog(KEPT_DECISIONS)
        self.compared = Compared(chooser, metrics, now_s)

    def obey(self, obeyed: Obeyed, now_s: float) -> None:
        """Another spec: what was compared under the former one says nothing of it."""
        self._chooser.obey(obeyed.spec, now_s)
        self.compare_anew(now_s)

    def compare_anew(self, now_s: float) -> None:
        """Forget what was compared: under another spec, or by a clock that has been set."""
        self.compared = Compared(self._chooser, self._metrics, now_s)

    def answer(
        self, tenant: Tenant, uid: str, stream: Stream, view: View, policy: tuple[str, Obeyed], now_s: float
    ) -> tuple[StreamRecord, bool]:
        """The record of the answer, and whether the tenant's share was in the way of the first one. `policy`: its namespace, and itself."""
        chooser, offers, (namespace, obeyed) = self._chooser, self._system.catalogue.offers, policy
        obeys = chooser.obeys(uid)
        answered = chooser.seat.answer(question_of(offers, stream, view), obeys=obeys)
        over_share = self._over_share(tenant, answered.answer)
        if over_share:  # once more, without what would be too much
            view = self._within_share(tenant, stream, view)
            answered = chooser.seat.answer(question_of(offers, stream, view), obeys=obeys)
        decided = Decided(tenant.name, chooser.by(answered.outcome), offers, stream, view, answered.answer, now_s)
        record = recorded_stream(answered, decided, (KIND, namespace, obeyed.name), uid, obeyed.spec.mode)
        self.records.append(record)
        self.compared.answered(answered, now_s)
        return record, over_share

    def _over_share(self, tenant: Tenant, binding: Binding) -> bool:
        share = tenant.caps.share
        if share is None or binding.reason is not BindReason.BOUND:
            return False
        return not self._system.allows(tenant.name, share, self._system.catalogue.offers.all[binding.offer], binding.added_qps)

    def _within_share(self, tenant: Tenant, stream: Stream, view: View) -> View:
        added_qps = candidates_of(self._system.catalogue.offers, stream, view).added_qps
        return self._system.within_share(view, tenant.name, tenant.caps.share or 1.0, added_qps)
