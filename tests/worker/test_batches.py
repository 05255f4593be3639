"""Batches (R12): counted exactly under concurrency, ended once, canceled, added to while they run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast import CONTEXT, BatchInfo, Cancel, Context, Fail, Holdfast, Retry, Status, UsageError
from tests.support.running import ended, until, working

Sql = Callable[..., list[tuple[Any, ...]]]


def counts(info: BatchInfo | None) -> tuple[str, int, int, int, int, int]:
    assert info is not None
    return info.status, info.total, info.processed, info.succeeded, info.failed, info.canceled


async def test_a_batch_counts_how_its_jobs_end_and_calls_back_once(hf: Holdfast) -> None:
    results: list[tuple[str, str | None]] = []

    @hf.task(retry=Retry.fixed(0, max_attempts=2))
    async def row(n: int) -> None:
        if n == 0:
            raise Fail("bad row")
        if n == 1:
            raise ValueError("bad twice")
        if n == 2:
            raise Cancel("not wanted")

    @hf.task()
    async def imported(batch: str, *, ctx: Context = CONTEXT) -> None:
        results.append((batch, ctx.tenant))

    with hf.batch("import", tenant="acme", on_done=imported) as batch:
        ids = row.using(batch=batch).enqueue_many(range(200)).ids
        one = row.using(batch=batch).enqueue(200)
        assert counts(batch.info()) == ("queued", 201, 0, 0, 0, 0)
    async with working(hf):
        info = await batch.ajoin(40)
        assert counts(info) == ("failed", 201, 201, 198, 2, 1)
        assert info.callback is not None
        assert (await ended(hf, info.callback)).status is Status.SUCCEEDED
    job = one.info()
    assert job is not None and (job.batch, job.tenant) == (batch.id, "acme")
    assert results == [(batch.id, "acme")] and len(set(ids)) == 200
    assert info.created_at and info.started_at and info.finished_at


async def test_a_batch_whose_jobs_all_succeed_has_succeeded(hf: Holdfast) -> None:
    @hf.task()
    async def row(n: int) -> int:
        return n

    async with working(hf):
        async with hf.batch("import") as batch:
            await row.using(batch=batch).aenqueue_many(range(10))
            await row.using(batch=batch, delay=0.05).aenqueue_many(range(10))
        assert counts(await batch.ajoin(40)) == ("succeeded", 20, 20, 20, 0, 0)


async def test_a_batch_does_not_end_while_it_is_open(hf: Holdfast) -> None:
    @hf.task()
    async def row(n: int) -> None: ...

    async with working(hf):
        async with hf.batch("import") as batch:
            for n in range(3):
                job = await row.using(batch=batch).aenqueue(n)
                await ended(hf, job.id)
            assert counts(await batch.ainfo()) == ("running", 3, 3, 3, 0, 0)
        assert counts(await batch.ajoin(40))[0] == "succeeded"


def test_an_empty_batch_ends_when_it_is_closed(hf: Holdfast) -> None:
    @hf.task()
    async def done() -> None: ...

    with hf.batch("nothing", on_done=done) as batch:
        pass
    assert counts(batch.join(5)) == ("succeeded", 0, 0, 0, 0, 0)
    assert len(hf.jobs.list()) == 1


async def test_jobs_may_be_added_from_a_job_of_a_running_batch_but_not_to_one_that_has_ended(hf: Holdfast) -> None:
    @hf.task()
    async def page(n: int, *, ctx: Context = CONTEXT) -> None:
        if n > 0:
            await page.using(batch=ctx.batch_id).aenqueue(n - 1)

    async with working(hf):
        async with hf.batch("crawl") as batch:
            await page.using(batch=batch).aenqueue(5)
        assert counts(await batch.ajoin(40)) == ("succeeded", 6, 6, 6, 0, 0)
        with pytest.raises(UsageError, match=r"batch .* \(crawl\) has ended and takes no more jobs"):
            await page.using(batch=batch).aenqueue(1)
        with pytest.raises(UsageError, match=r"\(crawl\) has ended and takes no more jobs"):
            await page.using(batch=batch).aenqueue_many([1, 2])
        with pytest.raises(UsageError, match="there is no batch"):
            await page.using(batch="00000000-0000-7000-8000-000000000000").aenqueue(1)
    assert len(hf.jobs.list()) == 6


async def test_a_batch_is_canceled_with_all_that_waits_and_runs(hf: Holdfast) -> None:
    entered = asyncio.Event()
    results: list[str] = []

    @hf.task()
    async def slow(n: int) -> None:
        entered.set()
        await asyncio.sleep(60)

    @hf.task()
    async def over(batch: str) -> None:
        results.append(batch)

    async with hf.batch("import", on_done=over) as batch:
        await slow.using(batch=batch).aenqueue_many(range(2500))
        await slow.using(batch=batch, delay=3600).aenqueue_many(range(10))
    async with working(hf, concurrency=3):
        await entered.wait()
        assert await batch.acancel() >= 2500
        info = await batch.ajoin(40)
        assert counts(info) == ("canceled", 2510, 2510, 0, 0, 2510)
        await until(lambda: results == [batch.id])
        assert await batch.acancel() == 0
        with pytest.raises(UsageError, match="been canceled and takes no more"):
            await slow.using(batch=batch).aenqueue(1)


async def test_a_block_that_raises_cancels_its_batch(hf: Holdfast) -> None:
    @hf.task()
    async def row(n: int) -> None: ...

    batch = hf.batch("import")

    async def breaks_off() -> None:
        async with batch:
            await row.using(batch=batch).aenqueue_many(range(10))
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        await breaks_off()
    assert counts(batch.info()) == ("canceled", 10, 10, 0, 0, 10)


async def test_a_block_that_raises_propagates_even_if_its_batch_cannot_be_canceled(hf: Holdfast, dsn: str) -> None:
    """A role that may only enqueue cannot cancel; the block's own error is still raised."""
    enqueuer = Holdfast(psycopg.conninfo.make_conninfo(dsn, options="-c role=holdfast_enqueue"))
    batch, other = enqueuer.batch("import"), enqueuer.batch("import")
    with pytest.raises(RuntimeError, match="half way") as caught, batch:
        raise RuntimeError("half way")
    assert "could not be canceled and stays open" in caught.value.__notes__[0]

    async def breaks_off() -> None:
        async with other:
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way") as caught:
        await breaks_off()
    assert "could not be canceled and stays open" in caught.value.__notes__[0]
    await enqueuer.aclose()


