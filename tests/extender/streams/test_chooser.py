from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.extender.streams.builders import Binder, shipped_models, spec
from tests.foreign import brought
from tests.models.test_store import BROKEN, Scene
from tests.streams.small import OFFERS
from tiphys_extender.streams.chooser import Chooser, Weights
from tiphys_extender.streams.tokens import Counts
from tiphys_extender.streams.window import Shares, Tally, counted, shares
from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.artifacts.store import Mounted
from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.kube.learned_models import RETRY_S
from tiphys_models.streams.agent import ACTIONS, BINS, FEATURES, Agent, load_agent
from tiphys_models.streams.kernels import WEIGHTS
from tiphys_models.streams.learned import SCHEMA
from tiphys_models.streams.registry import REGISTRY

ASET = load_agent(SHIPPED / "aset.json")


class Fixed:
    """An agent's place, taken by one that does as the test says."""

    def __init__(self, action: int | Exception) -> None:
        self.action, self.seen = action, np.zeros(0)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        self.seen = features
        if isinstance(self.action, Exception):
            raise self.action
        return np.eye(len(ACTIONS))[[self.action]] * 100.0


def agent(network: Fixed) -> Agent:
    return Agent("aset", ASET.policies, network, np.zeros(FEATURES), np.ones(FEATURES), ASET.base, 0.2)  # type: ignore[arg-type]


def turned(chooser: Chooser, now_s: float = 5.0) -> None:
    chooser.turn(OFFERS, np.zeros(len(OFFERS)), np.zeros(BINS), Tally(0.0), now_s)


def test_a_static_policy_is_obeyed_and_never_asked_about() -> None:
    chooser = Chooser(Weights(shipped_models()).load)
    chooser.obey(spec(policy="farthest"), 1.0)
    turned(chooser)
    assert (chooser.policy.name, chooser.fallback, chooser.changed_s) == ("farthest", "", 1.0)


def test_the_shipped_agent_begins_with_its_best_fixed_action() -> None:
    chooser = Chooser(Weights(shipped_models()).load)
    chooser.obey(spec(policy="aset"), 1.0)
    assert chooser.policy.name == ACTIONS[ASET.base]
    turned(chooser)
    assert chooser.fallback == ""


def test_an_agent_names_the_policy_of_every_window() -> None:
    network = Fixed(ACTIONS.index("closest"))
    chooser = Chooser(lambda policy, model, mode: agent(network))
    chooser.obey(spec(policy="aset"), 0.0)
    turned(chooser, 5.0)
    assert (chooser.policy.name, chooser.reason, chooser.changed_s) == ("closest", "aset chose closest", 5.0)
    network.action = ACTIONS.index("farthest")
    turned(chooser, 10.0)
    turned(chooser, 15.0)
    assert (chooser.policy.name, chooser.changed_s) == ("farthest", 10.0), "the time of the last change"
    assert network.seen.size == FEATURES


@pytest.mark.parametrize(("reason", "fallback"), [("Missing", "weights-missing"), ("DigestMismatch", "weights-refused")])
def test_weights_that_cannot_be_had_leave_the_fallback_with_a_reason(reason: str, fallback: str) -> None:
    def load(policy: str, model: str, mode: str) -> Agent:
        raise ArtifactRefused(reason, "no")

    chooser = Chooser(load)
    chooser.obey(spec(policy="aset", fallback="closest"), 1.0)
    turned(chooser)
    assert (chooser.policy.name, chooser.fallback) == ("closest", fallback)
    chooser.obey(spec(policy="farthest"), 2.0)
    assert (chooser.policy.name, chooser.fallback) == ("farthest", "")


def test_an_agent_that_fails_leaves_the_fallback_until_it_works_again() -> None:
    network = Fixed(ValueError("shapes"))
    chooser = Chooser(lambda policy, model, mode: agent(network))
    chooser.obey(spec(policy="aset", fallback="cheaper"), 0.0)
    turned(chooser, 5.0)
    assert (chooser.policy.name, chooser.fallback) == ("cheaper", "agent-failed")
    network.action = ASET.base
    turned(chooser, 10.0)
    assert (chooser.policy.name, chooser.fallback) == (ACTIONS[ASET.base], "")


def test_weights_that_are_mounted_later_or_changed_serve_without_a_word_and_broken_ones_leave_the_last(tmp_path: Path) -> None:
    store = shipped_models()
    weights, mounted = Weights(store), Mounted(store, tmp_path, {"streams"})

    def look() -> None:
        mounted.take(*mounted.look())

    chooser = Chooser(weights.load, weights.stamp)
    chooser.obey(spec(policy="score", model="ours", fallback="closest"), 0.0)
    assert (chooser.policy.name, chooser.fallback) == ("closest", "weights-missing")
    for name in (".json", ".safetensors"):
        (tmp_path / f"ours{name}").write_text("{}")
    look()
    chooser.reload_if_changed(0.5)
    assert (chooser.policy.name, chooser.fallback) == ("closest", "weights-refused")
    for name in (".json", ".safetensors"):
        shutil.copy(SHIPPED / f"score{name}", tmp_path / f"ours{name}")
    look()
    chooser.reload_if_changed(1.0)
    first = chooser.policy
    assert (first.name, chooser.fallback, chooser.changed_s) == ("score", "", 1.0)
    chooser.reload_if_changed(2.0)
    assert chooser.policy is first
    (tmp_path / "ours.safetensors").write_bytes(b"torn")
    look()
    chooser.reload_if_changed(3.0)
    assert chooser.policy is first, "half of a change is no reason to stop"
    write_tensors(tmp_path, "ours", "score", SCHEMA, {"weights": np.ones(WEIGHTS)})
    look()
    chooser.reload_if_changed(4.0)
    assert chooser.policy is not first
    chooser.obey(spec(policy="farthest"), 5.0)
    (tmp_path / "ours.json").unlink()
    look()
    chooser.reload_if_changed(6.0)
    assert chooser.policy.name == "farthest"


