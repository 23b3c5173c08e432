"""Counts what extenders and binder answered, by pulling their decision logs.

Every address behind a status Service has its own log with its own sequence numbers. A decision is counted once; a shadow decision is
looked at again until its pod is bound, because only then can the choice be compared. What was dropped before it was read counts as lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from tiphys_models.api.learned_model import KIND
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import Unavailable
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.guard import Trip, caught
from tiphys_models.kube.names import Names
from tiphys_models.kube.peers import Address, Peers, Service, addresses_of
from tiphys_models.seats import pages
from tiphys_models.seats.pages import RecordReader
from tiphys_models.serving.bearer import TokenFile
from tiphys_models.serving.certificates import TrustedAuthority
from tiphys_operator.object_guard import ObjectGuard
from tiphys_operator.placement.observation import AnswerCounts

log = logging.getLogger(__name__)

LOOP = "decisions"
LATE_S = 240.0
PAGE = 1000
_PAGES_A_PULL = 20
_TIMEOUT_S = 5.0
_BODY_MAX_BYTES = 16 * 1024 * 1024
_COMPARE_FOR_S = 60.0  # a pod that is not bound a minute after its decision is compared with nothing
_OPEN_MAX = 20_000
_CURSORS_MAX = 256


@dataclass(slots=True)
class Cursor(pages.Cursor):
    """How far one extender's log has been read, and which shadow decisions are still to compare."""

    open: dict[int, float] = field(default_factory=dict)
    """When to give up on each (monotonic seconds)."""

    @property
    def after(self) -> int:
        """Where to read on."""
        return min(min(self.open, default=self.counted + 1) - 1, self.counted)


@dataclass(frozen=True, slots=True)
class PageTally:
    """What one page added."""

    answers: dict[str, AnswerCounts]
    lost: int
    last_seen: int


def tally(page: Mapping[str, Any], cursor: Cursor, since_s: float, now_monotonic_s: float) -> PageTally:
    """Count a page of a decision log and move the cursor; decisions before `since_s` (epoch) are history if the log is new to us."""
    history = not cursor.known
    return count(cursor.take(page), cursor, since_s if history else -math.inf, now_monotonic_s)


def count(page: pages.Page, cursor: Cursor, since_s: float, now_monotonic_s: float) -> PageTally:
    """What a page adds to the counters. Decisions before `since_s` are not counted."""
    if page.restarted:
        cursor.open = {}
    answers: dict[str, AnswerCounts] = {}
    new = [item for item in page.new if item.get("policy") and _at_s(item) >= since_s]
    for item in new:
        _add(answers, item, _answer(item))
    for item in [*new, *(item for item in page.again if int(item["seq"]) in cursor.open)]:
        seq, comparison = int(item["seq"]), _comparison(item)
        if comparison is not None:
            cursor.open.pop(seq, None)
            _add(answers, item, comparison)
        elif item.get("mode") == "Shadow" and item.get("would") and len(cursor.open) < _OPEN_MAX:
            cursor.open.setdefault(seq, now_monotonic_s + _COMPARE_FOR_S)
    return PageTally(answers, page.lost, page.read_to)


def _add(answers: dict[str, AnswerCounts], item: Mapping[str, Any], more: AnswerCounts) -> None:
    if policy := item.get("policy"):
        answers[policy] = answers.get(policy, AnswerCounts()).plus(more)


def _at_s(item: Mapping[str, Any]) -> float:
    """When it was decided; what is no time was long ago."""
    try:
        return float(item.get("at") or 0)
    except (TypeError, ValueError):
        return 0.0


def _answer(item: Mapping[str, Any]) -> AnswerCounts:
    match item.get("outcome"):
        case "scored":
            return AnswerCounts(scored=1)
        case "fallback":
            return AnswerCounts(fallback=1, fallback_reason=str(item.get("reason") or "")[:63])
        case _:
            return AnswerCounts(neutral=1)


