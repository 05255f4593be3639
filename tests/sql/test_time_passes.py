"""Time passes inside a transaction: what is done late in one is done then, not when the transaction began."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import psycopg
import pytest

from tests.support import sql_core as core
from tests.support.sql_core import Sql

OPEN_FOR = 0.3  # seconds


@pytest.fixture
def late(each_dsn: str, each_sql: Sql) -> Iterator[psycopg.Connection]:
    """A session whose transaction has been open for a while."""
    with core.session(each_dsn, autocommit=False) as conn:
        conn.execute("select pg_sleep(%s)", [OPEN_FOR])
        yield conn


def behind(conn: psycopg.Connection, query: str) -> float:
    """Return the seconds between the transaction's start and a time that a query returns."""
    row = conn.execute(f"select extract(epoch from ({query}) - now())").fetchone()
    assert row is not None
    return float(row[0])


def test_a_lease_lasts_from_the_claim(late: psycopg.Connection, each_sql: Sql) -> None:
    core.put(each_sql)
    core.claim_one(core.runner(late), ttl=60)
    assert behind(late, "select expires_at from claims") >= OPEN_FOR + 60
    assert behind(late, "select claimed_at from live") >= OPEN_FOR


def test_a_lease_that_is_renewed_lasts_from_the_renewal(late: psycopg.Connection, each_sql: Sql) -> None:
    core.put(each_sql)
    job = core.claim_one(each_sql)
    assert core.renew(core.runner(late), "w", job.token) == [job.token]
    assert behind(late, "select expires_at from claims") >= OPEN_FOR + 60


@pytest.mark.parametrize("outcome", ["plain", "with a result"])
def test_a_job_that_ends_in_its_own_transaction_took_as_long_as_that(
    late: psycopg.Connection, each_sql: Sql, outcome: str
) -> None:
    core.put(each_sql, dedupe_key="k", dedupe_scope="success", dedupe_keep="1 hour")
    job = core.claim_one(each_sql)
    each_sql("update live set claimed_at = clock() - interval '10 seconds', run_at = run_at - interval '10 seconds'")
    run = core.runner(late)
    if outcome == "plain":
        assert core.finish(run, job) == []
    else:
        results = f'[{{"id": "{job.id}", "token": {job.token}, "outcome": "succeeded", "result": 1}}]'
        assert run("select finish('{}', '{}', %s::jsonb)", [results]) == []
    assert behind(late, "select finished_at from history") >= OPEN_FOR
    assert behind(late, "select expires_at from dedupe") >= OPEN_FOR + 3600, "the period begins with the success"
    late.commit()
    assert each_sql("select run_seconds >= 10 from usage_counts") == [(True,)]


def test_a_pause_lasts_from_the_call(late: psycopg.Connection, each_sql: Sql) -> None:
    late.execute("select pause('queue:default', 'me', null, '1 minute')")
    assert behind(late, "select paused_until from limit_settings") >= OPEN_FOR + 60


@pytest.mark.parametrize("how", ["enqueue", "insert"])
def test_a_job_is_due_and_made_when_it_is_enqueued(late: psycopg.Connection, each_sql: Sql, how: str) -> None:
    if how == "enqueue":
        core.put(core.runner(late))
    else:
        late.execute("insert into live (id, task) values (uuid7(), 't')")
    for column in ("run_at", "created_at"):
        assert behind(late, f"select {column} from live") >= OPEN_FOR


def test_a_delay_counts_from_the_call(late: psycopg.Connection, each_sql: Sql) -> None:
    core.put(core.runner(late), delay="1 minute")
    assert behind(late, "select run_at from later") >= OPEN_FOR + 60


def test_a_procedure_that_commits_between_claims_reads_the_time_anew(each_sql: Sql) -> None:
    """A worker written as a procedure: one statement, many transactions."""
    core.put(each_sql)
    each_sql("""do $$ begin
        perform pg_sleep(0.2); commit; perform claim('w', '{default}', 1, '1 minute');
    end $$""")
    ((began, claimed),) = each_sql("select created_at, claimed_at from live")
    assert isinstance(began, datetime)
    assert (claimed - began).total_seconds() >= 0.2


def test_a_query_may_use_an_index_for_the_clock(sql: Sql) -> None:
    """Declared volatile it would be read for every row of the table."""
    sql("set enable_seqscan = off")
    plan = "\n".join(core.firsts(sql("explain select id from later where run_at <= clock() order by run_at limit 1")))
    assert "Index Cond: (run_at <= clock())" in plan, plan
