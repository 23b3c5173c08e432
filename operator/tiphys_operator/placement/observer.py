"""Reads what the plan needs: policies, the pods they select, models and their artifacts, the answers reported."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from tiphys_models.api.base import GROUP, VERSION
from tiphys_models.api.learned_model import MODELS_PATH
from tiphys_models.api.scheduling_policy import PLURAL
from tiphys_models.artifacts.files import directories
from tiphys_models.artifacts.shipped import SHIPPED
from tiphys_models.base.clock import Clock
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_operator.cluster.watching import ClusterWatch
from tiphys_operator.object_guard import ObjectGuard
from tiphys_operator.placement.decision_reader import DecisionReader
from tiphys_operator.placement.learned_check import LearnedCheck
from tiphys_operator.placement.models_found import ModelShelf, ShippedShelf
from tiphys_operator.placement.observation import ModelSeen, Observation, PodGroup, PolicySeen, model_seen, policy_seen

POLICIES_PATH = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
_FORBIDDEN, _NOT_FOUND = 403, 404


_PATIENCE_S = 0.5
"""The wait for the first list of pods: it takes half a minute in a large cluster, and meanwhile a round serves everything else."""


class Observer:
    """The reading half of placement: it collects what one reconciliation looks at."""

    def __init__(
        self,
        client: KubeClient,
        shelf: ModelShelf,
        learned: LearnedCheck,
        reader: DecisionReader | None,
        scheduler_name: str,
        clock: Clock,
        guard: ObjectGuard,
        watch: ClusterWatch,
    ) -> None:
        self._guard, self._watch = guard, watch
        self.on_news: Callable[[], None] = lambda: None
        """Called when pods are known for which a round did not wait."""
        self._watching: asyncio.Task[None] | None = None
        self._client, self._shelf, self._learned, self._reader, self._clock = client, shelf, learned, reader, clock
        # planners' and selectors' weights lie there too: who runs them loads and checks them
        self._shipped = ShippedShelf(directories(), SHIPPED)
        self._scheduler_name = scheduler_name

    async def observe(self) -> Observation:
        """One look at everything. Unavailable if policies cannot be listed; whatever else fails is in the observation."""
        policies: list[PolicySeen] = []
        async for obj in self._all(POLICIES_PATH):
            with self._guard.over_object(PolicySeen.kind, obj):
                policies.append(policy_seen(obj))
            self._guard.look(PolicySeen.kind, obj)
        models = await asyncio.to_thread(self._shelf.scan)
        shipped = await asyncio.to_thread(self._shipped.scan)
        learned = await self._models()
        checks = await self._learned.check(learned)
        pods, problems = await self._pods(policies)
        return Observation(
            now_s=self._clock.now_s(),
            policies=tuple(policies),
            pods=pods,
            pod_problems=problems,
            models=models,
            shipped=shipped,
            learned=learned,
            checks=checks,
            answers=dict(self._reader.pending()) if self._reader is not None else {},
            serving=self._reader.serving if self._reader is not None else {},
            held=self._reader.held if self._reader is not None else None,
            served_policies=self._reader.policies if self._reader is not None else None,
        )

    async def _models(self) -> tuple[ModelSeen, ...]:
        try:
            found: list[ModelSeen] = []
            async for obj in self._all(MODELS_PATH):
                with self._guard.over_object(ModelSeen.kind, obj):
                    found.append(model_seen(obj))
                self._guard.look(ModelSeen.kind, obj)
            return tuple(found)
        except ApiError as error:
            if error.status not in (
                _FORBIDDEN,
                _NOT_FOUND,
            ):  # policies go on without the kind or the right; permissions say which is missing
                raise
            return ()

    async def _all(self, path: str) -> Any:
        async with contextlib.aclosing(self._client.pages(path)) as pages:
            async for page in pages:
                for obj in page.get("items") or ():
                    yield obj

    async def _pods(self, policies: list[PolicySeen]) -> tuple[Mapping[str, tuple[PodGroup, ...]], Mapping[str, str]]:
        """Selected pods by policy, or why they cannot be counted; neither before their first list."""
        routed = [(policy, policy.route) for policy in policies if policy.route is not None and not policy.deleting]
        if routed and self._watching is None:
            self._watching = asyncio.create_task(self._begin_to_watch())
        if self._watching is not None and not self._watching.done() and self._watch.forbidden is None:
            await asyncio.wait({self._watching}, timeout=_PATIENCE_S)
        if (refusal := self._watch.forbidden) is not None:
            denied = refusal.status == _FORBIDDEN
            problem = "the operator may not list pods: give its ServiceAccount the verbs list and watch on pods" if denied else str(refusal)
            return {}, {policy.key: problem for policy, _ in routed}
        if not self._watch.is_complete:
            return {}, {}
        found: dict[str, tuple[PodGroup, ...]] = {}
        for policy, route in routed:
            here = self._watch.observed.groups(policy.namespace)
            found[policy.key] = tuple(
                PodGroup(group.labels, group.scheduler_name == self._scheduler_name, group.count)
                for group in here
                if route.selector.matches(group.labels)
            )
        return found, {}

    def check(self) -> None:
        """Raise what ended the watch on pods for good."""
        if self._watching is not None and self._watching.done():
            self._watching.result()
        self._watch.check()

    async def close(self) -> None:
        """Wait for no first list any more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _begin_to_watch(self) -> None:
        """Without a policy nobody needs the right to watch pods; the first round does not wait for a list that takes minutes."""
        await self._watch.ready()
        self.on_news()
