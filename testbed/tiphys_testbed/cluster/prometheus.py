"""Configuration of the local Prometheus, and the one query helper that scripts and tests need."""

import time
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

import orjson
import yaml

from tiphys_cli.kube.errors import ClusterError
from tiphys_testbed.cluster.options import PrometheusOptions, ScrapeJob


def prometheus_config(options: PrometheusOptions) -> str:
    """Static targets only: one per node with the labels `node` and `instance`, and one per further job."""
    interval = f"{round(options.scrape_interval_s * 1000)}ms"
    jobs: list[dict[str, Any]] = []
    if options.node_urls:
        nodes = [_target(url, {"node": node, "instance": node}) for node, url in sorted(options.node_urls.items())]
        jobs.append({"job_name": "node", "static_configs": nodes})
    jobs += [_job(job) for job in options.jobs]
    timeout = f"{round(min(options.scrape_interval_s, 10.0) * 1000)}ms"
    document = {"global": {"scrape_interval": interval, "scrape_timeout": timeout}, "scrape_configs": jobs}
    return yaml.safe_dump(document, sort_keys=False)


def query(url: str, promql: str, timeout_s: float = 5.0) -> list[dict[str, Any]]:
    """The result vector of an instant query."""
    try:
        with urlopen(f"{url}/api/v1/query?{urlencode({'query': promql})}", timeout=timeout_s) as answer:  # noqa: S310
            data = orjson.loads(answer.read())
    except (URLError, TimeoutError) as error:
        raise ClusterError(f"Prometheus at {url} does not answer: {error}") from error
    if data.get("status") != "success":
        raise ClusterError(f"Prometheus refused {promql!r}: {data.get('error')}")
    result: list[dict[str, Any]] = data["data"]["result"]
    return result


def wait_for_series(url: str, promql: str, count: int, deadline_s: float) -> list[dict[str, Any]]:
    """Wait until a query returns at least `count` series."""
    end = time.monotonic() + deadline_s
    while True:
        result = query(url, promql)
        if len(result) >= count:
            return result
        if time.monotonic() > end:
            raise ClusterError(f"{promql!r} has {len(result)} of {count} series after {deadline_s:.0f} s")
        time.sleep(0.2)


def _target(url: str, labels: dict[str, str]) -> dict[str, Any]:
    parts = urlsplit(url)
    special = {"__metrics_path__": parts.path or "/metrics", "__scheme__": parts.scheme}
    return {"targets": [parts.netloc], "labels": special | labels}


def _job(job: ScrapeJob) -> dict[str, Any]:
    config: dict[str, Any] = {"job_name": job.name, "static_configs": [_target(job.url, dict(job.labels))]}
    tls = {"ca_file": job.ca_file, "cert_file": job.cert_file, "key_file": job.key_file}
    if any(tls.values()):
        config["tls_config"] = {key: str(file) for key, file in tls.items() if file is not None}
    if job.token_file is not None:
        config["authorization"] = {"type": "Bearer", "credentials_file": str(job.token_file)}
    return config
