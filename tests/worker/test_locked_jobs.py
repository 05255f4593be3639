"""Callers that leave a transaction open beside a worker: it ends its other jobs, starts and wakes all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Dead, Holdfast, Retry, Status
from holdfast.errors import DatabaseUnavailable
from holdfast.store.call import Call
from holdfast.store.wire.session import Session
from tests.conftest import wait_until
from tests.support.running import ended, until, working
from tests.support.workers import worker

Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def caller(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose transaction is left open."""
    with psycopg.connect(dsn, options="-c search_path=holdfast -c statement_timeout=60s") as conn:
        yield conn
        conn.rollback()


@pytest.mark.parametrize(
    ("fails", "commits", "status"),
    [(False, True, Status.SUCCEEDED), (True, True, Status.CANCELED), (True, False, Status.DEAD)],
)
async def test_a_cancel_left_open_holds_up_its_own_job_alone(
    hf: Holdfast, sql: Sql, caller: psycopg.Connection[Any], fails: bool, commits: bool, status: Status
) -> None:
    go_on, runs = asyncio.Event(), []

    @hf.task(retry=Retry.fixed(0, max_attempts=2))
    async def locked() -> None:
        runs.append(1)
        await go_on.wait()
        if fails:
            raise ValueError("refused")

    @hf.task()
    async def other(n: int) -> None: ...

    async with working(hf, concurrency=5, renew=0.1) as under:
        job = await locked.aenqueue()
        await until(lambda: runs)
        assert caller.execute("select outcome from cancel(%s::uuid[])", [[job.id]]).fetchall() == [("canceling",)]
        go_on.set()
        await other.aenqueue_many([(n,) for n in range(50)])
        await until(lambda: sql("select count(*) from history") == [(50,)])
        ((expires,),) = sql("select c.expires_at from claims c join live l on l.token = c.token")
        await until(lambda: sql("select 1 from claims where expires_at > %s", [expires]))  # renewed
        caller.commit() if commits else caller.rollback()
        info = await ended(hf, job.id)
        assert info.status is status
        await until(lambda: not under.buffer.leases)
    assert len(runs) == (2 if status is Status.DEAD else 1), "and was not run again"
    assert sql("select count(*) from live") == [(0,)]


async def test_a_lock_beside_a_job_delays_that_job_alone(
    hf: Holdfast, sql: Sql, caller: psycopg.Connection[Any]
) -> None:
    @hf.task()
    async def blocked(n: int) -> None:
        if n < 2:
            raise Dead("refused", block="example.org")

    sql("insert into blocks values ('example.org', 'r', 1, now(), now(), gen_random_uuid())")
    caller.execute("select 1 from blocks for update")
    jobs = await blocked.aenqueue_many([(n,) for n in range(40)])
    async with working(hf, concurrency=40):
        await until(lambda: sql("select count(*) from history") == [(38,)])
        assert sql("select count(*) from dead") == [(0,)]
        caller.rollback()
        await until(lambda: sql("select count(*) from dead") == [(2,)])
    assert sql("select count from blocks") == [(3,)]
    assert len(jobs) == 40 and sql("select count(*) from claims") == [(0,)]


async def test_many_jobs_under_a_locked_block_hold_up_no_other_end(
    hf: Holdfast, sql: Sql, caller: psycopg.Connection[Any]
) -> None:
    """Sent one by one, each of them would wait for the lock twice before the next outcome is stored."""
    runs = []

    @hf.task()
    async def blocked(n: int) -> None:
        runs.append(n)
        raise Dead("refused", block="example.org")

    @hf.task()
    async def other() -> None: ...

    caller.execute("insert into blocks values ('example.org', 'r', 1, now(), now(), gen_random_uuid())")
    await blocked.aenqueue_many([(n,) for n in range(60)])
    async with working(hf, concurrency=60):
        await until(lambda: len(runs) == 60)
        async with asyncio.timeout(5):
            for _ in range(3):
                assert (await ended(hf, (await other.aenqueue()).id)).status is Status.SUCCEEDED
        assert sql("select count(*) from dead") == [(0,)]
        caller.commit()
        await until(lambda: sql("select count(*) from dead") == [(60,)])
    assert sql("select count from blocks") == [(61,)]
    assert sql("select count(*) from claims") == [(0,)]


async def test_a_job_whose_end_cannot_be_stored_keeps_its_claim_when_other_jobs_have_ended(
    hf: Holdfast, sql: Sql
) -> None:
    """Its lease runs out then. A running job without a claim is found by chance, in a large table after hours."""
    go_on = asyncio.Event()

    @hf.task()
    async def counts(n: int) -> int:
        if n:
            await go_on.wait()
        return n

    sql("""create function public.refuse() returns trigger language plpgsql as $$
        begin if old.payload ->> 'n' = '0' then raise check_violation using constraint = 'refused'; end if;
        return old; end $$""")
    sql("create trigger refuses before delete on live for each row execute function public.refuse()")
    try:
        await counts.aenqueue_many([(n,) for n in range(3)])
        async with working(hf, concurrency=3) as under:
            await until(
                lambda: len(under.buffer.running) == 2 and under.finisher.failed + under.finisher.succeeded == 1
            )
            await under.finisher.drained()
            go_on.set()
            await until(lambda: sql("select count(*) from history") == [(2,)])
            await until(lambda: not under.buffer.leases)
            assert sql("select count(*) from live l join claims c on c.token = l.token") == [(1,)]
    finally:
        sql("drop trigger refuses on live; drop function public.refuse")


