"""Usage of ended attempts, counted in the transaction that ends them; exact whatever workers do."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from holdfast import Holdfast
from tests.support import sql_core as core
from tests.support.sql_clock import Clock, clock_fixture  # noqa: F401 - a fixture
from tests.support.sql_core import Sql

DAY = 86_400


def used(sql: Sql) -> dict[tuple[str, str], tuple[int, int]]:
    return {
        (tenant, task): (runs, failures)
        for tenant, task, runs, failures in sql(
            "select tenant, task, sum(runs)::int, sum(failures)::int from usage group by 1, 2"
        )
    }


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [
        ("succeeded", (1, 0)),
        ("error", (1, 1)),
        ("failed", (1, 1)),
        ("dead", (1, 1)),
        ("canceled", (1, 0)),
        ("misspelt", (1, 1)),
        ("snoozed", None),
        ("released", None),
    ],
)
def test_an_attempt_is_a_run_unless_it_is_given_back_or_put_off(
    sql: Sql, outcome: str, counted: tuple[int, int] | None
) -> None:
    core.put(sql, task="t", tenant="acme")
    (job,) = core.claim(sql)
    sql(
        "select finish('{}', '{}', %s::jsonb)",
        [f'[{{"id": "{job.id}", "token": {job.token}, "outcome": "{outcome}"}}]'],
    )
    assert used(sql) == ({} if counted is None else {("acme", "t"): counted})


def test_plain_successes_are_summed_by_tenant_and_task(sql: Sql) -> None:
    for tenant, task in [("a", "x"), ("a", "x"), ("a", "y"), (None, "x")]:
        core.put(sql, task=task, tenant=tenant)
    jobs = core.claim(sql, limit=10)
    sql("select finish(%s, %s)", [[job.id for job in jobs], [job.token for job in jobs]])
    assert used(sql) == {("a", "x"): (2, 0), ("a", "y"): (1, 0), ("", "x"): (1, 0)}


def test_seconds_are_those_from_due_to_claim_and_from_claim_to_end(sql: Sql, clock: Clock) -> None:
    core.put(sql, task="t")
    sql("update live set run_at = clock()")
    clock.advance(7)
    (job,) = core.claim(sql)
    clock.advance(2.5)
    sql("select finish(%s, %s)", [[job.id], [job.token]])
    assert sql("select run_seconds, queue_seconds from usage") == [(2.5, 7.0)]


def test_a_stale_token_counts_nothing(sql: Sql) -> None:
    core.put(sql, task="t")
    (job,) = core.claim(sql)
    assert sql("select finish(%s, %s)", [[job.id], [job.token + 1]]) == [(job.id,)]
    assert sql("select finish(%s, %s)", [[job.id], [job.token]]) == []
    assert len(sql("select finish(%s, %s)", [[job.id], [job.token]])) == 1  # a second time, as after a lost reply
    assert used(sql) == {("", "t"): (1, 0)}


def test_a_rolled_back_attempt_is_not_counted_as_usage(sql: Sql, dsn: str) -> None:
    core.put(sql, task="t")
    (job,) = core.claim(sql)
    with psycopg.connect(dsn, options="-c search_path=holdfast") as conn:
        conn.execute("select finish(%s, %s)", [[job.id], [job.token]])
        conn.rollback()
    assert used(sql) == {}


def test_a_lost_lease_is_a_failed_run(sql: Sql, clock: Clock) -> None:
    core.put(sql, task="t")
    core.claim(sql)
    clock.advance(3600)
    sql("select reclaim()")
    assert used(sql) == {("", "t"): (1, 1)}


def test_a_worker_waits_for_no_other_to_count(sql: Sql, dsn: str) -> None:
    """Two that end jobs of the same tenant and task in the same minute, one of them in a transaction left open."""
    for _ in range(2):
        core.put(sql, task="t")
    first, second = core.claim(sql, limit=2)
    with psycopg.connect(dsn, options="-c search_path=holdfast") as conn:
        conn.execute("select finish(%s, %s)", [[first.id], [first.token]])
        sql("set lock_timeout = '5s'")
        sql("select finish(%s, %s)", [[second.id], [second.token]])
        assert used(sql) == {("", "t"): (1, 0)}
    assert used(sql) == {("", "t"): (2, 0)}


def test_many_connections_at_once_count_every_run_once(sql: Sql, dsn: str) -> None:
    for n in range(200):
        core.put(sql, task=f"t{n % 3}", tenant=f"a{n % 5}")

    def work() -> None:
        with psycopg.connect(dsn, autocommit=True, options="-c search_path=holdfast") as conn:
            while rows := conn.execute("select id, token from claim(%s, p_limit => 7)", [uuid.uuid4().hex]).fetchall():
                rows = [row for row in rows if row[0] is not None]
                if not rows:
                    return
                conn.execute("select finish(%s, %s)", [[row[0] for row in rows], [row[1] for row in rows]])

    threads = [threading.Thread(target=work) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    done = sql("select coalesce(tenant, ''), task, count(*)::int from history group by 1, 2")
    assert used(sql) == {(tenant, task): (number, 0) for tenant, task, number in done}
    assert sum(row[2] for row in done) == 200


@pytest.fixture
def setting(sql: Sql) -> Iterator[Sql]:
    yield sql
    sql("update settings set value = '35' where name = 'usage_retention_days'")


@pytest.mark.parametrize("value", ["0", '"off"', "null", "-1", "-1e300"])
def test_it_can_be_switched_off_and_no_setting_there_keeps_jobs_from_ending(setting: Sql, value: str) -> None:
    setting("update settings set value = %s::jsonb where name = 'usage_retention_days'", [value])
    core.put(setting, task="t")
    core.put(setting, task="t")
    first, second = core.claim(setting, limit=2)
    setting("select finish(%s, %s)", [[first.id], [first.token]])
    core.fail(setting, second, outcome="failed")
    assert used(setting) == {}
    assert setting("select count(*) from live") == [(0,)]
    setting("select prune()")


def test_rows_are_pruned_after_so_many_days(sql: Sql, clock: Clock) -> None:
    core.put(sql, task="t")
    (job,) = core.claim(sql)
    sql("select finish(%s, %s)", [[job.id], [job.token]])
    sql("select record_tick('w', '{q}', 1, 0, 0, 0, 0, 0, 0, '{}')")
    clock.advance(6 * DAY)
    sql("select prune()")
    assert (len(sql("select 1 from usage_counts")), len(sql("select 1 from ticks"))) == (1, 1)
    clock.advance(2 * DAY)
    sql("select prune()")
    assert (len(sql("select 1 from usage_counts")), len(sql("select 1 from ticks"))) == (1, 0)
    clock.advance(28 * DAY)
    sql("select prune()")
    assert sql("select 1 from usage_counts") == []


def put_usage(sql: Sql, ago: str, tenant: str, backend: int) -> None:
    """Count one attempt in each of three minutes of an hour."""
    sql(
        "insert into usage_counts select date_trunc('hour', clock(), 'UTC') - %s::interval + n * interval '1 minute', "
        "%s, 't', %s, 1, 0, 0.5, 0.25 from generate_series(0, 2) n",
        [ago, tenant, backend],
    )


def test_earlier_usage_has_few_rows(sql: Sql, clock: Clock) -> None:
    clock.advance(
        float(sql("select extract(epoch from date_trunc('hour', clock()) + interval '61 min' - clock())")[0][0])
    )
    spans = ("0 minutes", "15 minutes", "60 minutes", "180 minutes", "195 minutes", "9 hours")
    for tenant, backend in (("acme", 1), ("acme", 2), ("", 1)):
        for ago in spans:
            put_usage(sql, ago, tenant, backend)
    before = sql("select sum(runs), sum(run_seconds), sum(queue_seconds) from usage")
    while sql("select rows_removed >= 4 from prune(4)") == [(True,)]:
        pass
    assert sql("select sum(runs), sum(run_seconds), sum(queue_seconds) from usage") == before
    rows = """select count(*) from usage_counts where clock() - minute between %s and %s"""
    assert sql(rows, ["-1 hour", "10 minutes"]) == [(9,)]  # by minute and connection
    assert sql(rows, ["15 minutes", "2 hours"]) == [(4,)]  # by ten minutes: two of them, for two tenants
    assert sql(rows, ["2 hours 10 minutes", "6 hours"]) == [(4,)]  # by hour: two of them
    assert sql(rows, ["8 hours", "1 day"]) == [(9,)]  # pruning does not look back so far


def test_what_is_counted_late_joins_its_hour(sql: Sql) -> None:
    put_usage(sql, "3 hours", "acme", 1)
    sql("select prune()")
    put_usage(sql, "3 hours", "acme", 2)
    sql("select prune()")
    assert sql("select runs, backend from usage_counts") == [(6, 0)]


def test_a_span_of_hours_counts_from_the_beginning_of_its_first_hour(sql: Sql, dsn: str) -> None:
    put_usage(sql, "3 hours", "acme", 1)
    sql("select prune()")
    with Holdfast(dsn) as hf:
        (since,) = sql("select date_trunc('hour', clock(), 'UTC') - interval '2 hours 1 minute'")[0]
        assert [each.runs for each in hf.workers.usage(["tenant"], since=since, limit=9)] == [3]
        assert hf.workers.usage(["tenant"], since=since + timedelta(minutes=2), limit=9) == []


def test_pruning_says_when_there_is_more(sql: Sql) -> None:
    sql(
        "insert into usage_counts select now() - interval '60 days' - n * interval '1 minute', '', 't', 1, 1, 0, 0, 0 "
        "from generate_series(1, 25) n"
    )
    assert sql("select rows_removed from prune(10)") == [(10,)]
    assert sql("select rows_removed from prune(10)") == [(10,)]
    assert sql("select rows_removed from prune(10)") == [(5,)]
