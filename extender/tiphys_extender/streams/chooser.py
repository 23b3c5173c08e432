"""Which policies sit at the seat of an access site: the rule, and beside it what the StreamPolicy names, or an agent's choice."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tiphys_extender.streams.window import Tally, shares
from tiphys_models.api.stream_policy import StreamPolicySpec
from tiphys_models.artifacts.loaders import LOADERS, loader_of
from tiphys_models.artifacts.store import SERVES, Source, Store
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.seats.modes import Mode
from tiphys_models.seats.seat import Group, Said, Seat
from tiphys_models.seats.shares import in_share
from tiphys_models.streams.agent import ACTIONS, Agent, Pooling, Seen
from tiphys_models.streams.offers import Offers
from tiphys_models.streams.protocol import Binding, BindingPolicy, Question, scores_of, taken
from tiphys_models.streams.registry import foreign_policy, is_foreign
from tiphys_models.streams.rules import STATIC, StaticPolicy

_log = logging.getLogger(__name__)

FALLBACKS = ("weights-missing", "weights-refused", "agent-failed", "policy-unknown")
"""Why the fallback binds for a while."""
NOT_FINITE = "scores-not-finite"
ANSWER_FALLBACKS = (*FALLBACKS, NOT_FINITE)
"""Why the fallback binds one stream."""
Stamp = tuple[object, ...]
_FALLBACK_OF = {"Missing": "weights-missing", "UnknownPolicy": "policy-unknown"}
Load = Callable[[str, str, str], BindingPolicy | Agent]
"""(policy, name of its weights, mode they must serve) -> what has them; ArtifactRefused."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The store's models of streams: a published one first, then a mounted one, then the one that ships."""

    store: Store

    def load(self, policy: str, model: str, mode: str = "Active") -> BindingPolicy | Agent:
        """See `Load`. Policies of other packages bring what they have learned."""
        if is_foreign(policy):
            return foreign_policy(policy)
        for one in _alike(policy):
            if (found := self.store.find(one, model, mode)) is not None:
                value: BindingPolicy | Agent = found.loaded.value
                return value
        for entry in filter(None, (self.store.entry(source, model) for source in Source)):
            if entry.refusal is not None:
                raise entry.refusal
            if entry.loaded is not None and entry.loaded.policy not in _alike(policy):
                raise ArtifactRefused("PolicyMismatch", f"{model} holds weights for {entry.loaded.policy}, not for {policy}")
        raise ArtifactRefused("Missing", f"no LearnedModel {model} that serves mode {mode}, no mounted {model}.json, none shipped")

    def stamp(self, model: str, mode: str = "Active") -> Stamp:
        """Another one when `load` may find something else."""
        known = [(source, entry) for source in Source if (entry := self.store.entry(source, model)) is not None]
        served = tuple((source, e.loaded.policy, e.loaded.digest) for source, e in known if e.loaded and mode in SERVES[e.stage])
        return (*served, *(str(e.refusal) for _, e in known if e.loaded is None))


def _alike(policy: str) -> tuple[str, ...]:
    """The policy, then those whose artifacts are loaded alike: the weights of one agent may be named for another."""
    loader = loader_of(policy)
    return (policy, *(other for other, its in LOADERS.items() if its == loader and other != policy))


@dataclass(frozen=True, slots=True)
class Obeyed:
    """The StreamPolicy that this access site obeys."""

    name: str
    generation: int
    spec: StreamPolicySpec


