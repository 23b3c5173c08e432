"""Reads what the plan needs: policies, the pods they select, models and their artifacts, the answers reported."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tiphys_models.api.learned_model import MODELS_PATH
from tiphys_models.api.routing import Route
from tiphys_models.api.scheduling_policy import GROUP, PLURAL, VERSION
from tiphys_models.artifacts.shipped import SHIPPED, WEIGHTS
from tiphys_models.clients.kube import METADATA_ONLY, ApiError, KubeClient
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.selector import LabelSelector
from tiphys_operator.decision_reader import DecisionReader
from tiphys_operator.guard import ObjectGuard
from tiphys_operator.learned_check import LearnedCheck
from tiphys_operator.models_found import ModelShelf
from tiphys_operator.observation import ModelSeen, Observation, PodGroup, PolicySeen, model_seen, policy_seen, selector_text

POLICIES_PATH = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
_LISTS_AT_ONCE = 4
_PATIENCE_S = 0.5
"""With one namespace's pods: a burst of large ones makes the API server take seconds for each page, and a round serves all namespaces."""
_COUNT_MAX_S = 60.0
_SELECTOR_MAX = 4096  # a longer one might not fit into a URL on its way: then all pods of the namespace are listed
_FORBIDDEN, _NOT_FOUND = 403, 404
_OVERLOADED = (401, 429, 500, 502, 503, 504)
"""Answers that say nothing of the request: the round ends, and what stands in statuses stays."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """Pods of one namespace as they were listed."""

    asked: frozenset[tuple[str, int]]
    """For which policies, by uid and generation."""
    at_s: float
    groups: tuple[PodGroup, ...]


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
        guard: ObjectGuard,
        pods_for_s: float = 0.0,
    ) -> None:
        """`pods_for_s`: how long counted pods are good enough while nobody edits a policy of their namespace."""
        self._guard, self._pods_for_s = guard, pods_for_s
        self._counts: dict[str, _Counted] = {}
        self.on_news: Callable[[], None] = lambda: None
        """Called when pods were counted for which a round did not wait."""
        self._limit = asyncio.Semaphore(_LISTS_AT_ONCE)
        self._counting: dict[str, asyncio.Task[None]] = {}
        self._client, self._shelf, self._learned, self._reader, self._clock = client, shelf, learned, reader, clock
        # planners' and selectors' weights lie there too: who runs them loads and checks them
        self._shipped = ModelShelf(WEIGHTS, only=SHIPPED)
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
        groups: dict[str, tuple[PodGroup, ...]] = {}
        problems: dict[str, str] = {}
        wanted: dict[str, list[tuple[PolicySeen, Route]]] = {}
        for policy in policies:
            if policy.route is not None and not policy.deleting:
                wanted.setdefault(policy.namespace, []).append((policy, policy.route))
        for namespace in set(self._counting) - set(wanted):
            self._counting.pop(namespace).cancel()
        for namespace, here in wanted.items():
            self._count(namespace, here)
        if self._counting:
            _, late = await asyncio.wait(self._counting.values(), timeout=_PATIENCE_S)
            for task in late:
                task.add_done_callback(self._counted_late)
        for namespace, here in wanted.items():
            try:
                found = self._found(namespace, _asked(here))
            except ApiError as error:
                if error.status in _OVERLOADED:
                    raise
                problems.update({policy.key: _problem(error) for policy, _ in here})
            except TimeoutError:
                problems.update({policy.key: "pods take long to be listed" for policy, _ in here})
            else:
                groups.update({policy.key: _selected(route, found) for policy, route in here})
        self._counts = {namespace: counted for namespace, counted in self._counts.items() if namespace in wanted}
        return groups, problems

    def _counted_late(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.on_news()

    async def close(self) -> None:
        """Count no more."""
        counting = list(self._counting.values())
        self._counting.clear()
        for task in counting:
            task.cancel()
        await asyncio.gather(*counting, return_exceptions=True)

    def _count(self, namespace: str, here: list[tuple[PolicySeen, Route]]) -> None:
        """A namespace's unfinished pods, listed once for all its policies, and not anew for what others edit elsewhere."""
        asked, now_s = _asked(here), self._clock.monotonic_s()
        running, known = self._counting.get(namespace), self._counts.get(namespace)
        if running is not None and running.get_name() == str(hash(asked)):
            return
        if running is not None:
            running.cancel()  # for another selector, perhaps: what it lists is no answer
        elif known is not None and known.asked == asked and now_s - known.at_s < self._pods_for_s:
            return
        # one policy's selector spares bytes; several share one list
        selector = here[0][1].selector if len(here) == 1 else None

        async def count() -> None:
            async with self._limit, asyncio.timeout(_COUNT_MAX_S):
                groups = await self._listed_groups(namespace, selector)
            self._counts[namespace] = _Counted(asked, now_s, groups)

        self._counting[namespace] = asyncio.create_task(count(), name=str(hash(asked)))

    def _found(self, namespace: str, asked: frozenset[tuple[str, int]]) -> tuple[PodGroup, ...]:
        """What was counted now, else what was counted last; TimeoutError if nothing was yet."""
        task = self._counting.get(namespace)
        if task is not None and task.done():
            del self._counting[namespace]
            task.result()
        if (known := self._counts.get(namespace)) is None or known.asked != asked:
            raise TimeoutError
        return known.groups

    async def _listed_groups(self, namespace: str, selector: LabelSelector | None) -> tuple[PodGroup, ...]:
        """Labels are all that routing reads; which pods are ours the API server knows by field selector, so no spec crosses the wire."""
        ours = {pod["metadata"]["uid"] async for pod in self._listed(namespace, selector, f",spec.schedulerName={self._scheduler_name}")}
        counts: Counter[tuple[tuple[tuple[str, str], ...], bool]] = Counter()
        async for pod in self._listed(namespace, selector, ""):
            with self._guard.over_object("Pod", pod):
                metadata = pod["metadata"]
                counts[tuple(sorted((metadata.get("labels") or {}).items())), metadata["uid"] in ours] += 1
        return tuple(PodGroup(dict(labels), mine, count) for (labels, mine), count in counts.items())

    async def _listed(self, namespace: str, selector: LabelSelector | None, fields: str) -> Any:
        params = {"fieldSelector": _UNFINISHED + fields}
        if selector is not None and 0 < len(text := selector_text(selector)) <= _SELECTOR_MAX:
            params["labelSelector"] = text
        path = f"/api/v1/namespaces/{namespace}/pods"
        async with contextlib.aclosing(self._client.pages(path, params, accept=METADATA_ONLY)) as pages:
            async for page in pages:
                for pod in page.get("items") or ():
                    yield pod


def _asked(here: list[tuple[PolicySeen, Route]]) -> frozenset[tuple[str, int]]:
    return frozenset((policy.uid, policy.generation) for policy, _ in here)


def _selected(route: Route, groups: tuple[PodGroup, ...]) -> tuple[PodGroup, ...]:
    return tuple(group for group in groups if route.selector.matches(group.labels))


def _problem(error: ApiError) -> str:
    denied = "the operator may not list pods: give its ServiceAccount the verb list on pods"
    return denied if error.status == _FORBIDDEN else str(error)
