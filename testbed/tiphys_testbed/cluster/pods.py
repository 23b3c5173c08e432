"""The simulated run time: pods finish when we say so."""

import datetime as dt
from collections.abc import Iterable
from typing import Any

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import RequestRefused


def finished_status(pod: dict[str, Any], now: dt.datetime, exit_code: int = 0) -> dict[str, Any]:
    """The status of a running pod whose containers ended now: what a kubelet would report."""
    when = now.astimezone(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    phase, reason = ("Succeeded", "Completed") if exit_code == 0 else ("Failed", "Error")
    status = pod.get("status") or {}
    running = {c["name"]: c for c in status.get("containerStatuses") or ()}
    containers = []
    for container in pod["spec"]["containers"]:
        before = running.get(container["name"], {})
        started = ((before.get("state") or {}).get("running") or {}).get("startedAt") or when
        ended = {"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": when}
        containers.append(
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": before.get("imageID") or f"simulated://{container['image']}",
                "ready": False,
                "started": False,
                "restartCount": before.get("restartCount", 0),
                "state": {"terminated": ended},
            }
        )
    conditions = [c for c in status.get("conditions") or () if c["type"] not in ("Ready", "ContainersReady")]
    conditions += [
        {"type": kind, "status": "False", "reason": f"Pod{reason}", "lastTransitionTime": when} for kind in ("Ready", "ContainersReady")
    ]
    return {"phase": phase, "conditions": conditions, "containerStatuses": containers}


def complete_pod(api: ApiClient, pod: dict[str, Any], *, exit_code: int = 0) -> bool:
    """End a running pod (as the API server or a watch delivered it); False if it is gone or another one by now."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
    body = {"metadata": {"uid": metadata["uid"]}, "status": finished_status(pod, dt.datetime.now(dt.UTC), exit_code)}
    try:
        api.patch(path, body)
    except RequestRefused as error:
        # Deleted, or the name belongs to another pod by now (the API server says that the uid is immutable).
        if error.status in (404, 409) or (error.status == 422 and "metadata.uid" in str(error)):
            return False
        raise
    return True


def complete_pods(api: ApiClient, pods: Iterable[dict[str, Any]], *, exit_code: int = 0, threads: int = 8) -> None:
    """End many running pods at once."""
    api.each(lambda pod: complete_pod(api, pod, exit_code=exit_code), pods, threads)
