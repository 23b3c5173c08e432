"""`tiphys explain`: why a pod, a policy's decision or a stream came out as it did."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tiphys_cli.console import make_console, reported_errors
from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_cli.support import explain as explaining
from tiphys_cli.support import explain_policy, explain_stream
from tiphys_cli.support.commands import ExtenderUrl, Json, Kubeconfig, SchedulerName, TiphysNamespace, kubeconfig_at
from tiphys_cli.support.extenders import (
    Credentials,
    DirectDoor,
    Door,
    ask_extenders,
    binder_doors,
    first_that_knows,
    operator_doors,
    token_of,
)
from tiphys_cli.support.targets import RESOURCE_OF, Target, parse_target
from tiphys_models.api.base import GROUP, VERSION
from tiphys_models.api.routing import DEFAULT_SCHEDULER_NAME
from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.placement.estimator import PART_NAMES

_FEATURE_NODES = 3
_NOT_FOUND = 404


def explain(
    target: Annotated[
        str, typer.Argument(metavar="pod/NAME | sp/NAME | scp/NAME | stream/ID", help="what to explain; NAME alone is a pod")
    ],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="its namespace; streams need none")] = "default",
    kubeconfig: Kubeconfig = None,
    extender_url: ExtenderUrl = "",
    tiphys_namespace: TiphysNamespace = "",
    scheduler_name: SchedulerName = DEFAULT_SCHEDULER_NAME,
    top: Annotated[int, typer.Option(min=1, max=100, help="candidates, offers or decisions to show")] = 5,
    operator_url: Annotated[
        str, typer.Option(envvar="TIPHYS_OPERATOR_URL", help="status listener of the operator; default: port-forward to the release's pods")
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="token of the operator's status listener; default: the release's Secret, with port-forward")
    ] = None,
    ca_file: Annotated[Path | None, typer.Option(help="authority of the certificate behind --operator-url https://...")] = None,
    json: Json = False,
) -> None:
    """Say why a pod, a stream or a policy came out as it did: who decided, on what, and what the other decider would have said."""
    with reported_errors():
        wanted = parse_target(target)
        if wanted.kind == "stream":
            _explain_stream(wanted, kubeconfig, extender_url, tiphys_namespace, top, json=json)
            return
        config = kubeconfig_at(kubeconfig)
        with ApiClient.from_kubeconfig(config) as api:
            if wanted.kind == "pod":
                _explain_pod(api, config, wanted.name, namespace, (extender_url, tiphys_namespace, scheduler_name), top, json=json)
                return

            def asked() -> list[Door]:
                if operator_url:
                    token = token_of(token_file) if token_file is not None else ""
                    return [DirectDoor(operator_url, "--operator-url", Credentials(token, _verifying(operator_url, ca_file)))]
                return list(operator_doors(api, config, tiphys_namespace, token_file))

            _explain_policy(api, wanted, namespace, asked, top, json=json)


def _verifying(url: str, ca_file: Path | None) -> ssl.SSLContext | None:
    """TLS that checks the certificate; None for plain HTTP."""
    if not url.startswith("https:"):
        return None
    try:
        return ssl.create_default_context(cafile=str(ca_file) if ca_file is not None else None)
    except OSError as error:
        raise InvalidInput(f"cannot read the authority in {ca_file}: {error}") from error


def _explain_pod(api: ApiClient, config: Path, name: str, namespace: str, where_to: tuple[str, str, str], top: int, *, json: bool) -> None:
    extender_url, tiphys_namespace, scheduler_name = where_to
    pod = _pod(api, namespace, name)
    record, where = ask_extenders(api, config, extender_url, tiphys_namespace, namespace, name, pod)
    found = explaining.explanation(namespace, name, pod, record, where, scheduler_name)
    if json:
        typer.echo(orjson.dumps(found.as_json()).decode())
    else:
        _show_pod(found, top)
    if pod is None and not record.get("asked"):
        raise typer.Exit(1)


def _explain_stream(target: Target, kubeconfig: Path | None, extender_url: str, tiphys_namespace: str, top: int, *, json: bool) -> None:
    if extender_url:
        record, where = first_that_knows([DirectDoor(extender_url)], stream=target.name)
    else:
        config = kubeconfig_at(kubeconfig)
        with ApiClient.from_kubeconfig(config) as api:
            record, where = first_that_knows(binder_doors(api, config, tiphys_namespace), stream=target.name)
    found = explain_stream.stream_explanation(target.name, record, where)
    if json:
        typer.echo(orjson.dumps(found.as_json()).decode())
    else:
        console = make_console()
        _show_sentences(console, found.headline, found.because)
        console.print(f"  binder: {found.binder}", markup=False)
        _show_table(console, explain_stream.COLUMNS, [explain_stream.row_of(offer) for offer in found.offers[:top]])
    if not record:
        raise typer.Exit(1)


def _explain_policy(api: ApiClient, target: Target, namespace: str, asked: Callable[[], list[Door]], top: int, *, json: bool) -> None:
    resource = RESOURCE_OF[target.kind]
    try:
        obj = api.get(f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{resource.plural}/{target.name}")
    except RequestRefused as error:
        if error.status == _NOT_FOUND:
            raise InvalidInput(f"there is no {resource.kind} {target.name} in namespace {namespace}") from error
        raise
    items, where, problem = _records(resource.kind, namespace, target.name, asked)
    found = explain_policy.policy_explanation({"kind": resource.kind} | obj, items, where, problem)
    if json:
        typer.echo(orjson.dumps(found.as_json()).decode())
        return
    console = make_console()
    _show_sentences(console, found.headline, found.because)
    _show_table(console, explain_policy.COLUMNS, [explain_policy.row_of(record) for record in found.records[:top]])
    if found.records:
        for key, value in explain_policy.details_of(found.records[0]):
            console.print(f"  {key:16} {value}", markup=False)


def _records(kind: str, namespace: str, name: str, asked: Callable[[], list[Door]]) -> tuple[list[dict[str, Any]], str, str]:
    """Records that the leading operator keeps of a policy, oldest first; the process; and why nothing could be read. Others keep less."""
    best: list[dict[str, Any]] = []
    where, troubles = "", []
    try:
        doors_there = asked()
    except (InvalidInput, Unavailable) as error:  # the object itself says much, also without its records
        return [], "", str(error)
    for door in doors_there:
        try:
            status, answer = door.ask(f"/explain/{kind}/{namespace}/{name}")
        except Unavailable as error:
            troubles.append(str(error))
            continue
        if status != 200 or not isinstance(answer, dict):
            troubles.append(f"{door.label} answered {status}")
            continue
        items = [item for item in answer.get("items") or () if isinstance(item, dict)]
        if not where or len(items) > len(best):
            best, where = items, door.label
    return best, where, "; ".join(troubles)


def _show_sentences(console: Console, headline: str, because: Sequence[str]) -> None:
    console.print(headline, markup=False, style="bold")
    for sentence in because:
        console.print(f"  {sentence}", markup=False)


def _show_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        table = Table(*columns)
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)


def _pod(api: ApiClient, namespace: str, name: str) -> dict[str, Any] | None:
    try:
        return api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    except RequestRefused as error:
        if error.status == _NOT_FOUND:
            return None
        raise


def _show_pod(found: explaining.Explanation, top: int) -> None:
    console = make_console()
    _show_sentences(console, found.headline, found.because)
    record = found.record
    if not record:
        console.print(f"  asked: {found.extender}", markup=False)
        return
    facts = {
        "policy": record.get("policy"),
        "mode": record.get("mode"),
        "decided by": record.get("policyName"),
        "model": record.get("modelDigest"),
        "candidates": record.get("candidates"),
        "attempts": len(record.get("attempts") or ()),
        "took": f"{record.get('durationMs')} ms",
        "extender": found.extender,
    }
    for key, value in facts.items():
        if value not in (None, ""):
            console.print(f"  {key:10} {value}", markup=False)
    scores = explaining.top_scores(record, top)
    if scores:
        rows = [(str(s["node"]), str(s["score"]), "unknown" if s.get("raw") is None else f"{s['raw']:.6g}") for s in scores]
        _show_table(console, ("candidate", "score", "raw"), rows)
    if estimate := record.get("estimate"):
        _show_table(console, ("expected", *PART_NAMES, "in all"), explaining.estimate_rows(estimate))
    if profile := record.get("callProfile"):
        console.print(explaining.profile_line(str(record.get("function")), profile))
    features = dict(record.get("features") or {})
    if features:
        nodes = [score["node"] for score in scores if score["node"] in features][:_FEATURE_NODES] or list(features)[:_FEATURE_NODES]
        table = Table("feature", *nodes)
        for feature in features[nodes[0]]:
            values = [features[node].get(feature) for node in nodes]
            table.add_row(feature, *("–" if value is None else f"{value:.5g}" for value in values))
        console.print(table)
