"""Placement policies of other packages in the extender: asked, recorded, and harmless when they are not."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tests.builders import policy_object
from tests.extender.harness import Extender, first, is_neutral
from tests.foreign import brought
from tiphys_models.placement.registry import REGISTRY, ForeignPolicy


class Last:
    """Prefers the node with the last name."""

    def score(self, view: Any, memory: Any) -> Any:
        return view.position * 1.0


class Careful(Last):
    """Worth nothing without node readings."""

    reads_nodes = True
    digest = "a" * 64


class Raises:
    """Always fails."""

    def score(self, view: Any, memory: Any) -> Any:
        raise RuntimeError("the pod's secret")


class Short:
    """One number too few."""

    def score(self, view: Any, memory: Any) -> Any:
        return np.zeros(len(view.rows) - 1)


class Odd:
    """No numbers."""

    def score(self, view: Any, memory: Any) -> Any:
        return np.full(len(view.rows), np.nan)


class Slow(Last):
    """Thinks too long."""

    thought = 0

    def score(self, view: Any, memory: Any) -> Any:
        Slow.thought += 1
        time.sleep(0.03)
        return super().score(view, memory)


def brings(**classes: type) -> Any:
    return brought(REGISTRY, **{name: f"{__name__}:{kind.__name__}" for name, kind in classes.items()})


def asked(policy: str, mode: str = "Active") -> Extender:
    extender = Extender(nodes=4, policies=[policy_object(mode=mode, policy=policy, fallback="least-connections")])
    extender.ask("u0")
    return extender


def test_it_decides_and_is_recorded_by_name_and_digest() -> None:
    with brings(acme_last=Last):
        extender = asked("acme-last")
    assert first(extender.ask("u1")) == "n3"
    assert (extender.last["outcome"], extender.last["policyName"], len(extender.last["modelDigest"])) == ("scored", "acme-last", 64)
    assert extender.last["would"] == "n3"
    assert extender.counted("policy_answers_total", policy="acme-last") == 2


def test_in_shadow_it_is_asked_and_not_obeyed() -> None:
    with brings(acme_last=Last):
        extender = asked("acme-last", "Shadow")
    assert is_neutral(extender.ask("u1"))
    assert (extender.last["reason"], extender.last["would"]) == ("shadow", "n3")


def test_its_own_digest_counts_and_without_readings_it_is_not_asked_if_it_says_so() -> None:
    with brings(acme_careful=Careful):
        blind = asked("acme-careful")
        assert (blind.last["outcome"], blind.last["reason"]) == ("fallback", "readings-missing")
        blind.read()
        blind.ask("u1")
    assert (blind.last["outcome"], blind.last["modelDigest"]) == ("scored", "a" * 64)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(Raises, "policy-error"), (Short, "policy-error"), (Odd, "scores-not-finite")],
    ids=lambda p: getattr(p, "__name__", p),
)
def test_what_it_does_wrong_is_the_fallbacks_to_answer(kind: type, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    with brings(acme_wrong=kind):
        extender = asked("acme-wrong")
    assert (extender.last["outcome"], extender.last["reason"], extender.last["policyName"]) == ("fallback", reason, "least-connections")
    assert extender.counted("fallback_answers_total", reason=reason) == 1
    assert "secret" not in caplog.text


def test_one_that_is_slow_again_and_again_rests_and_delays_nobody() -> None:
    with brings(acme_slow=Slow):
        extender = asked("acme-slow")
    for uid in range(3):
        extender.ask(f"v{uid}")
    thought = Slow.thought
    extender.ask("later")
    assert (extender.last["outcome"], extender.last["reason"]) == ("fallback", "policy-error")
    assert Slow.thought == thought, "it is not even asked"


def test_a_broken_package_leaves_the_others_and_ours_alone() -> None:
    with brought(REGISTRY, acme_gone="acme.nowhere:Policy", acme_last=f"{__name__}:Last"):
        assert asked("acme-last").last["outcome"] == "scored"
        assert asked("warm-first").last["outcome"] == "scored"
        gone = asked("acme-gone")
    assert (gone.last["outcome"], gone.last["reason"]) == ("fallback", "policy-unknown")


def test_a_candidate_of_another_package_is_obeyed_where_it_is_known_and_answered_by_the_fallback_elsewhere() -> None:
    select: dict[str, Any] = {"select": {"by": "ucb", "among": ["acme-last", "greedy"]}, "mode": "Active", "fallback": "least-connections"}
    chosen = policy_object(**select) | {"status": {"activePolicy": "acme-last", "observedGeneration": 1}}
    with brings(acme_last=Last):
        known = Extender(nodes=4, policies=[chosen])
    known.ask("u0")
    assert (known.last["outcome"], known.last["policyName"]) == ("scored", "acme-last")
    stranger = Extender(nodes=4, policies=[chosen])
    stranger.ask("u0")
    assert (stranger.last["outcome"], stranger.last["reason"]) == ("fallback", "policy-unknown")


def test_what_a_policy_leaves_unsaid_is_filled_in() -> None:
    made = ForeignPolicy(Last(), "acme-last")
    assert (made.epsilon, made.row_wise, made.reads_nodes, made.digest) == (1e-3, False, False, "")
