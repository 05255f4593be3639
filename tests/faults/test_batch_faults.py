"""Batches while workers are killed and connections are cut: the counters are exact, and the callback runs once."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from test_database_loss import CuttingProxy

from holdfast import CONTEXT, BatchInfo, Cancel, Context, Fail, Holdfast, Retry
from holdfast.worker import Worker
from tests.conftest import wait_until
from tests.support.running import until
from tests.support.workers import fleet

Sql = Callable[..., list[tuple[Any, ...]]]
QUICK = {"lease": 2.0, "renew": 0.3, "upkeep": 0.2, "poll": 0.1}


@pytest.fixture
def ledger(dsn: str) -> Iterator[Callable[[], int]]:
    """Create the application's table and return a function that counts its rows."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create table if not exists public.ledger (job uuid not null, attempt int not null)")
        yield lambda: conn.execute("select count(*) from public.ledger").fetchone()[0]
        conn.execute("drop table public.ledger")


def check_counts(sql: Sql, info: BatchInfo, total: int) -> None:
    """Check that the counts match the jobs."""
    there = Counter(dict(sql("select status::text, count(*) from jobs where batch = %s group by 1", [info.id])))
    assert sum(there.values()) == total == info.total == info.processed, "jobs were lost, or counted twice"
    assert (info.succeeded, info.failed, info.canceled) == (
        there["succeeded"],
        there["failed"] + there["dead"],
        there["canceled"],
    ), f"counted {info}, found {there}"


@pytest.mark.timeout(240)
def test_two_thousand_jobs_are_counted_exactly_while_their_workers_are_killed(
    hf: Holdfast, dsn: str, sql: Sql, tmp_path: Path, ledger: Any, seeded: random.Random
) -> None:
    def stub(n: int) -> None: ...
    def done(batch: str) -> None: ...

    row = hf.task(name="row", retry=Retry.fixed(0.05, max_attempts=4))(stub)
    callback = hf.task(name="batch_done", retry=Retry.fixed(0, max_attempts=1000))(done)
    with hf.batch("import", on_done=callback) as batch:
        ids = row.using(batch=batch).enqueue_many(range(1500)).ids
        row.using(batch=batch, delay=0.5).enqueue_many(range(1500, 1900))
        row.using(batch=batch, delay=3600).enqueue_many([0] * 50)
        never = row.using(batch=batch, delay=0.5, deadline=0.7).enqueue_many([0] * 50).ids
    later = [str(i) for (i,) in sql("select id from later where run_at > now() + interval '1 minute'")]
    with fleet(dsn, tmp_path, 3, seeded, app="ledger", concurrency=8, **QUICK) as killed:
        wait_until(lambda: sql("select 1 from history limit 1"), 60)
        outcomes = hf.jobs.cancel(*later, *seeded.sample(ids, 200))
        killed.rage(7, (0.05, 0.4), lambda: batch.info().ended)
        info = batch.join(90)
        wait_until(lambda: sql("select 1 from history where task = 'batch_done'"))
    print(f"{killed.kills} workers killed, {Counter(outcomes.values())}")
    assert {outcomes[i] for i in later} == {"canceled"}
    check_counts(sql, info, 2000)
    assert sql("select task, status::text from jobs where batch is null") == [("batch_done", "succeeded")]
    assert ledger() == 1
    assert sql("select count(*) from jobs where attempts > 1 and last_error ->> 'code' = 'LEASE_LOST'")[0][0] > 3
    assert len(never) == 50


@pytest.fixture
def through(dsn: str, request: pytest.FixtureRequest) -> Iterator[tuple[Holdfast, CuttingProxy]]:
    """An application whose connections of one kind can be cut."""
    host = psycopg.conninfo.conninfo_to_dict(dsn)["host"]
    with tempfile.TemporaryDirectory(prefix="hf") as folder:
        proxy = CuttingProxy(f"{host}/.s.PGSQL.5432", Path(folder), request.param)
        hf = Holdfast(psycopg.conninfo.make_conninfo(dsn, host=folder))
        yield hf, proxy
        hf.close()
        proxy.close()


