"""Small real functions: Python in the project's own image, as pods of one call each."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tiphys_models.api.routing import DEFAULT_SCHEDULER_NAME
from tiphys_models.base.facts import FUNCTION_LABEL


@dataclass(frozen=True, slots=True)
class RealFunction:
    """One function: what a call does."""

    name: str
    code: str
    memory: str
    cpu: str = "100m"


FUNCTIONS = (
    RealFunction("hash", "import hashlib\nfor _ in range(60): hashlib.pbkdf2_hmac('sha256', b'a', b'b', 20000)", "32Mi"),
    RealFunction(
        "sweep",
        "block = bytearray(96 * 2**20)\nfor step in range(12):\n  for at in range(0, len(block), 4096): block[at] = step",
        "128Mi",
    ),
    RealFunction(
        "write",
        "import os\nfor number in range(40):\n  with open(f'/data/{number % 8}', 'wb') as file:\n"
        "    file.write(os.urandom(2**20)); file.flush(); os.fsync(file.fileno())",
        "48Mi",
    ),
)
"""Bound by the processor, by memory and by the disk."""
REPEAT = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end:\n{body}"


def call_pod(
    name: str, function: RealFunction, image: str, *, scheduler: str = DEFAULT_SCHEDULER_NAME, node: str = "", code: str = ""
) -> dict[str, Any]:
    """A pod that does the work of one call and ends."""
    container = {
        "name": "main",
        "image": image,
        "command": ["python", "-c", code or function.code],
        "resources": {"requests": {"cpu": function.cpu, "memory": function.memory}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"fsGroup": 65532},
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"metadata": {"name": name, "labels": {FUNCTION_LABEL: function.name}}, "spec": spec}


def repeated(function: RealFunction, seconds: float) -> str:
    """The same work again and again for that long."""
    return REPEAT.format(seconds=seconds, body="\n".join(f"  {line}" for line in function.code.splitlines()))


def duration_s(pod: Mapping[str, Any]) -> float:
    """Seconds from the creation of a finished pod to the end of its container, as the API server and the kubelet stamped them."""
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
    begun = pod["metadata"]["creationTimestamp"]
    return (dt.datetime.fromisoformat(ended) - dt.datetime.fromisoformat(begun)).total_seconds()
