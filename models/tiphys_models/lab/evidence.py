"""The rules of evidence that every study obeys: sealed seeds with a ledger, rules with the same inputs, and the trivial policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.documents import claim_row, markdown
from tiphys_models.lab.report import Claim, Result, Row, Trivial

SEALED_FROM, _SEALED_COUNT = 1_000_000_000, 1_000_000_000
"""Sealed seeds are drawn from here on; no seed that somebody chose may be."""
PUBLISHED_SEEDS = 10
"""The least number of seeds behind a published row."""
_LEDGER_HEAD = """# Ledger of sealed runs

Every run of `tiphys bench NAME --sealed` is written down here, also those whose claims do not hold, and those that were opened and never
ended. Sealed seeds follow from the digests of the weights that are judged: nobody can have looked at them before the weights existed,
and the same weights are judged once.
"""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A learned decider, and whom its claims are held against."""

    learned: str
    trivial: str
    """The policy without learning that comes first to mind: a claim that it passes shows nothing."""
    same_information: str
    """The strongest cheap rule on the same inputs, tuned with as many tries as the network had presets."""


@dataclass(frozen=True, slots=True)
class Swap:
    """How rows of the trivial policy take the place of the learned decider's."""

    column: str = "policy"
    """The key of a row that names who decided."""
    also: Mapping[str, object] | None = None
    """What else is different in rows of the learned decider."""

    def rows(self, rows: Sequence[Row], contrast: Contrast) -> list[Row]:
        """Rows as if the trivial policy were the learned decider; it stays beside itself, too."""
        kept = [row for row in rows if row[self.column] != contrast.learned]
        return [
            *kept,
            *({**row, self.column: contrast.learned, **(self.also or {})} for row in kept if row[self.column] == contrast.trivial),
        ]


ClaimsOf = Callable[[Sequence[Row]], Sequence[Claim]]


def judged(claims_of: ClaimsOf, rows: Sequence[Row], contrast: Contrast, swap: Swap, swapped: ClaimsOf | None = None) -> list[Claim]:
    """Claims, each that is about the learned decider beside the value that the trivial policy has in its place.

    A claim is about the learned decider if it is not made where that decider was not played. `swapped` makes the claims of swapped rows,
    where they are not made the same way.
    """
    made = claims_of(rows)
    general = {claim.id for claim in claims_of([row for row in rows if row[swap.column] != contrast.learned])}
    values = {claim.id: claim.value for claim in (swapped or claims_of)(swap.rows(rows, contrast))}
    return [claim if claim.id in general else replace(claim, trivial=Trivial(contrast.trivial, values.get(claim.id))) for claim in made]


def rules_of_evidence(bench: str, rows: Sequence[Row], seeds: Sequence[int], contrast: Contrast, column: str) -> list[Claim]:
    """What must be there before the other claims of a published table are evidence."""
    beside = sum(row[column] == contrast.same_information for row in rows)
    return [
        Claim(f"{bench}-seeds", float(len(seeds)), PUBLISHED_SEEDS, ">="),
        Claim(f"rows-of-{contrast.same_information}-beside-{contrast.learned}", float(beside), 1.0, ">="),
    ]


def chosen_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    """Seeds that somebody names; InvalidInput if one of them is sealed, since nothing would tell that it has been looked at."""
    if sealed := [seed for seed in seeds if seed >= SEALED_FROM]:
        raise InvalidInput(f"--seeds: {sealed[0]} may be a sealed seed (from {SEALED_FROM} on); --sealed plays those, and writes it down")
    return tuple(seeds)


def _sealed_seeds(bench: str, digests: Mapping[str, str], count: int) -> tuple[int, ...]:
    """Only the ledger hands them out."""
    if not digests:
        raise InvalidInput(f"--sealed: {bench} judges no weights here, and sealed seeds follow from the digests of weights")
    words, found = "/".join((bench, *sorted(digests.values()))), dict[int, None]()
    number = 0
    while len(found) < count:
        hashed = int.from_bytes(sha256(f"{words}/{number}".encode()).digest()[:8])
        found[SEALED_FROM + hashed % _SEALED_COUNT] = None
        number += 1
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The document in which every sealed run is written down, before it is played and when it has ended."""

    path: Path

    def open(self, bench: str, digests: Mapping[str, str], count: int, now: datetime) -> tuple[int, ...]:
        """The sealed seeds of these weights; InvalidInput if they were opened before."""
        seeds = _sealed_seeds(bench, digests, count)
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else _LEDGER_HEAD
        head = _head(bench, digests)
        if head in text:
            raise InvalidInput(f"--sealed: {self.path} has a run of {bench} with these weights; the same weights are judged once")
        named = "".join(f"- `{name}`: `{digest}`\n" for name, digest in digests.items())
        opened = f"Opened {now:%Y-%m-%d %H:%M} UTC, {count} seeds: {', '.join(map(str, seeds))}.\n"
        self.path.write_text(f"{text}\n{head}\n\n{opened}\n{named}", encoding="utf-8")
        return seeds

    def close(self, result: Result, digests: Mapping[str, str]) -> None:
        """Every claim of the run below its head, whether it holds or not."""
        text, head = self.path.read_text(encoding="utf-8"), _head(result.bench, digests)
        before, found, after = text.partition(head)
        own, line, others = after.partition("\n## ")
        made = markdown([claim_row(claim) for claim in result.claims])
        ended = f"{len(result.rows):,} rows, {result.wall_seconds / 60:.0f} minutes."
        self.path.write_text(f"{before}{found}{own.rstrip()}\n\n{ended}\n\n{made}\n{line}{others}", encoding="utf-8")


def _head(bench: str, digests: Mapping[str, str]) -> str:
    return f"## {bench}, weights {sha256('/'.join(sorted(digests.values())).encode()).hexdigest()[:16]}"