async def cut_until_over(hf: Holdfast, proxy: CuttingProxy, over: Callable[[], bool]) -> None:
    """Work while the connection is cut again and again, each time just before a reply."""
    worker = Worker(hf, concurrency=8, poll=0.1, upkeep=0.2)
    running = asyncio.create_task(worker.run())
    try:
        await until(lambda: asyncio.to_thread(over), 80)
    finally:
        proxy.keep_cutting(None)
        worker.stop()
        await running
        await hf.aclose()


@pytest.mark.parametrize("through", [" finish"], indirect=True)
async def test_a_finish_whose_reply_was_lost_is_counted_once(
    through: tuple[Holdfast, CuttingProxy], hf: Holdfast, sql: Sql, seeded: random.Random
) -> None:
    app, proxy = through
    proxy.keep_cutting(lambda: seeded.randint(5, 25))

    @app.task(name="row", retry=Retry.fixed(0, max_attempts=3))
    async def row(n: int, *, ctx: Context = CONTEXT) -> int | None:
        await asyncio.sleep(0.02)
        if n % 7 == 1:
            raise Fail("bad")
        if n % 7 == 2:
            raise Cancel("no")
        if n % 7 == 3 and ctx.attempt == 1:
            raise ValueError("again")
        return n if n % 2 else None

    @app.task(name="done", queue="callbacks")
    async def done(batch: str) -> None: ...

    with hf.batch("import", on_done=hf.task(name="done", queue="callbacks")(done.handler)) as batch:
        row.using(batch=batch.id).enqueue_many(range(800))
    await cut_until_over(app, proxy, lambda: batch.info().ended)
    print(f"{proxy.cuts} cuts")
    assert proxy.cuts >= 5
    info = batch.info()
    check_counts(sql, info, 800)
    assert (info.failed, info.canceled) == (115, 114)
    assert sql("select count(*) from live where task = 'done'") == [(1,)]


@pytest.mark.parametrize("through", [" transaction"], indirect=True)
async def test_a_commit_whose_reply_was_lost_leaves_one_row_and_one_success(
    through: tuple[Holdfast, CuttingProxy], hf: Holdfast, sql: Sql, ledger: Any, seeded: random.Random
) -> None:
    """The handler sees an error and cannot know; the database does."""
    app, proxy = through
    proxy.keep_cutting(lambda: seeded.randint(100, 300))

    @app.task(name="row", retry=Retry.fixed(0, max_attempts=1000))
    async def row(n: int, *, ctx: Context = CONTEXT) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into public.ledger values (%s, %s)", [ctx.job_id, ctx.attempt])
            await asyncio.sleep(0.005)

    with hf.batch("import") as batch:
        row.using(batch=batch.id).enqueue_many(range(900))
    await cut_until_over(app, proxy, lambda: batch.info().ended)
    print(f"{proxy.cuts} cuts")
    assert proxy.cuts >= 5
    check_counts(sql, batch.info(), 900)
    assert batch.info().succeeded == 900
    assert ledger() == 900
    assert sql(
        "select count(distinct job) from public.ledger l join jobs j on j.id = l.job and j.attempts = l.attempt"
    ) == [(900,)]


@pytest.mark.parametrize("through", [" client"], indirect=True)
def test_jobs_added_by_calls_whose_replies_were_lost_are_counted_once(
    through: tuple[Holdfast, CuttingProxy], hf: Holdfast, sql: Sql, seeded: random.Random
) -> None:
    """The cut falls anywhere: before the COPY, in it, before its commit or after; or on the opening and the closing."""
    app, proxy = through

    def stub(n: int) -> None: ...

    task = app.task(name="row")(stub)
    task.enqueue(0)
    # So seldom that the three tries of one call are never all cut; replies to the pool's own checks count too.
    proxy.keep_cutting(lambda: seeded.randint(40, 80))
    batches = []
    for _ in range(40):
        with app.batch("import") as batch:
            ids = task.using(batch=batch).enqueue_many(range(200)).ids
            ids += task.using(batch=batch, delay=60).enqueue_many(range(20)).ids
            ids += [task.using(batch=batch).enqueue(n).id for n in range(5)]
        batches.append((batch.id, ids))
    print(f"{proxy.cuts} cuts")
    assert proxy.cuts >= 8
    for id_, ids in batches:
        assert sorted(ids) == [str(i) for (i,) in sql("select id from jobs where batch = %s order by 1", [id_])]
        info = hf.batches.get(id_)
        assert (info.total, info.processed, info.open) == (225, 0, False)
