"""OpenTelemetry: one trace from enqueue through run to outbox, recorded by the SDK's in-memory exporter."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import baggage, propagate
from opentelemetry import context as contexts
from opentelemetry import trace as traces
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from holdfast import CONTEXT, Cancel, Context, Delivery, DuplicateJob, Fail, Holdfast, Retry, Snooze
from holdfast.telemetry import otel
from holdfast.telemetry.otel import trace
from tests.support import flow
from tests.support.running import ended, until, working

Sql = Callable[..., list[tuple[Any, ...]]]
DEEP = "[" * 3000 + "]" * 3000
ENDLESS = '{"n": ' + "9" * 5000 + "}"


class Spans:
    """Spans that have ended, and a tracer for the test's own."""

    def __init__(self, provider: TracerProvider) -> None:
        self.exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def spans(hf: Holdfast) -> Spans:
    provider = TracerProvider()
    trace(hf, provider)
    return Spans(provider)


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def sampled(traceparent: str) -> bool:
    return bool(int(traceparent[-2:], 16) & 1)


def id_of(span: ReadableSpan) -> int:
    return span.context.span_id


async def test_one_trace_goes_from_enqueue_through_run_to_the_outbox(hf: Holdfast, spans: Spans) -> None:
    sent: list[str] = []

    @hf.channel("email")
    async def email(delivery: Delivery[Any]) -> None:
        sent.append(delivery.key)

    @hf.task(name="invoice", queue="billing")
    async def invoice(n: int, *, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction():
            await ctx.aemit(email, {"n": n}, key=f"invoice-{n}")

    with spans.tracer.start_as_current_span("request"):
        handle = await invoice.using(tenant="acme").aenqueue(7)
    async with working(hf, queues="billing,outbox"):
        await until(lambda: sent)
        await until(lambda: len(spans.spans) == 5)
    request, enqueue, run, emit, deliver = spans.spans
    assert [span.name for span in spans.spans] == [
        "request",
        "enqueue billing",
        "run billing",
        "emit outbox",
        "run outbox",
    ]
    assert len({span.context.trace_id for span in spans.spans}) == 1
    assert [parent_of(span) for span in spans.spans] == [None, *map(id_of, (request, enqueue, run, emit))]
    assert [span.kind for span in spans.spans[1:]] == [SpanKind.PRODUCER, SpanKind.CONSUMER] * 2
    assert [link.context.span_id for link in run.links] == [id_of(enqueue)]
    assert [link.context.span_id for link in deliver.links] == [id_of(emit)]
    assert dict(enqueue.attributes or {}) == {
        "messaging.system": "holdfast",
        "messaging.operation.type": "send",
        "messaging.operation.name": "enqueue",
        "messaging.destination.name": "billing",
        "messaging.message.id": handle.id,
        "messaging.message.body.size": 7,
        "holdfast.task": "invoice",
        "holdfast.tenant": "acme",
    }
    attributes = dict(run.attributes or {})
    assert attributes["messaging.operation.type"] == "process" and attributes["messaging.message.id"] == handle.id
    assert (attributes["holdfast.attempt"], attributes["holdfast.task"], attributes["holdfast.tenant"]) == (
        1,
        "invoice",
        "acme",
    )


def test_a_thread_and_a_plain_enqueue_are_traced_too(hf: Holdfast, spans: Spans) -> None:
    inside: list[int] = []

    @hf.task(name="sync")
    def sync() -> None:
        inside.append(traces.get_current_span().get_span_context().span_id)

    sync.enqueue()
    hf.tick()
    (run,) = spans.named("run default")
    assert inside == [id_of(run)]  # what the handler does in its thread belongs to its span
    assert parent_of(run) == id_of(spans.named("enqueue default")[0])


async def test_every_attempt_is_a_span_and_its_error_is_scrubbed(hf: Holdfast, spans: Spans) -> None:
    @hf.task(name="flaky", retry=Retry.fixed(0.01, max_attempts=2))
    async def flaky() -> None:
        raise ConnectionError("no answer from https://ann:pw@a.example/x?token=1")

    async with working(hf):
        await ended(hf, (await flaky.aenqueue()).id)
    runs = spans.named("run default")
    assert [dict(span.attributes or {})["holdfast.attempt"] for span in runs] == [1, 2]
    for span in runs:
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "ConnectionError: no answer from https://a.example/x?[query]"
        assert dict(span.attributes or {})["error.type"] == "ConnectionError"
        assert [event.name for event in span.events] == ["exception"]
        assert "pw" not in str(span.to_json()) and "token" not in str(span.to_json())


@pytest.mark.parametrize(("verdict", "outcome"), [(Snooze(60), "snoozed"), (Cancel("not wanted"), "canceled")])
async def test_a_snooze_or_a_cancel_is_no_error(hf: Holdfast, spans: Spans, verdict: Any, outcome: str) -> None:
    @hf.task()
    async def says() -> None:
        raise verdict

    await says.aenqueue()
    async with working(hf):
        await until(lambda: spans.named("run default"))
    (run,) = spans.named("run default")
    assert run.status.status_code is StatusCode.UNSET
    assert dict(run.attributes or {})["holdfast.outcome"] == outcome


async def test_a_verdicts_code_is_the_errors_type(hf: Holdfast, spans: Spans) -> None:
    @hf.task()
    async def says() -> None:
        raise Fail("x", code="BLOCKED")

    await says.aenqueue()
    async with working(hf):
        await until(lambda: spans.named("run default"))
    assert dict(spans.named("run default")[0].attributes or {})["error.type"] == "BLOCKED"


def test_an_enqueue_that_is_refused_is_marked(hf: Holdfast, spans: Spans) -> None:
    @hf.task(name="once")
    async def once() -> None: ...

    once.using(dedupe="k").enqueue()
    with pytest.raises(DuplicateJob):
        once.using(dedupe="k", on_conflict="raise").enqueue()
    assert [span.status.status_code for span in spans.named("enqueue default")] == [StatusCode.UNSET, StatusCode.ERROR]


def test_many_enqueued_at_once_have_one_span_and_share_its_trace(hf: Holdfast, spans: Spans, sql: Sql) -> None:
    @hf.task(name="many")
    async def many(n: int) -> None: ...

    many.enqueue_many([(n,) for n in range(3)])
    (enqueue,) = spans.spans
    hf.tick()
    runs = spans.named("run default")
    assert [parent_of(span) for span in runs] == [id_of(enqueue)] * 3


@pytest.mark.parametrize("among_others", [False, True], ids=["alone", "with middleware"])
@pytest.mark.parametrize("runner", ["async", "thread"])
async def test_an_unsampled_trace_makes_no_spans_but_its_context_goes_on(
    hf: Holdfast, sql: Sql, runner: str, among_others: bool
) -> None:
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    trace(hf, provider)
    spans = Spans(provider)
    carried: list[str] = []

    if among_others:

        @hf.around_attempt
        def other(ctx: Context) -> Any:
            yield

    @hf.task(name="child")
    async def child(*, ctx: Context = CONTEXT) -> None:
        carried.append((ctx.headers or {})["traceparent"])

    async def on_loop() -> None:
        await child.aenqueue()

    def in_thread() -> None:
        child.enqueue()

    parent = hf.task(name="parent")(on_loop if runner == "async" else in_thread)
    await parent.aenqueue()
    ((first,),) = sql("select headers ->> 'traceparent' from live")
    async with working(hf):
        await until(lambda: carried)
    assert spans.spans == []
    assert first[:36] == carried[0][:36] and not sampled(first) and not sampled(carried[0])


async def test_a_job_without_a_trace_after_one_that_was_not_sampled_begins_its_own(
    hf: Holdfast, spans: Spans, sql: Sql
) -> None:
    """In the same slot, where something of the last attempt could be left."""
    enqueued: list[str] = []

    @hf.task(name="leaf")
    async def leaf() -> None: ...

    @hf.task(name="plain")
    async def plain() -> None:
        enqueued.append((await leaf.using(queue="elsewhere").aenqueue()).id)

    async with working(hf, concurrency=1):
        for headers in ('{"traceparent": "00-11111111111111111111111111111111-2222222222222222-02"}', None):
            sql("insert into live (id, task, headers) values (gen_random_uuid(), 'plain', %s::json)", [headers])
            before = len(enqueued)
            await until(lambda before=before: len(enqueued) > before)
    first, second = (sql("select headers ->> 'traceparent' from live where id = %s", [id_])[0][0] for id_ in enqueued)
    assert first.startswith("00-11111111111111111111111111111111-") and not sampled(first)
    assert "1111111111111111" not in second and sampled(second)
    assert len(spans.named("run default")) == 1


async def test_without_roots_only_jobs_that_carry_a_trace_make_spans(hf: Holdfast, sql: Sql) -> None:
    provider = TracerProvider()
    trace(hf, provider, roots=False)
    spans = Spans(provider)

    @hf.task(name="plain")
    async def plain() -> None: ...

    flow.put(sql, task="plain")
    await plain.aenqueue()
    assert (await hf.atick()).succeeded == 2
    assert [span.name for span in spans.spans] == ["enqueue default", "run default"]


@pytest.mark.parametrize(
    "headers",
    ["null", "[]", '"x"', '{"traceparent": 7}', '{"traceparent": "odd"}', '{"traceparent": {}}', DEEP, ENDLESS],
    ids=lambda headers: headers[:20],
)
def test_headers_of_strangers_do_no_harm(hf: Holdfast, spans: Spans, sql: Sql, headers: str) -> None:
    @hf.task(name="plain")
    async def plain() -> None: ...

    flow.put(sql, task="plain")
    sql("update live set headers = %s::json", [headers])
    assert hf.tick().succeeded == 1
    (run,) = spans.named("run default")
    assert run.parent is None and not run.links


async def test_jobs_that_run_at_once_keep_their_contexts_apart(hf: Holdfast, spans: Spans) -> None:
    inside: dict[int, int] = {}

    @hf.task(name="apart")
    async def apart(n: int) -> None:
        await asyncio.sleep(0.01)
        inside[n] = traces.get_current_span().get_span_context().trace_id

    made = {}
    for n in range(20):
        with spans.tracer.start_as_current_span(f"request {n}") as span:
            await apart.aenqueue(n)
            made[n] = span.get_span_context().trace_id
    async with working(hf):
        await until(lambda: len(inside) == 20)
    assert inside == made and len(set(made.values())) == 20


async def test_what_is_around_a_trace_is_visible_to_the_handler_too(hf: Holdfast) -> None:
    inside: list[Any] = []

    @hf.around_attempt
    def outer(ctx: Context) -> Iterator[None]:
        token = contexts.attach(baggage.set_baggage("outer", "1"))
        try:
            yield
        finally:
            contexts.detach(token)

    trace(hf, TracerProvider())

    @hf.task(name="look")
    async def look() -> None:
        inside.append((baggage.get_baggage("outer"), traces.get_current_span().get_span_context().is_valid))

    await look.aenqueue()
    async with working(hf):
        await until(lambda: inside)
    assert inside == [("1", True)]


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": f"00-{TRACE}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{SPAN}-00"},
        {"traceparent": f"00-{TRACE}-{SPAN}-ff"},
        {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=1,b=2"},
        {"traceparent": f"00-{TRACE}-{SPAN}-01", "baggage": "who=me"},
        {"traceparent": f"00-{TRACE}-{SPAN}-01-more"},
        {"traceparent": f"cc-{TRACE}-{SPAN}-01"},
        {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
        {"traceparent": f"00-{TRACE.upper()}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE[:-2]}_1-{SPAN}-01"},
        {"traceparent": f" 00-{TRACE}-{SPAN}-01"},
        {"traceparent": ""},
        {"who": "me"},
        {},
    ],
)
def test_the_shorter_way_reads_what_the_propagators_read(headers: dict[str, str]) -> None:
    def read(context: contexts.Context) -> tuple[Any, ...]:
        found = traces.get_current_span(context).get_span_context()
        return (found, found.is_remote, dict(found.trace_state), dict(baggage.get_all(context)))

    outside = contexts.attach(baggage.set_baggage("outer", "yes"))
    try:
        assert read(otel.extract(headers)) == read(propagate.extract(headers))
    finally:
        contexts.detach(outside)


@pytest.mark.parametrize("named", [[], ["baggage"], ["tracecontext"]])
def test_the_shorter_way_is_left_to_the_usual_propagators(named: list[str]) -> None:
    known = {"baggage": W3CBaggagePropagator(), "tracecontext": TraceContextTextMapPropagator()}
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(CompositePropagator([known[name] for name in named]))
    try:
        headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
        found, read = (
            traces.get_current_span(each).get_span_context()
            for each in (otel.extract(headers), propagate.extract(headers))
        )
        assert found == read and found.is_valid == ("tracecontext" in named)
    finally:
        propagate.set_global_textmap(before)


async def nothing() -> None: ...


def unsampled(trace: str, **more: str) -> str:
    return json.dumps({"traceparent": f"00-{trace}-{SPAN}-00"} | more)


async def test_an_enqueue_of_a_background_task_keeps_its_own_trace(hf: Holdfast, sql: Sql) -> None:
    """Whatever its slot runs by then: another tenant's job, with another's baggage."""
    trace(hf, TracerProvider())
    over, left, busy = asyncio.Event(), [], asyncio.Event()
    child = hf.task(name="child", queue="elsewhere")(nothing)

    @hf.task(name="leaves")
    async def leaves() -> None:
        async def later() -> None:
            await busy.wait()
            await child.aenqueue()
            over.set()

        left.append(asyncio.create_task(later()))

    @hf.task(name="next")
    async def next_one() -> None:
        busy.set()
        await over.wait()

    sql("select enqueue('leaves', p_headers => %s)", [unsampled(TRACE)])
    async with working(hf, concurrency=1):
        await until(lambda: left and not sql("select 1 from live"))
        sql("select enqueue('next', p_headers => %s)", [unsampled("5" * 32, baggage="user=bob")])
        await over.wait()
    ((headers,),) = sql("select headers from live where task = 'child'")
    assert headers == json.loads(unsampled(TRACE))


async def test_a_thread_that_outlasts_its_attempt_goes_on_with_its_own_trace(hf: Holdfast, sql: Sql) -> None:
    trace(hf, TracerProvider())
    child = hf.task(name="child", queue="elsewhere")(nothing)
    ended = threading.Event()

    @hf.task(name="hangs", timeout=0.05)
    def hangs() -> None:
        ended.wait(20)
        child.enqueue()

    sql("select enqueue('hangs', p_max_attempts => 1, p_headers => %s)", [unsampled(TRACE)])
    async with working(hf):
        await until(lambda: not sql("select 1 from live"))
        ended.set()
        await until(lambda: sql("select 1 from live where task = 'child'"))
    ((headers,),) = sql("select headers from live where task = 'child'")
    assert headers == json.loads(unsampled(TRACE))
