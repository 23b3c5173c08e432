"""What streams can be bound to: a variant of a model at a site. Many of them as arrays, one entry an offer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.hashing import stable_hash
from tiphys_models.streams.kernels import Columns


@dataclass(frozen=True, slots=True)
class Variant:
    """A model as it runs on one kind of machine with one batch size, profiled with queries of one size."""

    name: str
    task: str
    model: str
    accuracy: float
    """Accuracy in the unit of the streams' `min_accuracy`: here mAP in percent."""
    delay_ms: float
    """Delay of a query of the profiled size, without waiting."""
    capacity_qps: float
    """Capacity of one replica, in queries of the profiled size."""
    profiled_kb: float
    hardware: str = ""
    """What it runs on, `cpu` or `gpu`; shown only."""
    cost_per_hour: float = 0.0
    """Cost of one replica, in the owner's unit; shown only."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where variants run: a cluster or a zone."""

    name: str
    layer: str
    """`antenna`, `co`, `dc` or `cloud`; networks pool by it."""


@dataclass(frozen=True, slots=True)
class Delay:
    """One way from an access site to a site."""

    mean_ms: float
    sigma_ms: float

    @property
    def bound_ms(self) -> float:
        """What constraints and policies count with: mean and two deviations."""
        return self.mean_ms + 2 * self.sigma_ms


@dataclass(frozen=True, slots=True)
class Offer:
    """One variant at one site: `worker` in the paper."""

    variant: Variant
    site: Site
    replicas: int = 1
    endpoint: str = ""

    @property
    def name(self) -> str:
        """Site first, so that equals are told apart by site, then variant."""
        return f"{self.site.name}/{self.variant.name}"

    @property
    def capacity_qps(self) -> float:
        """Capacity of all replicas together."""
        return self.replicas * self.variant.capacity_qps


class Offers:
    """Offers in the order of their names. Never changed: other offers are another object."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        self.all: tuple[Offer, ...] = tuple(sorted(offers, key=lambda o: o.name))
        names = [o.name for o in self.all]
        if len(set(names)) != len(names):
            raise InvalidInput(f"two offers have one name: {max(names, key=names.count)}")
        self.columns = Columns(
            capacity_qps=np.array([o.capacity_qps for o in self.all], np.float64),
            delay_ms=np.array([o.variant.delay_ms for o in self.all], np.float64),
            accuracy=np.array([o.variant.accuracy for o in self.all], np.float64),
            profiled_kb=np.array([o.variant.profiled_kb for o in self.all], np.float64),
            hashes=np.array([stable_hash(o.name) for o in self.all], np.uint64),
            replicas=np.array([o.replicas for o in self.all], np.float64),
        )
        tasks = np.array([o.variant.task for o in self.all])
        self._serves: dict[str, BoolArray] = {str(task): np.asarray(tasks == task) for task in np.unique(tasks)}
        self._nobody: BoolArray = np.zeros(len(self.all), np.bool_)

    def __len__(self) -> int:
        return len(self.all)

    def serves(self, task: str) -> BoolArray:
        """Constraint (1): offers whose variant does this task."""
        return self._serves.get(task, self._nobody)

    def network_ms(self, delays: Mapping[str, Delay]) -> FloatArray:
        """One way to every offer, mean and two deviations; infinite where no delay was measured: nothing is feasible there."""
        return np.array([delays[o.site.name].bound_ms if o.site.name in delays else np.inf for o in self.all], np.float64)
