"""ctx.transaction(): rows and success together, also with few connections and handlers that enqueue, stop or freeze."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from holdfast import CONTEXT, Cancel, Context, Holdfast, Retry, Status, UsageError
from holdfast.store.wire.transaction import Transaction
from tests.conftest import wait_until
from tests.support.running import ended, until, working

Sql = Callable[..., list[tuple[Any, ...]]]
Rows = Callable[[], list[int]]


@pytest.fixture
def ledger(sql: Sql) -> Iterator[Rows]:
    """Create a table of the application and return a function for its rows."""
    sql("create table if not exists public.ledger (n integer not null)")
    yield lambda: [row[0] for row in sql("select n from public.ledger order by n")]
    sql("drop table public.ledger")


async def test_rows_and_success_are_committed_together(hf: Holdfast, ledger: Rows) -> None:
    @hf.task()
    async def on_loop(n: int, *, ctx: Context = CONTEXT) -> str:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.ledger values (%s)", [n])
        info = await hf.jobs.aget(ctx.job_id)
        assert info is not None and info.status is Status.SUCCEEDED
        return "kept"

    @hf.task()
    def in_thread(n: int, *, ctx: Context = CONTEXT) -> str:
        with ctx.transaction() as conn:
            conn.execute("insert into public.ledger values (%s)", [n])
            ctx.set_result("set inside")
        return "ignored"

    async with working(hf) as worker:
        job = await on_loop.aenqueue(1)
        assert await job.aresult(40) in ("kept", None)
        assert await (await in_thread.aenqueue(2)).aresult(40) == "set inside"

        async def kept() -> bool:
            info = await hf.jobs.aget(job.id)
            return info is not None and info.result == "kept"

        await until(kept)
        await until(lambda: not worker.buffer.leases)
    assert ledger() == [1, 2]


async def test_a_result_set_after_the_transaction_is_kept_as_one_returned_is(hf: Holdfast, ledger: Rows) -> None:
    @hf.task()
    def late(n: int, *, ctx: Context = CONTEXT) -> str:
        with ctx.transaction() as conn:
            conn.execute("insert into public.ledger values (%s)", [n])
        ctx.set_result("set after")
        return "ignored"

    async with working(hf):
        job = await late.aenqueue(1)

        async def kept() -> bool:
            info = await hf.jobs.aget(job.id)
            return info is not None and info.result == "set after"

        await until(kept)


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_an_error_in_the_transaction_rolls_back_and_the_job_is_tried_again(
    hf: Holdfast, ledger: Rows, kind: str
) -> None:
    async def on_loop(n: int, *, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.ledger values (%s)", [n])
            if ctx.attempt == 1:
                raise ValueError("not yet")

    def in_thread(n: int, *, ctx: Context = CONTEXT) -> None:
        with ctx.transaction() as conn:
            conn.execute("insert into public.ledger values (%s)", [n])
            if ctx.attempt == 1:
                raise ValueError("not yet")

    handler: Any = on_loop if kind == "async" else in_thread
    task = hf.task(name="t", retry=Retry.fixed(0, max_attempts=3))(handler)
    async with working(hf):
        info = await ended(hf, (await task.aenqueue(1)).id)
    assert (info.status, info.attempts, ledger()) == (Status.SUCCEEDED, 2, [1])


async def test_a_transaction_whose_lease_was_lost_is_rolled_back(hf: Holdfast, sql: Sql, ledger: Rows) -> None:
    lost: list[str] = []

    @hf.task(retry=Retry.fixed(0, max_attempts=3))
    async def insert(*, ctx: Context = CONTEXT) -> None:
        try:
            async with ctx.transaction() as conn:
                await conn.execute("insert into public.ledger values (%s)", [ctx.attempt])
                if ctx.attempt == 1:  # the lease expires and another worker reclaims the job, while we still write
                    sql("update claims set expires_at = now() - interval '1 s'")
                    sql("select reclaim()")
        except Exception as error:
            lost.append(type(error).__name__)
            raise

    async with working(hf):
        info = await ended(hf, (await insert.aenqueue()).id)
    assert (info.status, info.attempts, ledger(), lost) == (Status.SUCCEEDED, 2, [2], ["LeaseLost"])


async def test_an_error_after_the_transaction_does_not_undo_its_success(
    hf: Holdfast, ledger: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    @hf.task()
    async def insert(*, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.ledger values (1)")
        with pytest.raises(UsageError, match="has already been finished"):
            ctx.transaction()
        raise Cancel("too late")

    async with working(hf):
        job = await insert.aenqueue()
        assert (await ended(hf, job.id)).status is Status.SUCCEEDED
        await until(lambda: "handler raised after its job had succeeded" in caplog.text)
    assert ledger() == [1]


def test_a_context_made_by_hand_has_no_transaction() -> None:
    with pytest.raises(UsageError, match="needs a job that a worker runs"):
        CONTEXT.transaction()
    CONTEXT.progress(1, 2)
    assert not CONTEXT.canceled


# -- under pressure


async def all_ended(hf: Holdfast, sql: Sql, number: int, seconds: float = 60.0) -> dict[str, int]:
    async def counts() -> dict[str, int] | None:
        rows = dict(await asyncio.to_thread(sql, "select status::text, count(*) from jobs group by 1"))
        return rows if sum(rows.get(s, 0) for s in ("succeeded", "failed", "dead", "canceled")) >= number else None

    found: dict[str, int] = await until(counts, seconds)
    return found


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_handlers_that_enqueue_inside_their_transactions_do_not_wait_for_each_other(
    dsn: str, sql: Sql, ledger: Rows, kind: str
) -> None:
    """Fifty handlers, ten connections, all in use by transactions when each handler asks for one more."""
    hf = Holdfast(dsn, pool_size=3, connect_timeout=10)
    together = threading.Barrier(3)

    @hf.task(name="after", queue="elsewhere")
    async def after(n: int) -> None: ...

    async def on_loop(n: int, *, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.ledger values (%s)", [n])
            await asyncio.sleep(0.01)
            await after.aenqueue(n)

    def in_thread(n: int, *, ctx: Context = CONTEXT) -> None:
        with ctx.transaction() as conn:
            conn.execute("insert into public.ledger values (%s)", [n])
            if n < 3:
                together.wait(40)
            after.enqueue(n)

    task = hf.task(name="t", retry=Retry.none())(on_loop if kind == "async" else in_thread)
    task.enqueue_many(range(50))
    async with working(hf, concurrency=50):
        assert (await all_ended(hf, sql, 50))["succeeded"] == 50
    assert ledger() == list(range(50))
    assert sql("select count(*) from live where task = 'after'") == [(50,)]
    await hf.aclose()


async def test_a_restart_of_the_database_costs_no_attempt(hf: Holdfast, sql: Sql, ledger: Rows) -> None:
    """The idle connections of the pool are dead by now; the handler must not be the first to notice."""

    @hf.task(retry=Retry.none())
    async def on_loop(n: int, *, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.ledger values (%s)", [n])
            await asyncio.sleep(0.05)

    @hf.task(retry=Retry.none())
    def in_thread(n: int, *, ctx: Context = CONTEXT) -> None:
        with ctx.transaction() as conn:
            conn.execute("insert into public.ledger values (%s)", [n])
            conn.execute("select pg_sleep(0.05)")

    async with working(hf):
        for start in (0, 20):
            ids = [
                *on_loop.enqueue_many(range(start, start + 10)).ids,
                *in_thread.enqueue_many(range(start, start + 10)).ids,
            ]
            assert {(await ended(hf, id_)).status for id_ in ids} == {Status.SUCCEEDED}
            sql(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name = 'holdfast transaction' and datname = current_database()"
            )
    assert ledger() == sorted([*range(10), *range(20, 30)] * 2)


async def test_a_second_transaction_beside_the_first_is_refused_before_it_writes(hf: Holdfast, ledger: Rows) -> None:
    """Only one of the two could end the job: the other's rows would be lost although the job has succeeded."""

    @hf.task(retry=Retry.none())
    async def twice(*, ctx: Context = CONTEXT) -> None:
        async def write(n: int) -> None:
            async with ctx.transaction() as conn:
                await conn.execute("insert into public.ledger values (%s)", [n])
                await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as group:
            group.create_task(write(1))
            group.create_task(write(2))

    async with working(hf):
        info = await ended(hf, (await twice.aenqueue()).id)
    assert info.status is Status.DEAD and info.last_error
    assert "has a transaction open already" in info.last_error["traceback"]
    assert ledger() == []


