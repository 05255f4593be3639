"""A trace goes on in a child process: what the handler starts there has the attempt's span as its parent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Holdfast
from holdfast.client.database import Database
from holdfast.settings import Settings
from tests.support.running import until, working
from tests.support.workers import APPS

sys.path.append(str(APPS))
import traced

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def app(dsn: str) -> Iterator[Holdfast]:
    traced.hf.database = Database(Settings.load(dsn=dsn))
    yield traced.hf
    traced.hf.close()


async def test_a_handler_in_a_child_process_goes_on_with_the_trace(app: Holdfast, sql: Sql) -> None:
    exporter = InMemorySpanExporter()
    traced.provider.add_span_processor(SimpleSpanProcessor(exporter))

    def header(id_: str) -> str:
        return sql("select headers->>'traceparent' from live where id = %s", [id_])[0][0]

    async with working(app, child_processes=1):
        for task in (traced.plain, traced.awaited, traced.plain):  # one child: nothing is left of the last
            (trace_id, current, parent), leaf = await (await task.aenqueue()).aresult(40)
            (run,) = [span for span in exporter.get_finished_spans() if span.name == "run default"]
            assert (trace_id, current, parent) == (run.context.trace_id, run.context.span_id, run.context.span_id)
            assert header(leaf)[3:35] == f"{trace_id:032x}" and int(header(leaf)[-2:], 16) & 1
            exporter.clear()


async def test_an_unsampled_trace_is_not_sampled_in_a_child_process_either(app: Holdfast, sql: Sql) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    sql(
        "insert into live (id, task, headers) values (gen_random_uuid(), 'plain', %s::json)",
        [f'{{"traceparent": "00-{trace_id}-b7ad6b7169203331-00"}}'],
    )
    query = "select headers->>'traceparent' from live where task = 'leaf'"

    async with working(app, child_processes=1):
        await until(lambda: sql(query))
    ((traceparent,),) = sql(query)
    assert (traceparent[3:35], traceparent[-2:]) == (trace_id, "00")
