"""Topologies: the same number of GPUs in three hierarchies, with one access site (and one binder) an antenna in all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.streams.offers import Delay, Offer, Offers, Site, Variant
from tiphys_models.streams.sim.kernel import EdgeCloud

ANTENNAS, OFFICES = 8, 3
GPUS = 160
"""The one number that deals all eight GPU variants out equally often in every layer of every topology while the best static policy
succeeds with 75 to 85 % of queries at lambda 60 in full-edge."""
PROFILED_KB = 40.0
"""A frame of 416 x 416 as JPEG."""
TASK = "detect"
MAP = {"ssd": 23.3, "tiny": 29.1, "yolo": 47.1}
"""COCO mAP of SSD-MobileNet-v1, Tiny-YOLOv2 and YOLOv3 in OpenVINO's model zoo; the three are not exactly one metric."""
GPU_VARIANTS: tuple[tuple[str, float, float], ...] = (
    ("tiny-gpu", 8, 120), ("yolo-gpu", 30, 33), ("tiny-gpu-b4", 16, 240), ("ssd-gpu", 12, 80),
    ("tiny-gpu-b8", 26, 300), ("yolo-gpu-b4", 70, 57), ("ssd-gpu-b4", 26, 150), ("yolo-gpu-b8", 125, 64),
)  # fmt: skip
"""Name, delay in ms, queries a second. GPUs are dealt out to them in this order, from one site of a layer to the next."""
CPU_VARIANTS: tuple[tuple[str, float, float], ...] = (("ssd-cpu", 45, 22), ("tiny-cpu", 65, 15))
"""One of each for every antenna, at the lowest layer that computes."""
SHARES: dict[str, tuple[float, float, float, float]] = {
    "dc-cloud": (0.0, 0.0, 0.4, 0.6),
    "co-dc-cloud": (0.0, 0.3, 0.3, 0.4),
    "full-edge": (0.2, 0.3, 0.2, 0.3),
}
"""Shares of the GPUs at antennas, central offices, data centre and cloud."""
TOPOLOGIES = tuple(SHARES)
LAYERS = ("antenna", "co", "dc", "cloud")
DELAYS = {"own": Delay(1, 0.2), "antenna": Delay(4, 0.8), "co": Delay(3, 0.5), "dc": Delay(6, 1), "cloud": Delay(16, 3)}


@dataclass(frozen=True, slots=True)
class Topology:
    """Offers, and how far they are from every access site."""

    name: str
    offers: Offers
    world: EdgeCloud


def _sites(layer: str) -> list[Site]:
    number = {"antenna": ANTENNAS, "co": OFFICES, "dc": 1, "cloud": 1}[layer]
    return [Site(layer if number == 1 else f"{layer}-{i}", layer) for i in range(number)]


def _variant(name: str, delay_ms: float, capacity_qps: float) -> Variant:
    model = name.partition("-")[0]
    return Variant(name, TASK, model, MAP[model], delay_ms, capacity_qps, PROFILED_KB)


def _offers(shares: tuple[float, ...], gpus: int) -> Iterator[Offer]:
    lowest = next(layer for layer, share in zip(LAYERS, shares, strict=True) if share)
    for layer, share in zip(LAYERS, shares, strict=True):
        sites = _sites(layer)
        dealt: dict[tuple[int, int], int] = {}
        each = np.diff(np.round(np.linspace(0, round(gpus * share), len(sites) + 1)).astype(int))
        turn = count()
        for site, gpus_here in enumerate(each):
            for _ in range(gpus_here):
                key = (site, next(turn) % len(GPU_VARIANTS))
                dealt[key] = dealt.get(key, 0) + 1
        for (site, kind), replicas in dealt.items():
            yield Offer(_variant(*GPU_VARIANTS[kind]), sites[site], replicas)
        if layer == lowest:
            for site_of in sites:
                for cpu in CPU_VARIANTS:
                    yield Offer(_variant(*cpu), site_of, ANTENNAS // len(sites) + (sites.index(site_of) < ANTENNAS % len(sites)))


@lru_cache(maxsize=8)
def make_topology(name: str, gpus: int = GPUS) -> Topology:
    """The topology of that name; InvalidInput if there is none."""
    if name not in SHARES:
        raise InvalidInput(f"no topology is called {name!r}: there are {', '.join(SHARES)}")
    offers = Offers(_offers(SHARES[name], gpus))

    def delays(antenna: int) -> dict[str, Delay]:
        own = {f"antenna-{antenna}": DELAYS["own"]}
        return {o.site.name: own.get(o.site.name, DELAYS[o.site.layer]) for o in offers.all}

    def each(field: str) -> FloatArray:
        return np.array([[getattr(delays(a)[o.site.name], field) for o in offers.all] for a in range(ANTENNAS)], np.float64)

    network = np.array([offers.network_ms(delays(a)) for a in range(ANTENNAS)])
    return Topology(name, offers, EdgeCloud(offers.columns, network, each("mean_ms"), each("sigma_ms")))
