"""History: what went to the default partition moves when its day gets one, and looking through it stays cheap."""

from __future__ import annotations

import re
from typing import Any

from holdfast import Holdfast
from holdfast.model.job import JobInfo
from holdfast.store.jobs import Filter
from holdfast.store.select import Page
from holdfast.worker import Worker
from tests.support import sql_core as core
from tests.support.running import ended, until, working


def test_rows_in_the_default_partition_move_when_their_day_gets_a_partition(hf: Holdfast, sql: Any) -> None:
    @hf.task()
    async def quick(n: int) -> None: ...

    day = sql("select to_char(now() at time zone 'utc', '\"history_\"YYYYMMDD')")[0][0]
    sql(f"drop table {day}")
    ids = quick.enqueue_many(range(3)).ids
    token = sql("select token from claim('w', '{default}', 3)")[0][0]
    assert sql("select finish(%s::uuid[], %s)", [ids, [token] * 3]) == []
    assert sql("select count(*) from history_default") == [(3,)]
    assert sql("select make_partitions()") == [(1,)]
    assert sql(f"select count(*) from {day}") == [(3,)]
    assert sql("select count(*) from history_default") == [(0,)]
    indexed = f"select count(*) from pg_index where indrelid = '{day}'::regclass"
    everywhere = "select count(*) from pg_index where indrelid = 'history'::regclass"
    assert sql(indexed) == sql(everywhere), "those of history, once each"


async def test_a_job_that_ends_while_todays_partition_is_made_has_succeeded(hf: Holdfast, sql: Any, dsn: str) -> None:
    """Its end waits for the default partition, which takes rows of that day no more once the other is there."""

    @hf.task()
    async def quick() -> None: ...

    drop_partitions(sql)
    job = await quick.aenqueue()
    with core.session(dsn, autocommit=False) as maker:
        maker.execute("select make_partitions()")
        async with working(hf, upkeep=600.0):
            waiting = "select 1 from pg_locks where not granted and relation = 'history_default'::regclass"
            await until(lambda: sql(f"{waiting} and mode = 'RowExclusiveLock'"))
            maker.commit()
            info = await ended(hf, job.id)
    assert (info.status, info.attempts, info.last_error) == ("succeeded", 1, None)
    assert sql("select count(*) from history_default") == [(0,)]


async def test_partitions_are_there_before_a_worker_claims(hf: Holdfast, sql: Any) -> None:
    """After days without a worker there is none for today."""

    @hf.task()
    async def quick(n: int) -> None: ...

    drop_partitions(sql)
    await quick.aenqueue_many(range(3))
    assert partitions(sql) == []
    await Worker(hf).run(until_idle=True)  # one that leaves upkeep to others
    assert sql("select count(*) from history") == [(3,)]
    assert sql("select count(*) from history_default") == [(0,)]
    assert len(partitions(sql)) == 4


async def test_a_worker_starts_although_an_open_transaction_keeps_partitions_from_being_made(
    hf: Holdfast, sql: Any, dsn: str
) -> None:
    @hf.task()
    async def quick() -> None: ...

    drop_partitions(sql)
    with core.session(dsn, autocommit=False) as reader:
        reader.execute("select count(*) from jobs")
        async with working(hf, upkeep=600.0):
            info = await ended(hf, (await quick.aenqueue()).id)
        reader.commit()
    assert info.status == "succeeded"
    sql("select make_partitions()")


def drop_partitions(sql: Any) -> None:
    """Drop partitions, as after more days without a worker than partitions are made ahead."""
    for name in partitions(sql):
        sql(f"drop table {name}")


def partitions(sql: Any) -> list[str]:
    mine = "relnamespace = 'holdfast'::regnamespace"
    return core.firsts(sql(f"select relname from pg_class where relname ~ '^history_[0-9]{{8}}$' and {mine}"))


def test_listing_the_newest_jobs_reads_no_more_than_it_shows(hf: Holdfast, sql: Any) -> None:
    sql("""
        insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, finished_at, queue, task,
                             payload)
        select uuid7(), 'succeeded', 2, 1, 5, now(), now(), now(), 'default', 't', '{}' from generate_series(1, 20000)
    """)
    sql("analyze history")
    call = hf.database.calls.jobs.list(JobInfo, Filter(), Page(limit=20))
    plan = "\n".join(row[0] for row in sql("explain (analyze, costs off, timing off) " + call.sql, call.params))
    assert "Merge Append" in plan, plan
    assert not re.search("Seq Scan on (live|later|dead|history)", plan), plan  # those that are empty here may be read
    assert "rows=20000" not in plan, plan