def _comparison(item: Mapping[str, Any]) -> AnswerCounts | None:
    """The counts of a shadow decision whose pod is bound; None while the pod is not bound, and for other decisions."""
    if item.get("mode") != "Shadow" or not item.get("would") or not item.get("chosen"):
        return None
    return AnswerCounts(shadow_compared=1, shadow_agreed=int(item["would"] == item["chosen"]))


@dataclass(frozen=True, slots=True)
class _Served:
    """What one extender says of its models."""

    serving: Mapping[tuple[str, str, str], str]
    learned: Mapping[str, str]
    policies: frozenset[str] | None
    """Names of the placement policies that it has; None of an extender that does not say."""


class DecisionReader:
    """Reads the decision logs behind some URLs, which commas separate. A failure is counted and never stops a reconciliation."""

    def __init__(
        self,
        urls: str,
        token_file: Path | None,
        clock: Clock,
        *,
        on_error: Callable[[], None],
        on_lost: Callable[[int], None],
        guard: ObjectGuard | None = None,
        beats: Heartbeats | None = None,
        authority: TrustedAuthority | None = None,
    ) -> None:
        self._guard, self._beats = guard, beats
        self._services = [Service.of(url) for url in urls.split(",")]
        self._token, self._clock = TokenFile(token_file).to_send if token_file is not None else None, clock
        self._authority = authority or TrustedAuthority(None)
        self._on_error, self._on_lost = on_error, on_lost
        self._since_s = clock.now_s()
        self._pulled = asyncio.Event()
        self._cursors: dict[Address, Cursor] = {}
        self._pending: dict[str, AnswerCounts] = {}
        self._names = Names(of_one=1)
        self._peers: Peers | None = None
        self._failing: set[str] = set()
        self.serving: Mapping[tuple[str, str, str], str] = {}
        """sha256 of what the extenders serve by model, policy and mode: a refused artifact leaves the last good one in place there."""
        self.held: Mapping[str, frozenset[str]] | None = None
        """sha256 of LearnedModels in the extenders by name; "" for an extender without it; None if none answered."""
        self.policies: frozenset[str] | None = None
        """Placement policies that every extender has; None if none said so."""

    async def __aenter__(self) -> Self:
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        self._peers = Peers(session, self._token, self._authority, _BODY_MAX_BYTES)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._peers is not None:
            await self._peers.session.close()
            self._peers = None

    async def run(self, interval_s: float) -> None:
        """Pull for ever. Only a leader does: what was answered before it led, its predecessor counted."""
        self._since_s = self._clock.now_s()
        if self._beats is not None:
            self._beats.expect(LOOP, interval_s + LATE_S)
        while True:
            with self._tried("all"):
                await self.pull()
            if self._beats is not None:
                self._beats.beat(LOOP)
            await asyncio.sleep(interval_s)

    async def first_pull(self, at_most_s: float) -> None:
        """Wait until every address was asked once, but not for long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most_s):
                await self._pulled.wait()

    def pending(self) -> Mapping[str, AnswerCounts]:
        """Counted, but in no status yet; by policy key."""
        return self._pending

    def settle(self, policy: str, counted: AnswerCounts) -> None:
        """A status now contains these."""
        if policy in self._pending:
            self._pending[policy] = self._pending[policy].minus(counted)
            if self._pending[policy].empty:
                del self._pending[policy]

    def keep_only(self, policies: set[str]) -> None:
        """Forget counts of policies that no longer exist."""
        self._pending = {key: counts for key, counts in self._pending.items() if key in policies}

    async def pull(self) -> None:
        """Read what every address has that was not read yet."""
        try:
            await self._pull_all()
        finally:
            self._pulled.set()

    async def _pull_all(self) -> None:
        found = await asyncio.gather(*map(self._addresses, self._services))
        addresses = [address for of_service in found for address in of_service]
        # an address that is away for a while (a pod not ready) is not new when it comes back
        while len(self._cursors) > _CURSORS_MAX:
            del self._cursors[next(iter(self._cursors))]
        served = await asyncio.gather(*(self._guarded(address) for address in addresses))
        answered = [models for models in served if models is not None]
        self.serving = {key: digest for models in answered for key, digest in models.serving.items()}
        said = [models.policies for models in answered if models.policies is not None]
        self.policies = frozenset.intersection(*said) if said else None
        names = {name for models in answered for name in models.learned}
        self.held = {name: frozenset(models.learned.get(name, "") for models in answered) for name in names} if answered else None

    async def _guarded(self, address: Address) -> _Served | None:
        """One log, whatever is in it."""
        with self._tried(str(address)) as trip:
            served = await self._visit(address)
        return None if trip.error is not None else served

    def _tried(self, where: str) -> contextlib.AbstractContextManager[Trip]:
        return self._guard.over("DecisionLog", where, "") if self._guard is not None else caught()

    async def _visit(self, address: Address) -> _Served | None:
        """Decisions and models of one address; a failure is counted."""
        try:
            async with asyncio.timeout(2 * _TIMEOUT_S):
                await self._pull_one(address, self._cursors.setdefault(address, Cursor()))
                served = await self._served(address)
        except (Unavailable, TimeoutError) as error:
            self._failed(str(address), str(error) or f"no answer within {2 * _TIMEOUT_S:.0f} s")
            return None
        self._failing.discard(str(address))
        return served

    def _failed(self, where: str, why: str) -> None:
        self._on_error()
        # once per outage: an absent extender is no news every half minute
        level = logging.DEBUG if where in self._failing else logging.WARNING
        log.log(level, "decisions could not be read", extra={"fields": {"address": where, "error": why}})
        self._failing.add(where)

    async def _addresses(self, service: Service) -> list[Address]:
        try:
            found = await addresses_of(self._names, service, _TIMEOUT_S)
        except Unavailable as error:
            self._failed(service.host, str(error))
            return []
        self._failing.discard(service.host)
        return found

    async def _served(self, address: Address) -> _Served:
        answer = await self._get(address, "/v1/models", {})
        try:
            models = [(str(m["name"]), str(m["policy"]), str(m["sha256"]), m) for m in answer["items"]]
            serving = {(name, policy, str(mode)): digest for name, policy, digest, m in models for mode in m["modes"]}
            policies = frozenset(map(str, answer["policies"])) if "policies" in answer else None
            return _Served(serving, {name: digest for name, _, digest, m in models if m["source"] == KIND}, policies)
        except (KeyError, TypeError) as error:
            raise Unavailable(f"the models of {address} are not readable: {error!r}") from error

    async def _pull_one(self, address: Address, cursor: Cursor) -> None:
        async def fetch(after: int, limit: int) -> Mapping[str, Any]:
            return await self._get(address, "/v1/decisions", {"after": str(after), "limit": str(limit)})

        since_s = -math.inf if cursor.known else self._since_s
        try:
            async for page in RecordReader(fetch, PAGE, _PAGES_A_PULL, cursor).read(cursor.after):
                read = count(page, cursor, since_s, self._clock.monotonic_s())
                for policy, counts in read.answers.items():
                    self._pending[policy] = self._pending.get(policy, AnswerCounts()).plus(counts)
                if read.lost:
                    self._on_lost(read.lost)
        except (KeyError, TypeError, ValueError) as error:
            raise Unavailable(f"the decision log of {address} is not readable: {error!r}") from error
        now_s = self._clock.monotonic_s()
        cursor.open = {seq: until_s for seq, until_s in cursor.open.items() if until_s > now_s}

    async def _get(self, address: Address, path: str, params: Mapping[str, str]) -> dict[str, Any]:
        if self._peers is None:
            raise Unavailable("the reader is not open: use it in an async with block")
        return await self._peers.get_object(address, path, params)
