"""What placement has learned, as one process leaves it to the next: a JSON document with a checksum, and the way there and back.

Functions, speeds of nodes and lifetimes are kept. Books are not: nobody knows what has started and ended meanwhile. What is read back is
judged number by number, and one that cannot be so spoils only the entry that it stands in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
import orjson

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement.learned_profiles import COLDS, ENDED, PARALLELISM, SPREADS, STARTS, WARMS, WIDTH
from tiphys_models.placement.lifetimes import BINS
from tiphys_models.placement.lives import LivesKept
from tiphys_models.placement.state import PlacementState

FORMAT = "tiphys.io/learned-placement/1"
MAX_BYTES = 1024 * 1024
HALF_LIFE_S = 24 * 3600.0
"""Time without a process after which what was learned of functions and nodes counts half: releases go on meanwhile."""
NAME_MAX = 512
_MOST_CALLS, _MOST_ENDED = 101.0, 1e15
"""Sums of counts that fade by a hundredth at a time never exceed a hundred."""
_MOST_SECONDS, _MOST_CORES, _MOST_SURPRISE = 1e7, 1e4, 50.0
_MOST_PODS = 1e9
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Learned:
    """Copies of everything that is kept, as of one moment."""

    at_s: float
    functions: Mapping[str, FloatArray]
    """float64[WIDTH + 1] by function, see `LearnedProfiles.kept`."""
    nodes: Mapping[str, FloatArray]
    """float64[2] by node."""
    lives: LivesKept
    spoiled: int = 0
    """Entries that were left out because a number of theirs cannot be."""

    def __len__(self) -> int:
        return len(self.functions) + len(self.nodes) + len(self.lives.names)


@dataclass(frozen=True, slots=True)
class Written:
    """A document, and how many entries had no room in it."""

    content: bytes
    dropped: int


def learned_of(state: PlacementState, now_s: float) -> Learned:
    """Everything that the state has learned. Cheap: only copies are made, the document is for another thread."""
    learned = state.beliefs.learned
    functions = {name: kept for name, row in state.functions.rows() if (kept := learned.kept(row))[ENDED] > 0}
    nodes = {name: kept for name, row in state.nodes.row_of.items() if (kept := learned.kept_of_node(row))[0] > 0}
    return Learned(now_s, functions, {**state.beliefs.former_nodes, **nodes}, state.lives.kept())


def recall(state: PlacementState, learned: Learned, now_s: float) -> None:
    """Put back what a former process has learned, less what the time since has made of it. What this one knows already stays."""
    aged = 2.0 ** (-max(now_s - learned.at_s, 0.0) / HALF_LIFE_S)
    for name, kept in learned.functions.items():
        faded = kept * aged
        faded[PARALLELISM] = kept[PARALLELISM]  # no sum, but the last word
        state.beliefs.learned.recall(state.functions.remembered(name), faded)
    state.beliefs.former_nodes.update({name: kept * aged for name, kept in learned.nodes.items() if name not in state.nodes.row_of})
    lives = learned.lives
    state.lives.recall(lives._replace(counted_s=min(lives.counted_s, now_s)))  # whatever a clock said that was set back since


def document(learned: Learned, max_bytes: int = MAX_BYTES) -> Written:
    """The document, of at most so many bytes: functions with the fewest ended calls and lifetimes of the fewest pods go first."""
    functions = sorted(learned.functions, key=lambda name: -float(learned.functions[name][ENDED]))
    pods = dict(zip(learned.lives.names, learned.lives.at_risk[1:, 0].tolist(), strict=True))
    applications = sorted(pods, key=lambda name: -pods[name])
    share = 1.0
    while True:
        kept = _cut(learned, functions[: math.ceil(len(functions) * share)], set(applications[: math.ceil(len(applications) * share)]))
        content = _written(kept)
        if len(content) <= max_bytes or not len(kept):
            return Written(content, len(learned) - len(kept))
        share = min(share * 0.98 * max_bytes / len(content), share - 1.0 / max(len(functions), len(applications), 1))
        if share <= 0:
            return Written(_written(_cut(learned, (), set(), nodes=False)), len(learned))


def read(content: bytes) -> Learned:
    """What a document holds, number by number; InvalidInput if it is none of ours, or not as it was written."""
    try:
        found: dict[str, Any] = orjson.loads(content) if len(content) <= 4 * MAX_BYTES else {}
        learned = found["learned"] if found.get("format") == FORMAT else None
        if learned is None or sha256(_packed(learned)).hexdigest() != found["sha256"]:
            raise InvalidInput(f"what was learned is not in the format {FORMAT}, or not as it was written")
        return _checked(learned)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInput(f"what was learned cannot be read: {type(error).__name__}") from error


def served(state: PlacementState, now_s: float) -> Any:
    """The document as an object, for who asks a running process."""
    return orjson.loads(document(learned_of(state, now_s)).content)


def _cut(learned: Learned, functions: Sequence[str], applications: set[str], *, nodes: bool = True) -> Learned:
    rows = [0, *(i for i, name in enumerate(learned.lives.names, 1) if name in applications)]
    lives = learned.lives
    names = tuple(lives.names[i - 1] for i in rows[1:])
    cut = LivesKept(names, lives.ends[rows], lives.at_risk[rows], lives.counted_s)
    return replace(
        learned, functions={name: learned.functions[name] for name in functions}, nodes=learned.nodes if nodes else {}, lives=cut
    )


def as_json(learned: Learned) -> dict[str, Any]:
    """The part of the document that the checksum is of."""
    lives = learned.lives
    counted = lives.counted_s > -math.inf
    return {
        "atSeconds": round(learned.at_s, 3),
        "functions": {name: _numbers(row) for name, row in learned.functions.items()},
        "nodes": {name: _numbers(row) for name, row in learned.nodes.items()},
        "lifetimes": {
            "countedSeconds": round(lives.counted_s, 3) if counted else None,
            "all": [_trimmed(lives.ends[0]), _trimmed(lives.at_risk[0])],
            "applications": [
                [name, _trimmed(ends), _trimmed(at_risk)]
                for name, ends, at_risk in zip(lives.names, lives.ends[1:], lives.at_risk[1:], strict=True)
            ],
        },
    }


def _written(learned: Learned) -> bytes:
    body = as_json(learned)
    return orjson.dumps({"format": FORMAT, "sha256": sha256(_packed(body)).hexdigest(), "learned": body})


def _packed(body: Any) -> bytes:
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS)


def _numbers(row: FloatArray) -> list[float]:
    return np.round(row, _DIGITS).tolist()  # type: ignore[no-any-return]


def _trimmed(histogram: FloatArray) -> list[float]:
    """Without the zeros at its end."""
    return _numbers(np.trim_zeros(histogram, "b"))


def _checked(learned: Any) -> Learned:
    at_s = float(learned["atSeconds"])
    functions = {name: row for name, said in learned["functions"].items() if (row := _function(name, said)) is not None}
    nodes = {name: row for name, said in learned["nodes"].items() if (row := _node(name, said)) is not None}
    lives = learned["lifetimes"]
    counted = lives["countedSeconds"]
    named = {str(name): found for name, *said in lives["applications"] if _name(name) and (found := _histograms(said)) is not None}
    pool = _histograms(lives["all"])
    if pool is None:  # it is what all applications add up to
        pool = np.sum([np.zeros((2, BINS)), *named.values()], axis=0)
    both = np.stack([pool, *named.values()])
    kept = LivesKept(tuple(named), both[:, 0], both[:, 1], -math.inf if counted is None else float(counted))
    said = len(learned["functions"]) + len(learned["nodes"]) + len(lives["applications"])
    return Learned(at_s, functions, nodes, kept, said - len(functions) - len(nodes) - len(named))


def _name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= NAME_MAX


def _row(said: Any, width: int) -> FloatArray | None:
    """So many finite numbers; None for anything else."""
    if not isinstance(said, list) or len(said) != width or not all(type(number) in (int, float) for number in said):
        return None
    row = np.array(said, np.float64)
    return row if np.isfinite(row).all() else None


def _function(name: Any, said: Any) -> FloatArray | None:
    row = _row(said, WIDTH + 1)
    if row is None or not _name(name) or (row < 0).any():
        return None
    counts, sums = row[[STARTS, WARMS, COLDS]], row[[STARTS + 1, WARMS + 1, COLDS + 1]]
    possible = (
        (row[[STARTS, WARMS, COLDS, SPREADS]] <= _MOST_CALLS).all()
        and (sums <= counts * _MOST_SECONDS).all()
        and row[PARALLELISM] <= _MOST_CORES
        and row[SPREADS + 1] <= row[SPREADS] * _MOST_SURPRISE**2
        and row[ENDED] <= _MOST_ENDED
        and row[WIDTH] <= row[ENDED]
    )
    return row if possible else None


def _node(name: Any, said: Any) -> FloatArray | None:
    row = _row(said, 2)
    if row is None or not _name(name):
        return None
    return row if 0 <= row[0] <= _MOST_CALLS and abs(row[1]) <= row[0] * _MOST_SURPRISE else None


def _histograms(said: Any) -> FloatArray | None:
    """float64[2, BINS]: ends and pods at risk."""
    if not isinstance(said, list) or len(said) != 2 or not all(isinstance(part, list) and len(part) <= BINS for part in said):
        return None
    parts = [_row([*part, *([0.0] * (BINS - len(part)))], BINS) for part in said]
    ends, at_risk = parts
    if ends is None or at_risk is None:
        return None
    possible = (ends >= 0).all() and (at_risk <= _MOST_PODS).all() and (ends <= at_risk + 1e-6).all()
    return np.stack([ends, at_risk]) if possible else None
