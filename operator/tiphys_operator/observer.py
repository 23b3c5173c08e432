"""Reads what the plan needs: policies, the pods they select, models and their artifacts, the answers reported."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tiphys_models.api.learned_model import MODELS_PATH
from tiphys_models.api.routing import Route
from tiphys_models.api.scheduling_policy import GROUP, PLURAL, VERSION
from tiphys_models.artifacts.shipped import SHIPPED, WEIGHTS
from tiphys_models.clients.kube import METADATA_ONLY, ApiError, KubeClient
from tiphys_models.domain.clock import Clock
from tiphys_operator.decision_reader import DecisionReader
from tiphys_operator.learned_check import LearnedCheck
from tiphys_operator.models_found import ModelShelf
from tiphys_operator.observation import ModelSeen, Observation, PodGroup, PolicySeen, model_seen, policy_seen, selector_text

POLICIES_PATH = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
_LISTS_AT_ONCE = 4
_SELECTOR_MAX = 4096  # a longer one might not fit into a URL on its way: then all pods of the namespace are listed
_BAD_REQUEST, _FORBIDDEN, _NOT_FOUND = 400, 403, 404


class Observer:
    """The eyes of one operator."""

    def __init__(
        self,
        client: KubeClient,
        shelf: ModelShelf,
        learned: LearnedCheck,
        reader: DecisionReader | None,
        scheduler_name: str,
        clock: Clock,
    ) -> None:
        self._client, self._shelf, self._learned, self._reader, self._clock = client, shelf, learned, reader, clock
        # planners' and selectors' weights lie there too: who runs them loads and checks them
        self._shipped = ModelShelf(WEIGHTS, only=SHIPPED)
        self._scheduler_name = scheduler_name

    async def observe(self) -> Observation:
        """One look at everything. Unavailable if policies cannot be listed; whatever else fails is in the observation."""
        policies = [policy_seen(obj) async for obj in self._all(POLICIES_PATH)]
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
        )

    async def _models(self) -> tuple[ModelSeen, ...]:
        try:
            return tuple([model_seen(obj) async for obj in self._all(MODELS_PATH)])
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
        limit = asyncio.Semaphore(_LISTS_AT_ONCE)
        groups: dict[str, tuple[PodGroup, ...]] = {}
        problems: dict[str, str] = {}

        async def count(policy: PolicySeen, route: Route) -> None:
            async with limit:
                try:
                    groups[policy.key] = await self._selected(route)
                except ApiError as error:
                    if error.status not in (_BAD_REQUEST, _FORBIDDEN):
                        raise
                    denied = "the operator may not list pods: give its ServiceAccount the verb list on pods"
                    problems[policy.key] = denied if error.status == _FORBIDDEN else str(error)

        try:
            async with asyncio.TaskGroup() as tasks:
                for policy in policies:
                    if policy.route is not None and not policy.deleting:
                        tasks.create_task(count(policy, policy.route))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        return groups, problems

    async def _selected(self, route: Route) -> tuple[PodGroup, ...]:
        """Labels are all that routing reads; which pods are ours the API server knows by field selector, so no spec crosses the wire."""
        ours = {pod["metadata"]["uid"] async for pod in self._listed(route, f",spec.schedulerName={self._scheduler_name}")}
        counts: Counter[tuple[tuple[tuple[str, str], ...], bool]] = Counter()
        async for pod in self._listed(route, ""):
            labels = pod["metadata"].get("labels") or {}
            if route.selector.matches(labels):
                counts[tuple(sorted(labels.items())), pod["metadata"]["uid"] in ours] += 1
        return tuple(PodGroup(dict(labels), mine, count) for (labels, mine), count in counts.items())

    async def _listed(self, route: Route, fields: str) -> Any:
        params = {"fieldSelector": _UNFINISHED + fields}
        if 0 < len(text := selector_text(route.selector)) <= _SELECTOR_MAX:
            params["labelSelector"] = text
        path = f"/api/v1/namespaces/{route.namespace}/pods"
        async with contextlib.aclosing(self._client.pages(path, params, accept=METADATA_ONLY)) as pages:
            async for page in pages:
                for pod in page.get("items") or ():
                    yield pod
