"""Values as the API server's own grammar allows them: quantities, timestamps, names, metadata. Mostly ordinary ones, some hostile."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

Json = Any

QUANTITIES = ("100m", "250m", "1", "2", "0.5", "500m", "64Mi", "128Mi", "1Gi", "2G", "1e3", "0")
HOSTILE_QUANTITIES = (
    "1e400", "10e399", "-1", "1e-9", ".5", "5.", "9Ei", "8E", "1e20", "+3", "1e400Ki", "-1e400", "1e-400", "0e400", "1n", "1u", "999999999999999999999",
    "0." + "0" * 60 + "1", "1" + "0" * 250, "9223372036854775807", "9223372036854775808", "-9Ei", "1E6", "1e+2", "00012", "-0", "1e99999999999999999999",
)  # fmt: skip
NOT_QUANTITIES: tuple[Json, ...] = (
    "",
    " ",
    "many",
    "1 Gi",
    "1ki",
    "0x10",
    "1e",
    "e5",
    "nan",
    "inf",
    "Infinity",
    "١٢",
    "1_000",
    "1,5",
    "--1",
    "1" * 300,
    None,
    True,
    [],
    {},
)
NUMBERS = (0, 1, 5, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 10**30, 0.5, 1e-9, 1e300, 1.7976931348623157e308, -1e308, 5.0)

TIMES = ("2026-11-03T10:20:30Z", "2026-01-01T00:00:00Z", "2025-06-30T23:59:59Z")
HOSTILE_TIMES = (
    "2026-11-03t10:20:30z", "2026-11-03T10:20:30z", "2026-11-03t10:20:30Z", "2026-11-03T10:20:30+14:00", "2026-11-03T10:20:30-23:59", "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00", "2016-12-31T23:59:60Z", "2026-11-03T10:20:30.123456789Z",
    "2026-11-03T10:20:30.1Z", "1969-12-31T23:59:59Z", "2026-02-29T00:00:00Z", "0000-01-01T00:00:00Z", "2026-11-03T24:00:00Z", "2026-11-03", "2026-11-03T10:20:30",
    "2026-11-03 10:20:30Z", "2026-W45-2T10:20:30Z", "20261103T102030Z", "", "now", "Z", "2026-11-03T10:20:30+00:00:00.000001",
)  # fmt: skip

NAMESPACES = ("shop", "default", "team-a", "edge")
WORDS = (
    "a", "web", "api", "worker-1", "site-a", "x.y", "m" * 63, "n" * 253, "0", "8" * 64, "f" * 64, "1.5", "-3", "A", "_x", "model.safetensors", "apps/v1", "card.json",
    "http_requests", "http://10.0.0.1:8080/v1", "https://model.example/x", "10.0.0.1", "warm-first", "policy/with/slashes", "ünïcode", "\u0000", "\ud7ff", " ", "",
)  # fmt: skip
BIG_TEXT = "x" * 250_000
"""As much as annotations may hold together, nearly."""
_LONG_KEY = "k" * 253 + "/" + "k" * 63


class Draw:
    """A stream of random choices that is hostile now and then: `rate` of the places where it may be."""

    def __init__(self, random: Random, rate: float) -> None:
        self.random = random
        self.rate = rate

    def hostile(self) -> bool:
        """Whether this place should be an odd one."""
        return self.random.random() < self.rate

    def one(self, good: Sequence[Json], bad: Sequence[Json] = ()) -> Json:
        """Mostly one of the good, sometimes one of the bad."""
        return self.random.choice(bad if bad and self.hostile() else good)

    def quantity(self) -> Json:
        """For a request, a limit, an allocatable."""
        if not self.hostile():
            return self.random.choice(QUANTITIES)
        kind = self.random.random()
        if kind < 0.5:
            return self.random.choice(HOSTILE_QUANTITIES)
        if kind < 0.6:
            return self.random.choice(NOT_QUANTITIES)
        if kind < 0.7:
            return self.random.choice(NUMBERS)
        digits = str(self.random.randrange(10 ** self.random.randrange(1, 25)))
        suffix = self.random.choice(
            ("n", "u", "m", "", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e9", "e-9", "E400", "e-400")
        )
        return self.random.choice(("", "", "-", "+")) + digits + self.random.choice(("", ".", ".5")) + suffix

    def time(self) -> Json:
        """For a metav1.Time or a CRD's date-time."""
        if not self.hostile():
            return self.random.choice(TIMES)
        if self.random.random() < 0.1:
            return None
        if self.random.random() < 0.5:
            return self.random.choice(HOSTILE_TIMES)
        r = self.random.randrange
        offset = self.random.choice(("Z", "z", "+00:00", "-11:30", f"+{r(24):02}:{r(60):02}"))
        fraction = self.random.choice(("", "", f".{r(10**9)}"))
        return f"{r(10000):04}-{r(1, 13):02}-{r(1, 32):02}{self.random.choice('TTt')}{r(24):02}:{r(60):02}:{r(61):02}{fraction}{offset}"

    def count(self) -> Json:
        """For an int32 or int64."""
        return self.one((0, 1, 2, 3, 5, 10), (None, -1, 2**31 - 1, -(2**31), 2**63 - 1, 10_000_000))

    def some(self, make: Any, most: int = 3) -> Json:
        """A list; when hostile null, empty or a long one."""
        if self.hostile():
            return self.random.choice((None, [], [make() for _ in range(40)]))
        return [make() for _ in range(self.random.randrange(1, most + 1))]

    def maybe(self, into: dict[str, Json], key: str, value: Json, likely: float = 0.7) -> None:
        """A field that may be missing."""
        if self.random.random() < likely:
            into[key] = value


