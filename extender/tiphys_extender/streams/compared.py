"""How streams end that rule and named policy have bound, side by side."""

from __future__ import annotations

from tiphys_extender.streams.chooser import Chooser
from tiphys_extender.streams.tokens import Grant
from tiphys_models.api.comparison import ComparisonStatus, comparison_status
from tiphys_models.seats.comparison import Comparison
from tiphys_models.seats.metrics import SeatMetrics
from tiphys_models.seats.seat import Answered, Group
from tiphys_models.streams.protocol import Binding

MEASURE = "share of a stream's queries that were served in time, 0 for one that found no capacity (more is better)"


class Compared:
    """The comparison under one version of a StreamPolicy."""

    def __init__(self, chooser: Chooser, metrics: SeatMetrics, since_s: float) -> None:
        self._chooser, self._metrics, self._comparison = chooser, metrics, Comparison(since_s)

    def answered(self, answered: Answered[Binding], at_s: float) -> None:
        """One more answer; deciders agree if they take the same offer, or both none."""
        same = None if answered.would is None else answered.answer.offer == answered.would.offer
        self._comparison.answered(answered, same=same)
        self._metrics.answered(answered.outcome, answered.group, answered.reason, same=same)
        if answered.outcome == "learned":
            self._metrics.weights(*self._chooser.model, at_s)

    def ended(self, grant: Grant) -> None:
        """A stream is over. One that was bound before this version of the policy says nothing of it; nor does one without counts."""
        if grant.issued_s >= self._comparison.since_s and grant.counts.total:
            self._end(self._chooser.group_of(grant.id), grant.counts.served / grant.counts.total)

    def refused(self, group: Group) -> None:
        """A stream found no capacity: none of its queries is served."""
        self._end(group, 0.0)

    def status(self) -> ComparisonStatus:
        """The comparison in the form that the operator reads."""
        return comparison_status(self._comparison, MEASURE)

    def _end(self, group: Group, served: float) -> None:
        self._comparison.ended(group, served)
        self._metrics.ended(group, served)
