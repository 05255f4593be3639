"""An application with traces whose handlers run in child processes and return the trace context they find."""

from __future__ import annotations

from opentelemetry import trace as traces
from opentelemetry.sdk.trace import TracerProvider

from holdfast import Holdfast
from holdfast.telemetry.otel import trace

hf = Holdfast()
provider = TracerProvider()
trace(hf, provider)


def found() -> list[int]:
    """Return the trace, the current span, and the parent of a span that begins here."""
    current = traces.get_current_span().get_span_context()
    with provider.get_tracer("app").start_as_current_span("inside") as span:
        parent = getattr(span, "parent", None)
        return [current.trace_id, current.span_id, parent.span_id if parent else 0]


@hf.task(name="leaf", queue="nobody")
def leaf() -> None: ...


@hf.task(name="plain", runner="process")
def plain() -> tuple[list[int], str]:
    return found(), leaf.enqueue().id


@hf.task(name="awaited", runner="process")
async def awaited() -> tuple[list[int], str]:
    return found(), (await leaf.aenqueue()).id
