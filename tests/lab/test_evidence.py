from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.evidence import SEALED_FROM, Contrast, Ledger, Swap, chosen_seeds, judged, rules_of_evidence
from tiphys_models.lab.report import Claim, Result, Row

NOW = datetime(2026, 11, 19, 12, 30, tzinfo=UTC)
WEIGHTS = {"faasrank": "ab" * 32, "faasrank-paper": "cd" * 32}
CONTRAST = Contrast("learned", "simple", "simple-tuned")


def rows(**values: float) -> list[Row]:
    return [{"policy": policy, "value": value} for policy, value in values.items()]


def claims(found: Any) -> list[Claim]:
    """One claim about the learned decider, one about whoever is there."""
    by = {row["policy"]: row["value"] for row in found}
    made = [Claim("number-of-policies", float(len(by)), 1, ">=")]
    return [*made, Claim("learned-value", by["learned"], 5, "<=")] if "learned" in by else made


def test_beside_a_claim_about_what_is_learned_stands_the_value_of_the_trivial_policy() -> None:
    general, learned = judged(claims, rows(learned=3.0, simple=4.0), CONTRAST, Swap())
    assert general.trivial is None
    assert learned.trivial is not None
    assert (learned.trivial.policy, learned.trivial.value, learned.void) == ("simple", 4.0, True)
    (_, earned) = judged(claims, rows(learned=3.0, simple=6.0), CONTRAST, Swap())
    assert (earned.holds, earned.void) == (True, False)


def test_where_the_trivial_policy_was_not_played_its_value_is_unknown_and_nothing_is_void() -> None:
    (_, learned) = judged(claims, rows(learned=3.0), CONTRAST, Swap())
    assert learned.trivial is not None
    assert learned.trivial.value is None
    assert not learned.void


def test_swapped_rows_carry_what_rows_of_the_learned_decider_have_besides() -> None:
    (simple, swapped) = Swap(also={"training_seed": 0}).rows(rows(learned=3.0, simple=4.0), CONTRAST)
    assert simple == {"policy": "simple", "value": 4.0}
    assert swapped == {"policy": "learned", "value": 4.0, "training_seed": 0}


def test_few_seeds_and_a_missing_rule_with_the_same_inputs_are_told_as_claims_that_do_not_hold() -> None:
    few = rules_of_evidence("bench", rows(learned=1.0), (0, 1), CONTRAST, "policy")
    assert [(c.id, c.value, c.holds) for c in few] == [
        ("bench-seeds", 2.0, False),
        ("rows-of-simple-tuned-beside-learned", 0.0, False),
    ]
    enough = rules_of_evidence(
        "bench", [*rows(learned=1.0), {"policy": "simple-tuned", "value": 2.0}], tuple(range(10)), CONTRAST, "policy"
    )
    assert all(c.holds for c in enough)


def test_sealed_seeds_follow_from_the_weights_and_the_bench_alone(tmp_path: Path) -> None:
    def opened(name: str, bench: str = "placement", **changed: str) -> tuple[int, ...]:
        return Ledger(tmp_path / f"{name}.md").open(bench, {**WEIGHTS, **changed}, 5, NOW)

    first = opened("a")
    assert len(set(first)) == 5
    assert min(first) >= SEALED_FROM
    assert opened("b") == first
    assert not set(first) & set(opened("c", faasrank="ef" * 32))
    assert not set(first) & set(opened("d", bench="selection"))


def test_sealed_seeds_cannot_be_read_without_saying_so(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.md")
    seeds = ledger.open("placement", WEIGHTS, 3, NOW)
    text = ledger.path.read_text()
    assert all(str(seed) in text for seed in seeds)
    assert "Opened 2026-11-19 12:30 UTC, 3 seeds" in text
    assert "ab" * 32 in text
    with pytest.raises(InvalidInput, match="judged once"):
        ledger.open("placement", WEIGHTS, 30, NOW)
    assert ledger.path.read_text() == text
    with pytest.raises(InvalidInput, match="--sealed plays those"):
        chosen_seeds([0, seeds[0]])
    assert chosen_seeds([0, 1, 19]) == (0, 1, 19)


def test_without_weights_there_are_no_sealed_seeds(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="judges no weights"):
        Ledger(tmp_path / "ledger.md").open("placement", {}, 3, NOW)
    assert not (tmp_path / "ledger.md").exists()


def test_every_claim_of_a_sealed_run_is_written_down_also_the_one_that_does_not_hold(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.md")
    other = {"aset": "12" * 32}
    for bench, weights in (("placement", WEIGHTS), ("binding", other)):
        ledger.open(bench, weights, 2, NOW)
    made = (Claim("good", 1, 2, "<="), Claim("bad", 3, 2, "<="))
    ledger.close(Result("placement", False, (1, 2), 60.0, {}, [{}], [], made), WEIGHTS)
    placement, binding = ledger.path.read_text().split("\n## ")[1:]
    assert "| good | 1 | <= 2 |  | holds |" in placement
    assert "| bad | 3 | <= 2 |  | **does not hold** |" in placement
    assert "1 rows, 1 minutes." in placement
    assert "good" not in binding
    ledger.close(Result("binding", False, (1, 2), 60.0, {}, [], [], made[:1]), other)
    assert "| good | 1 | <= 2 |  | holds |" in ledger.path.read_text().split("\n## ")[2]
