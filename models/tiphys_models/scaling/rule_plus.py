"""`rule+`: the rule with everything that needs no network. Its numbers are learned by whoever asks it (`control`), it remembers nothing.

Over `rule`: headroom that follows misses, CPU a request from all windows, sizes for the pods that are ready, pods that stand by where jumps
have been, and raises between windows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tiphys_models.scaling.control import Control
from tiphys_models.scaling.headroom import START
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.rules import RuleSetting, expected_rate, highest, needed_m, pods_for
from tiphys_models.scaling.seen import ServiceHistory
from tiphys_models.scaling.standing import rate_after_jumps

SETTING = RuleSetting(headroom=START, last=1, rise=Control().rise, keep=4, pod_m=600.0, spare_m=5.0)
"""The rule's own, but for the rise: headroom under control need not pay for it twice."""


@dataclass(frozen=True, slots=True)
class RulePlus:
    """One setting for all services; its axis is the share of windows to keep."""

    control: Control = field(default_factory=Control)
    setting: RuleSetting = SETTING
    name: str = "rule+"
    actions: tuple[str, ...] = ()

    def answer(self, seen: ServiceHistory) -> Answers:
        """Replicas and CPU for every service; implements `ScalingAgent.answer`."""
        s = self.setting
        headroom = np.where(np.isnan(seen.headroom), s.headroom, seen.headroom)
        needed = needed_m(seen, expected_rate(seen, s), headroom)
        standing = np.where(seen.stands, rate_after_jumps(seen.rates, seen.window_s), 0.0)
        held = np.maximum(highest(seen, s.keep) * headroom, standing) * seen.cpu_ms
        replicas = np.clip(pods_for(seen, np.maximum(needed, held), s), seen.min_replicas, seen.max_replicas)
        # a pod that has not started carries nothing; where none has, the first one will
        serving = np.where(seen.ready > 0, np.minimum(replicas, seen.ready), replicas)
        return Answers(replicas, np.minimum(needed / serving + s.spare_m, seen.max_cpu_m))


def control_of(agent: object) -> Control | None:
    """What an agent wants to be learned for it; None: nothing."""
    found = getattr(agent, "control", None)
    return found if isinstance(found, Control) else None
