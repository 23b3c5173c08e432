"""A workload that is scaled, what measures it, and operators one after the other."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import wait_until
from e2e.operators import OperatorProcess
from e2e.scaled import CountedService, Workload

REACTION_S = 40.0
LEASE = {"LEASE_DURATION_S": "3", "RENEW_S": "2.4", "RETRY_S": "0.5"}


@dataclass
class Scene:
    """A workload under load, its Prometheus, and the operator's credentials."""

    web: Workload
    service: CountedService
    own: str
    access: Path
    prometheus_url: str
    logs: Path
    admin: Path
    token: Path

    def operator(self, identity: str = "operator-0", kubeconfig: Path | None = None) -> OperatorProcess:
        # as from one Secret: whoever takes over believes the intents of the one before
        keys = self.logs / "intent-keys.json"
        keys.write_text(json.dumps({"keys": [{"id": "one", "secret": "s" * 40}]}))
        settings = LEASE | {"PROMETHEUS_URL": self.prometheus_url, "TOKEN_FILE": str(self.token), "INTENT_KEYS_FILE": str(keys)}
        return OperatorProcess(kubeconfig or self.access, self.own, self.logs / f"{identity}.log", identity=identity, settings=settings)

    def windows_pass(self, operator: OperatorProcess, count: int = 2) -> None:
        """Wait for further windows, which no status tells of as long as they come to the same."""
        name = "tiphys_operator_scaling_decisions_total"

        def passed() -> float:
            return sum(operator.metric(f'{name}{{phase="{phase}"}}') for phase in ("Recommended", "Held", "Done", "Refused"))

        before = passed()
        self.until(lambda: passed() >= before + count, "further windows pass")

    def until(self, condition: Any, what: str, deadline_s: float = REACTION_S) -> None:
        try:
            wait_until(condition, deadline_s, what, poll_s=0.2)
        except pytest.fail.Exception as failure:
            log = "".join(path.read_text()[-2500:] for path in sorted(self.logs.glob("*.log")))
            pytest.fail(f"{failure}; replicas {self.web.replicas()}, limits {self.web.limits()}; {json.dumps(self.web.status())}; {log}")
