"""Snapshots: what pages show is counted beforehand, at a cost that does not grow with the tables."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sql.test_counts import add_wide, flush, pages_read
from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - a fixture
from tests.support.sql_core import Sql


def figures(sql: Sql) -> dict[str, Any]:
    """Take a snapshot and return it."""
    sql("select take_snapshot('0 s')")
    return sql("select figures()")[0][0]


def queues(sql: Sql) -> dict[str, dict[str, Any]]:
    return {each["queue"]: each for each in figures(sql)["queues"]}


def levels(sql: Sql) -> dict[str, str]:
    return {metric: level for metric, level in sql("select metric, level from health_levels") if level is not None}


def end(sql: Sql, *, error: bool = False) -> None:
    """Claim one job and end it."""
    job = core.claim_one(sql)
    if error:
        core.fail(sql, job, outcome="failed")
    else:
        core.finish(sql, job)


def test_a_snapshot_has_the_jobs_of_each_queue_task_and_tenant(each_sql: Sql) -> None:
    sql = each_sql
    for _ in range(2):
        core.put(sql, queue="a", tenant="acme")
    core.put(sql, queue="b", delay="1 h")
    core.claim(sql, queues=["a"], limit=1)
    found = figures(sql)
    by_queue = {each["queue"]: each for each in found["queues"]}
    assert (by_queue["a"]["ready"], by_queue["a"]["running"], by_queue["b"]["later"]) == (1, 1, 1)
    (task,) = found["tasks"]
    assert (task["ready"], task["running"], task["later"], task["estimated"]) == (1, 1, 1, [])
    (tenant,) = found["tenants"]
    assert (tenant["tenant"], tenant["ready"], tenant["running"], tenant["share"]) == ("acme", 1, 1, 1.0)
    assert found["age"] < 5


def test_attempts_are_counted_by_queue_with_their_waits(sql: Sql, clock: Clock) -> None:
    for seconds in (0, 1, 8):
        core.put(sql)
        clock.advance(seconds)
        end(sql, error=seconds == 8)
    queue = queues(sql)["default"]
    assert (queue["ended"], queue["failed"], queue["lost"]) == (3, 1, 0)
    assert queue["p50"] == pytest.approx(1.02, rel=0.42) and queue["p99"] == pytest.approx(8.2, rel=0.42)
    clock.advance(121)
    assert queues(sql)["default"]["ended"] == 0, "only the last minute counts"


def test_a_lost_lease_counts_as_lost(sql: Sql, clock: Clock) -> None:
    core.put(sql)
    core.claim(sql)
    clock.advance(3600)
    sql("select reclaim()")
    assert queues(sql)["default"]["lost"] == 1
    assert levels(sql)["leases_lost"] == "warning"


def test_a_released_job_is_no_attempt(sql: Sql) -> None:
    core.put(sql)
    core.release(sql, core.claim_one(sql))
    assert queues(sql)["default"]["ended"] == 0


def test_a_minute_is_stored_once_it_is_over_and_removed_after_two_days(sql: Sql, clock: Clock) -> None:
    clock.set(clock.now.replace(second=50))
    core.put(sql)
    end(sql)
    core.put(sql)
    figures(sql)
    clock.advance(14)  # the minute is over, and late commits are in
    figures(sql)
    figures(sql)
    query = "select queue, ended, failed, ready, p50 is not null from minutes"
    assert sql(query) == [("default", 1, 0, 1, True)]
    clock.advance(timedelta(hours=49).total_seconds())
    sql("select prune()")
    assert sql("select (select count(*) from minutes), (select count(*) from attempt_counts)") == [(0, 0)]


def test_readers_take_the_newest_snapshot_and_old_ones_go(sql: Sql, clock: Clock) -> None:
    assert sql("select take_snapshot()") == [(False,)], "nothing is due"
    assert sql("select take_snapshot()") == [(None,)], "the newest is young enough"
    core.put(sql)
    assert sql("select figures() -> 'queues'") == [([],)]
    clock.advance(6)
    assert sql("select figures() #>> '{queues,0,ready}'") == [("1",)], "nobody took one, so the reader does"
    clock.advance(61)
    figures(sql)
    sql("select prune()")
    assert sql("select count(*) from snapshots") == [(1,)]


def test_the_cost_of_a_snapshot_does_not_grow_with_the_tables(sql: Sql) -> None:
    add_wide(sql, "many", 9000)
    flush(sql)
    read = pages_read(sql, "select take_snapshot('0 s')")
    add_wide(sql, "many", 9000)
    flush(sql)
    more = pages_read(sql, "select take_snapshot('0 s')")
    assert more < read * 1.25, f"{read:,} pages, and {more:,} with twice the jobs"
    found = figures(sql)
    assert abs(found["tasks"][0]["ready"] - 18_000) < 1800 and found["tasks"][0]["estimated"] == ["ready"]
    assert pages_read(sql, "select figures()") < 60, "a reader counts nothing"


@pytest.mark.parametrize(
    ("ready", "ended", "seconds", "target", "wanted"),
    [(0, 0, 0, 60, 0), (1, 0, 0, 60, 1), (600, 10, 10, 60, 11), (600, 10, 10, 6, 101), (0, 120, 240, 60, 4)],
)
def test_wanted_workers_keep_up_and_drain_the_backlog_in_time(
    sql: Sql, ready: int, ended: int, seconds: float, target: float, wanted: int
) -> None:
    queue = f'[{{"queue": "mail", "ready": {ready}, "running": 0, "ended": {ended}, "run_seconds": {seconds}}}]'
    sql("insert into snapshots values (clock(), jsonb_build_object('queues', %s::jsonb))", [queue])
    assert sql("select wanted_workers('mail', %s)", [target]) == [(wanted,)]


def test_wanted_workers_without_a_snapshot_sees_what_waits(sql: Sql) -> None:
    assert sql("select wanted_workers('default')") == [(0,)]
    core.put(sql)
    assert sql("select wanted_workers('default')") == [(1,)]
    with pytest.raises(Exception, match="needs a time above zero, got 0"):
        sql("select wanted_workers('default', 0)")


def test_levels_speak_of_what_hurts_users(sql: Sql, clock: Clock) -> None:
    figures(sql)
    assert levels(sql) == {}
    for _ in range(30):
        core.put(sql)
    figures(sql)
    assert levels(sql) == {"wait_over_target": "good"}
    for _ in range(19):
        end(sql, error=True)
    assert "failing_share" not in levels(sql), "too few to judge"
    end(sql)
    assert levels(sql)["failing_share"] == "critical"
    clock.advance(90)
    figures(sql)
    assert levels(sql)["wait_over_target"] == "warning"
    sql("update settings set value = '{\"default\": 10}' where name = 'wait_targets'")
    assert levels(sql)["wait_over_target"] == "critical"
    sql("update settings set value = '{}' where name = 'wait_targets'")
    sql("select pause('queue:default')")
    assert "wait_over_target" not in levels(sql), "it is paused on purpose"


def test_a_late_upkeep_is_critical_while_there_are_workers(sql: Sql, clock: Clock) -> None:
    sql("select take_lead('upkeep', 'w', '6 s')")
    clock.advance(90)
    assert "upkeep_late" not in levels(sql), "no worker: nothing is expected"
    sql("select register_worker('w', 'h', 1, '1', '{default}', 1, '[]')")
    assert levels(sql)["upkeep_late"] == "critical"
    sql("select upkeep('w', '6 s')")
    assert levels(sql)["upkeep_late"] == "good"


def test_a_refused_result_is_no_attempt(sql: Sql) -> None:
    core.put(sql)
    core.finish(sql, core.claim_one(sql)._replace(token=1))
    assert sql("select count(*) from attempt_counts") == [(0,)], "a refused result counts nothing"


def test_an_open_transaction_that_stored_the_minute_holds_up_no_snapshot(dsn: str, sql: Sql) -> None:
    sql("insert into attempt_counts select date_trunc('minute', clock() - interval '63 s'), 'q', 't', 1, 1, 1, 0, 0, 1")
    with core.session(dsn, autocommit=False) as conn:
        conn.execute("select take_snapshot('0 s')")
        assert conn.execute("select count(*) from minutes").fetchone() == (1,)
        sql("set lock_timeout = '5 s'")
        assert sql("select take_snapshot('0 s') is not null") == [(True,)]
