"""A choice made of predicted costs: only a clear advantage makes a selector leave its fallback."""

from __future__ import annotations

from collections.abc import Mapping

from tiphys_models.selection.selectors.protocol import Choice


def choose_with_margin(predicted: Mapping[str, float], fallback: str, margin: Mapping[str, float]) -> Choice:
    """The lowest prediction among those that beat the fallback's by more than their `margin` (in J); else the fallback.

    Equals: the first in order. Without a prediction for the fallback the lowest is taken.
    """
    best = min(predicted, key=predicted.__getitem__)
    if fallback not in predicted:
        return Choice(best, "BestPredicted", predicted)
    clear = [name for name in predicted if predicted[fallback] - predicted[name] > margin.get(name, 0.0)]
    if clear:
        return Choice(min(clear, key=predicted.__getitem__), "BestPredicted", predicted)
    return Choice(fallback, "WithinMargin" if best != fallback else "BestPredicted", predicted)
