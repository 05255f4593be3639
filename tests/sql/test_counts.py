"""The cost of counting: the same however large the tables are, also behind a transaction that stays open."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.support import sql_core as core
from tests.support.sql_core import Sql

WIDE = "json_build_object('x', repeat('x', 1700))"  # two such jobs fill a page of live


def flush(sql: Sql) -> None:
    """Make the server's counters say what this session has done so far."""
    sql("select pg_stat_force_next_flush()")
    sql("select 1")
    sql("select pg_stat_clear_snapshot()")


def pages_read(sql: Sql, statement: str) -> int:
    """Return how many pages a statement visits, in memory or not, on its second run."""
    sql(statement)
    ((plan,),) = sql(f"explain (analyze, buffers, costs off, timing off, summary off, format json) {statement}")
    plan = plan[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def entries_read(sql: Sql, table: str) -> int:
    """Return how many entries of a table's indexes have been read so far."""
    flush(sql)
    ((read,),) = sql("select sum(idx_tup_read)::bigint from pg_stat_user_indexes where relname = %s", [table])
    return int(read)


def add_wide(sql: Sql, queue: str, number: int) -> None:
    sql(
        f"insert into live (id, task, queue, payload) select uuid7(), 't', %s, {WIDE} from generate_series(1, %s)",
        [queue, number],
    )


def drained_before(sql: Sql) -> None:
    """Leave statistics of a moment when all rows of live were dead: many pages, no row."""
    add_wide(sql, "many", 200)
    sql("delete from live")
    sql("analyze live")
    assert sql("select relpages > 50, reltuples from pg_class where oid = 'live'::regclass") == [(True, 0.0)]


def depths(sql: Sql) -> dict[str, Any]:
    names = "ready, running, later, dead, estimated"
    return {row[0]: row[1:] for row in sql(f"select queue, {names} from queue_depth")}


@pytest.fixture
def pinned(dsn: str, sql: Sql) -> Iterator[None]:
    """60,000 jobs that were done while a transaction was open: none of their rows can be removed."""
    sql("insert into live (id, task) select uuid7(), 't' from generate_series(1, 60000)")
    with psycopg.connect(dsn) as other:
        other.execute("set transaction isolation level repeatable read")
        other.execute("select 1 from holdfast.live limit 1")
        sql("delete from live")
        flush(sql)
        yield


def test_small_tables_are_counted_and_nothing_is_estimated(each_sql: Sql) -> None:
    core.put(each_sql, queue="a")
    core.claim(each_sql, queues=["a"])
    core.put(each_sql, queue="a")
    core.put(each_sql, queue="b", delay="1 h")
    assert depths(each_sql) == {"a": (1, 1, 0, 0, []), "b": (0, 0, 1, 0, [])}


def test_of_large_tables_a_part_is_read_and_small_queues_are_still_exact(each_sql: Sql) -> None:
    sql = each_sql
    core.put(sql, queue="few")
    add_wide(sql, "many", 9000)
    core.claim(sql, queues=["many"], limit=7)
    add_wide(sql, "others", 3000)
    sql(
        "insert into dead (id, status, finished_at, queue, priority, lane, run_at, created_at, attempt, max_attempts, "
        f"task, payload) select uuid7(), 'dead', now(), 'many', 2, 0, now(), now(), 1, 1, 't', {WIDE} "
        "from generate_series(1, 10000)"
    )
    sql(
        "update live set run_at = now() - interval '1 h' where id = "
        "(select id from live where queue = 'many' and token is null order by id limit 1)"
    )
    flush(sql)
    found = depths(sql)
    assert found["few"] == (1, 0, 0, 0, ["dead"])
    ready, running, later, dead, estimated = found["many"]
    assert abs(ready - 8993) < 900 and running == 7 and later == 0 and abs(dead - 10000) < 1000
    assert estimated == ["ready", "dead", "oldest_wait"]
    assert abs(found["others"][0] - 3000) < 300
    ((oldest,),) = sql("select extract(epoch from oldest_wait) from queue_depth where queue = 'many'")
    assert oldest >= 3600, "the job that has waited for longest is found in a large table too"
    ((pages,),) = sql("select (pg_relation_size('live') + pg_relation_size('dead')) / 8192")
    read = pages_read(sql, "select * from queue_depth")
    add_wide(sql, "many", 9000)
    flush(sql)
    more = pages_read(sql, "select * from queue_depth")
    assert more < read * 1.25, f"{read:,} of {pages:,} pages were read, and {more:,} once there were 4,500 more"


@pytest.mark.parametrize(
    "counted",
    ["sample_jobs('live')", "sample_names('live')", "count_waiting('{many}')", "queue_depth", "take_snapshot('0 s')"],
)
def test_a_part_is_read_too_after_the_statistics_found_no_job(each_sql: Sql, counted: str) -> None:
    drained_before(each_sql)
    add_wide(each_sql, "many", 30_000)
    add_wide(each_sql, "few", 5)
    read = pages_read(each_sql, f"select * from {counted}")
    assert read < 15_000, f"{read:,} of 15,000 pages"


def test_waiting_jobs_are_counted_past_the_rows_that_an_open_transaction_keeps(sql: Sql, pinned: None) -> None:
    for _ in range(3):
        core.put(sql)
    core.put(sql, queue="other")
    assert sql("select count_waiting('{default}'), count_waiting('{default,other}')") == [(3, 4)]
    assert depths(sql)["default"][0] == 3
    read = pages_read(sql, "select count_waiting('{default}')")
    assert read < 3000, f"{read:,} pages were read behind 60,000 dead rows"


def test_a_long_queue_is_estimated_for_the_given_queues(sql: Sql) -> None:
    for queue in ("a", "b"):
        sql("insert into live (id, task, queue) select uuid7(), 't', %s from generate_series(1, 12000)", [queue])
    assert sql("select count_waiting('{a}'), count_waiting('{a,b}'), count_waiting('{c}')") == [(12000, 24000, 0)]


def test_a_held_dedupe_key_is_found_past_its_earlier_uses(dsn: str, sql: Sql) -> None:
    """As of a debounced task: one key, used again and again while a transaction is open elsewhere."""
    with psycopg.connect(dsn) as other:
        other.execute("set transaction isolation level repeatable read")
        other.execute("select 1 from holdfast.dedupe limit 1")
        sql("set synchronous_commit = off")
        sql(
            "do $$ begin for n in 1..2000 loop insert into dedupe (key, id, scope) "
            "values ('hot', gen_random_uuid(), 'running'); delete from dedupe; commit; end loop; end $$"
        )
        held = core.put(sql, dedupe_key="hot")
        before = entries_read(sql, "dedupe")
        assert core.enqueue(sql, dedupe_key="hot") == (held, "existing")
        read = entries_read(sql, "dedupe") - before
        assert read < 20, f"{read:,} entries were read to find a key that was used 2,000 times"


# -- upkeep


@pytest.fixture
def slow_later(sql: Sql) -> Iterator[None]:
    """A later table on which a look takes 30 ms, as behind many dead rows."""
    sql("create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.03); return null; end'")
    sql("create trigger slow before delete on later execute function slow()")
    yield
    sql("drop trigger slow on later")
    sql("drop function slow()")


def due_since(sql: Sql, ago: str) -> uuid.UUID:
    id_ = core.put(sql, delay="1 h")
    sql("update later set run_at = clock() - %s::interval where id = %s", [ago, id_])
    return id_


def test_a_slow_scan_of_delayed_jobs_is_rare_and_new_ones_are_found_between(sql: Sql, slow_later: None) -> None:
    first = due_since(sql, "1 h")
    assert sql("select promoted from upkeep('w', '6 s')") == [(1,)]
    assert core.status(sql, first) == "queued"
    assert sql("select look_again_at > clock() + interval '1 s' from leader") == [(True,)], "50 times 30 ms"
    old, new = due_since(sql, "1 h"), due_since(sql, "1 s")
    assert sql("select promoted from upkeep('w', '6 s')") == [(1,)]
    assert core.firsts(sql("select id from later")) == [old]
    assert sql("select id from live where id = %s", [new]) == [(new,)]
    sql("update leader set look_again_at = clock()")
    assert sql("select promoted from upkeep('w', '6 s')") == [(1,)]


def test_a_quick_scan_of_delayed_jobs_runs_every_round(sql: Sql) -> None:
    for _ in range(2):
        due_since(sql, "1 h")
        assert sql("select promoted from upkeep('w', '6 s')") == [(1,)]


def begun(sql: Sql, number: int) -> list[uuid.UUID]:
    """Return closed batches whose only job has ended, and that are not ended yet, in the order of their ids."""
    sql(
        "insert into batches (id, name, open, created_at) select uuid7(), 'b', false, clock() "
        "from generate_series(1, %s)",
        [number],
    )
    sql("insert into batch_counts (batch, backend, added, succeeded) select id, 1, 1, 1 from batches")
    return core.firsts(sql("select id from batches order by id"))


def test_the_leader_looks_at_some_batches_in_each_round_and_comes_to_all(sql: Sql) -> None:
    ids = begun(sql, 450)
    sql("select take_lead('upkeep', 'w', '6 s')")
    ended = "select count(*) from batches where finished_at is not null"
    sql("update batch_counts set succeeded = 0 where batch = %s", [ids[0]])
    for total in (199, 399, 449):
        sql("select walk_batches('0 s')")
        assert sql(ended) == [(total,)]
    sql("update batch_counts set succeeded = 1")
    sql("select walk_batches('0 s')")
    assert sql(ended) == [(450,)], "it starts over after the last"


def test_one_batchs_end_reads_no_other_batch(sql: Sql) -> None:
    ids = begun(sql, 2000)
    sql("update batch_counts set succeeded = 0")
    sql("set plan_cache_mode = force_generic_plan")  # as after some calls on a worker's connection
    before = entries_read(sql, "batches")
    sql("select complete_batches(%s)", [[ids[700]]])
    read = entries_read(sql, "batches") - before
    assert read < 20, f"{read:,} entries were read to look at one of 2,000 batches"


def test_the_default_partition_is_emptied_in_steps(sql: Sql) -> None:
    sql(
        "insert into history_default (id, status, priority, attempt, max_attempts, run_at, created_at, finished_at, "
        "queue, task, payload) select uuid7(), 'succeeded', 2, 1, 1, t, t, t, 'default', 't', '{}' "
        "from generate_series(1, 250), (select now() - interval '90 days') old(t)"
    )
    for removed, left in ((100, 150), (100, 50), (50, 0)):
        assert sql("select rows_removed from prune(100)") == [(removed,)]
        assert core.count(sql, "history_default") == left
