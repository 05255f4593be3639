"""The fast path: hot calls are prepared statements, whatever happens to these."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.errors import UsageError
from holdfast.store.call import Call
from holdfast.store.wire.connection_sync import Connection
from holdfast.store.wire.opener import Opener
from holdfast.store.wire.statements_sync import run_on


def hot(sql: str, *params: Any) -> Call[Any]:
    return Call(sql, params, lambda rows: rows, hot=True)


@pytest.fixture
def conn(hf: Holdfast) -> Any:
    """A connection with the settings of our own."""
    opener = Opener(hf.settings, "test")
    with Connection.connect(opener.conninfo(), **opener.kwargs()) as found:
        yield found


def test_values_and_columns_have_their_types(conn: Any) -> None:
    sql = "SELECT %s::text, %s::int, %s::float8, %s::boolean, %s::boolean, %s::text, array['a', null], now() > 'epoch'"
    (row,) = run_on(conn, hot(sql, 'a "b" \\ %s {é}', -5, 1e-7, True, False, None))
    assert row == ('a "b" \\ %s {é}', -5, 1e-7, True, False, None, ["a", None], True)
    assert run_on(conn, hot("SELECT 1 WHERE %s", False)) == []


def test_a_statement_is_prepared_once_for_each_connection(conn: Any) -> None:
    for n in range(3):
        assert run_on(conn, hot("SELECT %s::int + 1", n)) == [(n + 1,)]
    assert len(conn.prepared) == 1
    found = conn.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'holdfast%'").fetchone()
    assert found == (1,)


def test_a_statement_that_was_deallocated_is_prepared_again(conn: Any) -> None:
    call = hot("SELECT %s::int", 1)
    assert run_on(conn, call) == [(1,)]
    with pytest.raises(ZeroDivisionError), conn.transaction():
        _ = 1 / 0  # after the ROLLBACK psycopg deallocates all statements
    assert run_on(conn, call) == [(1,)]
    conn.execute("DISCARD ALL")
    assert run_on(conn, call) == [(1,)]


def test_inside_a_transaction_a_call_needs_no_prepared_statement(conn: Any) -> None:
    call = hot("SELECT %s::int", 1)
    assert run_on(conn, call) == [(1,)]
    conn.execute("DEALLOCATE ALL")
    with conn.transaction():
        assert run_on(conn, call) == [(1,)]


def test_errors_are_those_of_psycopg(conn: Any) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero"):
        run_on(conn, hot("SELECT 1 / %s::int", 0))
    with pytest.raises(psycopg.errors.UndefinedTable) as caught:
        run_on(conn, hot("SELECT %s::int FROM missing", 0))
    assert caught.value.diag.message_primary == 'relation "missing" does not exist'
    assert run_on(conn, hot("SELECT %s::int", 1)) == [(1,)]


def test_an_enqueue_that_the_database_refuses_names_the_domain(hf: Holdfast) -> None:
    @hf.task()
    def plain(n: int) -> None: ...

    job = plain.new_job((1,), {})
    job.queue = "a/b"
    with pytest.raises(UsageError, match="queue_name"):
        plain.enqueue_job(job)
    assert plain.enqueue(1).outcome == "created"


def test_after_a_migration_a_stale_plan_is_made_again(hf: Holdfast, sql: Any) -> None:
    call, pool = hot(f"SELECT * FROM {hf.settings.schema}.probe"), hf.database.sync_pool
    sql("CREATE TABLE probe AS SELECT 1 AS a")
    try:
        assert pool.run(call) == [(1,)]
        sql("ALTER TABLE probe ADD COLUMN b integer DEFAULT 2")
        assert pool.run(call) == [(1, 2)]
    finally:
        sql("DROP TABLE probe")
