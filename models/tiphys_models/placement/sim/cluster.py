"""The simulated cluster as arrays of records: what stays, and what compiled code moves from event to event.

Rules, all of them a choice that decides the results:
- a call goes to an idle container of its function, else into a new container if memory is free after removing idle containers
  of other functions (longest idle first), else to the end of the node's queue; the queue is strict: nobody overtakes its head;
- a new container starts for `init_s` with idle cores, then its first call works (cold - init) * parallelism core-seconds;
- cores are shared by weighted max-min, the weight being memory, no call getting more cores than it can use, nothing left over;
- a container stays idle for the keep-alive, or until its memory is wanted.

`cores` divides them, `containers` gives and takes them, `events` is what happens when, `foresight` what would happen.
Records rather than one array a quantity, because each array costs something every time it is handed to a compiled function.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray

INIT, RUN, IDLE = 1, 2, 3
WORK_CONSERVING, CAPPED = 0, 1
NEVER = np.inf

RecordArray = Any
"""A numpy array of records; compiled code reads and writes their fields as attributes."""

FUNCTION = np.dtype(
    [
        ("memory", "f8"),  # bytes
        ("init_s", "f8"),
        ("warm_work", "f8"),  # core-seconds
        ("cold_work", "f8"),
        ("parallelism", "f8"),
        ("disk_reads_cold", "f8"),
        ("disk_writes", "f8"),
        ("net_received", "f8"),
        ("net_sent", "f8"),
    ],
    align=True,
)
NODE = np.dtype(
    [
        ("cores", "f8"),
        ("capacity", "f8"),  # bytes
        ("speed", "f8"),  # how fast it starts and runs calls; 1 where nothing is said
        ("pulled_s", "f8"),  # when the last image that it was asked to pull is there
        ("alive", "?"),
        ("containers", "i8"),  # how many slots are in use
        ("pool", "f8"),  # bytes held by containers
        ("head", "i8"),  # the queue: first and last call, and how many
        ("tail", "i8"),
        ("queued", "i8"),
        ("next_s", "f8"),  # when something happens next
        ("seen_s", "f8"),  # up to when the node has been moved forward
        ("inflight", "f8"),
        ("inflight_memory", "f8"),
        ("threads", "f8"),
        ("used_cores", "f8"),
        ("load", "f8"),
        ("busy", "f8"),  # core-seconds since the last sample; the same below
        ("reads", "f8"),
        ("writes", "f8"),
        ("received", "f8"),
        ("sent", "f8"),
        ("switches", "f8"),
        ("finish_sum", "f8"),  # times at which calls finished, added up; only looked at on the scratch node
    ],
    align=True,
)
SLOT = np.dtype(
    [
        ("kind", "i8"),
        ("holds", "i8"),  # the function
        ("call", "i8"),
        ("left", "f8"),  # core-seconds of a running call; the time of readiness of a starting one
        ("since", "f8"),  # when it became idle
        ("rate", "f8"),  # cores
    ],
    align=True,
)
IMAGE = np.dtype(
    [
        ("there_s", "f8"),  # when it is on the node; infinite: nobody has asked for it
        ("used_s", "f8"),  # when a container of it last started
    ],
    align=True,
)
CALL = np.dtype(
    [
        ("node", "i8"),  # -1 before it has one
        ("behind", "i8"),  # who stands behind it in a queue; -1 nobody
        ("start_s", "f8"),
        ("ready_s", "f8"),  # when its container had started
        ("finish_s", "f8"),
        ("cold", "?"),
    ],
    align=True,
)


class SimulatedFleet(NamedTuple):
    """What does not change while a workload runs: functions, limits, calls."""

    functions: RecordArray
    """[F] of `FUNCTION`: what calls truly are like."""
    profiled: BoolArray
    """[F]: of which functions a runtime reports what their calls are like alone on a node."""
    profiles: FloatArray
    """[F, 5] in the order of `PROFILE_QUANTITIES`: what it reports; for the others what policies take for it."""
    keep_alive_s: float
    sharing: int
    interference: float
    """Every further call on a node slows all of them: rate / (1 + interference * (calls - 1))."""
    reuse: bool
    """Whether a container serves a second call."""
    arrival_s: FloatArray
    function: IntArray
    noise: FloatArray
    image_mib: float = 0.0
    """Size of a function's image, pulled before its first start on a node; zero: all of them are there."""
    pull_mib_per_s: float = 100.0
    images_kept_mib: float = 1e9


class SimulatedCluster(NamedTuple):
    """Everything that changes. The last node is scratch space: a copy of another one that can be rolled forward."""

    nodes: RecordArray
    """[N + 1] of `NODE`."""
    slots: RecordArray
    """[N + 1, C] of `SLOT`: containers, packed to the front."""
    calls: RecordArray
    """Calls: [K] records of `CALL`."""
    images: RecordArray
    """[N + 1, F] of `IMAGE`."""


def new_cluster(cores: FloatArray, capacity_bytes: FloatArray, least_memory: float, calls: int, functions: int) -> SimulatedCluster:
    """Empty nodes of these sizes."""
    nodes = np.zeros(len(cores) + 1, NODE)
    nodes["cores"][:-1] = cores
    nodes["capacity"][:-1] = capacity_bytes
    nodes["alive"][:-1] = True
    nodes["speed"] = 1.0
    nodes["next_s"] = NEVER
    nodes["head"] = nodes["tail"] = -1
    records = np.zeros(calls, CALL)
    records["node"] = records["behind"] = -1
    records["start_s"] = records["ready_s"] = records["finish_s"] = np.nan
    images = np.zeros((len(nodes), functions), IMAGE)
    images["there_s"] = NEVER
    return SimulatedCluster(nodes, np.zeros((len(nodes), max(int(np.max(capacity_bytes) // least_memory), 1)), SLOT), records, images)