async def test_a_worker_starts_beside_an_open_change_of_a_schedule_and_registers_its_own_later(
    hf: Holdfast, sql: Sql, caller: psycopg.Connection[Any]
) -> None:
    @hf.task()
    async def nightly() -> None: ...

    nightly.schedule("nightly", "0 3 * * *")
    async with working(hf):
        await until(lambda: sql("select 1 from schedules"))
    caller.execute("select pause_schedule('nightly')")
    hf.registry.schedules.clear()
    nightly.schedule("nightly", "0 4 * * *")  # the code has changed meanwhile
    async with working(hf):
        assert (await ended(hf, (await nightly.aenqueue()).id)).status is Status.SUCCEEDED
        assert sql("select cron, paused from schedules") == [("0 3 * * *", False)]
        caller.commit()
        await until(lambda: sql("select cron, paused from schedules") == [("0 4 * * *", True)])


async def test_a_worker_that_stops_registers_nothing_more(
    hf: Holdfast, sql: Sql, caller: psycopg.Connection[Any]
) -> None:
    go_on = asyncio.Event()

    @hf.task()
    async def slow() -> None:
        await go_on.wait()

    slow.schedule("nightly", "0 3 * * *")
    async with working(hf):
        await until(lambda: sql("select 1 from schedules"))
    caller.execute("select pause_schedule('nightly')")
    hf.registry.schedules.clear()
    slow.schedule("nightly", "0 4 * * *")
    await slow.aenqueue()
    async with working(hf) as under:
        await until(lambda: under.buffer.running)
        under.stop()
        await until(lambda: sql("select stopping from workers") == [(True,)])
        before = sql("select expires_at from leader")
        await until(lambda: sql("select expires_at from leader") != before)
        before = sql("select expires_at from leader")
        await until(lambda: sql("select expires_at from leader") != before)  # a whole round later
        assert sql("select stopping from workers") == [(True,)]
        go_on.set()


async def test_a_worker_that_was_forgotten_after_an_outage_is_known_and_woken_again(hf: Holdfast, sql: Sql) -> None:
    async with working(hf, poll=0.1) as under:
        await until(lambda: sql("select 1 from workers, sleepers"))
        sql("update workers set heartbeat_at = clock() - interval '2 hours'")
        sql("select prune()")
        await until(lambda: sql("select id from workers") == [(under.id,)])
        await until(lambda: sql("select distinct worker from sleepers") == [(under.id,)])


async def test_a_worker_that_does_not_listen_is_not_among_the_sleepers(hf: Holdfast, sql: Sql) -> None:
    @hf.task()
    async def quick() -> None: ...

    async with working(hf, notify=False, poll=0.05):
        assert (await ended(hf, (await quick.aenqueue()).id)).status is Status.SUCCEEDED
        await until(lambda: sql("select 1 from leader"))
        assert sql("select count(*) from sleepers") == [(0,)]


def test_workers_killed_in_their_sleep_are_no_sleepers_any_more(dsn: str, sql: Sql, tmp_path: Path) -> None:
    """Not after five minutes: with the next round of the leader, or of another worker where the leader is dead."""
    with worker(dsn, tmp_path) as killed, worker(dsn, tmp_path) as alive:
        wait_until(lambda: sql("select count(distinct worker) from sleepers") == [(2,)])
        killed.kill()
        alone = [(alive.popen.pid,)]
        asleep = "select distinct pid from workers w join sleepers s on s.worker = w.id"
        wait_until(lambda: sql(asleep) == alone)


@pytest.mark.parametrize("conflicts", [3, 1000])
async def test_a_call_that_meets_conflicts_is_repeated_with_pauses_and_not_for_ever(
    hf: Holdfast, sql: Sql, conflicts: int
) -> None:
    sql("""create function public.conflict(p_times bigint) returns bigint language plpgsql as $$
        declare n bigint := nextval('public.conflicts');
        begin if n <= p_times then raise serialization_failure; end if; return n; end $$""")
    sql("create sequence public.conflicts")
    session = Session(hf.settings, "test")
    call = Call("select public.conflict(%s)", (conflicts,), lambda rows: rows[0][0])
    try:
        if conflicts > 3:
            with pytest.raises(DatabaseUnavailable, match="a conflict with other transactions 7 times"):
                await session.run(call)
            assert sql("select last_value from public.conflicts") == [(7,)]
        else:
            assert await session.run(call) == 4
    finally:
        await session.close()
        sql("drop function public.conflict; drop sequence public.conflicts")
