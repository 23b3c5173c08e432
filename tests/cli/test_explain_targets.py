"""`tiphys explain` of policies and streams: what is said, and that it can be had from running processes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from tests.extender.streams.builders import WANTED
from tests.extender.streams.test_process import ask, settings, summary
from tests.extender.test_live_process import until
from tests.extender.test_process import started_as
from tiphys_cli.app import app
from tiphys_cli.support.explain_policy import COLUMNS, policy_explanation, row_of
from tiphys_cli.support.explain_stream import price_sentence, stream_explanation
from tiphys_cli.support.targets import Target, parse_target
from tiphys_models.base.errors import InvalidInput
from tiphys_models.seats.record import Record, RecordLog, recorded
from tiphys_models.seats.seat import Said, Seat


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("a", "pod", "a"), ("pod/a", "pod", "a"), ("pods/a", "pod", "a"), ("po/a", "pod", "a"),
        ("sp/main", "sp", "main"), ("schedulingpolicy/main", "sp", "main"), ("SchedulingPolicy/main", "sp", "main"),
        ("scp/web", "scp", "web"), ("scalingpolicies/web", "scp", "web"), ("stream/stream-1", "stream", "stream-1"),
    ],
)  # fmt: skip
def test_a_target_names_one_thing_of_a_known_kind(text: str, kind: str, name: str) -> None:
    assert parse_target(text) == Target(kind, name)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["svc/a", "pod/a/b", "pod/", "", "sp/"])
def test_what_is_no_target_is_refused_with_all_there_are(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"write pod/NAME, sp/NAME, scp/NAME or stream/ID"):
        parse_target(text)


def scaling_record(learned: int | None = 5, *, mode: str = "Canary", obeys: bool = True) -> Record:
    seat: Seat[str, int] = Seat(lambda _: Said(3, "rule"), lambda _: Said(learned, "dqn", "sha", "stale"), mode)  # type: ignore[arg-type]
    return recorded(
        seat.answer("window", obeys=obeys), lambda size: f"{size} pods", at_s=1.0, system="scaling", policy=("ScalingPolicy", "shop", "web"),
        subject="Deployment/web", mode=mode, detail={"requests": 120.0, "masked": ["Quota"], "message": ""},  # type: ignore[arg-type]
    )  # fmt: skip


def policy(kind: str = "ScalingPolicy", status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": {"mode": "Canary"} | spec, "status": status or {}}


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (scaling_record(), "Last, about Deployment/web: dqn decided: 5 pods; the other one would have said 3 pods."),
        (scaling_record(3), "dqn decided: 3 pods, as the other one would have."),
        (scaling_record(obeys=False), "rule decided for the control group: 3 pods; the other one would have said 5 pods."),
        (scaling_record(mode="Shadow"), "rule decided, the learned decider was asked and not obeyed: 3 pods"),
        (scaling_record(None), "the learned decider could not or may not answer (stale), so rule decided: 3 pods."),
    ],
)
def test_the_last_decision_of_a_policy_is_said_in_one_sentence(record: Record, sentence: str) -> None:
    found = policy_explanation(policy(), [record.as_json()], "pod o")
    assert sentence in found.because[0]
    assert len(row_of(found.records[0])) == len(COLUMNS)


def test_conditions_that_say_no_and_comparisons_are_told() -> None:
    status = {
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Active", "message": "decisions are carried out"},
            {"type": "Conflict", "status": "True", "reason": "OwnedByScaledObject", "message": "KEDA scales it"},
            {"type": "Limited", "status": "True", "reason": "ByLimits", "message": "a rate"},
        ],
        "comparison": {
            "measure": "reward (more is better)", "agreementPercent": 75, "compared": 8, "result": "TooEarly", "difference": 0.25,
            "treated": {"mean": 1.0, "standardError": 0.1, "ended": 4}, "control": {"mean": 0.75, "ended": 4},
        },
    }  # fmt: skip
    found = policy_explanation(policy(status=status), [], "pod o")
    assert found.headline == "ScalingPolicy shop/web, mode Canary; Active: decisions are carried out"
    assert found.because[:5] == (
        "Conflict is True (OwnedByScaledObject): KEDA scales it",
        "Rule and learned decider said the same in 75 % of 8 answers.",
        "treated, the learned decider obeyed: 1 ± 0.1 over 4 (reward (more is better)).",
        "control, the rule obeyed: 0.75 over 4 (reward (more is better)).",
        "Treated against control: TooEarly, +0.25.",
    )


@pytest.mark.parametrize(
    ("obj", "problem", "words"),
    [
        (policy(), "", "keeps no decision of it"),
        (policy(mode="Off"), "", "It is Off"),
        (policy("SchedulingPolicy"), "", "ask about one of its pods"),
        (policy("SchedulingPolicy", select={"by": "ucb"}), "", "keeps no decision of it"),
        (policy(), "no token", "could not be read: no token"),
    ],
)
def test_a_policy_without_decisions_says_why(obj: dict[str, Any], problem: str, words: str) -> None:
    assert words in policy_explanation(obj, [], "", problem).because[-1]


def test_a_stream_that_nobody_knows_is_told_what_that_means() -> None:
    found = stream_explanation("s", {}, "pod b")
    assert found.headline == "stream s is not known"
    assert "2,000" in found.because[0]


def test_a_refused_stream_says_what_was_in_the_way() -> None:
    decision = {"outcome": "Infeasible", "chosen": None, "policy": "closest", "seat": "rule", "reason": "", "message": "all are too slow"}
    found = stream_explanation("s", {"open": False, "decision": decision}, "pod b")
    assert (found.headline, found.because) == ("stream s was not bound: Infeasible", ("all are too slow.",))


def test_the_price_of_an_offer_is_what_its_variant_says() -> None:
    priced = {"hardware": "gpu", "costPerReplicaHour": 0.5, "streamCostPerHour": 0.05}
    assert (
        price_sentence(priced)
        == "It runs on gpu and costs 0.5 a replica and hour, 0.05 of it for this stream (spec.cost of its ModelVariant)."
    )
    assert price_sentence({"hardware": "cpu", "costPerReplicaHour": 0.0}) == "It runs on cpu; its ModelVariant names no cost."


# ---- processes that run -------------------------------------------------------------------------------------------


def invoke(*arguments: str) -> tuple[int, str]:
    answer = CliRunner().invoke(app, ["explain", *arguments], catch_exceptions=False)
    return answer.exit_code, answer.output


@pytest.mark.slow
async def test_a_running_binder_explains_a_stream_of_any_tenant_to_who_reaches_its_loopback(tmp_path: Path) -> None:
    with started_as(tmp_path, ["binder"], "calls", settings(tmp_path)) as binder:
        await until(lambda: summary(binder)["offers"] == 1, 20)
        bound = (await asyncio.to_thread(ask, binder, "POST", "", WANTED))[1]
        url = f"http://127.0.0.1:{binder.ports['explain']}"
        code, text = await asyncio.to_thread(invoke, f"stream/{bound['id']}", "--extender-url", url)
        assert code == 0, text
        assert f"stream {bound['id']} is bound to a1/yolo" in text
        assert "Relative-load bound it (mode Active)." in text
        code, text = await asyncio.to_thread(invoke, f"stream/{bound['id']}", "--extender-url", url, "--json")
        assert (code, json.loads(text)["decision"]["decision"]["chosen"]) == (0, "a1/yolo")
        code, text = await asyncio.to_thread(invoke, "stream/nobody", "--extender-url", url)
        assert (code, "is not known" in text) == (1, True)


class Pages(BaseHTTPRequestHandler):
    """An API server with one ScalingPolicy, and an operator's pages behind a token."""

    log: RecordLog[Record]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/apis/tiphys.io/v1alpha1/namespaces/shop/scalingpolicies/web":
            self._answer(200, policy())
        elif path == "/explain/ScalingPolicy/shop/web":
            if self.headers.get("Authorization") != "Bearer secret":
                self._answer(401, {"detail": "no"})
            else:
                found = self.log.newest(100, lambda record: record.name == "web")
                self._answer(200, {"first": self.log.first, "last": self.log.last, "items": [record.as_json() for record in found]})
        else:
            self._answer(404, {"kind": "Status", "message": "not found"})

    def _answer(self, status: int, body: Any) -> None:
        data = orjson.dumps(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        del format, args


@contextmanager
def pages(*records: Record) -> Iterator[str]:
    log: RecordLog[Record] = RecordLog(10)
    for record in records:
        log.append(record)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Here", (Pages,), {"log": log}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def kubeconfig(directory: Path, url: str) -> str:
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    (directory / "config").write_text(json.dumps(config))
    return str(directory / "config")


def test_a_policys_windows_are_read_from_the_operators_pages_with_its_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with pages(scaling_record(obeys=False), scaling_record()) as url:
        common = ("scp/web", "-n", "shop", "--kubeconfig", kubeconfig(tmp_path, url), "--operator-url", url)
        code, text = invoke(*common, "--token-file", str(tmp_path / "token"), "--json")
        told = json.loads(text)
        assert (code, [record["group"] for record in told["records"]], told["operator"]) == (0, ["treated", "control"], url)
        code, text = invoke(*common, "--token-file", str(tmp_path / "token"))
        assert code == 0
        assert "dqn decided: 5 pods" in text
        assert "requests         120.0" in text
        code, text = invoke(*common)
        assert code == 0, "the object itself is explained, too"
        assert "could not be read" in text
        assert "answered 401" in text


def test_a_policy_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pages() as url:
        code, text = invoke("scp/other", "-n", "shop", "--kubeconfig", kubeconfig(tmp_path, url), "--operator-url", url)
    assert code != 0
    assert "there is no ScalingPolicy other in namespace shop" in text