def metadata(draw: Draw, *, namespaced: bool = True) -> dict[str, Json]:
    """Metadata of a stored object: name, uid and resourceVersion are always there, and the namespace of what has one."""
    random = draw.random
    name = draw.one(("web", "api", "worker"), ("n" * 253, "x.y.z", "0", "a" * 63))
    meta: dict[str, Json] = {
        "name": f"{name}-{random.randrange(500)}"[-253:],
        "uid": f"{random.getrandbits(64):016x}",
        "resourceVersion": str(random.randrange(1, 10**6)),
        "creationTimestamp": draw.time(),
    }
    if namespaced:
        meta["namespace"] = random.choice(NAMESPACES)
    draw.maybe(meta, "generation", draw.one((1, 2, 3, 7), (2**63 - 1, 10_000_000)))  # the API server counts it, nobody writes it
    draw.maybe(meta, "labels", labels(draw))
    draw.maybe(meta, "annotations", notes(draw), 0.3)
    draw.maybe(meta, "ownerReferences", owners(draw), 0.5)
    draw.maybe(meta, "managedFields", draw.some(lambda: managed_fields(draw)), 0.4)
    draw.maybe(meta, "deletionTimestamp", draw.time(), 0.1)
    draw.maybe(meta, "deletionGracePeriodSeconds", draw.count(), 0.1)
    draw.maybe(meta, "finalizers", draw.one((["tiphys.io/x"], []), (None, ["f"] * 100)), 0.1)
    draw.maybe(meta, "generateName", draw.one(("web-",), ("g" * 300, "")), 0.1)
    return meta


def labels(draw: Draw) -> Json:
    """A label map."""
    if draw.hostile():
        return draw.random.choice(
            (
                None,
                {},
                {"tiphys.io/function": ""},
                {"tiphys.io/function": "f" * 63},
                {_LONG_KEY: "v" * 63},
                {"a": None},
                {str(i): "" for i in range(300)},
            )
        )
    found = {"app": draw.random.choice(("web", "api", "db"))}
    draw.maybe(found, "tiphys.io/function", draw.random.choice(("resize", "thumbnail", "chat")), 0.4)
    draw.maybe(found, "node.kubernetes.io/instance-type", draw.random.choice(("m5.large", "B4ms")), 0.2)
    draw.maybe(found, "topology.kubernetes.io/zone", "a", 0.2)
    return found


def notes(draw: Draw) -> Json:
    """An annotation map, up to 250 kB."""
    if draw.hostile():
        return draw.random.choice(
            (None, {}, {"big": BIG_TEXT}, {"tiphys.io/paused": ""}, {"tiphys.io/paused": None}, {str(i): "v" for i in range(500)})
        )
    found = {"note": "x"}
    draw.maybe(found, "tiphys.io/price-usd-per-hour", draw.one(("0.12", "1"), ("1e400", "nan", "-inf", "-1", "free", "", "1" * 5000)), 0.3)
    draw.maybe(found, "tiphys.io/paused", draw.one(("true", "false"), ("TRUE", "1", "")), 0.2)
    draw.maybe(found, "tiphys.io/retry-agent", draw.one(("1",), ("r" * 70_000, "")), 0.2)
    return found


def owners(draw: Draw) -> Json:
    """Owner references; absurd ones when hostile: several controllers, itself, none at all, a thousand."""
    if draw.hostile():
        return draw.random.choice(
            (
                None,
                [],
                [owner("ReplicaSet", "a"), owner("Job", "b")],
                [owner("DaemonSet", "d"), owner("ReplicaSet", "a")],
                [owner("Node", "self")],
                [{"controller": True}],
                [{"kind": None, "name": None, "controller": True}],
                [owner("", "")],
                [owner("Kind" * 60, "o" * 253)],
                [owner("ReplicaSet", str(i)) for i in range(1000)],
            )
        )
    kind = draw.random.choice(("ReplicaSet", "Job", "StatefulSet", "DaemonSet"))
    return [owner(kind, f"{kind.lower()}-{draw.random.randrange(100)}")]


def owner(kind: str, name: str) -> dict[str, Json]:
    """A controlling owner."""
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True, "blockOwnerDeletion": True}


def managed_fields(draw: Draw) -> Json:
    """An entry of managedFields; the API server keeps entries without manager, operation, time or fields."""
    entry: dict[str, Json] = {
        "manager": draw.one(("kubectl", "tiphys-scaling", "kube-controller-manager", "argocd-controller", "vpa"), ("", None, "m" * 128)),
        "operation": draw.one(("Update", "Apply"), ("", None, "Delete")),
        "apiVersion": draw.one(("apps/v1",), ("v1", "", "nonsense/v9")),
        "time": draw.time(),
        "fieldsType": draw.one(("FieldsV1",), ("", None)),
        "fieldsV1": draw.one(
            (
                {"f:spec": {"f:replicas": {}}},
                {"f:metadata": {"f:labels": {".": {}}}},
                {"f:spec": {"f:template": {"f:spec": {"f:containers": {}}}}},
            ),
            ({}, None, {"f:spec": None}, {"f:spec": []}, {"f:spec": {"f:replicas": None}}, {"f:spec": {"f:template": None}}),
        ),
        "subresource": draw.one(("", "scale", "status"), (None, "resize")),
    }
    for key in list(entry):
        if draw.hostile():
            del entry[key]
    return entry
