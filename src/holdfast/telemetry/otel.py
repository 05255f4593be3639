"""OpenTelemetry: one trace from an enqueue through every attempt to the messages it emits. Needs the extra `otel`.

The context is stored in the job's headers (`traceparent`), so it crosses processes and survives retries. An attempt is
a child of the span that enqueued its job, and linked to it. Names and attributes follow the semantic conventions for
messaging; additional ones begin with `holdfast.`. Spans contain no payload, and error texts are scrubbed.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from holdfast.errors import ConfigurationError
from holdfast.model.context import Context
from holdfast.model.job import Job, NewJob, read_headers
from holdfast.model.outcome import Cancel, Snooze
from holdfast.settings import VERSION
from holdfast.telemetry.scrub import scrub

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate
    from opentelemetry import trace as traces
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind,
        StatusCode,
        TraceFlags,
        Tracer,
        TracerProvider,
    )  # fmt: skip
except ImportError:
    raise ConfigurationError("traces need: pip install 'holdfast-jobs[otel]'") from None

SYSTEM = "holdfast"
CHANNEL = "channel:"
UNSAMPLED = "02468ace"  # last digits of flags whose lowest bit is not set
WRITTEN = '{"traceparent":"00-'  # as enqueues write it, with the flags at a fixed position
UNSAMPLED_END = frozenset(f'{digit}"' for digit in UNSAMPLED)
VERSION_0 = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})").fullmatch
PROPAGATED = ("traceparent", "tracestate", "baggage")
LONGEST_TEXT = 2000  # characters of an error's text in a span


class SupportsMiddleware(Protocol):
    """An application that takes middleware: Holdfast."""

    def around_enqueue(self, layer: Any, /) -> Any: ...
    def around_attempt(self, layer: Any, /) -> Any: ...


def trace(hf: SupportsMiddleware, tracer_provider: TracerProvider | None = None, *, roots: bool = True) -> None:
    """Trace an application's enqueues, emits and attempts, with the given provider or the global one.

    Call it once, where `hf` is created, in programs that enqueue and in workers. Middleware registered before it runs
    outside of the spans. roots: whether attempts of jobs without a trace start one; otherwise they create no span.
    """
    tracer = traces.get_tracer("holdfast", VERSION, tracer_provider)
    hf.around_enqueue(_enqueues(tracer))
    layer = _attempts(tracer)
    layer.skips = _skipping(roots)  # type: ignore[attr-defined]
    layer.carried, layer.resumed = _current, _resumed  # type: ignore[attr-defined]
    hf.around_attempt(layer)


# The headers of an attempt without a span, because its trace is not sampled. Jobs that it enqueues inherit them, so no
# part of that trace is sampled. It is set for every attempt, so threads and tasks that outlive one keep their own.
_carried: ContextVar[str | None] = ContextVar("holdfast_carried", default=None)


def _skipping(roots: bool) -> Callable[[Job], bool]:
    carried, carry = _carried.get, _carried.set

    def skips(job: Job) -> bool:
        """Return whether an attempt creates no span; for most attempts this is the whole cost of tracing."""
        headers = job.sent
        if headers is not None and headers[70:72] in UNSAMPLED_END and headers[:19] == WRITTEN:  # without decoding it
            carry(headers)
            return True
        traceparent = None if headers is None else _traceparent(headers)
        if traceparent is not None and traceparent[-1] in UNSAMPLED:
            carry(headers)
            return True
        if carried() is not None:
            carry(None)
        return traceparent is None and not roots

    return skips


def _traceparent(headers: str) -> str | None:
    """Return the traceparent, or None. Headers are untrusted: they may be anything but a dict of strings."""
    try:
        value = read_headers(headers)["traceparent"]
        return value if value[:3] == "00-" and len(value) == 55 else None
    except (KeyError, TypeError, IndexError):
        return None


def _enqueues(tracer: Tracer) -> Callable[[NewJob], Iterator[None]]:
    def traced_enqueue(job: NewJob) -> Iterator[None]:
        if (carried := _carried.get()) is not None and not traces.get_current_span().get_span_context().is_valid:
            context = _texts(read_headers(carried))
            job.headers = {**(job.headers or {}), **{name: context[name] for name in PROPAGATED if name in context}}
            yield
            return
        queue = job.queue or "outbox"  # only workers know the channel's queue
        verb = "emit" if job.task.startswith(CHANNEL) else "enqueue"
        attributes = _attributes("send", verb, queue, job.id, job.task, job.tenant)
        attributes["messaging.message.body.size"] = len(job.payload)
        with tracer.start_as_current_span(f"{verb} {queue}", kind=SpanKind.PRODUCER, attributes=attributes,
                                          record_exception=False, set_status_on_exception=False) as span:  # fmt: skip
            job.headers = {**(job.headers or {}), **_current()}
            try:
                yield
            except BaseException as error:
                _note(span, error)
                raise

    return traced_enqueue


def _attempts(tracer: Tracer) -> Callable[[Context], Iterator[None]]:
    def traced_attempt(ctx: Context) -> Iterator[None]:
        parent = extract(_texts(ctx.headers))
        producer = traces.get_current_span(parent).get_span_context()
        if producer.is_valid and not producer.trace_flags.sampled:
            token = contexts.attach(parent)
            try:
                yield
            finally:
                contexts.detach(token)
            return
        attributes = _attributes("process", "run", ctx.queue, ctx.job_id, ctx.task, ctx.tenant)
        attributes |= {"holdfast.attempt": ctx.attempt, "holdfast.max_attempts": ctx.max_attempts}
        links = [Link(producer)] if producer.is_valid else None
        span = tracer.start_span(f"run {ctx.queue}", parent, SpanKind.CONSUMER, attributes, links)
        token = contexts.attach(traces.set_span_in_context(span))
        try:
            yield
        except BaseException as error:
            _note(span, error)
            raise
        finally:
            contexts.detach(token)
            span.end()

    return traced_attempt


def extract(headers: dict[str, str]) -> contexts.Context:
    """Return the context that the propagators extract. The fast path is a traceparent alone, with the default
    propagators."""
    if len(headers) == 1 and (parts := VERSION_0(headers.get("traceparent", ""))) is not None:
        trace_id, span_id, flags = (int(part, 16) for part in parts.groups())
        producer = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
        if producer.is_valid and _is_usual(propagate.get_global_textmap()):
            return traces.set_span_in_context(NonRecordingSpan(producer), contexts.Context())
    return propagate.extract(headers)


@functools.lru_cache(maxsize=4)
def _is_usual(propagators: TextMapPropagator) -> bool:
    return propagators.fields == set(PROPAGATED)


def _current() -> dict[str, str]:
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier


@contextlib.contextmanager
def _resumed(carried: Mapping[str, Any]) -> Iterator[None]:
    """Make, in a child process, the attempt's span, which is in the worker, the parent of the handler's spans."""
    token = contexts.attach(propagate.extract(_texts(carried)))
    try:
        yield
    finally:
        contexts.detach(token)


def _attributes(kind: str, verb: str, queue: str, id_: str, task: str, tenant: str | None) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.operation.type": kind,
        "messaging.operation.name": verb,
        "messaging.destination.name": queue,
        "holdfast.task": task,
    }
    if id_:  # a bulk enqueue has one span and no single id
        attributes["messaging.message.id"] = id_
    return attributes if tenant is None else attributes | {"holdfast.tenant": tenant}


def _texts(headers: Any) -> dict[str, str]:
    """Return the headers that are strings: headers are untrusted, and propagators expect strings."""
    items = headers.items() if isinstance(headers, dict) else ()
    return {name: value for name, value in items if isinstance(name, str) and isinstance(value, str)}


def _note(span: Span, error: BaseException) -> None:
    """Mark a span as failed, unless the handler snoozed or canceled its job."""
    if not span.is_recording():
        return
    kind = type(error).__qualname__
    if isinstance(error, Snooze | Cancel):
        span.set_attribute("holdfast.outcome", error.outcome)
        return
    text = _text(error)
    span.set_attribute("error.type", scrub(str(getattr(error, "code", None) or kind)))
    span.set_status(StatusCode.ERROR, f"{kind}: {text}"[:500])
    span.add_event("exception", {"exception.type": kind, "exception.message": text})


def _text(error: BaseException) -> str:
    try:
        return scrub(str(error), limit=LONGEST_TEXT)
    except Exception:  # a handler's exception may have a broken __str__
        return ""
