"""Documentation that code can check."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tiphys_models.api.reasons import ConditionType, FallbackReason, ModelConditionType, ModelReason, NeutralReason, OpenReason, Reason
from tiphys_models.api.scaling_reasons import DecisionPhase, MaskReason, ScalingConditionType, ScalingReason
from tiphys_models.api.stream_reasons import BindingConditionType, SiteReason, StreamReason, VariantReason
from tiphys_models.placement.registry import PolicyName
from tiphys_models.placement.schema import FEATURES
from tiphys_models.scaling.limits import LimitReason

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if path.is_file())


def test_every_reason_is_explained() -> None:
    text = (ROOT / "docs" / "conditions.md").read_text()
    for word in [*Reason, *NeutralReason, *FallbackReason, *OpenReason]:
        assert f"`{word}`" in text, word
    of_models = text[text.index("## Conditions of a LearnedModel") : text.index("## Conditions of a ScalingPolicy")]
    for word in ModelReason:
        assert f"`{word}`" in of_models, word
    of_scaling = text[text.index("## Conditions of a ScalingPolicy") : text.index("## Conditions of InferenceSites")]
    for word in [*ScalingReason, *DecisionPhase, *MaskReason, *LimitReason]:
        assert f"`{word}`" in of_scaling, word
    of_binding = text[text.index("## Conditions of InferenceSites") : text.index("## Why an answer was neutral")]
    for word in [*SiteReason, *VariantReason, *StreamReason]:
        assert f"`{word}`" in of_binding, word
    for condition in [*ConditionType, *ModelConditionType, *ScalingConditionType, *BindingConditionType]:
        assert condition in text


def test_every_policy_and_every_input_is_explained() -> None:
    text = (ROOT / "docs" / "concepts.md").read_text()
    for name in [*PolicyName, *(feature.name for feature in FEATURES)]:
        assert f"`{name}`" in text, name


def test_links_between_documents_lead_somewhere() -> None:
    for path in DOCS:
        for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_every_system_has_what_the_others_have_and_a_test_of_each() -> None:
    rows = [line.strip("| ").split(" | ") for line in (ROOT / "docs" / "systems.md").read_text().splitlines() if line.startswith("| **")]
    assert len(rows) == 12
    for name, *cells in rows:
        assert len(cells) == 4, name
        for cell in cells:
            path, _, test = cell.strip("`").partition("::")
            assert test, f"{name}: {cell}"
            assert f"def {test}(" in (ROOT / path).read_text(), f"{name}: {cell}"


def test_links_of_the_site_into_the_repository_lead_somewhere() -> None:
    for path in DOCS:
        for target in re.findall(r"github\.com/tiphys-io/tiphys/(?:blob|tree)/main/([^)#\s]+)", path.read_text()):
            assert (ROOT / target).exists(), f"{path.name}: {target}"


def test_a_page_of_the_site_links_only_to_what_the_site_holds() -> None:
    for path in ROOT.glob("docs/**/*.md"):
        for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", path.read_text()):
            assert (path.parent / target).resolve().is_relative_to(ROOT / "docs"), f"{path.name}: {target}"


def test_every_page_of_the_site_can_be_found_from_its_navigation() -> None:
    listed = set(re.findall(r'"([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text()))
    for page in [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/reference/*.md")]:
        assert str(page.relative_to(ROOT / "docs")) in listed, page


def test_files_named_in_architecture_and_contributing_are_there() -> None:
    roots = ("models/", "operator/", "extender/", "cli/", "testbed/", "docs/", "helm/", "tests/", "manifests/", "requirements/")
    for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"):
        for path in re.findall(r"`([\w./-]+)`", (ROOT / name).read_text()):
            if path.startswith(roots):
                assert (ROOT / path).exists(), f"{name}: {path}"


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_make_targets_named_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in DOCS:
        text = path.read_text()
        in_blocks = re.findall(r"^make ([a-z][a-z0-9.-]+)", text, re.MULTILINE)
        for target in in_blocks + re.findall(r"`make ([a-z][a-z0-9.-]+)", text):
            assert target in targets, f"{path.name}: make {target}"


def test_every_test_named_in_the_fault_catalogue_exists() -> None:
    text = (ROOT / "docs" / "faults.md").read_text()
    rows = re.findall(r"^\| (\d+) \|", text, re.MULTILINE)
    assert [int(row) for row in rows] == list(range(1, 112))
    named = re.findall(r"`((?:tests|e2e)/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 40
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
    for line in text.splitlines():
        assert not line.startswith("| ") or line.startswith("| # |") or "::test_" in line or "*not run*" in line, line


def test_every_claim_of_security_names_a_test_that_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`((?:tests|e2e)/[\w/]+\.py)::(\w+)`", text)
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
    holds = text[text.index("## What holds") : text.index("## Credentials")]
    claims = [line for line in holds.splitlines() if line.startswith("| ") and line != "| claim | held by |"]
    assert len(claims) > 40
    for line in claims:
        _, claim, held, _ = line.split("|")
        assert "::test_" in held, claim
        assert claim.strip().endswith("."), f"a claim is a sentence: {claim}"
    # What stands between the tables is introduction, and claims nothing.
    assert [line for line in holds.splitlines() if line and not line.startswith(("|", "#"))] == []


def test_cards_in_words_speak_of_the_weights_that_ship_and_tables_are_filled() -> None:
    own, bed = ROOT / "models" / "tiphys_models" / "weights", ROOT / "testbed" / "tiphys_testbed" / "weights"
    for card in (*own.glob("*.json"), *bed.glob("*.json")):
        assert json.loads(card.read_text())["sha256"] in (ROOT / "docs" / "model-cards" / f"{card.stem}.md").read_text(), card.stem
    for path in DOCS:
        assert not re.search(r"<!-- bench:[a-z-]+ -->\s*<!-- /bench -->", path.read_text()), path.name
