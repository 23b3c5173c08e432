"""`tiphys policies`: every decider by the name that kinds, benchmarks and documentation use, ours and those of installed packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement import registry as placement
from tiphys_models.scaling import registry as scaling
from tiphys_models.seats.checks import Checked, check_decider
from tiphys_models.seats.registry import BrokenDecider, Entry, Registry
from tiphys_models.selection.planners import registry as planners
from tiphys_models.selection.selectors import registry as selectors
from tiphys_models.streams import registry as streams


@dataclass(frozen=True, slots=True)
class _System:
    """One kind of decider as this command lists it."""

    word: str
    registry: Registry[Any]
    ours: Callable[[], tuple[Entry, ...]]
    factory: Callable[[str], Callable[..., object]]
    """What the conformance suite is given for a name."""


SYSTEMS: tuple[_System, ...] = (
    _System("placement", placement.REGISTRY, placement.entries, lambda name: partial(_placement_policy, name)),
    _System("planner", planners.REGISTRY, planners.entries, lambda name: partial(planners.make_planner, name)),
    _System("selector", selectors.REGISTRY, selectors.entries, lambda name: partial(selectors.make_selector, name)),
    _System("scaling agent", scaling.REGISTRY, scaling.entries, lambda name: partial(scaling.make_agent, name)),
    _System("binding", streams.REGISTRY, streams.entries, lambda name: partial(streams.make_policy, name)),
)


def rows() -> list[dict[str, Any]]:
    """Name, kind, whether learned, whose, the weights it needs, what it says of itself; then what cannot be used."""
    return [row for system in SYSTEMS for row in _rows(system)]


def _rows(system: _System) -> Iterator[dict[str, Any]]:
    registry = system.registry
    for entry in (*system.ours(), *registry.foreign.values()):
        problem, learned, summary = "", entry.learned, ""
        try:
            summary = registry.summary(entry)
            if entry.package:
                factory = registry.factory(entry.name)
                learned = bool(getattr(factory, "learned", False))
        except BrokenDecider as error:
            problem = str(error)
        yield _row(system, entry.name, learned=learned, origin=entry.origin, model=entry.model, summary=summary, problem=problem)
    usable = {entry.name for entry in registry.foreign.values()}
    for fault in registry.faults():
        if fault.name not in usable or registry.foreign[fault.name].package != fault.package:
            yield _row(system, fault.name, learned=False, origin=fault.package, model="", summary="", problem=fault.message)


def _row(system: _System, name: str, *, learned: bool, origin: str, model: str, summary: str, problem: str) -> dict[str, Any]:
    word = "heuristic" if system.word == "planner" and origin == "tiphys" and not learned else system.word
    made = {"name": name, "kind": word, "learned": learned, "summary": summary or problem}
    return {**made, "decider": system.registry.kind, "origin": origin, "model": model, "problem": problem}


def check(name: str, kind: str) -> tuple[str, list[Checked]]:
    """The conformance suite over the decider of that name: its kind, and how every check ended. InvalidInput if there is none."""
    found = [s for s in SYSTEMS if s.registry.entry(name) is not None and kind in ("", s.registry.kind)]
    if not found:
        raise InvalidInput(f"nobody brings {kind.replace('-', ' ') or 'a decider'} {name!r}: `tiphys policies` lists those there are")
    if len(found) > 1:
        raise InvalidInput(f"{name} is a name of several kinds: say --kind {' or --kind '.join(s.registry.kind for s in found)}")
    system, entry = found[0], found[0].registry.entry(name)
    if system.registry is streams.REGISTRY and entry is not None and entry.target.endswith(":load_agent"):
        raise InvalidInput(f"{name} names one of the stream policies for every window, and those are what is checked")
    return system.registry.kind, list(check_decider(system.factory(name), system.registry.kind))


def _placement_policy(name: str) -> object:
    return placement.shipped_policy(name)
