"""Windows: a continuous worker leaves a row for each stretch of time in which it did something."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Fail, Holdfast
from holdfast.worker.window import MOST_TENANTS, OTHERS, largest
from tests.support import flow
from tests.support.running import until, working

Sql = Callable[..., list[tuple[Any, ...]]]
ROWS = "select jobs_claimed, jobs_succeeded, jobs_failed, kind from worker_tick_metrics order by tick_started_at"


def noting(hf: Holdfast) -> None:
    @hf.task(name="note")
    async def note() -> None:
        pass

    @hf.task(name="hopeless")
    async def hopeless() -> None:
        raise Fail("never works")


async def test_a_worker_leaves_rows_while_it_works_and_none_while_it_is_idle(hf: Holdfast, sql: Sql) -> None:
    noting(hf)
    async with working(hf, window=0.5) as worker:
        flow.put(sql, task="note", tenant="a", number=30)
        flow.put(sql, task="hopeless", number=2)
        await until(lambda: sql(ROWS))
        await until(lambda: not worker.windows.open)
        first = sql(ROWS)
        flow.put(sql, task="note", number=4)
        await until(lambda: len(sql(ROWS)) > len(first))
    rows = sql(ROWS)
    assert [sum(row[n] for row in rows) for n in range(3)] == [36, 34, 2]
    assert {row[3] for row in rows} == {"window"} and len(rows) <= 4
    tenants = Counter[str]()
    for (tenant_jobs,) in sql("select tenant_jobs from worker_tick_metrics"):
        tenants.update(tenant_jobs)
    assert tenants == {"a": 30, "": 6}
    assert sql("select total_jobs_succeeded from worker_health_summary") == [(34,)]
    assert sql("select distinct worker_id from worker_tick_metrics") == [(worker.id,)]


async def test_what_was_done_before_a_stop_is_recorded_when_it_stops(hf: Holdfast, sql: Sql) -> None:
    noting(hf)
    async with working(hf, window=600.0) as worker:
        flow.put(sql, task="note", number=3)
        await until(lambda: worker.finisher.succeeded == 3)
        assert sql(ROWS) == []
    assert sql(ROWS) == [(3, 3, 0, "window")]


async def test_a_worker_that_did_nothing_leaves_nothing(hf: Holdfast, sql: Sql) -> None:
    noting(hf)
    async with working(hf, window=0.1) as worker:
        since = worker.windows.since
        await until(lambda: worker.windows.since > since + 0.3)
    assert sql(ROWS) == []


async def test_windows_can_be_switched_off(hf: Holdfast, sql: Sql) -> None:
    noting(hf)
    async with working(hf, window=0) as worker:
        flow.put(sql, task="note", number=3)
        await until(lambda: worker.finisher.succeeded == 3)
    assert sql(ROWS) == []


async def test_the_depth_at_the_start_is_what_waited_then(hf: Holdfast, sql: Sql) -> None:
    hold = asyncio.Event()

    @hf.task(name="held")
    async def held() -> None:
        await hold.wait()

    flow.put(sql, task="held", number=20)
    async with working(hf, window=0.5, concurrency=2, prefetch=0) as worker:
        await until(lambda: worker.windows.open)
        await until(lambda: worker.windows.depth is not None)
        hold.set()
        await until(lambda: worker.finisher.succeeded == 20)
    starts = [row[0] for row in sql("select queue_depth_at_start from worker_tick_metrics order by tick_started_at")]
    assert starts[0] == 18 and sql("select queue_depth_at_end from worker_tick_metrics order by tick_started_at desc")[
        0
    ] == (0,)


async def test_a_window_that_cannot_be_stored_goes_on_until_it_can(
    hf: Holdfast, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    noting(hf)
    async with working(hf, window=0.5) as worker:
        stored, worker.windows.rows.calls.schema = worker.windows.rows.calls.schema, "not_there"
        flow.put(sql, task="note", tenant="a", number=3)
        await until(lambda: "window not stored" in caplog.text)
        worker.windows.rows.calls.schema = stored
        assert sql(ROWS) == []
    assert sql(ROWS) == [(3, 3, 0, "window")]
    assert sql("select tenant_jobs from worker_tick_metrics") == [({"a": 3},)]


def test_a_tick_says_how_much_waited_when_it_began(hf: Holdfast, sql: Sql) -> None:
    noting(hf)
    flow.put(sql, task="note", tenant="a", number=40)
    hf.tick(per_tenant=25)
    assert sql("select queue_depth_at_start, queue_depth_at_end, kind from worker_tick_metrics") == [(40, 15, "tick")]


def test_of_very_many_tenants_the_largest_are_named() -> None:
    tenants = Counter[str | None]({f"t{n}": n + 1 for n in range(MOST_TENANTS + 5)})
    kept = largest(tenants)
    assert len(kept) == MOST_TENANTS + 1 and kept[OTHERS] == 1 + 2 + 3 + 4 + 5
    assert sum(kept.values()) == tenants.total()
    assert largest(Counter({None: 2, "a": 1})) == {"": 2, "a": 1}
