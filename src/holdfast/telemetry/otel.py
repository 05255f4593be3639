"""OpenTelemetry: one trace from an enqueue through every attempt to the messages it emits. Needs the extra `otel`.

The context travels in the job's headers (`traceparent`), so it crosses processes and survives retries. An attempt is a
child of the span that enqueued its job, and linked to it. Names and attributes are those of the semantic conventions
for messaging; what they have no word for begins with `holdfast.`. No payload, and errors' texts scrubbed.
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
    raise ConfigurationError("traces need: pip install 'holdfast[otel]'") from None

SYSTEM = "holdfast"
CHANNEL = "channel:"
UNSAMPLED = "02468ace"  # last digits of flags whose lowest bit is not set
WRITTEN = '{"traceparent":"00-'  # as enqueues here write it, with flags that end at a known place
UNSAMPLED_END = frozenset(f'{digit}"' for digit in UNSAMPLED)
VERSION_0 = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})").fullmatch
PROPAGATED = ("traceparent", "tracestate", "baggage")
LONGEST_TEXT = 2000  # characters of an error's text in a span


class Traced(Protocol):
    """An application that takes middleware: Holdfast."""

    def around_enqueue(self, layer: Any, /) -> Any: ...
    def around_attempt(self, layer: Any, /) -> Any: ...


def trace(hf: Traced, tracer_provider: TracerProvider | None = None, *, roots: bool = True) -> None:
    """Traces an application's enqueues, emits and attempts, with the provider given or the process's own.

    Call it once, where `hf` is made: in the programs that enqueue and in those that work. Middleware registered
    before it is outside of the spans. roots: attempts of jobs that carry no trace begin one; else they make no span.
    """
    tracer = traces.get_tracer("holdfast", VERSION, tracer_provider)
    hf.around_enqueue(_enqueues(tracer))
    layer = _attempts(tracer)
    layer.skips = _skipping(roots)  # type: ignore[attr-defined]
    layer.carried, layer.resumed = _current, _resumed  # type: ignore[attr-defined]
    hf.around_attempt(layer)


# The headers of an attempt that makes no span because nobody sampled its trace. What it enqueues carries them on, so
# that no part of that trace is sampled either. Set for every attempt, so that what a handler leaves behind (a thread, a
# task) goes on with its own.
_carried: ContextVar[str | None] = ContextVar("holdfast_carried", default=None)


def _skipping(roots: bool) -> Callable[[Job], bool]:
    carried, carry = _carried.get, _carried.set

    def skips(job: Job) -> bool:
        """Whether an attempt makes no span; for most of them this is all that tracing costs."""
        sent = job.sent
        if sent is not None and sent[70:72] in UNSAMPLED_END and sent[:19] == WRITTEN:  # without reading all of it
            carry(sent)
            return True
        known = None if sent is None else _traceparent(sent)
        if known is not None and known[-1] in UNSAMPLED:
            carry(sent)
            return True
        if carried() is not None:
            carry(None)
        return known is None and not roots

    return skips


def _traceparent(sent: str) -> str | None:
    """Headers are anybody's: what is no dict of texts has none."""
    try:
        known = read_headers(sent)["traceparent"]
        return known if known[:3] == "00-" and len(known) == 55 else None
    except (KeyError, TypeError, IndexError):
        return None


def _enqueues(tracer: Tracer) -> Callable[[NewJob], Iterator[None]]:
    def traced_enqueue(job: NewJob) -> Iterator[None]:
        if (carried := _carried.get()) is not None and not traces.get_current_span().get_span_context().is_valid:
            told = _texts(read_headers(carried))
            job.headers = {**(job.headers or {}), **{name: told[name] for name in PROPAGATED if name in told}}
            yield
            return
        queue = job.queue or "outbox"  # of a channel that only its workers know
        verb = "emit" if job.task.startswith(CHANNEL) else "enqueue"
        about = _about("send", verb, queue, job.id, job.task, job.tenant)
        about["messaging.message.body.size"] = len(job.payload)
        with tracer.start_as_current_span(f"{verb} {queue}", kind=SpanKind.PRODUCER, attributes=about,
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
        parent = _parent(_texts(ctx.headers))
        producer = traces.get_current_span(parent).get_span_context()
        if producer.is_valid and not producer.trace_flags.sampled:
            token = contexts.attach(parent)
            try:
                yield
            finally:
                contexts.detach(token)
            return
        about = _about("process", "run", ctx.queue, ctx.job_id, ctx.task, ctx.tenant)
        about |= {"holdfast.attempt": ctx.attempt, "holdfast.max_attempts": ctx.max_attempts}
        links = [Link(producer)] if producer.is_valid else None
        span = tracer.start_span(f"run {ctx.queue}", parent, SpanKind.CONSUMER, about, links)
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


def _parent(told: dict[str, str]) -> contexts.Context:
    """What the propagators read, by a shorter way for what is almost always all that was sent, to the usual ones."""
    if len(told) == 1 and (parts := VERSION_0(told.get("traceparent", ""))) is not None:
        trace_id, span_id, flags = (int(part, 16) for part in parts.groups())
        producer = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
        if producer.is_valid and _is_usual(propagate.get_global_textmap()):
            return traces.set_span_in_context(NonRecordingSpan(producer), contexts.Context())
    return propagate.extract(told)


@functools.lru_cache(maxsize=4)
def _is_usual(propagators: TextMapPropagator) -> bool:
    return propagators.fields == set(PROPAGATED)


def _current() -> dict[str, str]:
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier


@contextlib.contextmanager
def _resumed(told: Mapping[str, Any]) -> Iterator[None]:
    """In a child process the span of the attempt, which is the worker's, is the parent of what the handler starts."""
    token = contexts.attach(propagate.extract(_texts(told)))
    try:
        yield
    finally:
        contexts.detach(token)


def _about(kind: str, verb: str, queue: str, id_: str, task: str, tenant: str | None) -> dict[str, Any]:
    about: dict[str, Any] = {
        "messaging.system": SYSTEM,
        "messaging.operation.type": kind,
        "messaging.operation.name": verb,
        "messaging.destination.name": queue,
        "holdfast.task": task,
    }
    if id_:  # many enqueued at once have one span, and no one id
        about["messaging.message.id"] = id_
    return about if tenant is None else about | {"holdfast.tenant": tenant}


def _texts(headers: Any) -> dict[str, str]:
    """Headers are anybody's; a propagator is given texts only."""
    told = headers if isinstance(headers, dict) else {}
    return {name: value for name, value in told.items() if isinstance(name, str) and isinstance(value, str)}


def _note(span: Span, error: BaseException) -> None:
    """Marks a span as failed, unless the handler only put its job off or called it off."""
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