async def test_after_a_transaction_that_was_rolled_back_another_may_be_tried(hf: Holdfast, ledger: Rows) -> None:
    @hf.task(retry=Retry.none())
    async def on_loop(*, ctx: Context = CONTEXT) -> None:
        with contextlib.suppress(ValueError):
            async with ctx.transaction() as conn:
                await conn.execute("insert into public.ledger values (1)")
                raise ValueError("no")
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.ledger values (2)")

    @hf.task(retry=Retry.none())
    def in_thread(*, ctx: Context = CONTEXT) -> None:
        with ctx.transaction() as conn:
            conn.execute("insert into public.ledger values (3)")
            raise psycopg.Rollback
        with ctx.transaction() as conn:
            conn.execute("insert into public.ledger values (4)")

    async with working(hf):
        for task in (on_loop, in_thread):
            assert (await ended(hf, (await task.aenqueue()).id)).status is Status.SUCCEEDED
    assert ledger() == [2, 4]


async def test_a_threads_transaction_on_the_event_loop_is_refused(hf: Holdfast, ledger: Rows) -> None:
    """It would stop the whole worker while it waits for a connection or for the database."""

    @hf.task(retry=Retry.none())
    async def wrong(*, ctx: Context = CONTEXT) -> None:
        with ctx.transaction():
            await asyncio.sleep(0)

    async with working(hf):
        info = await ended(hf, (await wrong.aenqueue()).id)
    assert info.last_error and "write `async with ctx.transaction()`" in info.last_error["message"]


