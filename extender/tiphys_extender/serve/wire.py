"""The bytes of kube-scheduler's prioritize call: ExtenderArgs in, HostPriorityList out.

kube-scheduler (staging/src/k8s.io/kube-scheduler/extender/v1/types.go) sends `{"Pod": ..., "Nodes": null, "NodeNames": [...]}`; the
structs have no JSON tags and Go decodes keys in any case. It takes back a bare array of `{"Host": string, "Score": int64}`: one
float in it and the whole list is dropped, a host named twice is added up, a missing host counts as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from tiphys_models.placement.rank import MAX_SCORE, NEUTRAL_SCORE

_BETWEEN = tuple(f'","Score":{score}}},{{"Host":"' for score in range(MAX_SCORE + 1))
"""Text between two hosts by the score of the former."""


class BadRequest(Exception):
    """A request whose candidates cannot be read; `reason` is a fixed word."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


BAD_REQUEST_REASONS = (
    "body-too-large", "content-encoding", "method", "not-http", "not-json", "not-an-object", "no-names", "bad-names", "disconnected",
    "url-too-long", "head-too-large",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """A prioritize call of kube-scheduler: a pod and its candidate nodes."""

    pod: Any
    """The pod as sent: it holds the pod's environment, so it must never be kept or logged."""
    names: list[str]
    """Distinct candidates in the order sent."""
    plain: bool
    """Whether no name needs escaping in JSON."""


def parse_call(body: bytes) -> Call:
    """The call in a request body; BadRequest if nobody could say which nodes are meant."""
    try:
        args = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadRequest("not-json") from None
    if not isinstance(args, dict):
        raise BadRequest("not-an-object")
    names = args.get("NodeNames")
    if names is None:
        args = {key.lower(): value for key, value in args.items()}
        names = args.get("nodenames")
        pod = args.get("pod")
        if names is None:
            names = _names_of_nodes(args.get("nodes"))
    else:
        pod = args.get("Pod")
        if pod is None:
            pod = next((value for key, value in args.items() if key.lower() == "pod"), None)
    return _checked(pod, names)


def _checked(pod: Any, names: Any) -> Call:
    if not isinstance(names, list):
        raise BadRequest("bad-names")
    try:
        joined = "".join(names)  # fails for anything but strings, in C
        if len(set(names)) != len(names):
            names = list(dict.fromkeys(names))
        plain = len(orjson.dumps(joined)) == len(joined) + 2
    except (TypeError, orjson.JSONEncodeError):
        raise BadRequest("bad-names") from None
    return Call(pod, names, plain)


def _names_of_nodes(nodes: Any) -> list[str]:
    """Names out of a v1.NodeList: what a scheduler without `nodeCacheCapable` sends."""
    if not isinstance(nodes, dict):
        raise BadRequest("no-names")
    try:
        items = next((value for key, value in nodes.items() if key.lower() == "items"), None)
        # Go leaves an empty name out (`omitempty`): it is a name all the same, and its host wants an answer
        return [node["metadata"].get("name", "") for node in items or ()]
    except (TypeError, KeyError, AttributeError):
        raise BadRequest("bad-names") from None


@lru_cache(maxsize=4096)
def segments(count: int) -> tuple[tuple[int, int, int], ...]:
    """(first rank, end rank, score) of each run of equal scores: the best alone 10, the others 9..0 in ten equal parts."""
    if count <= 1:
        return ((0, count, MAX_SCORE),) if count else ()
    others = count - 1
    runs = [(0, 1, MAX_SCORE)]
    for score in range(MAX_SCORE - 1, -1, -1):
        # rank r > 0 has score 9 - (r - 1) * 10 // others: integer division, inverted
        first = 1 + -(-(MAX_SCORE - 1 - score) * others // MAX_SCORE)
        end = 1 + -(-(MAX_SCORE - score) * others // MAX_SCORE)
        if first < end:
            runs.append((first, end, score))
    return tuple(runs)


def encode_ranked(best_first: Sequence[str], *, plain: bool) -> bytes:
    """The answer for candidates from best to worst; their order in the array means nothing to the scheduler."""
    quoted = _quoted(best_first, plain=plain)
    return _joined([(quoted[first:end], score) for first, end, score in segments(len(quoted))])


def encode_neutral(names: Sequence[str], *, plain: bool) -> bytes:
    """The answer that makes no difference between nodes. Every host is in it: the scheduler shuffles ties only among hosts answered."""
    return _joined([(_quoted(names, plain=plain), NEUTRAL_SCORE)] if names else [])


def _quoted(names: Sequence[str], *, plain: bool) -> Sequence[str]:
    return names if plain else [orjson.dumps(name).decode()[1:-1] for name in names]


def _joined(runs: list[tuple[Sequence[str], int]]) -> bytes:
    """One join a run of equal scores: ten times cheaper than an object a host."""
    if not runs:
        return b"[]"
    parts = ['[{"Host":"']
    for names, score in runs:
        separator = _BETWEEN[score]
        parts.append(separator.join(names))
        parts.append(separator)
    parts[-1] = f'","Score":{runs[-1][1]}}}]'
    return "".join(parts).encode()


def encode_error(reason: str) -> bytes:
    """The body of an answer other than 200."""
    return orjson.dumps({"error": reason})
