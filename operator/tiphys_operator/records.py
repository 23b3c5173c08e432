"""The operator's decision records: what selection and scaling decided, who did, and what the other one would have. Bounded, in memory.

They reach back as far as the log does and no further than this process: statuses hold what must survive.
"""

from __future__ import annotations

import orjson

from tiphys_models.seats.record import Record, RecordLog

CAPACITY = 6_000
"""About two and a half kilobytes each; with a hundred policies of 15 s that is a quarter of an hour."""
EXPLAINED_MAX = 100
DECISIONS_PATH = "/decisions"
EXPLAIN_PATH = "/explain/{kind}/{namespace}/{name}"
Records = RecordLog[Record]


def make_records() -> Records:
    """An empty log of decision records."""
    return RecordLog[Record](CAPACITY)


def explained(log: Records, kind: str, namespace: str, name: str) -> bytes:
    """The newest records of one object, oldest of them first, as JSON."""
    found = log.newest(EXPLAINED_MAX, lambda r: (r.kind, r.namespace, r.name) == (kind, namespace, name))
    return orjson.dumps({"first": log.first, "last": log.last, "items": [record.as_json() for record in found]})
