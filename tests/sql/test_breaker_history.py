"""What is kept of breakers: when they opened and closed, after how many failures, for how long, and by whom."""

from __future__ import annotations

from typing import Any

from tests.support import flow
from tests.support import sql_core as core
from tests.support.sql_core import Sql

KEY = "site:bad"


def events(sql: Sql, columns: str = "event, failures") -> list[tuple[Any, ...]]:
    return sql(f"select {columns} from breaker_events where key = %s order by id", [KEY])


def run(sql: Sql, *ends: str) -> None:
    """Run one job after the other to these ends, and let a claim fold them."""
    for end in ends:
        flow.put(sql, keys=[KEY], max_attempts=1)
        (job,) = flow.claim_on(sql)
        (core.finish if end == "good" else core.fail)(sql, job)
        flow.claim_on(sql)


def pass_pause(sql: Sql) -> None:
    past = "clock() - interval '1 s'"
    sql(f"update limits set open_until = {past}, opens_at = {past} where open_until is not null")


def test_successes_with_a_closed_breaker_write_nothing(sql: Sql) -> None:
    flow.limit(sql, KEY, breaker_after=2, breaker_pause=10)
    run(sql, "good", "bad", "good", "bad", "good")
    assert events(sql) == []


def test_a_breaker_that_opens_is_probed_and_closes_is_kept(each_sql: Sql) -> None:
    flow.limit(each_sql, KEY, breaker_after=2, breaker_pause=10)
    run(each_sql, "bad", "bad")
    assert events(each_sql) == [("opened", 2)]
    pass_pause(each_sql)
    run(each_sql, "bad")
    pass_pause(each_sql)
    run(each_sql, "good")
    assert events(each_sql) == [("opened", 2), ("reopened", 3), ("closed", 3)]
    assert events(each_sql, "open_until > at, by") == [(True, None), (True, None), (None, None)]


def test_a_breaker_that_an_operator_closes_is_kept_with_who_and_why(sql: Sql) -> None:
    flow.limit(sql, KEY, breaker_after=2, breaker_pause=10)
    run(sql, "bad", "bad")
    assert sql("select reset_breaker(%s, 'ada', 'their server is back')", [KEY]) == [(True,)]
    run(sql, "good")
    assert events(sql, "event, failures, by, reason") == [
        ("opened", 2, None, None),
        ("reset", 2, "ada", "their server is back"),
    ]
    run(sql, "bad", "bad")
    assert [each for each, _ in events(sql)] == ["opened", "reset", "opened"]


def test_an_open_reset_holds_up_no_claim_that_records_what_a_breaker_does(dsn: str, sql: Sql) -> None:
    flow.limit(sql, KEY, breaker_after=2, breaker_pause=10)
    for _ in range(50):
        sql("select record_breakers(array[(%s, 'opened', 1, clock())::breaker_change])", [KEY])
    run(sql, "bad", "bad")
    pass_pause(sql)
    with core.session(dsn, autocommit=False) as operator:
        operator.execute("select reset_breaker(%s)", [KEY])  # which removes the oldest event, too
        sql("set lock_timeout = '1s'")
        run(sql, "good")
        assert events(sql)[-1] == ("closed", 2)
        operator.commit()


def test_a_reset_of_a_closed_breaker_is_not_kept(sql: Sql) -> None:
    flow.limit(sql, KEY, breaker_after=2, breaker_pause=10)
    run(sql, "bad")
    sql("select reset_breaker(%s)", [KEY])
    assert events(sql) == []


def test_the_last_50_events_of_a_key_are_kept_and_others_keep_theirs(sql: Sql) -> None:
    change = "array[(%s, 'opened', 1, clock())::breaker_change]"
    sql(f"select record_breakers({change})", ["site:other"])
    for _ in range(53):
        sql(f"select record_breakers({change})", [KEY])
    assert [len(events(sql)), core.count(sql, "breaker_events")] == [50, 51]


def test_events_are_kept_for_30_days(sql: Sql) -> None:
    sql("select record_breakers(array[(%s, 'opened', 1, clock())::breaker_change])", [KEY])
    sql("update breaker_events set at = clock() - interval '29 days'")
    sql("select prune()")
    assert len(events(sql)) == 1
    sql("update breaker_events set at = clock() - interval '31 days'")
    sql("select prune()")
    assert events(sql) == []