def test_the_summary_tells_the_operator_why_the_fallback_binds() -> None:
    binder = Binder(policy="aset", model="nobody-has-it")
    binder.bind()
    binder.streams.tick()
    summary = binder.streams.summary()
    assert (summary.active_policy, summary.model_problem, summary.streams) == ("relative-load", "weights-missing", 1)
    assert binder.counted("stream_fallback", reason="weights-missing") == 1
    assert summary.last_decision is not None
    assert summary.last_decision.policy == "relative-load"
    assert {site.site: site.streams for site in summary.sites} == {"edge": 0, "remote": 1}


def test_shares_add_up_to_one() -> None:
    tally = Tally(0.0, asked_qps=100.0, rejected_qps=20.0, counts=Counts(60, 10, 10))
    found = shares([tally])
    assert (found.success, found.reject, found.failure) == pytest.approx((0.8 * 0.75, 0.2, 0.8 * 0.25))
    assert shares([Tally(0.0)]) == Shares(1.0, 0.0, 0.0)
    numbers = counted([tally])
    assert (numbers.success, numbers.failure, numbers.reject) == (60, 20, 20), "as much for their rates as the bound ones"


@pytest.mark.parametrize("name", ["score", "aset"])
async def test_a_published_model_binds_once_it_is_promoted_and_a_broken_newer_one_leaves_it(tmp_path: Path, name: str) -> None:
    scene = Scene(tmp_path, name)
    weights = Weights(scene.store)
    chooser = Chooser(weights.load, weights.stamp)
    chooser.obey(spec(policy=name), 0.0)

    def serving() -> str:
        chooser.reload_if_changed(1.0)
        assert chooser.fallback == ""
        return scene.served()

    shipped = chooser.policy
    first = scene.publish(1, "candidate")
    await scene.load()
    assert (serving(), chooser.policy is shipped) == (scene.shipped, True)
    scene.publish(1, "active")
    assert (serving(), chooser.policy is shipped) == (first, False)
    published = chooser.policy
    for spoil, reason in BROKEN.values():
        scene.clock.advance(RETRY_S + 1)
        scene.publish(2, "active", spoil)
        assert await scene.load() == reason
        assert (serving(), chooser.policy is published) == (first, True)
    scene.feed.drop({"metadata": {"name": name}})
    assert (serving(), chooser.policy is published) == (scene.shipped, False)


async def test_a_model_at_a_stage_that_serves_nobody_is_as_good_as_missing(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "score")
    scene.publish(1, "candidate", lambda _, model: model["metadata"].update(name="ours"))
    await scene.feed.load("ours")
    chooser = Chooser(Weights(scene.store).load, Weights(scene.store).stamp)
    chooser.obey(spec(policy="score", model="ours", fallback="closest"), 0.0)
    assert (chooser.policy.name, chooser.fallback) == ("closest", "weights-missing")
    scene.publish(1, "active", lambda _, model: model["metadata"].update(name="ours"))
    chooser.reload_if_changed(1.0)
    assert (chooser.policy.name, chooser.fallback) == ("score", "")
    scene.publish(1, "retired", lambda _, model: model["metadata"].update(name="ours"))
    chooser.reload_if_changed(1.5)
    assert (chooser.policy.name, chooser.fallback) == ("closest", "weights-missing"), "whoever publishes can take it back"
    scene.publish(1, "active", lambda _, model: model["metadata"].update(name="ours"))
    chooser.obey(spec(policy="aset", model="ours", fallback="closest"), 2.0)
    assert (chooser.policy.name, chooser.fallback) == ("closest", "weights-refused"), "weights of another policy"


def test_the_weights_of_one_agent_may_be_named_for_another() -> None:
    chooser = Chooser(Weights(shipped_models()).load)
    chooser.obey(spec(policy="aset", model="aset-wide", fallback="closest"), 0.0)
    assert chooser.fallback == ""
    chooser.obey(spec(policy="score", model="aset", fallback="closest"), 1.0)
    assert (chooser.policy.name, chooser.fallback) == ("closest", "weights-refused")


class Idle:
    """A stream policy that prefers idle offers."""

    def score(self, stream: Any, candidates: Any) -> Any:
        return -candidates.load_qps


def test_a_policy_of_another_package_is_served_by_its_name() -> None:
    chooser = Chooser(Weights(shipped_models()).load, Weights(shipped_models()).stamp)
    with brought(REGISTRY, acme_idle=f"{__name__}:Idle"):
        chooser.obey(spec(policy="acme-idle"), 1.0)
    assert (chooser.policy.name, chooser.fallback) == ("acme-idle", "")


@pytest.mark.parametrize("target", ["", "acme.nowhere:Policy"])
def test_a_policy_that_nobody_has_or_that_cannot_be_used_leaves_the_fallback(target: str) -> None:
    chooser = Chooser(Weights(shipped_models()).load, Weights(shipped_models()).stamp)
    with brought(REGISTRY, **({"acme_idle": target} if target else {})):
        chooser.obey(spec(policy="acme-idle", fallback="closest"), 1.0)
    assert (chooser.policy.name, chooser.fallback) == ("closest", "policy-unknown")
