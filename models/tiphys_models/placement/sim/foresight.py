"""What a placement would cost, known by rolling a copy of the node forward.

It knows the true work of every call: a bound for benchmarks and a teacher for training, never a policy that serves.
"""

from __future__ import annotations

from tiphys_models.lab.compiled import compiled
from tiphys_models.placement.sim.cluster import SimulatedCluster, SimulatedFleet
from tiphys_models.placement.sim.events import drain, put


@compiled
def marginal_cost(c: SimulatedCluster, g: SimulatedFleet, k: int, n: int, t: float) -> float:
    """Seconds that call k on node n would add to the sum of all completion times, if no further call came."""
    scratch = len(c.nodes) - 1
    copy_node(c, n, scratch)
    drain(c, g, scratch)
    without = c.nodes[scratch].finish_sum
    copy_node(c, n, scratch)
    put(c, g, k, scratch, t)
    drain(c, g, scratch)
    if c.nodes[n].queued > 0:
        c.calls[c.nodes[n].tail].behind = -1  # the scratch node shares the links of the queue
    cost: float = c.nodes[scratch].finish_sum - without - t
    return cost


@compiled
def copy_node(c: SimulatedCluster, source: int, target: int) -> None:
    """Make one node equal to another, its sum of finished calls starting at zero."""
    c.nodes[target] = c.nodes[source]
    c.nodes[target].finish_sum = 0.0
    for s in range(c.nodes[source].containers):
        c.slots[target, s] = c.slots[source, s]
    for f in range(c.images.shape[1]):
        c.images[target, f] = c.images[source, f]