async def test_a_worker_that_stops_rolls_back_a_coroutines_transaction_and_gives_the_job_back(
    hf: Holdfast, ledger: Rows
) -> None:
    entered = asyncio.Event()

    @hf.task()
    async def slow(*, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.ledger values (%s)", [ctx.attempt])
            if not entered.is_set():
                entered.set()
                await asyncio.sleep(60)

    async with working(hf, grace=0.1):
        job = await slow.aenqueue()
        await entered.wait()
    info = job.info()
    assert info is not None and (info.status, info.attempts, ledger()) == (Status.QUEUED, 0, [])
    async with working(hf):
        assert (await ended(hf, job.id)).attempts == 1
    assert ledger() == [1]


async def test_a_thread_that_outlives_its_worker_ends_its_job_or_nothing(hf: Holdfast, sql: Sql, ledger: Rows) -> None:
    """Its worker is gone, its job still its own: the lease decides, and the first commit."""
    entered, go, left = threading.Event(), threading.Event(), threading.Event()

    @hf.task(retry=Retry.fixed(0))
    def slow(*, ctx: Context = CONTEXT) -> None:
        try:
            with ctx.transaction() as conn:
                conn.execute("insert into public.ledger values (%s)", [ctx.attempt])
                if ctx.attempt == 1:
                    entered.set()
                    go.wait(40)
        finally:
            left.set()

    async with working(hf, grace=0.1):
        job = await slow.aenqueue()
        await asyncio.to_thread(entered.wait, 40)
    info = job.info()
    assert info is not None and info.status is Status.RUNNING
    left.clear()
    sql("update claims set expires_at = now() - interval '1 s'")
    async with working(hf):
        assert (await ended(hf, job.id)).attempts == 2
        left.clear()
        go.set()
        await asyncio.to_thread(left.wait, 40)
    assert ledger() == [2]
    assert sql("select count(*) from jobs") == [(1,)]


async def test_a_lease_lost_inside_a_threads_transaction_rolls_it_back(hf: Holdfast, sql: Sql, ledger: Rows) -> None:
    errors: list[str] = []

    @hf.task(retry=Retry.fixed(0))
    def insert(*, ctx: Context = CONTEXT) -> None:
        try:
            with ctx.transaction() as conn:
                conn.execute("insert into public.ledger values (%s)", [ctx.attempt])
                if ctx.attempt == 1:
                    sql("update claims set expires_at = now() - interval '1 s'")
                    sql("select reclaim()")
        except Exception as error:
            errors.append(type(error).__name__)
            raise

    async with working(hf):
        info = await ended(hf, (await insert.aenqueue()).id)
    assert (info.status, info.attempts, ledger(), errors) == (Status.SUCCEEDED, 2, [2], ["LeaseLost"])


async def test_a_canceled_coroutine_in_its_transaction_leaves_no_row(hf: Holdfast, ledger: Rows) -> None:
    entered = asyncio.Event()

    @hf.task()
    async def slow(*, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.ledger values (1)")
            entered.set()
            await conn.execute("select pg_sleep(60)")

    async with working(hf):
        job = await slow.aenqueue()
        await entered.wait()
        assert await hf.jobs.acancel(job.id) == {job.id: "canceling"}
        assert (await ended(hf, job.id)).status is Status.CANCELED
    assert ledger() == []


async def test_a_timeout_in_a_transaction_rolls_it_back(hf: Holdfast, ledger: Rows) -> None:
    @hf.task(timeout=0.2, retry=Retry.none())
    async def slow(*, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.ledger values (1)")
            await conn.execute("select pg_sleep(60)")

    async with working(hf):
        info = await ended(hf, (await slow.aenqueue()).id)
    assert info.status is Status.DEAD and info.last_error and info.last_error["code"] == "TIMEOUT"
    assert ledger() == []


async def test_a_result_that_cannot_be_stored_rolls_the_transaction_back(hf: Holdfast, ledger: Rows) -> None:
    @hf.task(retry=Retry.none())
    async def wrong(*, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.ledger values (1)")
            ctx.set_result({"a": "\x00"})

    async with working(hf):
        info = await ended(hf, (await wrong.aenqueue()).id)
    assert info.status is Status.FAILED and info.last_error and "NUL" in info.last_error["message"]
    assert ledger() == []


async def test_a_transaction_that_breaks_the_applications_own_rules_is_an_error_like_any_other(
    hf: Holdfast, sql: Sql, ledger: Rows
) -> None:
    """The commit itself fails, after finish() has been accepted: the job is tried again, not lost."""
    sql("create table public.parents (id int primary key)")
    sql("create table public.children (id int references public.parents deferrable initially deferred)")

    @hf.task(retry=Retry.fixed(0, max_attempts=2))
    async def orphan(*, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.children values (1)")

    try:
        async with working(hf):
            info = await ended(hf, (await orphan.aenqueue()).id)
        assert (info.status, info.attempts) == (Status.DEAD, 2)
        assert info.last_error and "foreign key" in info.last_error["message"]
    finally:
        sql("drop table public.children, public.parents")


def test_a_worker_that_freezes_between_finish_and_commit_does_not_keep_its_claim(
    hf: Holdfast, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """finish() holds the job until the commit, and reclaim steps over it: for no longer than the server allows."""
    monkeypatch.setattr("holdfast.store.wire.transaction.COMMIT_WITHIN", 0.3)
    hf.task(name="t")(_nothing).enqueue_many([1, 2])
    (mine, token), (other, _) = sql("select id::text, token from claim('frozen', p_limit => 2)")
    sql("update claims set expires_at = now() - interval '1 s'")

    class Frozen(Transaction):
        def _check_lease(self, refused: list[str]) -> None:
            assert refused == []
            assert sql("select ids::text[] from reclaim()") == [([other],)]
            wait_until(lambda: sql("select 1 from reclaim()"))

    def finish() -> Any:
        return hf.database.calls.jobs.finish([mine], [token], [], [])

    frozen = Frozen(
        hf.database.sync_pool,
        hf.database.async_pool,
        finish,
        lambda: pytest.fail("committed"),
        mine,
        threading.Lock(),
        lambda _: None,
    )
    with pytest.raises(psycopg.Error), frozen:
        pass
    assert sql("select count(*) from jobs where status = 'retrying'") == [(2,)]
    assert other != mine


def _nothing(n: int) -> None: ...
