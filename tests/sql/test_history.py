"""History: what went to the default partition moves when its day gets one, and looking through it stays cheap."""

from __future__ import annotations

import re
from typing import Any

from holdfast import Holdfast


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


def test_listing_the_newest_jobs_reads_no_more_than_it_shows(hf: Holdfast, sql: Any) -> None:
    sql("""
        insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, finished_at, queue, task,
                             payload)
        select uuid7(), 'succeeded', 2, 1, 5, now(), now(), now(), 'default', 't', '{}' from generate_series(1, 20000)
    """)
    sql("analyze history")
    call = hf.calls.list_jobs(_everything(), limit=20)
    plan = "\n".join(row[0] for row in sql("explain (analyze, costs off, timing off) " + call.sql, call.params))
    assert "Merge Append" in plan, plan
    assert not re.search("Seq Scan on (live|later|dead|history)", plan), plan  # those that are empty here may be read
    assert "rows=20000" not in plan, plan


def _everything() -> Any:
    from holdfast.store.values import Filter

    return Filter()
