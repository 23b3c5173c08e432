"""The hook before an upgrade: it tells, and never fails one."""

from __future__ import annotations

import logging

import pytest

from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.unshipped import Need, Needs
from tiphys_operator import needed

NOTHING = Needs((), ())


@pytest.mark.parametrize("error", [Unavailable("refused"), InvalidInput("no cluster"), TimeoutError()])
def test_no_error_fails_an_upgrade(error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def failing(access: ApiAccess, namespace: str) -> Needs:
        raise error

    assert told(failing, monkeypatch, caplog) == [f"could not look: {str(error) or 'no answer within 30 s'}"]


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (NOTHING, ["every policy has its weights"]),
        (Needs((Need("ScalingPolicy a/b", "scaling-q-table"),), ()), ["tiphys model ship scaling-q-table"]),
        (Needs((), ("streampolicies could not be listed: no",)), ["streampolicies could not be listed"]),
    ],
)
def test_every_need_and_every_gap_is_a_line(
    found: Needs, lines: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def finding(access: ApiAccess, namespace: str) -> Needs:
        return found

    said = told(finding, monkeypatch, caplog)
    assert len(said) == len(lines)
    assert all(line in text for line, text in zip(lines, said, strict=True))


def told(look: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[str]:
    monkeypatch.setattr(needed, "_needed", look)
    monkeypatch.setattr(needed, "find_access", lambda: ApiAccess("http://127.0.0.1:1", None))
    monkeypatch.setattr(needed, "set_up", lambda level: None)
    with caplog.at_level(logging.INFO, needed.log.name):
        assert needed.main(["--namespace", "tiphys-system"]) == 0
    return [record.message for record in caplog.records if record.name == needed.log.name]
