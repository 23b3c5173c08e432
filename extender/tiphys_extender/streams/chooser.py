"""Which policy binds: the one that was named, the one that an agent names for every window, or the fallback, and why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tiphys_extender.model_files import Stamp, stamp_of
from tiphys_extender.streams.window import Tally, shares
from tiphys_models.api.stream_policy import StreamPolicySpec
from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.binding.agent import ACTIONS, Agent, Pooling, Seen, load_agent
from tiphys_models.binding.learned import load_score
from tiphys_models.binding.offers import Offers
from tiphys_models.binding.protocol import BindingPolicy
from tiphys_models.binding.rules import STATIC, StaticPolicy
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_models.features.arrays import FloatArray

_log = logging.getLogger(__name__)

FALLBACKS = ("weights-missing", "weights-refused", "agent-failed")
"""Why the fallback binds."""
Load = Callable[[str, str], BindingPolicy | Agent]
"""(policy, name of its weights) -> what has them; ArtifactRefused."""


@dataclass(frozen=True, slots=True)
class Weights:
    """From mounted files, else from those that are shipped."""

    directory: Path | None

    def load(self, policy: str, model: str) -> BindingPolicy | Agent:
        """See `Load`."""
        card = self._card(model)
        return load_score(card) if policy == "score" else load_agent(card)

    def stamp(self, model: str) -> Stamp:
        """Another one when `load` may find something else."""
        return stamp_of(self._card(model))

    def _card(self, model: str) -> Path:
        mounted = self.directory / f"{model}.json" if self.directory is not None else None
        return mounted if mounted is not None and mounted.exists() else SHIPPED / f"{model}.json"


@dataclass(frozen=True, slots=True)
class Obeyed:
    """A StreamPolicy."""

    name: str
    generation: int
    spec: StreamPolicySpec


class Chooser:
    """Pure but for its memory of the agent's last choice."""

    def __init__(self, load: Load, stamp: Callable[[str], Stamp] = lambda _: ()) -> None:
        self._load, self._stamp = load, stamp
        self._seen: Stamp = ()
        """Of the weights that were loaded or refused last."""
        self._spec: StreamPolicySpec | None = None
        self._offers: Offers | None = None
        self._pooling: Pooling | None = None
        self._agent: Agent | None = None
        self.policy: BindingPolicy = StaticPolicy("relative-load")
        self.fallback = ""
        """One of FALLBACKS while the fallback binds."""
        self.changed_s = 0.0
        self.reason = ""
        """Of the last change."""
        self._action = 0

    def obey(self, spec: StreamPolicySpec, now_s: float) -> None:
        """A StreamPolicy that is new or has changed. What cannot be loaded is tried again when either changes."""
        self._spec, self._agent = spec, None
        if spec.policy in STATIC:
            self._take(StaticPolicy(spec.policy), "", now_s, "named by the StreamPolicy")
            return
        model = spec.model_name or spec.policy
        self._seen = self._stamp(model)
        try:
            found = self._load(spec.policy, model)
        except ArtifactRefused as error:
            fallback = "weights-missing" if error.reason == "Missing" else "weights-refused"
            _log.warning("fallback binds", extra={"fields": {"policy": spec.policy, "fallback": spec.fallback, "why": str(error)}})
            self._take(StaticPolicy(spec.fallback), fallback, now_s, f"{spec.policy}: {fallback}")
            return
        self._serve(found, spec.policy, now_s, "named by the StreamPolicy")

    def reload_if_changed(self, now_s: float) -> None:
        """Other weights under the same name serve at once; while what is there now is refused, the last good ones go on."""
        spec = self._spec
        if spec is None or spec.model_name is None or (stamp := self._stamp(spec.model_name)) == self._seen:
            return
        if self.fallback and self._agent is None:  # there are no good ones yet
            self.obey(spec, now_s)
            return
        self._seen = stamp
        try:
            found = self._load(spec.policy, spec.model_name)
        except ArtifactRefused as error:
            fields = {"policy": spec.policy, "model": spec.model_name, "why": str(error)}
            _log.warning("weights have changed and are refused, what serves stays", extra={"fields": fields})
            return
        _log.info("weights loaded", extra={"fields": {"policy": spec.policy, "model": spec.model_name}})
        self._serve(found, spec.policy, now_s, "other weights")

    def turn(self, offers: Offers, load_qps: FloatArray, active: FloatArray, ended: Tally, now_s: float) -> None:
        """A window has ended: an agent names the policy of the next one."""
        agent, spec = self._agent, self._spec
        if agent is None or spec is None:
            return
        length_s = max(now_s - ended.since_s, 1e-3)
        try:
            if self._offers is not offers or self._pooling is None:
                self._offers, self._pooling = offers, Pooling(offers)
            was = shares([ended])
            seen = Seen(load_qps, ended.incoming / length_s, active, was.success, was.reject, was.failure, self._action)
            self._action = agent.choose(self._pooling.features(seen))
        except (ValueError, ArithmeticError, LookupError) as error:  # an offer unlike those it was made for
            _log.warning("agent failed, fallback binds", extra={"fields": {"policy": spec.policy, "error": type(error).__name__}})
            self._take(StaticPolicy(spec.fallback), "agent-failed", now_s, f"{spec.policy}: agent-failed")
            return
        self._take(agent.policies[self._action], "", now_s, f"{spec.policy} chose {ACTIONS[self._action]}")

    def _serve(self, found: BindingPolicy | Agent, name: str, now_s: float, reason: str) -> None:
        if isinstance(found, Agent):
            self._agent, self._action = found, found.base
            self._take(found.policies[found.base], "", now_s, f"{name} begins")
        else:
            self._take(found, "", now_s, reason)

    def _take(self, policy: BindingPolicy, fallback: str, now_s: float, reason: str) -> None:
        if (policy.name, fallback) != (self.policy.name, self.fallback) or not self.reason:
            self.changed_s, self.reason = now_s, reason
        self.policy, self.fallback = policy, fallback
