"""LearnedModels of the release's namespace, as an extender and a binder load them: the shared feed, with this process's metrics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tiphys_extender.model_store import ModelStore
from tiphys_extender.serve.metrics import Metrics
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.learned_models import RETRY_S, ModelFeed


class LearnedModels(ModelFeed):
    """Sink of the watch, and the job that loads what the watch brings."""

    def __init__(
        self,
        client: KubeClient,
        models: ModelStore,
        metrics: Metrics,
        namespace: str,
        models_dir: Path | None,
        retry_s: float = RETRY_S,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        unreachable = metrics.watch_errors["models", "unreachable"].inc
        systems = models.systems
        super().__init__(client, models.store, namespace, models_dir, systems, retry_s=retry_s, beat=beat, unreachable=unreachable)
