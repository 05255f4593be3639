"""The cost of telemetry: a drain with everything on (Prometheus, Sentry, traces of which one in a hundred or a thousand
is sampled, JSON logs) against a plain one. `python -m bench.observed` is the worker with telemetry."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Callable
from typing import Any

from holdfast.bench import worker
from holdfast.bench.app import hf
from holdfast.bench.harness import Bench, Result, compared

NEEDED = ("prometheus_client", "sentry_sdk", "opentelemetry.sdk")
# Headers as an enqueue inside a span sets them; the flags at the end mark sampled traces.
HEADERS = """
UPDATE live SET headers = ('{"traceparent":"00-' || replace(id::text, '-', '') || '-00f067aa0ba902b7-'
    || CASE WHEN hashtext(id::text) %% %(sampled)s = 0 THEN '01' ELSE '00' END || '"}')::json
"""


def observed(bench: Bench, sampled: int = 100) -> Result:
    """A drain with all telemetry on; limit: a plain drain."""
    name = "observed" if sampled == 100 else f"observed_{sampled}"
    if missing := [each for each in NEEDED if not _has(each)]:
        return Result(name, 0, 0.0, 0.0, ratio=0.0, note=f"NOT MEASURED: {', '.join(missing)} not installed")
    jobs = bench.size(120_000)

    def measure(watched: bool) -> float:
        bench.fill(jobs)
        if not watched:
            return bench.drain_rate(jobs)
        _carry_traces(bench, sampled)
        telemetry: dict[str, Any] = {
            "metrics_port": _free_port(),
            "sentry_dsn": "http://key@127.0.0.1:9/1",
            "log_format": "json",
        }
        bench.drain(jobs, module="bench.observed", **telemetry)
        number, seconds = bench.window()
        return number / seconds

    rounds = max(1, int(4 * min(bench.scale, 1.0)))
    result = compared(name, jobs, *bench.alternate(measure, (False, True, True, False) * rounds))
    lost = 1 - (result.ratio or 0.0)
    result.note = (
        f"medians of {2 * rounds}; everything on costs {lost:.0%} of the jobs/s, {1 / (1 - lost) - 1:.0%} more time"
    )
    return result


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _carry_traces(bench: Bench, sampled: int) -> None:
    with bench.connection() as conn:
        conn.execute(HEADERS, {"sampled": sampled})
        conn.execute("VACUUM FULL live")  # as if they had been inserted with headers
    bench.settle()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main() -> None:
    """Run a worker whose traces are discarded."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    from holdfast.telemetry.otel import trace

    class Nowhere(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider(sampler=ParentBasedTraceIdRatio(0))  # the headers decide about sampling
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    trace(hf, provider)
    worker.main()


def observed_1000(bench: Bench) -> Result:
    """The same, one trace in a thousand sampled; limit: a plain drain."""
    return observed(bench, 1000)


ALL: dict[str, Callable[[Bench], Result]] = {"observed": observed, "observed_1000": observed_1000}

if __name__ == "__main__":
    main()
