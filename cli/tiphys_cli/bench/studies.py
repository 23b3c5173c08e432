"""How a study is run from the command line: checked, played, printed, written into documents and into the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiphys_cli.bench.printing import finish, guarded, parse_numbers
from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.documents import blocks, check, mark_of, rewrite
from tiphys_models.lab.evidence import Ledger, chosen_seeds
from tiphys_models.lab.report import Result
from tiphys_models.lab.study import run

if TYPE_CHECKING:
    from tiphys_models.lab.study import Study

_QUICK_SEEDS = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options that every study has."""

    seeds: str
    sealed: bool
    ledger: Path
    json: bool
    quick: bool
    out: Path | None
    check: bool
    docs: list[Path] | None


@contextmanager
def simulators() -> Iterator[None]:
    """Imports of simulators: what is missing is told with the extra that brings it."""
    try:
        yield
    except ImportError as error:
        raise InvalidInput(f"the simulator needs more than is installed ({error.name}): pip install 'tiphys[sim]'") from error


def play(make: Callable[[tuple[int, ...]], Study[Any, Any]], wanted: Wanted) -> None:
    """Run the study that `make` makes of seeds, and end as every benchmark does."""
    kept: list[Study[Any, Any]] = []

    def work(tell: Callable[[str], None]) -> Result:
        seeds = chosen_seeds(parse_numbers(wanted.seeds, "seeds", least=0))
        with simulators():
            study = make(seeds[:_QUICK_SEEDS] if wanted.quick else seeds)
        for path in wanted.docs or ():
            check([path], [*map(mark_of, study.titles()), "claims"])
            study.check_pictures(path)
        study.check()
        kept.append(_sealed(study, wanted.ledger) if wanted.sealed else study)
        return _written(kept[-1], run(kept[-1], tell), wanted)

    if wanted.sealed and wanted.quick:
        guarded(_refuse_quick)
    result = guarded(work, wanted.docs if wanted.quick else None)
    finish(result, json=wanted.json, out=wanted.out, check=wanted.check, plots={}, tables=kept[-1].tables(result))


def _refuse_quick(_: Callable[[str], None]) -> Result:
    raise InvalidInput("--sealed: a run with --quick would use up the one run that these weights have")


def _sealed(study: Study[Any, Any], ledger: Path) -> Study[Any, Any]:
    return replace(study, seeds=Ledger(ledger).open(study.bench, study.digests(), len(study.seeds), datetime.now(UTC)), sealed=True)


def _written(study: Study[Any, Any], result: Result, wanted: Wanted) -> Result:
    if study.sealed:
        Ledger(wanted.ledger).close(result, study.digests())
    if wanted.out is not None:
        wanted.out.mkdir(parents=True, exist_ok=True)
        study.draw(result, wanted.out)
    made = blocks(study.tables(result), study.claim_rows(result.claims)) if wanted.docs else {}
    for path in wanted.docs or ():
        # a table that this run has no line for is left empty; its mark was checked before
        rewrite(path, {**dict.fromkeys(map(mark_of, study.titles()), ""), **made})
        study.illustrate(result, path)
    return result
