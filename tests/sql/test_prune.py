"""History by the day: partitions made ahead, dropped when their time is over, and nothing else touched."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import pytest

from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture, each_clock_fixture  # noqa: F401 - fixtures
from tests.support.sql_core import Sql

DAY = 86_400


@pytest.mark.parametrize("days", [-10_000, -1, 0, 6, 8, 400, 100_000])
def test_prune_never_touches_live_later_or_dead_whatever_the_clock(each_sql: Sql, each_clock: Clock, days: int) -> None:
    made = core.one_job_in_every_place(each_sql)
    each_clock.advance(days * DAY)
    each_sql("select prune()")
    places = dict(each_sql(f"select id, place from ({core.PLACES}) p"))
    expected = {made["dead"]: "dead", made["running"]: "live", made["live"]: "live", made["later"]: "later"}
    if days <= 7:
        expected[made["history"]] = "history"
    assert places == expected


@pytest.fixture
def partitions(sql: Sql, clock: Clock) -> Iterator[Any]:
    """The days that have a partition of their own, as a function; none at the beginning and none at the end."""

    def days() -> list[date]:
        query = r"""
            select to_date(substring(c.relname from 9), 'YYYYMMDD')
            from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = 'history'::regclass and c.relname ~ '^history_\d{8}$' order by 1"""
        return core.firsts(sql(query))

    def drop() -> None:
        sql("truncate history")
        for day in days():
            sql(f"drop table history_{day:%Y%m%d}")

    drop()
    clock.set(datetime(2031, 3, 1, 12, tzinfo=UTC))
    yield days
    drop()


def test_partitions_are_made_for_today_and_the_days_ahead_once(sql: Sql, clock: Clock, partitions: Any) -> None:
    assert sql("select make_partitions()") == [(4,)]
    assert partitions() == [date(2031, 3, day) for day in (1, 2, 3, 4)]
    assert sql("select make_partitions()") == [(0,)]
    clock.advance(DAY)
    assert sql("select make_partitions()") == [(1,)]
    assert partitions()[-1] == date(2031, 3, 5)


def test_partitions_are_cut_at_midnight_utc_whatever_the_sessions_time_zone(
    sql: Sql, clock: Clock, partitions: Any
) -> None:
    sql("set timezone = 'Pacific/Auckland'")
    sql("select make_partitions()")
    assert partitions()[0] == date(2031, 3, 1)
    for hour, day in ((0, "20310302"), (23, "20310302")):
        clock.set(datetime(2031, 3, 2, hour, 59, tzinfo=UTC))
        id_ = core.put(sql)
        core.finish(sql, core.claim_one(sql))
        assert sql("select tableoid::regclass::text from history where id = %s", [id_]) == [(f"history_{day}",)]


def test_finishing_works_where_no_partition_was_made(sql: Sql, clock: Clock, partitions: Any) -> None:
    assert partitions() == []
    done, canceled = core.put(sql), core.put(sql)
    core.finish(sql, core.claim_one(sql))
    assert core.cancel(sql, canceled) == ["canceled"]
    dead = core.put(sql)
    core.fail(sql, core.claim_one(sql), outcome="dead")
    core.discard_dead(sql, dead)
    assert [core.status(sql, each) for each in (done, canceled, dead)] == ["succeeded", "canceled", "dead"]
    assert sql("select count(*) from history_default") == [(3,)]


def test_partitions_can_still_be_made_when_rows_of_their_day_are_in_the_default_one(
    sql: Sql, clock: Clock, partitions: Any
) -> None:
    """After an outage longer than the days made ahead the first jobs finish before upkeep has made today's partition.
    That must not stop partitions from being made, or every later day's rows land in the default one too."""
    id_ = core.put(sql)
    core.finish(sql, core.claim_one(sql))
    sql("select make_partitions()")
    assert date(2031, 3, 2) in partitions()
    assert core.status(sql, id_) == "succeeded"
    clock.advance(DAY)
    core.put(sql)
    core.finish(sql, core.claim_one(sql))
    assert sql("select count(*) from history_20310302") == [(1,)]


def test_prune_drops_whole_partitions_past_retention_and_only_those(sql: Sql, clock: Clock, partitions: Any) -> None:
    sql("select make_partitions()")
    ids = {}
    for day in (1, 2, 3, 4):
        clock.set(datetime(2031, 3, day, 23, 59, 59, tzinfo=UTC))
        ids[day] = core.put(sql)
        core.finish(sql, core.claim_one(sql))
    clock.set(datetime(2031, 3, 8, 23, 59, tzinfo=UTC))
    assert sql("select partitions_dropped from prune()") == [(0,)]
    clock.set(datetime(2031, 3, 10, tzinfo=UTC))
    assert sql("select partitions_dropped from prune()") == [(2,)]
    assert partitions() == [date(2031, 3, 3), date(2031, 3, 4)]
    assert sorted(core.firsts(sql("select id from history"))) == sorted([ids[3], ids[4]])
    assert sql("select partitions_dropped from prune()") == [(0,)]


def test_prune_removes_old_rows_of_the_default_partition_too(sql: Sql, clock: Clock, partitions: Any) -> None:
    old = core.put(sql)
    core.finish(sql, core.claim_one(sql))
    clock.advance(3 * DAY)
    young = core.put(sql)
    core.finish(sql, core.claim_one(sql))
    clock.advance(5 * DAY)
    sql("select prune()")
    assert core.firsts(sql("select id from history")) == [young]
    assert old != young


def test_retention_is_a_setting(sql: Sql, clock: Clock, partitions: Any) -> None:
    core.put(sql)
    core.finish(sql, core.claim_one(sql))
    clock.advance(20 * DAY)
    sql("update settings set value = '30' where name = 'history_retention_days'")
    try:
        sql("select prune()")
        assert core.count(sql, "history") == 1
    finally:
        sql("update settings set value = '7' where name = 'history_retention_days'")


def test_prune_forgets_silent_workers_and_their_sleep(sql: Sql, clock: Clock) -> None:
    for name in ("silent", "alive"):
        sql("select register_worker(%s, 'h', 1, '1', '{default}', 1, '[]')", [name])
        sql("select sleep(%s, '{default}')", [name])
    clock.advance(301)
    core.renew(sql, "alive")
    sql("select prune()")
    assert sql("select id from workers order by 1") == [("alive",), ("silent",)]
    assert sql("select worker from sleepers") == [("alive",)]
    clock.advance(3300)
    core.renew(sql, "alive")
    sql("select prune()")
    assert sql("select id from workers") == [("alive",)]


def test_prune_gives_up_rather_than_queue_up_before_workers(dsn: str, sql: Sql, clock: Clock, partitions: Any) -> None:
    sql("select make_partitions()")
    clock.advance(30 * DAY)
    with core.session(dsn, autocommit=False) as reader:
        reader.execute("select * from history")
        sql("insert into dedupe values ('k', gen_random_uuid(), 'success', null, clock() - interval '1 hour')")
        assert sql("select partitions_dropped, rows_removed from prune()") == [(0, 1)], "the rest is pruned"
        reader.rollback()
    assert sql("select partitions_dropped from prune()") == [(4,)]
