"""Everything that a handler may do, it may do in a drain: transactions, batches, deadlines, schedules, resources ..."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
import sqlalchemy

from holdfast import CONTEXT, Context, Cron, NewJob, Status
from holdfast.testing import Kit


@pytest.fixture
def ledger(kit: Kit) -> Iterator[psycopg.Connection]:
    with psycopg.connect(kit.dsn, autocommit=True) as conn:
        conn.execute("create table if not exists ledger (n integer)")
        yield conn
        conn.execute("drop table ledger")


def test_a_transaction_commits_the_handlers_rows_with_the_jobs_success(kit: Kit, ledger: psycopg.Connection) -> None:
    @kit.hf.task()
    async def book(n: int, *, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into ledger values (%s)", [n])
            ctx.set_result(n)

    @kit.hf.task()
    def book_in_thread(n: int, *, ctx: Context = CONTEXT) -> int:
        with ctx.transaction() as conn:
            conn.execute("insert into ledger values (%s)", [n])
        return n

    book.enqueue(1)
    book_in_thread.enqueue(2)
    drained = kit.drain()
    assert [(each.outcome, each.status, each.result) for each in drained] == [
        ("succeeded", Status.SUCCEEDED, 1),
        ("succeeded", Status.SUCCEEDED, 2),
    ]
    assert ledger.execute("select n from ledger order by n").fetchall() == [(1,), (2,)]


def test_a_transaction_that_fails_leaves_nothing_and_is_raised(kit: Kit, ledger: psycopg.Connection) -> None:
    @kit.hf.task()
    async def book(*, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into ledger values (1)")
            raise ZeroDivisionError

    book.enqueue()
    with pytest.raises(ZeroDivisionError):
        kit.drain()
    assert ledger.execute("select count(*) from ledger").fetchone() == (0,)


def test_an_error_after_the_commit_is_raised_though_the_job_has_succeeded(kit: Kit, ledger: psycopg.Connection) -> None:
    @kit.hf.task()
    async def book(*, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into ledger values (1)")
        raise ZeroDivisionError

    job = book.enqueue()
    with pytest.raises(ZeroDivisionError):
        kit.drain()
    assert job.info().status is Status.SUCCEEDED


def test_a_batch_ends_with_its_callback_in_the_same_drain(kit: Kit) -> None:
    @kit.hf.task()
    async def part(n: int) -> None: ...

    @kit.hf.task()
    def done(batch: str) -> str:
        info = kit.hf.batches.get(batch)
        assert info is not None
        return f"{info.name}: {info.processed} of {info.total}"

    with kit.hf.batch("import", on_done=done) as batch:
        part.using(batch=batch).enqueue_many(range(3))
    kit.assert_enqueued(part.using(batch=batch), count=3)
    kit.refute_enqueued(part.using(batch="00000000-0000-7000-8000-000000000001"))
    assert [each.result for each in kit.drain().of(done)] == ["import: 3 of 3"]


def test_a_batch_that_is_canceled_inline_has_its_callback_run(kit: Kit) -> None:
    called: list[str] = []

    @kit.hf.task()
    async def part() -> None: ...

    @kit.hf.task()
    async def done(batch: str) -> None:
        called.append(batch)

    with kit.inline():
        with kit.hf.batch("import", on_done=done) as batch:
            part.using(batch=batch, delay=60).enqueue()
        batch.cancel()
        assert called == [batch.id]


def test_a_batch_ends_inline_when_its_block_does(kit: Kit) -> None:
    @kit.hf.task()
    async def part(n: int) -> None: ...

    @kit.hf.task()
    async def done(batch: str) -> None: ...

    with kit.inline():
        with kit.hf.batch("import", on_done=done) as batch:
            part.using(batch=batch).enqueue(1)
        assert [job.status for job in kit.assert_enqueued(done, batch.id)] == [Status.SUCCEEDED]


def test_a_deadline_passes_with_the_clock(kit: Kit) -> None:
    @kit.hf.task()
    async def code() -> None: ...

    job = code.using(deadline=300).enqueue()
    kit.assert_enqueued(code.using(deadline=300))
    with pytest.raises(AssertionError, match="deadline is 300 s, not 60 s"):
        kit.assert_enqueued(code.using(deadline=60))
    kit.clock.travel(301)
    assert kit.drain() == ()
    assert job.info().status is Status.CANCELED


def test_periodic_jobs_run_at_each_slot_on_the_way_if_requested(kit: Kit) -> None:
    @kit.hf.task()
    def report(kind: str) -> str:
        return f"{kind} {kit.clock.now():%a %H:%M}"

    report.schedule("nightly", Cron("0 3 * * *"), "night")
    report.schedule("weekly", "30 4 * * mon", "week")
    kit.clock.freeze(datetime(2030, 6, 1, 12, tzinfo=UTC))  # a Saturday
    assert kit.drain(until=timedelta(days=1)) == ()  # noise to most tests, so only for those that want it
    drained = kit.drain(until=timedelta(days=2), with_schedules=True)
    assert [each.result for each in drained] == ["night Mon 03:00", "week Mon 04:30", "night Tue 03:00"]
    assert kit.clock.now() == datetime(2030, 6, 4, 12, tzinfo=UTC)


def test_resources_are_opened_for_each_drain_and_closed_after_it(kit: Kit) -> None:
    steps: list[str] = []

    @kit.hf.resource
    async def server() -> AsyncIterator[str]:
        steps.append("opened")
        yield "server"
        steps.append("closed")

    @kit.hf.task()
    async def ask(*, where: str = server.value) -> str:
        return f"asked {where}"

    ask.enqueue()
    assert [each.result for each in kit.drain()] == ["asked server"]
    assert steps == ["opened", "closed"]


def test_middleware_is_around_enqueues_and_attempts(kit: Kit) -> None:
    calls: list[object] = []

    @kit.hf.around_enqueue
    def mark(job: NewJob) -> Iterator[None]:
        job.headers = {"mark": "x"}
        yield

    @kit.hf.around_attempt
    async def look(ctx: Context) -> AsyncIterator[None]:
        calls.append(ctx.headers)
        try:
            yield
        except ZeroDivisionError as error:
            raise ConnectionError("translated") from error

    @kit.hf.task()
    async def divide(n: int) -> float:
        return 1 / n

    divide.enqueue(1)
    divide.enqueue(0)
    with pytest.raises(ConnectionError, match="translated"):
        kit.drain()
    assert calls == [{"mark": "x"}, {"mark": "x"}]


def test_progress_can_be_read_after_a_drain(kit: Kit) -> None:
    @kit.hf.task()
    async def count(*, ctx: Context = CONTEXT) -> None:
        ctx.progress(3, 10, "third")

    job = count.enqueue()
    kit.drain()
    info = job.info()
    assert info is not None and info.progress is not None
    assert (info.progress["done"], info.progress["message"]) == (3, "third")


def test_a_job_in_a_session_of_sqlalchemy_is_visible_through_it(kit: Kit) -> None:
    @kit.hf.task()
    async def ship(order: int) -> None: ...

    engine = sqlalchemy.create_engine(kit.dsn.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as conn:
        ship.using(conn=conn).enqueue(7)
        kit.refute_enqueued(ship)
        kit.assert_enqueued(ship.using(conn=conn), 7)
        conn.commit()
    engine.dispose()
    kit.assert_enqueued(ship, 7)


def test_a_handler_that_cancels_its_own_job_learns_it_from_the_context(kit: Kit) -> None:
    @kit.hf.task()
    async def give_up(*, ctx: Context = CONTEXT) -> None:
        assert kit.hf.jobs.cancel(ctx.job_id) == {ctx.job_id: "canceling"}
        raise ConnectionError("would be tried again")

    give_up.enqueue()
    (attempt,) = kit.drain(raise_errors=False)
    assert attempt.status is Status.CANCELED


async def test_two_drains_on_one_loop_leave_nothing_behind(kit: Kit) -> None:
    @kit.hf.task()
    async def nothing() -> None: ...

    before = asyncio.all_tasks()
    for _ in range(2):
        await nothing.aenqueue()
        await kit.adrain()
    await kit.hf.database.async_pool.close()
    assert asyncio.all_tasks() == before