class Chooser:
    """The seat of one access site. Pure but for its memory of the agent's last choice."""

    def __init__(self, load: Load, stamp: Callable[[str, str], Stamp] = lambda *_: ()) -> None:
        self._load, self._stamp = load, stamp
        self._seen: Stamp = ()
        """Stamp of the weights that were loaded or refused last."""
        self._spec: StreamPolicySpec | None = None
        self._offers: Offers | None = None
        self._pooling: Pooling | None = None
        self._agent: Agent | None = None
        self.rule: BindingPolicy = StaticPolicy("relative-load")
        self.named: BindingPolicy | None = None
        """What is asked beside the rule; None: nothing, or it cannot answer (`fallback` says why)."""
        self.fallback = ""
        """One of FALLBACKS while what was named cannot answer."""
        self.changed_s = 0.0
        self.reason = ""
        """Why the policy that binds is another one than before."""
        self._action = 0
        self.model = "", ""
        """Name and stamp of the weights that serve; empty without any."""
        self._bound_by = self.rule.name, ""
        """The policy that binds, and `fallback`, when either changed last."""
        self.seat: Seat[Question, Binding] = self._made_seat()

    @property
    def policy(self) -> BindingPolicy:
        """The policy that binds; in Canary that of the treated group."""
        return self.named if self.named is not None and self._mode in ("Active", "Canary") else self.rule

    def by(self, outcome: str) -> BindingPolicy:
        """The policy that gave an answer with this outcome."""
        return self.named if outcome == "learned" and self.named is not None else self.rule

    @property
    def compares(self) -> bool:
        """Whether there are two policies to compare."""
        return self.seat.learned is not None

    def group_of(self, uid: str) -> Group:
        """The group of a stream by its id."""
        if self._mode != "Canary":
            return ""
        return "treated" if self.obeys(uid) else "control"

    def obeys(self, uid: str) -> bool:
        """Whether a stream belongs to the share that the named policy binds in Canary."""
        canary = self._spec.canary if self._spec is not None else None
        return canary is not None and in_share(uid, canary.percent)

    @property
    def _mode(self) -> Mode:
        return self._spec.mode if self._spec is not None else "Off"

    @property
    def _serves(self) -> str:
        """The mode that weights must serve. While nothing is bound they are looked for as if it were Active: their lack is told before."""
        return self._mode if self._mode != "Off" else "Active"

    def obey(self, spec: StreamPolicySpec, now_s: float) -> None:
        """A StreamPolicy that is new or has changed. What cannot be loaded is tried again when either changes."""
        self._spec, self._agent, self.model = spec, None, ("", "")
        if spec.policy in STATIC:
            alone = spec.mode == "Active" or spec.policy == spec.fallback
            self.rule = StaticPolicy(spec.policy if alone else spec.fallback)
            self._take(None if alone else StaticPolicy(spec.policy), "", now_s, "named by the StreamPolicy")
            return
        self.rule = StaticPolicy(spec.fallback)
        model = spec.model_name or spec.policy
        self._seen = self._stamp(model, self._serves)
        try:
            found = self._load(spec.policy, model, self._serves)
        except ArtifactRefused as error:
            fallback = _FALLBACK_OF.get(error.reason, "weights-refused")
            _log.warning("fallback binds", extra={"fields": {"policy": spec.policy, "fallback": spec.fallback, "why": str(error)}})
            self._take(None, fallback, now_s, f"{spec.policy}: {fallback}")
            return
        self._serve(found, spec.policy, now_s, "named by the StreamPolicy")

    def reload_if_changed(self, now_s: float) -> None:
        """Other weights under the same name serve at once. The store keeps the last good ones; what it gives no more was taken back."""
        spec = self._spec
        if spec is None or spec.model_name is None or (stamp := self._stamp(spec.model_name, self._serves)) == self._seen:
            return
        if self.fallback and self._agent is None:  # there are no good ones yet
            self.obey(spec, now_s)
            return
        self._seen = stamp
        try:
            found = self._load(spec.policy, spec.model_name, self._serves)
        except ArtifactRefused:
            self.obey(spec, now_s)
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
            self._take(None, "agent-failed", now_s, f"{spec.policy}: agent-failed")
            return
        self._take(agent.policies[self._action], "", now_s, f"{spec.policy} chose {ACTIONS[self._action]}")

    def _serve(self, found: BindingPolicy | Agent, name: str, now_s: float, reason: str) -> None:
        self.model = (self._spec.model_name or name) if self._spec is not None else name, str(self._seen)
        if isinstance(found, Agent):
            self._agent, self._action = found, found.base
            self._take(found.policies[found.base], "", now_s, f"{name} begins")
        else:
            self._take(found, "", now_s, reason)

    def _take(self, named: BindingPolicy | None, fallback: str, now_s: float, reason: str) -> None:
        """Ask this policy beside the rule from now on, or none for the reason `fallback`."""
        before = self._bound_by
        self.named, self.fallback = named, fallback
        self._bound_by = self.policy.name, fallback
        if self._bound_by != before or not self.reason:
            if self._mode == "Shadow" and not fallback:
                reason = "mode Shadow: the fallback binds"
            self.changed_s, self.reason = now_s, reason
        self.seat = self._made_seat()

    def _made_seat(self) -> Seat[Question, Binding]:
        rule, named, spec, fallback = self.rule, self.named, self._spec, self.fallback

        def by_rule(question: Question) -> Said[Binding]:
            return Said(taken(question, scores_of(rule, question)), rule.name)

        def by_named(question: Question) -> Said[Binding]:
            if named is None:
                return Said(None, spec.policy if spec is not None else "", reason=fallback)
            scores = scores_of(named, question)
            if np.isnan(scores[question.feasible]).any():
                return Said(None, named.name, reason=NOT_FINITE)
            return Said(taken(question, scores), named.name)

        return Seat(by_rule, by_named if named is not None or fallback else None, self._mode)