def test_a_batch_in_the_callers_transaction_is_rolled_back_with_it(hf: Holdfast, dsn: str) -> None:
    @hf.task()
    async def row(n: int) -> None: ...

    with psycopg.connect(dsn) as conn:
        with hf.batch("import", conn=conn) as batch:
            row.using(batch=batch).enqueue_many(range(10))
            row.using(batch=batch).enqueue(10)
        conn.rollback()
        assert batch.info() is None and hf.jobs.list() == []
        with hf.batch("import", conn=conn) as batch:
            row.using(batch=batch).enqueue_many(range(10))
        assert batch.info() is None
    assert counts(batch.info()) == ("queued", 10, 0, 0, 0, 0)


def test_a_retried_dead_job_is_taken_out_of_the_failed_ones(hf: Holdfast, sql: Sql) -> None:
    @hf.task(name="row")
    async def row() -> None: ...

    with hf.batch("import") as batch:
        job = row.using(batch=batch).enqueue()
    ((_, token),) = sql("select id, token from claim('me')")
    sql("select fail(%s, %s, '{}', null, 'dead')", [job.id, token])
    sql("select complete_batches()")
    assert counts(batch.info()) == ("failed", 1, 1, 0, 1, 0)
    hf.dead.retry([job.id])
    assert counts(batch.info())[1:] == (1, 0, 0, 0, 0)
    ((_, token),) = sql("select id, token from claim('me')")
    sql("select finish(%s, %s)", [[job.id], [token]])
    assert counts(batch.info()) == ("succeeded", 1, 1, 1, 0, 0)


def test_workers_that_end_a_batch_at_once_enqueue_its_callback_once(hf: Holdfast, dsn: str, sql: Sql) -> None:
    """Eight connections finish one job each and then all look whether the batch has ended."""

    @hf.task(name="row")
    async def row(n: int) -> None: ...

    @hf.task(name="done", queue="callbacks")
    async def done(batch: str) -> None: ...

    def end(barrier: threading.Barrier, id_: str, token: int, batch: str) -> None:
        with psycopg.connect(dsn, autocommit=True, options="-c search_path=holdfast") as conn:
            barrier.wait(40)
            conn.execute("select finish(%s::uuid[], %s::bigint[])", [[id_], [token]])
            conn.execute("select complete_batches(%s::uuid[])", [[batch]])

    for _ in range(20):
        with hf.batch("import", on_done=done) as batch:
            row.using(batch=batch).enqueue_many(range(8))
        jobs = sql("select id::text, token from claim('me', p_limit => 8)")
        barrier = threading.Barrier(8)
        with ThreadPoolExecutor(8) as threads:
            for future in [threads.submit(end, barrier, id_, token, batch.id) for id_, token in jobs]:
                future.result()
        assert counts(batch.info()) == ("succeeded", 8, 8, 8, 0, 0)
    assert sql("select count(*) from live where task = 'done'") == [(20,)]


async def test_a_transaction_of_the_callers_does_not_hold_up_a_worker(hf: Holdfast, dsn: str) -> None:
    """A caller adds to a running batch and keeps the transaction open: other jobs go on."""

    @hf.task()
    async def row(n: int) -> None: ...

    async with hf.batch("import") as batch:
        first = await row.using(batch=batch).aenqueue(1)
    with psycopg.connect(dsn) as conn:
        row.using(batch=batch, conn=conn).enqueue(2)
        async with working(hf):
            await ended(hf, first.id)
            await ended(hf, (await row.aenqueue(3)).id)
            info = await batch.ainfo()
            assert info is not None and not info.ended
            conn.commit()
            assert counts(await batch.ajoin(40)) == ("succeeded", 2, 2, 2, 0, 0)


async def test_a_job_that_ends_while_others_are_stored_ends_its_batch_without_a_leader(
    hf: Holdfast, dsn: str, sql: Sql
) -> None:
    go_on = asyncio.Event()

    @hf.task()
    async def first() -> None: ...

    @hf.task()
    async def row() -> None:
        await go_on.wait()

    async with hf.batch("import") as batch:
        await row.using(batch=batch).aenqueue()
    await first.aenqueue()
    sql("select take_lead('upkeep', 'nobody', '1 hour')")
    with psycopg.connect(dsn) as conn:
        conn.execute("lock table holdfast.history in share mode")
        async with working(hf) as under:
            await until(lambda: sql("select 1 from pg_locks where relation = 'history'::regclass and not granted"))
            go_on.set()
            await until(lambda: under.finisher.succeeded == 2)
            conn.commit()
            assert counts(await batch.ajoin(40)) == ("succeeded", 1, 1, 1, 0, 0)


def test_a_batch_needs_a_name_and_a_callback_that_is_a_task(hf: Holdfast) -> None:
    with pytest.raises(UsageError, match="a batch's name must have 1 to 200 characters"):
        hf.batch("")
    with pytest.raises(UsageError, match="on_done must be a task"):
        hf.batch("x", on_done=print)  # type: ignore[arg-type]
