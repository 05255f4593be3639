"""Metrics through OpenTelemetry have the names, labels and values of Prometheus's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Fail, Holdfast
from holdfast.telemetry.meters import measure
from holdfast.telemetry.metrics import DatabaseMetrics, WorkerMetrics, exposition
from holdfast.web import app
from tests.support import flow
from tests.support.running import until, working
from tests.support.serving import client, token

Sql = Callable[..., list[tuple[Any, ...]]]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def exported(reader: InMemoryMetricReader) -> Samples:
    found: Samples = {}
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    labels = tuple(sorted((name, str(value)) for name, value in (point.attributes or {}).items()))
                    found[metric.name, labels] = point.value  # type: ignore[union-attr]
    return found


def scraped(text: bytes) -> Samples:
    families = text_string_to_metric_families(text.decode())
    return {
        (each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples
    }


async def test_a_worker_exports_what_it_shows_to_prometheus(hf: Holdfast, sql: Sql) -> None:
    reader = InMemoryMetricReader()
    measure(hf, MeterProvider([reader]))

    @hf.task(name="ok")
    async def ok() -> None: ...

    @hf.task(name="bad")
    async def bad() -> None:
        raise Fail("no")

    flow.put(sql, task="ok", number=3)
    flow.put(sql, task="bad", number=2)
    async with working(hf) as worker:
        await until(lambda: worker.finisher.succeeded == 3 and worker.finisher.failed == 2)
        stats, activity = worker.finisher.stats, worker.windows.activity
        assert stats is not None
        text, _ = exposition(WorkerMetrics(stats, activity.counters, activity.gauges))
        found, expected = exported(reader), scraped(text)
    claims: Any = ("holdfast_claims_total", ())
    assert found.pop(claims) >= 1 and expected.pop(claims) >= 1, "an idle worker goes on claiming"
    assert found == expected
    assert found["holdfast_attempts_total", (("outcome", "succeeded"), ("task", "ok"))] == 3
    assert found["holdfast_attempt_duration_seconds_bucket", (("le", "+Inf"), ("task", "bad"))] == 2


async def test_a_service_exports_its_requests_and_the_database(hf: Holdfast, sql: Sql) -> None:
    reader = InMemoryMetricReader()
    measure(hf, MeterProvider([reader]))
    flow.put(sql, queue="mail", number=3)
    sql("select take_snapshot()")
    async with client(hf, token(hf, None)) as http:
        assert (await http.get("/queues")).status_code == 200
    found = exported(reader)
    labels = (("route", "GET /v1/queues"), ("status", "200"))
    assert found["holdfast_http_requests_total", labels] == 1, sorted(found)
    text, _ = exposition(DatabaseMetrics(hf.settings.schema, hf.database.sync_pool.run))
    assert scraped(text).items() <= found.items()
    assert found["holdfast_queue_jobs", (("queue", "mail"), ("state", "ready"))] == 3


def test_a_service_with_meters_starts_without_its_database() -> None:
    with Holdfast("postgresql://127.0.0.1:1/nothing") as hf:
        measure(hf, MeterProvider([InMemoryMetricReader()]))
        assert app(hf).routes


def test_without_the_extra_the_error_names_it() -> None:
    program = "import sys; sys.modules['opentelemetry'] = None; from holdfast.telemetry import meters"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert "ConfigurationError: metrics of OpenTelemetry need: pip install 'holdfast-jobs[otel]'" in done.stderr
