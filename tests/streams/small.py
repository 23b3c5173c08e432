"""Offers and streams by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiphys_models.streams.offers import Delay, Offer, Offers, Site, Variant
from tiphys_models.streams.protocol import View
from tiphys_models.streams.stream import Stream

EDGE, CLOUD = Site("edge", "antenna"), Site("remote", "cloud")
TINY = Variant("tiny", "detect", "tiny", 29.1, 8.0, 100.0, 40.0)
YOLO = Variant("yolo", "detect", "yolo", 47.1, 30.0, 50.0, 40.0)
FACE = Variant("face", "recognise", "face", 60.0, 5.0, 100.0, 40.0)
OFFERS = Offers([Offer(TINY, EDGE), Offer(YOLO, EDGE), Offer(TINY, CLOUD, 4), Offer(YOLO, CLOUD, 4), Offer(FACE, CLOUD)])
NAMES = [o.name for o in OFFERS.all]
DELAYS = {"edge": Delay(1.0, 0.25), "remote": Delay(16.0, 2.0)}


def stream(**changed: Any) -> Stream:
    """Ten queries a second that may take 200 ms."""
    plain = {"max_delay_ms": 200.0, "min_accuracy": 20.0, "rate_qps": 10.0, "size_kb": 40.0, "bit_rate_mbps": 100.0, "access_delay_ms": 1.0}
    return Stream(**{"task": "detect", **plain, **changed})


def view(load: dict[str, float] | None = None, *, down: tuple[str, ...] = (), ceiling: float = 1.0) -> View:
    """Idle but for these loads."""
    known = load or {}
    up = np.array([n not in down for n in NAMES])
    return View(OFFERS.network_ms(DELAYS), np.array([known.get(n, 0.0) for n in NAMES]), up, ceiling=ceiling)
