"""Probes, metrics, the decision log and explain over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import ASGIApp

from tests.extender.harness import Extender, connected, listening, untrained
from tiphys_extender.status_app import LOADS_PATH, Health, Page, StatusTokens, make_explain_app, make_status_app
from tiphys_models.api.reasons import FallbackReason, NeutralReason
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.serving.bearer import BearerTokens


def status_app(extender: Extender, token_file: Path | None = None, missing: tuple[str, ...] = ()) -> tuple[ASGIApp, Health]:
    health = Health(lambda: missing)
    tokens = BearerTokens("TIPHYS_EXTENDER_TOKEN_FILE", token_file)
    return make_status_app(extender.metrics, health, extender.decisions, extender.models, StatusTokens(tokens, tokens)), health


async def test_readiness_names_what_is_missing_and_goes_before_the_process_does() -> None:
    app, health = status_app(Extender(), missing=("pods", "policies"))
    async with listening(app) as port, connected(port) as connection:
        status, _, body = await connection.get("/readyz")
        assert (status, body) == (503, b"waiting for the first list of pods, policies")
        assert (await connection.get("/healthz"))[0] == 200
    app, health = status_app(Extender())
    async with listening(app) as port, connected(port) as connection:
        assert (await connection.get("/readyz"))[::2] == (200, b"ok")
        health.stopping = True
        assert (await connection.get("/readyz"))[::2] == (503, b"stopping")


async def test_metrics_start_at_zero_with_every_known_label_and_stay_few() -> None:
    extender = Extender(nodes=3)
    app, _ = status_app(extender)
    async with listening(app) as port, connected(port) as connection:
        for index in range(200):  # a bomb of pods, namespaces and labels
            extender.ask(f"u{index}", namespace=f"ns-{index}", metadata={"labels": {f"key-{index}": "v"}, "name": f"p{index}"})
        _, headers, body = await connection.get("/metrics")
    assert headers["content-type"].startswith("text/plain")
    samples = [sample for family in text_string_to_metric_families(body.decode()) for sample in family.samples]
    assert len(samples) < 1500
    names = {sample.name for sample in samples}
    assert {label for s in samples for label in s.labels} <= {
        "code", "outcome", "reason", "policy", "le", "result", "mode", "kind", "feature", "model", "sha256", "store", "loop", "group", "would",
    }  # fmt: skip
    neutral = {s.labels["reason"] for s in samples if s.name == "tiphys_extender_neutral_answers_total"}
    assert neutral == {str(reason) for reason in NeutralReason}
    fallback = {s.labels["reason"] for s in samples if s.name == "tiphys_extender_fallback_answers_total"}
    assert fallback == {str(reason) for reason in FallbackReason}
    for name in (
        "requests_total", "request_duration_seconds_bucket", "answers_total", "bad_requests_total", "policy_answers_total",
        "candidates_bucket", "score_stddev_bucket", "unknown_nodes_total", "reservations", "reservations_expired_total", "would_wait_total", "choices_total",
        "busiest_node_share", "cache_synced", "cache_objects", "last_event_timestamp_seconds", "watch_errors_total",
        "readings_timestamp_seconds", "readings_coverage_ratio", "readings_errors_total", "invalid_readings_total",
        "model_load_failures_total", "decision_log_dropped_total", "enabled", "routes", "invalid_policies",
        "certificate_expiry_timestamp_seconds", "loop_lag_seconds",
    ):  # fmt: skip
        assert f"tiphys_extender_{name}" in names


@pytest.mark.parametrize("path", ["/v1/decisions", "/v1/models"])
async def test_the_decision_log_needs_the_token(tmp_path: Path, path: str) -> None:
    app, _ = status_app(Extender())
    async with listening(app) as port, connected(port) as connection:
        status, _, body = await connection.get(path)
        assert status == 403
        assert b"TIPHYS_EXTENDER_TOKEN_FILE" in body
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    app, _ = status_app(Extender(), token)
    async with listening(app) as port, connected(port) as connection:
        for wrong in ("", "Bearer", "Bearer nope", "s3cret", "Basic s3cret", "Bearer s3cret2", "Bearer s3cr"):
            assert (await connection.get(path, Authorization=wrong))[0] == 401
        assert (await connection.get(path))[0] == 401
        assert (await connection.get(path, Authorization="Bearer s3cret"))[0] == 200
        token.write_text("rotated")
        assert (await connection.get(path, Authorization="Bearer s3cret"))[0] == 401
        assert (await connection.get(path, Authorization="Bearer rotated"))[0] == 200
        token.write_text("")  # an empty secret opens nothing
        assert (await connection.get(path, Authorization="Bearer "))[0] == 401
        token.unlink()
        assert (await connection.get(path, Authorization="Bearer rotated"))[0] == 403


async def test_decisions_are_read_in_pages(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    extender = Extender(nodes=3)
    app, _ = status_app(extender, token)
    for index in range(7):
        extender.ask(f"u{index}")
    async with listening(app) as port, connected(port) as connection:
        _, _, body = await connection.get("/v1/decisions?after=2&limit=3", Authorization="Bearer t")
        page = json.loads(body)
        assert (page["first"], page["last"], page["lost"]) == (1, 7, 0)
        assert [item["seq"] for item in page["items"]] == [3, 4, 5]
        assert set(page["items"][0]) >= {
            "seq", "at", "uid", "namespace", "pod", "function", "attempt", "outcome", "reason", "policy", "mode", "policyName",
            "modelDigest", "candidates", "top", "would", "chosen", "durationMs",
        }  # fmt: skip
        assert b"hunter2" not in body
        for bad in ("after=-1", "limit=0", "limit=999999", "after=x"):
            assert (await connection.get(f"/v1/decisions?{bad}", Authorization="Bearer t"))[0] == 422


async def test_explain_and_state_over_http(tmp_path: Path) -> None:
    digest = untrained(tmp_path)
    extender = Extender(nodes=3, models=tmp_path)
    extender.ask("u1")
    app = make_explain_app(extender.world, extender.decisions, extender.models, Health(lambda: ()), 1.0)
    async with listening(app) as port, connected(port) as connection:
        status, _, body = await connection.get("/v1/explain?namespace=default&pod=pod-u1")
        assert status == 200
        answer = json.loads(body)
        assert answer["uid"] == "u1"
        assert answer["callProfile"] is None
        assert len(answer["scores"]) == 3
        assert b"hunter2" not in body
        extender.state.put_profiles({answer["function"]: FunctionProfile(2.0, 4.0, 16.0, 24.0, 8.0)})
        answer = json.loads((await connection.get("/v1/explain?namespace=default&pod=pod-u1"))[2])
        assert answer["callProfile"]["warm_seconds"] == 2.0
        assert answer["callProfile"]["parallelism"] == 8.0
        by_uid = json.loads((await connection.get("/v1/explain?uid=u1"))[2])
        assert by_uid == answer
        status, _, body = await connection.get("/v1/explain?namespace=default&pod=other")
        assert status == 404
        assert json.loads(body)["asked"] is False
        assert (await connection.get("/v1/explain"))[0] == 400
        state = json.loads((await connection.get("/v1/state"))[2])
        assert (state["ready"], state["nodes"], state["reservations"], state["torchImported"]) == (True, 3, 1, False)
        assert state["routes"] == [{"policy": "default/active", "mode": "Active", "policyName": "least-connections", "model": None}]
        assert state["models"][0]["sha256"] == digest
        assert state["peakMemoryBytes"] > 10_000_000


async def test_when_metrics_were_last_read_is_known_and_who_asks_too_often_reads_an_older_text() -> None:
    extender = Extender(nodes=3)
    app, health = status_app(extender)
    async with listening(app) as port, connected(port) as connection:
        assert health.scraped_s == 0
        first = (await connection.get("/metrics"))[2]
        assert b"tiphys_extender_last_scrape_timestamp_seconds 0.0" in first
        assert health.scraped_s > 0
        assert b"tiphys_extender_last_scrape_timestamp_seconds 1" in (await connection.get("/metrics"))[2]
        texts = []
        for index in range(30):
            extender.metrics.reservations.set(index)
            texts.append((await connection.get("/metrics"))[2])
        assert len(set(texts)) < 20


async def test_a_purpose_opens_its_own_pages_and_no_others(tmp_path: Path) -> None:
    extender = Extender()
    for purpose in ("decisions", "loads"):
        (tmp_path / purpose).write_text(f"token-of-{purpose}")
    tokens = StatusTokens(*(BearerTokens("X", tmp_path / purpose) for purpose in ("decisions", "loads")))
    pages: dict[str, Page] = {LOADS_PATH: lambda _: {"loads": {}}, "/v1/bindings/summary": lambda _: {}}
    app = make_status_app(extender.metrics, Health(lambda: ()), extender.decisions, extender.models, tokens, pages=pages)
    async with listening(app) as port, connected(port) as connection:
        for path, purpose in (
            ("/v1/decisions", "decisions"),
            ("/v1/models", "decisions"),
            ("/v1/bindings/summary", "decisions"),
            (LOADS_PATH, "loads"),
        ):
            for shown in ("decisions", "loads"):
                status, _, _ = await connection.get(path, Authorization=f"Bearer token-of-{shown}")
                assert status == (200 if shown == purpose else 401), (path, shown)
